"""The summary of a conversation, written before its fold is due or its cache is cold: what is done under its lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldline.conversations.conversation import Conversation, folds_in, summariser_for
from foldline.conversations.request_body import RequestBody
from foldline.engine.ahead import chance_of_return
from foldline.engine.context import SummarizeWith
from foldline.engine.drivers import answer_or_error
from foldline.errors import SummaryError
from foldline.reducers.base import Ask

__all__ = ["WritingAhead"]


class WritingAhead:
    """One summary of a conversation. `begin`, `supply` and `drop` need its lock; `answer` waits for the model.

    With `rests` it is folded at once, unless it has gone on meanwhile. `error` is why the model's latest answer did not
    come.
    """

    def __init__(
        self,
        conversation: Conversation,
        body: RequestBody,
        summarize: SummarizeWith,
        scope: bytes,
        *,
        rests: bool = False,
    ) -> None:
        self._conversation, self._body, self._scope = conversation, body, scope
        self._summarize: SummarizeWith | None = summarize
        self._rests = rests
        self._ask: Ask | None = None
        self.error: SummaryError | None = None

    def begin(self) -> bool:
        """Read the conversation; whether there is a question. O(view)."""
        conversation = self._conversation
        # As they are now: the conversation grows while the model writes.
        positions: Final[Mapping[int, int]] = conversation.positions()
        if self._scope and not conversation.scope_varies:
            scope = self._scope
            self._summarize = summariser_for(
                self._summarize, self._body, lambda: positions, lambda: setattr(conversation, "summary_scope", scope)
            )
        ahead = conversation.context.ahead
        if self._rests:
            chance = chance_of_return(conversation.returns.cold)
            self._ask = ahead.ask_before_cold(self._summarize, chance=chance, answered=True)
        else:
            self._ask = ahead.ask(self._summarize, idle_seconds=conversation.idle.seconds)
        return self._ask is not None

    def answer(self) -> object:
        """What the model answers, or why it does not."""
        if self._ask is None or self._summarize is None:
            raise RuntimeError("no question was asked")
        answer = answer_or_error(self._ask, self._summarize)
        self.error = answer if isinstance(answer, SummaryError) else None
        return answer

    def supply(self, answer: object) -> bool:
        """Take the answer; whether there is another question."""
        self._ask = self._conversation.context.ahead.supply(answer)
        conversation = self._conversation
        conversation.folded = conversation.folded or folds_in(conversation.context) > 0
        return self._ask is not None

    def drop(self) -> None:
        """Give up a question that is open."""
        if self._ask is not None:
            self._ask = None
            self._conversation.context.ahead.drop()
