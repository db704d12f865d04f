"""The tool of every driver: a log of many parts, each of PART_CHARS characters."""

import json
import os

QUESTION = "Read the next parts of the log, number {} of my questions. Is anything unusual?"
TOOL = {
    "name": "read_part",
    "description": "Reads a part of the log.",
    "parameters": {"type": "object", "properties": {"part": {"type": "integer"}}, "required": ["part"]},
}


def read_part(arguments):
    """The text of a part; its number by itself, in an object, or in an object as JSON."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    part = given["part"] if isinstance(given, dict) else given
    line = 0
    text = ""
    while len(text) < int(os.environ["PART_CHARS"]):
        line += 1
        text += f"part {part} line {line}: request {part * 1000 + line} answered after {line % 7} ms\n"
    return text
