"""A request on its way to its conversation: with its chains, and what it stands beside."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from foldline.budget import Limits
from foldline.context import SummarizeWith
from foldline.conversations.body import RequestBody
from foldline.conversations.chain import exact_links, leading, said, tolerant_links
from foldline.conversations.known import Held, Match

__all__ = ["Asked", "How", "beside_of", "is_chance", "is_reminded", "is_smaller"]

_OUTPUT_ITEMS: Final = frozenset({"function_call", "reasoning", "custom_tool_call", "local_shell_call"})

How: TypeAlias = Literal["fold", "look", "refuse"]
"""Fold what does not fit; the same, written nowhere; refuse what does not fit."""


class Asked:
    """A request, with its chains."""

    __slots__ = (
        "_beside",
        "_tolerant",
        "body",
        "exact",
        "how",
        "learned_as",
        "limits",
        "messages",
        "name",
        "sent",
        "summarize",
    )

    def __init__(
        self,
        body: RequestBody,
        limits: Limits,
        name: str,
        how: How,
        summarize: SummarizeWith | None,
        *,
        learned_as: str = "",
    ) -> None:
        self.learned_as, self.sent = learned_as, False
        self.body, self.limits, self.name, self.how, self.summarize = body, limits, name, how, summarize
        self.messages = said(body.dialect, body.messages)
        first = leading(body.dialect, body.messages)
        texts = [*(str(message["role"]) for message in self.messages[:first])]
        texts += [body.item(at) for at in range(first, len(body.item_spans))] or [body.text]
        self.exact = exact_links(body.dialect, texts[: len(self.messages)])
        self._tolerant: list[bytes] = []
        self._beside = b""

    @property
    def beside(self) -> bytes:
        """`beside_of` its body, made when it is first asked for."""
        if not self._beside:
            self._beside = beside_of(self.body)
        return self._beside

    @property
    def is_first(self) -> bool:
        """Whether there is but one message behind the system text: a first question."""
        return len(self.messages) - leading(self.body.dialect, self.body.messages) <= 1

    def tolerant(self) -> list[bytes]:
        """The tolerant chain, made when it is first asked for."""
        if not self._tolerant:
            self._tolerant = tolerant_links(self.body.dialect, self.messages)
        return self._tolerant


def beside_of(body: RequestBody) -> bytes:
    """A hash of the model and of what stands beside what is said: system text and tools."""
    made = blake2b(body.model.encode("utf-8", "surrogatepass"), digest_size=16)
    spans = [body.spans.get(name or "", (0, 0)) for name in (body.form.system, "tools")]
    for start, stop in (*spans, *body.item_spans[: leading(body.dialect, body.messages)]):
        made.update(body.text[start:stop].encode("utf-8", "surrogatepass"))
    return made.digest()


def is_reminded(match: Match, asked: Asked) -> bool:
    """Whether all that differs is one message at the end, which stands at the end again: a reminder, sent each time."""
    conversation, dialect = match.held.conversation, asked.body.dialect
    entry = conversation.context.view.entries.get(conversation.count - 1)
    if entry is None or match.depth != conversation.count - 1:
        return False
    return tolerant_links(dialect, [entry.recorded]) == tolerant_links(dialect, asked.body.messages[-1:])


def is_chance(match: Match, asked: Asked) -> bool:
    """Whether they share no more than a beginning that two clients may have in common by chance."""
    shared = asked.body.messages[: match.depth]
    spoken = any(m.get("role") == "assistant" or m.get("type") in _OUTPUT_ITEMS for m in shared)
    return not spoken and match.held.beside != asked.beside


def is_smaller(held: Held, asked: Asked) -> bool:
    """Whether a conversation would be folded for another model, of a smaller window, than the one that it is with."""
    context = held.conversation.context
    return context.model != (asked.body.model or None) and asked.limits.input_tokens < context.limits.input_tokens
