"""Alternating roles, which the chat templates of Mistral, Gemma, Qwen and others require.

One system message comes first, then the user and the assistant alternate, the user first. Tool messages and the calls
they answer do not count: templates that know tools skip them (Mistral's: "After the optional system message,
conversation roles must alternate user/assistant/user/assistant/...").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foldline.messages import Json, Wire

__all__ = ["OPENING", "SEPARATOR", "alternate_roles", "alternation", "role_faults"]

OPENING: Final = "[The conversation begins here.]"
"""The first message of the user, where a server requires one and the conversation has none."""

_SYSTEM: Final = ("system", "developer")


def _speaker(wire: Json) -> str | None:
    """Return who speaks, as far as turns are counted; None for tool messages and calls."""
    role = wire.get("role") if hasattr(wire, "get") else None
    if role == "user":
        return "user"
    return "assistant" if role == "assistant" and not wire.get("tool_calls") else None


def role_faults(wires: Sequence[Json]) -> Iterator[tuple[int, str]]:
    """Yield the index of each message that a strict template refuses, and why. O(messages)."""
    last = None
    for index, wire in enumerate(wires):
        role = wire.get("role") if hasattr(wire, "get") else None
        if role in _SYSTEM:
            if index:
                yield index, "a system message that is not the first message"
            continue
        speaker = _speaker(wire)
        # A message without a role is noted by another rule.
        if last is None and role != "user" and isinstance(role, str):
            yield index, f"the first message after the system text is of the role {role!r}"
            last = speaker or "assistant"
        elif speaker is not None:
            if speaker == last:
                yield index, f"two messages of the {speaker} in a row"
            last = speaker


def alternate_roles(wires: Sequence[Wire], *, system: bool = True) -> list[Wire]:
    """Return the messages of a chat with alternating roles, as `alternation` has them. O(messages)."""
    return [wire for wire, _ in alternation(wires, system=system)]


def alternation(wires: Sequence[Wire], *, system: bool = True) -> list[tuple[Wire, int | None]]:
    """Return the messages of a chat with alternating roles, and the index of each; None for those that are added.

    Unchanged messages are the same objects. O(messages).

    A short message of the other role separates two of one role. System text after the first message becomes the user's,
    and a message of the user precedes an assistant that speaks first. Without `system`, all system text becomes the
    user's: Gemma's template has no such role ("System role not supported").
    """
    # Each message is decided by those before it, so a longer conversation only appends and the cached prefix stays.
    # Merging neighbours instead would change the last message of the prefix whenever one is added.
    out: list[tuple[Wire, int | None]] = []
    last: str | None = None
    for at, wire in enumerate(wires):
        if wire.get("role") in _SYSTEM:
            if at == 0 and system:
                out.append((wire, at))
                continue
            sent: Wire = {**wire, "role": "user"}
        else:
            sent = wire
        speaker = _speaker(sent)
        if last is None and sent.get("role") != "user":
            out.append(({"role": "user", "content": OPENING}, None))
            last = "user"
        if speaker is not None and speaker == last:
            out.append(({"role": "assistant" if speaker == "user" else "user", "content": SEPARATOR}, None))
        out.append((sent, at))
        last = speaker or last
    return out


SEPARATOR: Final = "[...]"
"""Separates two messages of one role, as a message of the other."""
