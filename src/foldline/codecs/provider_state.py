"""State that a provider holds for a client: its own summaries, and items and conversations that it stores.

Anthropic, "Compaction": a `compaction` block replaces all messages before it, which the API drops. OpenAI,
"Compaction": a `compaction` item holds the state before it, encrypted. The newest one covers all earlier ones. OpenAI,
API reference, Responses: an `item_reference` names a stored item; `previous_response_id` and `conversation` name a
conversation that the server has and the request does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.messages import Message, Opaque

__all__ = ["compacts", "is_stored", "refers", "summed_up"]

_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
_STORED: Final = ("previous_response_id", "conversation")


def compacts(message: Message) -> bool:
    """Whether a message holds a summary by the provider, which covers everything before it. O(parts)."""
    # A block without content reports that the provider could not make one, so it covers nothing.
    return any(
        isinstance(part, Opaque)
        and part.type in _COMPACTIONS
        and isinstance(part.raw, Mapping)
        and bool(part.raw.get("content") or part.raw.get("encrypted_content"))
        for part in message.parts
    )


def summed_up(messages: Sequence[Message]) -> int:
    """Return how many leading messages the newest such summary covers. O(parts)."""
    return next((at for at in reversed(range(len(messages))) if compacts(messages[at])), 0)


def refers(message: Message) -> bool:
    """Whether a message names an item that the server holds, which no text can replace. O(parts)."""
    return any(isinstance(part, Opaque) and part.type == "item_reference" for part in message.parts)


def is_stored(body: Mapping[str, Any]) -> bool:
    """Whether a request continues a conversation that the server holds and the request does not show. O(1)."""
    return any(body.get(field) for field in _STORED)
