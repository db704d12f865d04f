"""Roles in turn: what the chat templates of Mistral, Gemma, Qwen and others want, and what is put between for it.

One system message comes first, then the user and the assistant speak in turn, the user first. Tool messages and the
calls they answer are not counted: templates that know tools pass over them (Mistral's: "After the optional system
message, conversation roles must alternate user/assistant/user/assistant/...").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foldline.messages import Json, Wire

__all__ = ["GO_ON", "OPENING", "in_turn", "roles_out_of_turn"]

OPENING: Final = "[The conversation begins here.]"
"""Sent as the first user message where a server wants one and the history has none."""

_SYSTEM: Final = ("system", "developer")


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


def in_turn(wires: Sequence[Wire], *, system: bool = True) -> list[Wire]:
    """The messages of a chat with roles in turn; a longer list of messages only makes what comes of it longer.

    Between two messages of one role stands a short one of the other, system text behind the first message is told by
    the user, and where the assistant speaks first a user message is supplied. Without `system` the user tells all
    system text: Gemma's template has no such role ("System role not supported"). What needs nothing is the same object.
    O(messages).
    """
    out: list[Wire] = []
    last: str | None = None
    for at, wire in enumerate(wires):
        if wire.get("role") in _SYSTEM:
            if at == 0 and system:
                out.append(wire)
                continue
            told: Wire = {**wire, "role": "user"}
        else:
            told = wire
        speaker = _speaker(told)
        if last is None and told.get("role") != "user":
            out.append({"role": "user", "content": OPENING})
            last = "user"
        if speaker is not None and speaker == last:
            out.append({"role": "assistant" if speaker == "user" else "user", "content": GO_ON})
        out.append(told)
        last = speaker or last
    return out


GO_ON: Final = "[...]"
"""Stands between two messages of one role, in the name of the other."""
