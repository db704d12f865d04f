"""Microsoft's Agent Framework: its compaction strategies, by `apply_compaction`, as its chat clients call it.

A client compacts the list of messages that the loop of an agent goes on with, in place, before each call of the model:
what was left out stays left out, and the summaries stay in. So one list lives through the session here. The system
message is in it, as the framework puts it there, and all strategies leave it alone.

"ContextWindow": `ContextWindowCompactionStrategy(max_context_window_tokens=budget, max_output_tokens=0)` and its
defaults, which is what the framework itself gives to the agents of its harness: results of tools older than the last 4
are written into one line each from 0.5 of the window on, and the oldest groups left out from 0.8 on. "first user kept":
the same with `preserve_first_user_group=True`. "pipeline": the composition that its manual shows for long sessions,
`TokenBudgetComposedStrategy` of `ToolResultCompactionStrategy(1)`, `SummarizationStrategy(target_count=4, threshold=2)`
and `SlidingWindowStrategy(20)`, within the budget. "Truncation": `TruncationStrategy(max_n=budget, compact_to=half)`;
it has no default target. "Summarization": `SummarizationStrategy` alone with its defaults, which goes by the number of
messages (more than 6) and knows no tokens.

The summariser is a chat client that returns recorded texts. It is shown one text, in which each message begins with
"1. [user]", its number and its role; it is summarised message by message. An error inside a summary is caught by the
strategy, which then leaves all as it is. Counters: a tokenizer is given the serialised message. The neutral one finds
the recorded message by the id in it, and counts others by their text; "own counter" is the characters over four of the
package.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from agent_framework import (
    CharacterEstimatorTokenizer,
    ChatResponse,
    Content,
    ContextWindowCompactionStrategy,
    Message,
    SlidingWindowStrategy,
    SummarizationStrategy,
    TokenBudgetComposedStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
    apply_compaction,
)

from foldline.messages import Wire
from foldline_bench.peers.adapters import Loop, text_counter
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("agent-framework-core",)

_SERIALISED: Final = '{"contents": '
_ID: Final = '"message_id": "'
_NUMBERED: Final = re.compile(r"(?P<number>\d+)\. \[(?P<role>system|user|assistant|tool)\] ")

logging.getLogger("agent_framework").setLevel(logging.CRITICAL)  # it tells of each request that it cannot fit


def _message(wire: Wire, number: int) -> Message:
    content = wire.get("content")
    if wire["role"] == "tool":
        text = content if isinstance(content, str) else json.dumps(content)
        parts = [Content.from_function_result(wire["tool_call_id"], result=text)]
    else:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        parts = [_content(block) for block in blocks if block.get("type") != "text" or block["text"]]
        for call in wire.get("tool_calls") or ():
            function = call["function"]
            parts.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
    return Message(wire["role"], parts, message_id=f"recorded-{number}")


def _content(block: Mapping[str, Any]) -> Any:
    url = block.get("image_url", {}).get("url", "")
    return Content.from_uri(url, media_type="image/png") if url else Content.from_text(block.get("text", ""))


class _Neutral:
    """The neutral counter, as a tokenizer of serialised messages."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._text_tokens = text_counter(count)
        self.recorded: dict[str, Wire] = {}
        self._made: dict[str, Wire] = {}

    def count_tokens(self, text: str) -> int:
        if not text.startswith(_SERIALISED):  # a text of the package's own, such as the prompt for a summary
            return self._text_tokens(text)
        name = text.rpartition(_ID)[2].partition('"')[0]
        if name in self.recorded:
            return self._count(self.recorded[name])
        made = self._made.get(text)
        if made is None:
            payload = json.loads(text)
            made = self._made[text] = {"role": payload["role"], "content": _text(payload["contents"])}
        return self._count(made)


def _text(contents: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(content.get("text", "")) for content in contents)


class _Recorded:
    """A chat client that answers with the recorded summaries."""

    additional_properties: Final[dict[str, Any]] = {}

    def __init__(self, summariser: FixedSummariser) -> None:
        self._summariser = summariser

    async def get_response(self, messages: Sequence[Message], **kwargs: Any) -> ChatResponse:
        prompt = [{"role": message.role, "content": message.text} for message in messages]
        text = self._summariser.summarize(prompt, said=list(_said(messages[-1].text)))
        return ChatResponse(messages=Message("assistant", [text]))


def _said(text: str) -> Iterator[Wire]:
    """The numbered messages in the text of a prompt. Numbers go up by one, which tells them from similar lines."""
    role, number, body = "", 1, ""
    for line in text.splitlines():
        head = _NUMBERED.match(line)
        if head is None or int(head["number"]) != number:
            body += f"\n{line}"
            continue
        if role:
            yield {"role": role, "content": body}
        role, number, body = head["role"], number + 1, line[head.end() :]
    if role:
        yield {"role": role, "content": body}


class _CompactedHistory:
    """One strategy on one list of messages, which it changes in place."""

    def __init__(
        self,
        budget_tokens: int,
        count: Count,
        summariser: FixedSummariser,
        *,
        strategy: Callable[[int, Any, _Recorded], Any],
        own_counter: bool = False,
    ) -> None:
        self._neutral = _Neutral(count)
        self._tokenizer = CharacterEstimatorTokenizer() if own_counter else self._neutral
        self._strategy = strategy(budget_tokens, self._tokenizer, _Recorded(summariser))
        self._messages: list[Message] = []
        self._new: list[Message] = []
        self._summaries: dict[int, Wire] = {}
        self._taken = 0
        self._loop = Loop()

    def prepare(self, history: Sequence[Wire]) -> None:
        for wire in history[self._taken :]:
            message = _message(wire, self._taken)
            self._neutral.recorded[message.message_id] = wire
            self._new.append(message)
            self._taken += 1

    def view(self, history: Sequence[Wire]) -> Any:
        self._messages += self._new
        self._new = []
        return self._loop.run(apply_compaction(self._messages, strategy=self._strategy, tokenizer=self._tokenizer))

    def finish(self, out: Any) -> list[Wire]:
        """Everything that is not recorded is a summary: no strategy changes the content of a message."""
        return [self._neutral.recorded.get(message.message_id) or self._summary(message) for message in out]

    def _summary(self, message: Message) -> Wire:
        # The list of messages keeps each of them, so that its identity is given to no other.
        return self._summaries.setdefault(id(message), {"role": message.role, "content": message.text})


def _context_window(budget_tokens: int, tokenizer: Any, client: _Recorded, *, first_user: bool = False) -> Any:
    return ContextWindowCompactionStrategy(
        max_context_window_tokens=budget_tokens,
        max_output_tokens=0,
        tokenizer=tokenizer,
        preserve_first_user_group=first_user,
    )


def _truncation(budget_tokens: int, tokenizer: Any, client: _Recorded) -> Any:
    return TruncationStrategy(max_n=budget_tokens, compact_to=max(1, budget_tokens // 2), tokenizer=tokenizer)


def _pipeline(budget_tokens: int, tokenizer: Any, client: _Recorded) -> Any:
    return TokenBudgetComposedStrategy(
        token_budget=budget_tokens,
        tokenizer=tokenizer,
        strategies=[
            ToolResultCompactionStrategy(keep_last_tool_call_groups=1),
            SummarizationStrategy(client=client, target_count=4, threshold=2, tokenizer=tokenizer),
            SlidingWindowStrategy(keep_last_groups=20),
        ],
    )


def _summarization(budget_tokens: int, tokenizer: Any, client: _Recorded) -> Any:
    return SummarizationStrategy(client=client, tokenizer=tokenizer)


SYSTEMS: Final[Mapping[str, MakeSystem]] = {
    "agent-framework ContextWindow (defaults)": partial(_CompactedHistory, strategy=_context_window),
    "agent-framework ContextWindow (first user kept)": partial(
        _CompactedHistory, strategy=partial(_context_window, first_user=True)
    ),
    "agent-framework pipeline with summaries": partial(_CompactedHistory, strategy=_pipeline),
    "agent-framework Truncation": partial(_CompactedHistory, strategy=_truncation),
    "agent-framework Summarization (defaults)": partial(_CompactedHistory, strategy=_summarization),
}

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "agent-framework ContextWindow (defaults, own counter)": partial(
        _CompactedHistory, strategy=_context_window, own_counter=True
    ),
    "agent-framework pipeline with summaries (own counter)": partial(
        _CompactedHistory, strategy=_pipeline, own_counter=True
    ),
    "agent-framework Truncation (own counter)": partial(_CompactedHistory, strategy=_truncation, own_counter=True),
}
