"""Strands Agents' newer way, `Agent(context_manager="auto")`, which works by the hooks of the agent's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strands import Agent
from strands.hooks import AfterModelCallEvent, BeforeModelCallEvent, MessageAddedEvent
from strands.types.exceptions import ContextWindowOverflowException

from foldline.messages import Wire
from foldline_bench.peers.event_loop import Loop
from foldline_bench.peers.strands_types import RecordedModel, StrandsHistory
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count

__all__ = ["Auto"]


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
