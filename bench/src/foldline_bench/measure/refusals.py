"""Which requests every provider refuses, and which some do.

`foldline.check` is as strict as the strictest server. To compare with others, what all servers refuse (hard) is told
apart from what only some do (soft): Anthropic and Gemini want a user's message first, Anthropic has system text apart
from the messages, several models take no reply that is begun for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldline.messages import Wire

__all__ = ["HARD", "SOFT", "refusals"]

HARD: Final = frozenset({"empty", "orphan-result", "unanswered-call", "empty-content"})
SOFT: Final = frozenset({"first-not-user", "late-system", "ends-with-assistant"})

_SYSTEM: Final = frozenset({"system", "developer"})


def refusals(messages: Sequence[Wire]) -> frozenset[str]:
    """The rules of `HARD` and `SOFT` that a request in the Chat Completions dialect breaks. O(messages)."""
    body = [message for message in messages if message.get("role") not in _SYSTEM]
    if not body:
        return frozenset({"empty"})
    found = set() if body[0].get("role") == "user" else {"first-not-user"}
    begun = False
    open_calls: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role in _SYSTEM:
            found |= {"late-system"} if begun else set()
            continue
        begun = True
        if role == "tool":
            answered = str(message.get("tool_call_id"))
            found |= set() if answered in open_calls else {"orphan-result"}
            open_calls.discard(answered)
            continue
        found |= {"unanswered-call"} if open_calls else set()
        calls = (message.get("tool_calls") or ()) if role == "assistant" else ()
        open_calls = {str(call.get("id")) for call in calls}
        found |= set() if message.get("content") or calls else {"empty-content"}
    found |= {"unanswered-call"} if open_calls else set()
    found |= {"ends-with-assistant"} if body[-1].get("role") == "assistant" else set()
    return frozenset(found)
