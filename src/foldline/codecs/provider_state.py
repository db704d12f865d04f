"""State that a provider holds for a client: its own summaries, and items and conversations that it stores.

Anthropic, "Compaction": a `compaction` block replaces all messages before it, which the API drops. OpenAI,
"Compaction": a `compaction` item holds the state before it, encrypted. The newest one covers all earlier ones. OpenAI,
API reference, Responses: an `item_reference` names a stored item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from foldline.messages import Message, Opaque

__all__ = ["is_provider_summary", "may_begin", "refers_to_stored_item", "summarised_count"]

_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})


def is_provider_summary(message: Message) -> bool:
    """Whether a message holds a summary by the provider, which covers everything before it. O(parts)."""
    # A block without content reports that the provider could not make one, so it covers nothing.
    for part in message.parts:  # no generator: each message is looked at as it is appended
        if not isinstance(part, Opaque) or part.type not in _COMPACTIONS or not isinstance(part.raw, Mapping):
            continue
        if part.raw.get("content") or part.raw.get("encrypted_content"):
            return True
    return False


def may_begin(message: Message) -> bool:
    """Whether a conversation may begin with a message where the user speaks first: a summary stands for both. O(parts).

    Anthropic, "Compaction on demand": the block comes first, as an assistant message of its own.
    """
    return message.role == "user" or is_provider_summary(message)


def summarised_count(messages: Sequence[Message]) -> int:
    """Return how many leading messages the newest such summary covers. O(parts)."""
    return next((at for at in reversed(range(len(messages))) if is_provider_summary(messages[at])), 0)


def refers_to_stored_item(message: Message) -> bool:
    """Whether a message names an item that the server holds, which no text can replace. O(parts)."""
    return any(isinstance(part, Opaque) and part.type == "item_reference" for part in message.parts)
