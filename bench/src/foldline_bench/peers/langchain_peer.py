"""LangChain: `trim_messages` of its core, and the two middlewares of its agents that keep a context small.

`trim_messages`, at the budget, by its own reference text. "defaults": `strategy="last"`, and the system message kept,
as each of its examples does. "tool-safe": also `start_on="human"` and `end_on=("human", "tool")`, which its guides
give for a history that goes back to a model.

`ContextEditingMiddleware` with `ClearToolUsesEdit(trigger=budget, keep=3)`, 3 being its default. `wrap_model_call` is
called as an agent calls it. It copies all messages and forgets what it cleared: each request starts from the history.

`SummarizationMiddleware`: "defaults" keeps the last 20 messages and is triggered at the budget (it has no default
trigger); "fractions" is triggered at 0.8 and keeps 0.3 of the window, the shares that its reference text shows.
`before_model` rewrites the state of the agent, so the next request starts from what it left. The summariser is handed
in as `summarizer`, which is given the messages, and its prompt is written as the middleware writes it for a model: its
`summary_prompt` with the messages in XML. By default they are the last 4,000 tokens of what is to be summarised.

`create_agent` holds the system message apart from the messages, and so it is here for both middlewares; the trigger is
the budget less its size. Counters: the neutral one, or for "own counter" the approximate one that is the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    convert_to_messages,
    convert_to_openai_messages,
    get_buffer_string,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatResult
from langgraph.runtime import Runtime

from foldline.messages import Wire
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("langchain", "langchain-core")

TOOL_SAFE: Final = {"start_on": "human", "end_on": ("human", "tool")}


class _Unasked(BaseChatModel):
    """A chat model that has a window and is never called."""

    @property
    def _llm_type(self) -> str:
        return "recorded"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise TypeError("summaries are written by the summariser")


class _History:
    """The session as LangChain's messages, and the way back. Ids connect copies with their originals."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._pairs: dict[str, tuple[BaseMessage, Wire]] = {}
        self._made: dict[tuple[str, str], Wire] = {}
        self.messages: list[BaseMessage] = []

    def extend(self, history: Sequence[Wire]) -> None:
        for wire in history[len(self.messages) :]:
            message = convert_to_messages([wire])[0]
            message.id = f"recorded-{len(self.messages)}"
            self._pairs[message.id] = (message, wire)
            self.messages.append(message)

    def wire(self, message: BaseMessage) -> Wire:
        """The recorded message, where this is it unchanged, or a new one."""
        if message.id in self._pairs:
            original, wire = self._pairs[message.id]
            if message is original or (message.content == original.content and _calls(message) == _calls(original)):
                return wire
        key = (message.id or "", str(message.content))
        if key not in self._made:
            self._made[key] = convert_to_openai_messages(message)
        return self._made[key]

    def tokens(self, messages: Sequence[BaseMessage]) -> int:
        """The neutral count of a list."""
        return sum(map(self._tokens, messages))

    def _tokens(self, message: BaseMessage) -> int:
        pair = self._pairs.get(message.id or "")
        if pair is not None and message.content is pair[0].content:
            return self._count(pair[1])
        return self._count(self.wire(message))


def _calls(message: BaseMessage) -> Any:
    return message.tool_calls if isinstance(message, AIMessage) else None


class _Base:
    """The common part: conversion, the way back, and the separate system message."""

    def __init__(
        self, budget_tokens: int, count: Count, summariser: FixedSummariser, *, own_counter: bool = False
    ) -> None:
        self._budget_tokens = budget_tokens
        self._summariser = summariser
        self._history = _History(count)
        self._counter = count_tokens_approximately if own_counter else self._history.tokens

    def prepare(self, history: Sequence[Wire]) -> None:
        self._history.extend(history)

    def finish(self, out: Any) -> list[Wire]:
        return [self._history.wire(message) for message in out]

    def _apart(self) -> tuple[list[BaseMessage], list[BaseMessage]]:
        """The system message that the session begins with, or nothing, and the rest."""
        messages = self._history.messages
        first = 1 if messages and messages[0].type == "system" else 0
        return messages[:first], messages[first:]


class _TrimSystem(_Base):
    def __init__(self, *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = dict(options or {})

    def view(self, history: Sequence[Wire]) -> Any:
        return trim_messages(
            self._history.messages,
            max_tokens=self._budget_tokens,
            token_counter=self._counter,
            strategy="last",
            include_system=True,
            **self._options,
        )


class _Clear(_Base):
    def prepare(self, history: Sequence[Wire]) -> None:
        super().prepare(history)
        self._system, self._rest = self._apart()
        self._model = _Unasked()
        trigger = max(1, self._budget_tokens - self._counter(self._system))
        self._middleware = ContextEditingMiddleware(
            edits=[ClearToolUsesEdit(trigger=trigger)], token_counter=self._counter
        )

    def view(self, history: Sequence[Wire]) -> Any:
        sent: list[BaseMessage] = []

        def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            sent.extend(request.messages)
            return ModelResponse(result=[])

        request = ModelRequest(
            model=self._model,
            messages=self._rest,
            system_message=self._system[0] if self._system else None,
        )
        self._middleware.wrap_model_call(request, handler)
        return self._system + sent


class _Summarize(_Base):
    def __init__(self, *args: Any, fractions: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fractions = fractions
        self._middleware: SummarizationMiddleware | None = None
        self._state: list[BaseMessage] = []
        self._taken = 0

    def prepare(self, history: Sequence[Wire]) -> None:
        super().prepare(history)
        self._system, rest = self._apart()
        self._state += rest[self._taken :]
        self._taken = len(rest)
        if self._middleware is None:
            self._middleware = self._made(max(1, self._budget_tokens - self._counter(self._system)))

    def _made(self, window_tokens: int) -> SummarizationMiddleware:
        model = _Unasked(profile={"max_input_tokens": window_tokens})
        options: dict[str, Any] = {"trigger": ("tokens", window_tokens)}
        if self._fractions:
            options = {"trigger": ("fraction", 0.8), "keep": ("fraction", 0.3)}
        return SummarizationMiddleware(model, token_counter=self._counter, summarizer=self._summary, **options)

    def _summary(self, messages: Sequence[BaseMessage]) -> str:
        assert self._middleware is not None
        prompt = self._middleware.summary_prompt.format(messages=get_buffer_string(messages, format="xml")).rstrip()
        wires = [self._history.wire(message) for message in messages]
        return self._summariser.summarize([{"role": "user", "content": prompt}], said=wires)

    def view(self, history: Sequence[Wire]) -> Any:
        assert self._middleware is not None
        change = self._middleware.before_model({"messages": self._state}, Runtime())
        if change is not None:
            # The first entry removes all that was: what an agent's state does with it.
            self._state = [message for message in change["messages"] if not isinstance(message, RemoveMessage)]
        return self._system + self._state


SYSTEMS: Final[Mapping[str, MakeSystem]] = {
    "langchain trim_messages (defaults)": _TrimSystem,
    "langchain trim_messages (tool-safe)": partial(_TrimSystem, options=TOOL_SAFE),
    "langchain ClearToolUsesEdit": _Clear,
    "langchain SummarizationMiddleware (defaults)": _Summarize,
    "langchain SummarizationMiddleware (fractions)": partial(_Summarize, fractions=True),
}

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "langchain trim_messages (tool-safe, own counter)": partial(_TrimSystem, options=TOOL_SAFE, own_counter=True),
    "langchain ClearToolUsesEdit (own counter)": partial(_Clear, own_counter=True),
    "langchain SummarizationMiddleware (defaults, own counter)": partial(_Summarize, own_counter=True),
    "langchain SummarizationMiddleware (fractions, own counter)": partial(_Summarize, fractions=True, own_counter=True),
}
