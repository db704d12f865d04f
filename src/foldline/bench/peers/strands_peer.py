"""Strands Agents: its two conversation managers, on a real `Agent` whose model is not there.

Both are reactive, as they are by default: the request that is too large is refused by the provider, `reduce_context`
is told of it, and the request is made again. Here the refusing provider is the neutral counter with the budget as its
limit; a refused request costs nothing, as it does in life, save time that is not measured. `apply_management` is called
where an agent calls it, when an invocation has ended: after a reply that calls no tool. "proactive": with
`proactive_compression=True`, which reduces once already at 0.7 of the window before the model is called; its hook is
told the neutral count, or for "own counter" that of the package's `Model.count_tokens`.

`SlidingWindowConversationManager()` keeps 40 messages and, when refused, first cuts the oldest tool results to 400
characters, one message at a time. `SummarizingConversationManager()` folds the oldest 0.3 of the messages and keeps the
last 10; the summariser is a model that returns recorded texts. Neither knows the budget other than by being refused.
Where nothing more can be taken away they raise `ContextWindowOverflowException`, which ends the agent's invocation;
so it is an error of the request here. So is a reduction that takes nothing away, such as a summary of the last summary
alone: the package's agent would make it again and again until Python's limit of recursion ends the invocation.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from strands import Agent
from strands._async import run_async
from strands.agent.conversation_manager import (
    ConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import BeforeModelCallEvent
from strands.models import Model
from strands.types.exceptions import ContextWindowOverflowException

from foldline.bench.summariser import Summariser
from foldline.bench.systems import Count, MakeSystem
from foldline.messages import Wire

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("strands-agents",)

logging.getLogger("strands").setLevel(logging.CRITICAL)  # it tells of each reduction that it cannot make, as well


def _blocks(wire: Wire) -> list[dict[str, Any]]:
    """What a message of Chat Completions holds, as the package's blocks."""
    content = wire.get("content")
    if wire["role"] == "tool":
        text = content if isinstance(content, str) else json.dumps(content)
        return [{"toolResult": {"toolUseId": wire["tool_call_id"], "status": "success", "content": [{"text": text}]}}]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [_block(part) for part in parts if part.get("type") != "text" or part["text"]]
    for call in wire.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {"toolUse": {"toolUseId": call["id"], "name": function["name"], "input": _input(function["arguments"])}}
        )
    return blocks or [{"text": ""}]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    url = part.get("image_url", {}).get("url", "")
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        form = head.removeprefix("data:image/").partition(";")[0]
        return {"image": {"format": form, "source": {"bytes": base64.b64decode(data)}}}
    return {"text": part.get("text", url)}


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _wires(message: Mapping[str, Any]) -> list[Wire]:
    """A message that the package made or changed, in Chat Completions: results, or a text."""
    results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
    if results:
        return [
            {"role": "tool", "tool_call_id": result["toolUseId"], "content": _text(result["content"])}
            for result in results
        ]
    return [{"role": message["role"], "content": _text(message["content"])}]


def _text(blocks: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(block["text"] for block in blocks if "text" in block)


class _Conversation:
    """The session in the package's messages and the way back, by the identity of blocks and lists of blocks."""

    def __init__(self) -> None:
        self.system: list[Wire] = []
        self._taken = 0
        self._known: dict[int, tuple[Any, list[Wire]]] = {}

    def take(self, history: Sequence[Wire]) -> list[dict[str, Any]]:
        """What is new: results that follow each other are one message of the user."""
        made: list[dict[str, Any]] = []
        merged = False
        for wire in history[self._taken :]:
            if wire["role"] == "system" and not made and self._taken == len(self.system):
                self.system.append(wire)
                self._taken += 1
                continue
            blocks = _blocks(wire)
            self._know(blocks[0], [wire])
            if wire["role"] == "tool" and merged:
                made[-1]["content"] += blocks
                self._known[id(made[-1]["content"])][1].append(wire)
            else:
                made.append({"role": "assistant" if wire["role"] == "assistant" else "user", "content": blocks})
                self._know(blocks, [wire])
            merged = wire["role"] == "tool"
            self._taken += 1
        return made

    def _know(self, thing: Any, wires: list[Wire]) -> list[Wire]:
        self._known[id(thing)] = (thing, wires)
        return wires

    def wires(self, message: Mapping[str, Any]) -> list[Wire]:
        """The recorded messages where it is unchanged; new ones for what was changed. O(blocks)."""
        blocks = message["content"]
        if id(blocks) in self._known:
            return self._known[id(blocks)][1]
        wires: list[Wire] = []
        if any("toolResult" in block for block in blocks):
            for block in blocks:
                known = self._known.get(id(block))
                wires += known[1] if known else _wires({"role": "user", "content": [block]})
        else:
            wires = _wires(message)
        return self._know(blocks, wires)


class _Recorded(Model):
    """A model with a window, which answers with the recorded summaries."""

    def __init__(self, window_tokens: int, answer: Callable[[list[Any], str | None], str]) -> None:
        self._config = {"context_window_limit": window_tokens}
        self._answer = answer

    def update_config(self, **model_config: Any) -> None:
        self._config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        return self._config

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a recorded summary is a text")

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        text = self._answer(messages, system_prompt)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


class _Managed:
    """One conversation manager on one agent, whose messages it changes in place."""

    def __init__(
        self,
        budget_tokens: int,
        count: Count,
        summariser: Summariser,
        *,
        manage: Callable[[], ConversationManager],
        proactive: bool = False,
        own_counter: bool = False,
    ) -> None:
        self._budget_tokens = budget_tokens
        self._count = count
        self._summariser = summariser
        self._proactive = proactive
        self._own_counter = own_counter
        self._conversation = _Conversation()
        self._new: list[dict[str, Any]] = []
        self._sizes: dict[int, int] = {}
        self._agent = Agent(
            model=_Recorded(budget_tokens, self._answer),
            conversation_manager=manage(),
            callback_handler=None,
        )

    def _answer(self, messages: list[Any], system_prompt: str | None) -> str:
        prompt: list[Wire] = [{"role": "system", "content": system_prompt or ""}]
        for message in messages:
            prompt += self._conversation.wires(message)
        return self._summariser.summarize(prompt)

    def prepare(self, history: Sequence[Wire]) -> None:
        self._new += self._conversation.take(history)
        if self._conversation.system and self._agent.system_prompt is None:
            self._agent.system_prompt = "\n\n".join(_text(_blocks(wire)) for wire in self._conversation.system)

    def view(self, history: Sequence[Wire]) -> Any:
        agent, keeper = self._agent, self._agent.conversation_manager
        for message in self._new:
            asks = message["role"] == "user" and not any("toolResult" in block for block in message["content"])
            if asks and agent.messages and agent.messages[-1]["role"] == "assistant":
                keeper.apply_management(agent)
            agent.messages.append(message)
        self._new = []
        if self._proactive:
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
        """The neutral count of the request: what the provider goes by. O(messages)."""
        return sum(map(self._count, self._conversation.system)) + sum(map(self._size, self._agent.messages))

    def _size(self, message: Mapping[str, Any]) -> int:
        key = id(message["content"])  # the conversation keeps each list that it has seen
        if key not in self._sizes:
            self._sizes[key] = sum(map(self._count, self._conversation.wires(message)))
        return self._sizes[key]

    def finish(self, out: Any) -> list[Wire]:
        return self._conversation.system + [wire for message in out for wire in self._conversation.wires(message)]


def _makes(
    kind: Callable[..., ConversationManager], *, proactive: bool = False, own_counter: bool = False
) -> MakeSystem:
    return partial(
        _Managed,
        manage=partial(kind, proactive_compression=True) if proactive else kind,
        proactive=proactive,
        own_counter=own_counter,
    )


SYSTEMS: Final[Mapping[str, MakeSystem]] = {
    "strands SlidingWindow (defaults)": _makes(SlidingWindowConversationManager),
    "strands SlidingWindow (proactive)": _makes(SlidingWindowConversationManager, proactive=True),
    "strands Summarizing (defaults)": _makes(SummarizingConversationManager),
    "strands Summarizing (proactive)": _makes(SummarizingConversationManager, proactive=True),
}

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "strands SlidingWindow (proactive, own counter)": _makes(
        SlidingWindowConversationManager, proactive=True, own_counter=True
    ),
    "strands Summarizing (proactive, own counter)": _makes(
        SummarizingConversationManager, proactive=True, own_counter=True
    ),
}
