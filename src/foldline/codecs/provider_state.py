"""What a provider holds for a client: its own summaries of a history, items and conversations that it stores.

Anthropic, "Compaction": a `compaction` block takes the place of all messages before it; the API drops these. OpenAI,
"Compaction": a `compaction` item carries on the state before it, encrypted. Of several, the newest stands for all.
OpenAI, API reference, Responses: an `item_reference` names an item that the server stored, `previous_response_id` and
`conversation` a history that it has and the request does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.messages import Message, Opaque

__all__ = ["compacts", "is_stored", "refers", "summed_up"]

_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
_STORED: Final = ("previous_response_id", "conversation")


def compacts(message: Message) -> bool:
    """Whether a message holds a summary by the provider, which stands for all before it. O(parts).

    A block without content says that the provider could not make one: it stands for nothing.
    """
    return any(
        isinstance(part, Opaque)
        and part.type in _COMPACTIONS
        and isinstance(part.raw, Mapping)
        and bool(part.raw.get("content") or part.raw.get("encrypted_content"))
        for part in message.parts
    )


def summed_up(messages: Sequence[Message]) -> int:
    """How many leading messages the newest such summary stands for. O(parts)."""
    return next((at for at in reversed(range(len(messages))) if compacts(messages[at])), 0)


def refers(message: Message) -> bool:
    """Whether a message names an item that the server holds, so that no text can stand for it. O(parts)."""
    return any(isinstance(part, Opaque) and part.type == "item_reference" for part in message.parts)


def is_stored(body: Mapping[str, Any]) -> bool:
    """Whether a request goes on with a history that the server holds and the request does not show. O(1)."""
    return any(body.get(field) for field in _STORED)
