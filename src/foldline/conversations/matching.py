"""A request on its way to its conversation: with its chains, and what it stands beside."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from foldline.conversations.chain import exact_links, leading, said, tolerant_links
from foldline.conversations.conversation import Plan
from foldline.conversations.conversation_cache import Held, Match
from foldline.conversations.planned_request import Hold, How
from foldline.conversations.request_body import RequestBody
from foldline.engine.context import SummarizeWith
from foldline.view.budget import Limits

__all__ = ["Asked", "is_chance", "is_for", "is_reminded", "is_smaller", "may_be_stored", "sight_of"]

_OUTPUT_ITEMS: Final = frozenset({"function_call", "reasoning", "custom_tool_call", "local_shell_call"})


_TURN_MESSAGES: Final = 2
"""An answer and what the user or a tool said to it. A turn may have more, but most have these."""


class Asked:
    """A request, with its chains."""

    __slots__ = (
        "_beside",
        "_sight",
        "_tolerant",
        "body",
        "client",
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
        client: bytes = b"",
    ) -> None:
        self.learned_as, self.client, self.sent = learned_as, client, False
        self.body, self.limits, self.name, self.how, self.summarize = body, limits, name, how, summarize
        self.messages = said(body.dialect, body.messages)
        first = leading(body.dialect, body.messages)
        texts = [*(str(message["role"]) for message in self.messages[:first])]
        texts += [body.item(at) for at in range(first, len(body.item_spans))] or [body.text]
        self.exact = exact_links(body.dialect, texts[: len(self.messages)], client=client)
        self._tolerant: list[bytes] = []
        self._beside = self._sight = b""

    @property
    def beside(self) -> bytes:
        """A hash of the model and of what it reads beside what is said, made when it is first asked for."""
        if not self._beside:
            self._beside = _hash(self.body.model.encode("utf-8", "surrogatepass"), self.sight)
        return self._beside

    @property
    def sight(self) -> bytes:
        """A hash of what a model reads beside what is said: system text and tools."""
        if not self._sight:
            self._sight = sight_of(self.body)
        return self._sight

    @property
    def is_first(self) -> bool:
        """Whether there is but one message behind the system text: a first question."""
        return len(self.messages) - leading(self.body.dialect, self.body.messages) <= 1

    def held(self, held: Held, plan: Plan, warning: str) -> Hold:
        """The request on its way, with what is sent for it."""
        summarize = None if self.how == "refuse" else self.summarize
        return Hold(held, plan, self.how, summarize, warning=warning, learned_as=self.learned_as, client=self.client)

    def begins_with(self, held: Held) -> bool:
        """Whether it begins with all messages of a conversation."""
        count = held.conversation.count
        if not held.exact:
            return count <= len(self.body.messages)
        if count > len(self.exact) or count != len(held.exact):
            return False
        return held.exact[-1] == self.exact[count - 1] or held.tolerant[-1] == self.tolerant()[count - 1]

    def tolerant_on(self, held: Held) -> list[bytes]:
        """The tolerant chain of a conversation that it goes on with. O(new)."""
        old = held.tolerant
        if not held.exact:
            return self.tolerant()
        return [*old, *tolerant_links(self.body.dialect, self.messages[len(old) :], after=old[-1])]

    def tolerant(self) -> list[bytes]:
        """The tolerant chain, made when it is first asked for."""
        if not self._tolerant:
            self._tolerant = tolerant_links(self.body.dialect, self.messages, client=self.client)
        return self._tolerant


def sight_of(body: RequestBody) -> bytes:
    """A hash of the system text and the tools of a request, each told apart from the next. O(their size)."""
    spans = [body.spans.get(name or "", (0, 0)) for name in (body.form.system, "tools")]
    spans += body.item_spans[: leading(body.dialect, body.messages)]
    return _hash(*(body.text[start:stop].encode("utf-8", "surrogatepass") for start, stop in spans))


def _hash(*pieces: bytes) -> bytes:
    made = blake2b(digest_size=16)
    for piece in pieces:
        made.update(len(piece).to_bytes(8, "big"))
        made.update(piece)
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


def is_for(held: Held, asked: Asked) -> bool:
    """Whether all that a model wrote in a conversation was written with nothing else in sight than a request has."""
    return held.conversation.sight in (b"", asked.sight)


def is_smaller(held: Held, asked: Asked) -> bool:
    """Whether a conversation would be folded for another model, of a smaller window, than the one that it is with."""
    context = held.conversation.context
    return context.model != (asked.body.model or None) and asked.limits.input_tokens < context.limits.input_tokens


def may_be_stored(match: Match | None, asked: Asked, *, shared: bool) -> bool:
    """Whether a store (`shared`: others write to it too) may know more of a request than memory does."""
    if asked.how == "refuse":
        return False
    if shared and len(asked.exact) > 1:
        return True
    if match is None:  # of a first question there is nothing to fold but what would be cut alike again
        return bool(asked.name) or not asked.is_first
    if not match.goes_on or match.held.name != asked.name:
        return True
    # More than a turn is new: it may be another one, whose beginning is the same by chance.
    return len(asked.exact) - match.depth > _TURN_MESSAGES and not match.held.conversation.folded
