"""A recorded session with facts that are used again, errors and wishes; and judges that answer in known ways."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession
from foldline.tokens import ESTIMATE

COLOURS = ("amber", "azure", "coral", "ebony", "ivory", "jade", "lilac", "mauve", "ochre", "olive", "pearl", "ruby")
BIRDS = ("crane", "eagle", "finch", "goose", "heron", "raven", "robin", "stork", "swift")
BACK = 12
"""A reply names the limit of so many turns before."""

FILLER = "All of the rows were read, and none of them was out of the ordinary. "


def name_of(turn: int) -> str:
    return f"{COLOURS[turn % len(COLOURS)]} {BIRDS[turn // len(COLOURS) % len(BIRDS)]}"


def limit_of(turn: int) -> str:
    return str(40_000 + 137 * turn)


def messages_of(turns: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful agent."},
        {"role": "user", "content": "Check the limits of all queues."},
    ]
    for turn in range(turns):
        arguments = json.dumps({"path": f"queues/{name_of(turn).replace(' ', '_')}.ini"})
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        words = f"The limit was {limit_of(turn - BACK)}." if turn >= BACK else "I look at the next one."
        lines = [FILLER * 4, f"The limit of the {name_of(turn)} queue is {limit_of(turn)} entries.", FILLER * 4]
        if turn % 3 == 0:
            lines.append(f"ValueError: the {name_of(turn)} queue cannot be opened")
        out.append({"role": "assistant", "content": words, "tool_calls": [call]})
        out.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(lines)})
        if turn % 5 == 4:
            out.append({"role": "assistant", "content": "Done so far."})
            out.append({"role": "user", "content": f"Please look after the {name_of(turn + 1)} queue too."})
    return out


def recording_of(turns: int = 40, name: str = "queues") -> MeasuredSession:
    return MeasuredSession(Session(name=name, dialect="openai-chat", messages=tuple(messages_of(turns))), ESTIMATE)


def write_sessions(folder: Path, turns: int = 40, count: int = 1) -> Path:
    folder.mkdir()
    for number in range(count):
        text = json.dumps({"messages": messages_of(turns + number), "source": "tests"})
        (folder / f"queues{number}.json").write_text(text, "utf-8")
    return folder


def question_in(body: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    """The record, the question and the options by letter, of a request in Chat Completions."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return texts[0], texts[-1], dict(re.findall(r"^([A-D])\) (.*)$", texts[-1], re.MULTILINE))


def careful_reader(body: Mapping[str, Any]) -> str:
    """The answer of a model that finds what the record shows, says ? where it shows nothing, and never guesses."""
    record, question, options = question_in(body)
    cloze = re.search(r"^    (.*____.*)$", question, re.MULTILINE)
    for letter, option in options.items():
        if cloze is not None and cloze[1].replace("____", option) in record:
            return letter
    return "?"
