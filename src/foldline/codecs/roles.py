"""Roles in turn: what the chat templates of Mistral, Gemma, Qwen and others want, and messages that are merged for it.

One system message comes first, then the user and the assistant speak in turn, the user first. Tool messages and the
calls they answer are not counted: templates that know tools pass over them (Mistral's: "After the optional system
message, conversation roles must alternate user/assistant/user/assistant/...").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from foldline.messages import Json, Wire

__all__ = ["GO_ON", "OPENING", "in_turn", "roles_out_of_turn"]

OPENING: Final = "[The conversation begins here.]"
"""Sent as the first user message where a server wants one and the history has none."""

_SYSTEM: Final = ("system", "developer")
_GAP: Final = "\n\n"


def _speaker(wire: Json) -> str | None:
    """Who speaks, as far as turns are counted; None for tool messages and calls."""
    role = wire.get("role") if hasattr(wire, "get") else None
    if role == "user":
        return "user"
    return "assistant" if role == "assistant" and not wire.get("tool_calls") else None


def roles_out_of_turn(wires: Sequence[Json]) -> Iterator[tuple[int, str]]:
    """The place of each message that a strict template refuses, and why. O(messages)."""
    last = None
    for index, wire in enumerate(wires):
        role = wire.get("role") if hasattr(wire, "get") else None
        if role in _SYSTEM:
            if index:
                yield index, "a system message that is not the first message"
            continue
        speaker = _speaker(wire)
        if last is None and role != "user" and isinstance(role, str):
            yield index, f"the first message after the system text is of the role {role!r}"
            last = speaker or "assistant"
        elif speaker is not None:
            if speaker == last:
                yield index, f"two messages of the {speaker} in a row"
            last = speaker


def in_turn(wires: Sequence[Wire]) -> tuple[list[Wire], list[int]]:
    """The messages of a chat with roles in turn, and how many of `wires` each of them stands for.

    Neighbours of one role are joined, later system messages join the first; where the assistant speaks first, a user
    message is supplied. What needs nothing is the same object. O(messages).
    """
    systems = [wire for wire in wires if wire.get("role") in _SYSTEM]
    out: list[Wire] = []
    counts: list[int] = []
    if systems:
        out.append(_joined(systems))
        counts.append(1)
    speakers: list[str | None] = [None] * len(out)
    moved = 0
    for index, wire in enumerate(wires):
        if wire.get("role") in _SYSTEM:
            moved += 1 if index else 0
            continue
        speaker = _speaker(wire)
        if all(each is None for each in speakers) and len(out) == bool(systems) and wire.get("role") != "user":
            out.append({"role": "user", "content": OPENING})
            counts.append(0)
            speakers.append("user")
        last = _last(speakers)
        if speaker is not None and last is not None and speakers[last] == speaker:
            if last == len(out) - 1:
                out[last] = _joined([out[last], wire])
                counts[last] += 1 + moved
            else:  # tool messages stand between: what is said after them goes to the other side of the turn
                out.append({"role": "assistant" if speaker == "user" else "user", "content": GO_ON})
                counts.append(0)
                speakers.append("assistant" if speaker == "user" else "user")
                out.append(wire)
                counts.append(1 + moved)
                speakers.append(speaker)
        else:
            out.append(wire)
            counts.append(1 + moved)
            speakers.append(speaker)
        moved = 0
    return out, counts


GO_ON: Final = "[...]"
"""Stands between two messages of one role that tool messages keep apart, in the name of the other."""


def _last(speakers: Sequence[str | None]) -> int | None:
    return next((index for index in range(len(speakers) - 1, -1, -1) if speakers[index] is not None), None)


def _joined(wires: Sequence[Wire]) -> Wire:
    """One message out of several of a role: text stays text while all is text, else a list of blocks."""
    if len(wires) == 1:
        return wires[0]
    contents = [wire.get("content") for wire in wires]
    if all(content is None or isinstance(content, str) for content in contents):
        return {**wires[0], "content": _GAP.join(content for content in contents if content)}
    blocks: list[Any] = []
    for content in contents:
        if isinstance(content, str):
            blocks += [{"type": "text", "text": content}] if content else []
        else:
            blocks += content or ()
    return {**wires[0], "content": blocks}
