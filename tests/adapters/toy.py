"""A small framework for tests: its messages are objects with ids, and one of them may hold several results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from foldline.messages import Wire

__all__ = ["Note", "ToyTranslation", "note", "notes"]


@dataclass(slots=True)
class Note:
    """A message of the toy framework. `results` are (id of the call, text): all those of a turn are in one note."""

    role: str
    text: str = ""
    calls: list[Any] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    id: str = ""


class ToyTranslation:
    """Notes as messages of Chat Completions, which sends each result apart."""

    dialect: Final = "openai-chat"

    def read(self, message: Note, /) -> Sequence[Wire]:
        wires: list[Wire] = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in message.results]
        if message.text or message.calls or not message.results:
            plain: dict[str, Any] = {"role": message.role, "content": message.text}
            wires.append(plain | ({"tool_calls": message.calls} if message.calls else {}))
        return wires

    def write(self, wires: Sequence[Wire], original: Note | None, /) -> Sequence[Note]:
        made = replace(original) if original is not None else Note(str(wires[0]["role"]))
        made.results = [(w["tool_call_id"], w["content"]) for w in wires if w["role"] == "tool"]
        plain = [wire for wire in wires if wire["role"] != "tool"]
        made.text = "\n".join(str(wire.get("content") or "") for wire in plain)
        made.calls = [call for wire in plain for call in wire.get("tool_calls") or ()]
        return [made]


def note(wire: Wire) -> Note:
    """A note of one message of Chat Completions."""
    if wire["role"] == "tool":
        return Note("user", results=[(wire["tool_call_id"], wire["content"])])
    return Note(wire["role"], wire.get("content") or "", list(wire.get("tool_calls") or ()))


def notes(turns: int, result: str = "line of a file\n" * 30) -> list[Note]:
    """A legal history: a question, then so many turns with two calls at once, whose results are in one note."""
    out = [Note("system", "Be brief.", id="s"), Note("user", "Read the files.", id="u")]
    for turn in range(turns):
        calls: list[Any] = [
            {"id": f"c{turn}_{n}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {n}}}'}}
            for n in range(2)
        ]
        out.append(Note("assistant", f"Turn {turn}.", calls, id=f"a{turn}"))
        out.append(Note("user", results=[(call["id"], f"{call['id']}: {result}") for call in calls], id=f"r{turn}"))
    return out
