"""The tool of every driver: a log of many parts, each of PART_CHARS characters."""

import os


def part_text(part: int) -> str:
    """The text of a part."""
    line = 0
    text = ""
    while len(text) < int(os.environ["PART_CHARS"]):
        line += 1
        text += f"part {part} line {line}: request {part * 1000 + line} answered after {line % 7} ms\n"
    return text
