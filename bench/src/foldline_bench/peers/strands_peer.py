"""Strands Agents: its conversation managers, and its newer context manager, on a real `Agent` with no model behind it.

The two managers are reactive, as they are by default: the request that is too large is refused by the provider,
`reduce_context` is told of it, and the request is made again. Here the refusing provider is the neutral counter with
the budget as its limit; a refused request costs nothing, as it does in life, save time that is not measured.
`apply_management` is called where an agent calls it, when an invocation has ended: after a reply that calls no tool.
"proactive": with `proactive_compression=True`, which reduces once already at 0.7 of the window before the model is
called; its hook is told the neutral count, or for "own counter" that of the package's `Model.count_tokens`. "per turn":
with `per_turn=True`, which its reference text advises for agents that call many tools in a loop: the 40 messages are
kept to before each call of the model, and not at the end of an invocation alone.

`SlidingWindowConversationManager()` keeps 40 messages and, when refused, first cuts the oldest tool results to 400
characters, one message at a time. `SummarizingConversationManager()` folds the oldest 0.3 of the messages and keeps the
last 10; the summariser is a model that returns recorded texts. Neither knows the budget other than by being refused.
Where nothing more can be taken away they raise `ContextWindowOverflowException`, which ends the agent's invocation;
so it is an error of the request here. So is a reduction that takes nothing away, such as a summary of the last summary
alone: the package's agent would make it again and again until Python's limit of recursion ends the invocation.

"auto": `Agent(context_manager="auto")`, which by hooks cuts results of tools over 1,500 tokens to a preview of 750,
summarises from 0.85 of the window on, and when refused (three times at most) cuts what is left. What it takes away it
stashes in memory, for a tool to read; nothing is read back here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from strands import Agent
from strands._async import run_async
from strands.agent.conversation_manager import (
    ConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import AfterModelCallEvent, BeforeModelCallEvent, MessageAddedEvent
from strands.types.exceptions import ContextWindowOverflowException

from foldline.messages import Wire
from foldline_bench.peers.adapters import Loop
from foldline_bench.peers.strands_types import RecordedModel, StrandsHistory
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS", "Auto"]


class Auto:
    """An agent whose context manager gets each message, request and refusal, as from the agent's loop."""

    def __init__(
        self, budget_tokens: int, count: Count, summariser: FixedSummariser, *, own_counter: bool = False
    ) -> None:
        self._budget_tokens = budget_tokens
        self._count = count
        self._summariser = summariser
        self._conversation = StrandsHistory()
        self._new: list[dict[str, Any]] = []
        self._loop = Loop()
        model = RecordedModel(budget_tokens, self._answer, None if own_counter else self._tokens)
        self._agent = Agent(model=model, context_manager="auto", callback_handler=None)

    def _answer(self, messages: list[Any], system_prompt: str | None) -> str:
        prompt = self._conversation.prompt(messages, system_prompt)
        return self._summariser.summarize(prompt, said=self._conversation.said(messages))

    def prepare(self, history: Sequence[Wire]) -> None:
        """Untimed: the new messages in the package's types."""
        self._new += self._conversation.take(history)
        if self._conversation.system and self._agent.system_prompt is None:
            self._agent.system_prompt = "\n\n".join(str(wire["content"]) for wire in self._conversation.system)

    def view(self, history: Sequence[Wire]) -> Any:
        """Timed: the hooks."""
        return self._loop.run(self._request())

    async def _request(self) -> list[Any]:
        agent = self._agent
        for message in self._new:
            agent.messages.append(message)
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=agent, message=message))
        self._new = []
        tokens = await agent.model.count_tokens(agent.messages, None, agent.system_prompt)
        await agent.hooks.invoke_callbacks_async(BeforeModelCallEvent(agent=agent, projected_input_tokens=tokens))
        while self._tokens(agent.messages) > self._budget_tokens:
            refused = ContextWindowOverflowException("the input is over the window")
            event = AfterModelCallEvent(agent=agent, exception=refused)
            await agent.hooks.invoke_callbacks_async(event)
            if not event.retry:
                raise refused
        await agent.hooks.invoke_callbacks_async(AfterModelCallEvent(agent=agent))
        return list(agent.messages)

    def _tokens(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The neutral count of a request with these messages. O(blocks)."""
        wires = [wire for message in messages for wire in self._conversation.wires(message)]
        return sum(map(self._count, self._conversation.system + wires))

    def finish(self, out: Any) -> list[Wire]:
        """Untimed: as Chat Completions has it."""
        return self._conversation.system + [wire for message in out for wire in self._conversation.wires(message)]


PACKAGES: Final = ("strands-agents",)

logging.getLogger("strands").setLevel(logging.CRITICAL)  # it tells of each reduction that it cannot make, as well


class _Managed:
    """One conversation manager on one agent, whose messages it changes in place."""

    def __init__(
        self,
        budget_tokens: int,
        count: Count,
        summariser: FixedSummariser,
        *,
        manage: Callable[[], ConversationManager],
        told: bool = False,
        own_counter: bool = False,
    ) -> None:
        self._budget_tokens = budget_tokens
        self._count = count
        self._summariser = summariser
        self._told = told  # of each call of the model before it is made
        self._own_counter = own_counter
        self._conversation = StrandsHistory()
        self._new: list[dict[str, Any]] = []
        self._agent = Agent(
            model=RecordedModel(budget_tokens, self._answer),
            conversation_manager=manage(),
            callback_handler=None,
        )

    def _answer(self, messages: list[Any], system_prompt: str | None) -> str:
        prompt = self._conversation.prompt(messages, system_prompt)
        return self._summariser.summarize(prompt, said=self._conversation.said(messages))

    def prepare(self, history: Sequence[Wire]) -> None:
        self._new += self._conversation.take(history)
        if self._conversation.system and self._agent.system_prompt is None:
            self._agent.system_prompt = "\n\n".join(str(wire["content"]) for wire in self._conversation.system)

    def view(self, history: Sequence[Wire]) -> Any:
        agent, keeper = self._agent, self._agent.conversation_manager
        for message in self._new:
            asks = message["role"] == "user" and not any("toolResult" in block for block in message["content"])
            if asks and agent.messages and agent.messages[-1]["role"] == "assistant":
                keeper.apply_management(agent)
            agent.messages.append(message)
        self._new = []
        if self._told:
            tokens = self._own_tokens() if self._own_counter else self._tokens()
            agent.hooks.invoke_callbacks(BeforeModelCallEvent(agent=agent, projected_input_tokens=tokens))
        tokens = self._tokens()
        while tokens > self._budget_tokens:
            before = len(agent.messages), tokens
            keeper.reduce_context(agent, e=ContextWindowOverflowException("the input is over the window"))
            tokens = self._tokens()
            if len(agent.messages) >= before[0] and tokens >= before[1]:
                raise ContextWindowOverflowException("a reduction took nothing away")
        return list(agent.messages)

    def _own_tokens(self) -> int:
        agent = self._agent
        tokens: int = run_async(lambda: agent.model.count_tokens(agent.messages, None, agent.system_prompt))
        return tokens

    def _tokens(self) -> int:
        """The neutral count of the request, by which the provider decides. O(blocks)."""
        wires = [wire for message in self._agent.messages for wire in self._conversation.wires(message)]
        return sum(map(self._count, self._conversation.system + wires))

    def finish(self, out: Any) -> list[Wire]:
        return self._conversation.system + [wire for message in out for wire in self._conversation.wires(message)]


def _makes(kind: Callable[..., ConversationManager], *, own_counter: bool = False, **options: Any) -> MakeSystem:
    return partial(_Managed, manage=partial(kind, **options), told=bool(options), own_counter=own_counter)


SYSTEMS: Final[Mapping[str, MakeSystem]] = {
    "strands SlidingWindow (defaults)": _makes(SlidingWindowConversationManager),
    "strands SlidingWindow (proactive)": _makes(SlidingWindowConversationManager, proactive_compression=True),
    "strands SlidingWindow (per turn)": _makes(SlidingWindowConversationManager, per_turn=True),
    "strands Summarizing (defaults)": _makes(SummarizingConversationManager),
    "strands Summarizing (proactive)": _makes(SummarizingConversationManager, proactive_compression=True),
    "strands auto with summaries": Auto,
}

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "strands SlidingWindow (proactive, own counter)": _makes(
        SlidingWindowConversationManager, proactive_compression=True, own_counter=True
    ),
    "strands Summarizing (proactive, own counter)": _makes(
        SummarizingConversationManager, proactive_compression=True, own_counter=True
    ),
    "strands auto with summaries (own counter)": partial(Auto, own_counter=True),
}
