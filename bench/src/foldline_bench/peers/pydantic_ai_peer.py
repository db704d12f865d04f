"""Pydantic AI's harness: its capabilities for compaction, by the hook `before_model_request` that an agent calls.

Each rewrites the history of the run, so the next request starts from what it left. The system message stands apart as
the agent's instructions, which stay in force whatever is cut. Each is triggered at the budget (`max_tokens`, or
`target_tokens`), none having a default; all else is the default unless it is named:

"SlidingWindow": the first user message and the last 40 messages, a message being a reply or all that follows it.
"SlidingWindow (half kept)": `keep_tokens` of half the budget in place of 40 messages. "ClearToolResults": the last 3
pairs kept. "Summarizing": one summary, updated from time to time, and the last 20 messages. "Tiered": its README's
order for agents, `ClearToolResults` and then `SummarizingCompaction`; without `DeduplicateFileReads`, which must be
told which tools read files. "limits + Tiered": the same behind `ToolOutputLimits`, whose README has it shorten what a
tool returns before the history sees it: over 10,000 characters it leaves a preview of 1,000 and spills the rest to a
store (in memory here), by default; "truncate" has it keep 4,000 characters of both ends instead.

The harness has no answer to a provider's refusal, so a request over the budget is sent as it is. The summariser is a
`FunctionModel` that returns recorded texts; of the prompt it summarises what stands in `<message>` elements, which no
content can forge, and in `<previous-summary>`.

Its counter starts from the usage that the provider reported with the last reply, and estimates what came since. So the
neutral counter reports that usage, as a provider would, and is the `tokenizer` for the rest; for "own counter" nothing
is reported, and its estimate of four characters a token counts all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic_ai.messages import (
    CompactionPart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters, _conversation_summary_text
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits
from pydantic_ai_harness.compaction import (
    ClearToolResults,
    SlidingWindowCompaction,
    SummarizingCompaction,
    TieredCompaction,
)
from pydantic_ai_harness.tool_output_limits import Band, ToolOutputLimits, Truncate

from foldline.messages import Wire
from foldline_bench.peers.adapters import Loop, text_counter
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("pydantic-ai-harness", "pydantic-ai-slim")

_ELEMENT: Final = re.compile(
    r'<(?P<tag>message|previous-summary)(?=[ >])(?: role="(?P<role>\w+)")?(?: name="(?P<name>[^"]*)")?[^>]*>\n'
    r"(?P<body>.*?)\n</(?P=tag)>",
    re.DOTALL,
)
_LIMIT_CHARS: Final = 10_000  # the threshold of ToolOutputLimits' default band

Tokenizer = Callable[[str], int] | None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(item if isinstance(item, str) else "<image>" for item in content or ())


def _user_content(content: Any) -> Any:
    if isinstance(content, str) or content is None:
        return content or ""
    return [
        ImageUrl(url=block["image_url"]["url"]) if "image_url" in block else block.get("text", "") for block in content
    ]


def _texts(wire: Wire) -> Iterator[str]:
    """The texts of a message that the package counts."""
    yield _text(_user_content(wire.get("content")))
    for call in wire.get("tool_calls") or ():
        yield from (call["function"]["name"], call["function"]["arguments"])


class _HarnessRun:
    """The session as the history of a run, and the way back, by the identity of parts and replies."""

    def __init__(self) -> None:
        self.system: list[Wire] = []
        self.messages: list[Any] = []
        self._known: dict[int, tuple[Any, Wire]] = {}
        self._names: dict[str, str] = {}

    @property
    def instructions(self) -> str | None:
        return "\n\n".join(_text(_user_content(wire["content"])) for wire in self.system) or None

    def know(self, thing: Any, wire: Wire) -> Any:
        self._known[id(thing)] = (thing, wire)
        return thing

    def reply(self, wire: Wire, usage: RequestUsage) -> ModelResponse:
        parts: list[Any] = [TextPart(text)] if (text := _text(_user_content(wire.get("content")))) else []
        for call in wire.get("tool_calls") or ():
            function = call["function"]
            self._names[call["id"]] = function["name"]
            parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
        response: ModelResponse = self.know(ModelResponse(parts=parts or [TextPart("")], usage=usage), wire)
        return response

    def name_of(self, wire: Wire) -> str:
        return self._names.get(wire["tool_call_id"], "tool")

    def part(self, wire: Wire) -> Any:
        """One part of a request: words of a user, or a tool's result."""
        content = _user_content(wire.get("content"))
        if wire["role"] == "tool":
            return self.know(ToolReturnPart(self.name_of(wire), _text(content), wire["tool_call_id"]), wire)
        kind = SystemPromptPart if wire["role"] == "system" else UserPromptPart
        return self.know(kind(content), wire)

    def wires(self, messages: Sequence[Any]) -> Iterator[Wire]:
        for message in messages:
            if isinstance(message, ModelRequest):
                yield from (self._wire(part, _request_part) for part in message.parts)
            else:
                yield self._wire(message, _reply)

    def _wire(self, thing: Any, write: Callable[[Any], Wire]) -> Wire:
        known = self._known.get(id(thing))
        if known is None:
            self.know(thing, write(thing))
            known = self._known[id(thing)]
        return known[1]


def _request_part(part: Any) -> Wire:
    """A part that the package wrote, as its models for Chat Completions send it."""
    if isinstance(part, ToolReturnPart):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
    if isinstance(part, CompactionPart):
        return {"role": "user", "content": _conversation_summary_text(part.content)}
    return {"role": "system" if isinstance(part, SystemPromptPart) else "user", "content": _text(part.content)}


def _reply(message: ModelResponse) -> Wire:
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    text = "\n\n".join(part.content for part in message.parts if isinstance(part, TextPart))
    return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


def _said(prompt: str) -> Iterator[Wire]:
    """The messages in the prompt for a summary; the summary that it updates comes first.

    What an assistant says and the calls that it makes with it are one message, as they are for every other system.
    """
    before = ""
    found = sorted(_ELEMENT.finditer(prompt), key=lambda element: element["tag"] == "message")
    for element in found:
        goes_on, before = element["role"] == "tool_call" and before in {"assistant", "tool_call"}, element["role"] or ""
        if goes_on:
            continue
        name = f"{element['name']} " if element["role"] == "tool_call" else ""
        yield {"role": element["role"] or "summary", "content": name + element["body"]}


class _Store:
    """Where outputs are spilled to, in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def write(self, key: str, data: bytes) -> str:
        self._kept[key] = data
        return key

    async def read(self, handle: str) -> bytes:
        return self._kept[handle]


class _HarnessSystem:
    """One capability on the history of one run."""

    def __init__(
        self,
        budget_tokens: int,
        count: Count,
        summariser: FixedSummariser,
        *,
        capability: Callable[[int, Tokenizer], Any],
        limits: Callable[[], ToolOutputLimits[Any]] | None = None,
        own_counter: bool = False,
    ) -> None:
        self._count = count
        self._summariser = summariser
        self._own_counter = own_counter
        self._text_tokens = text_counter(count)
        self._capability = capability(budget_tokens, None if own_counter else self._text_tokens)
        self._limits = limits() if limits else None
        self._model = FunctionModel(self._answer)
        self._run = _HarnessRun()
        self._pending: list[tuple[Wire, Any]] = []
        self._taken = 0
        self._sent: Sequence[Wire] = ()
        self._open: Any = None  # the request that what users and tools say still goes to
        self._loop = Loop()
        self._context: RunContext[Any] = RunContext(
            deps=None,
            model=self._model,
            usage=RunUsage(),
            usage_limits=UsageLimits(request_limit=None),  # 50 by default, which these sessions are longer than
            messages=self._run.messages,
        )

    def _answer(self, messages: list[Any], info: AgentInfo) -> ModelResponse:
        prompt: list[Wire] = [{"role": "system", "content": info.instructions or ""}]
        for message in messages:
            prompt += [_request_part(part) for part in message.parts]
        said = [wire for asked in prompt[1:] for wire in _said(asked["content"])]
        return ModelResponse(parts=[TextPart(self._summariser.summarize(prompt, said=said))])

    def prepare(self, history: Sequence[Wire]) -> None:
        run = self._run
        for wire in history[self._taken :]:
            self._taken += 1
            if not self._own_counter:
                for text in _texts(wire):  # counted here, as the neutral counter knows the messages for all
                    self._text_tokens(text)
            if wire["role"] == "system" and not run.messages and not self._pending:
                run.system.append(wire)
            elif wire["role"] == "assistant":
                self._pending.append((wire, run.reply(wire, self._usage(wire))))
                self._sent = ()
            else:
                self._pending.append((wire, run.part(wire)))

    def _usage(self, reply: Wire) -> RequestUsage:
        """The usage that a provider would have reported for the last request."""
        if self._own_counter or not self._sent:
            return RequestUsage()
        return RequestUsage(input_tokens=sum(map(self._count, self._sent)), output_tokens=self._count(reply))

    def view(self, history: Sequence[Wire]) -> Any:
        return self._loop.run(self._request())

    async def _request(self) -> list[Any]:
        messages = self._run.messages
        for wire, thing in self._pending:
            if isinstance(thing, ModelResponse):
                messages.append(thing)
                self._open = None
                continue
            part = await self._limited(wire, thing) if self._limits and wire["role"] == "tool" else thing
            if self._open is None:
                self._open = ModelRequest(parts=[], instructions=self._run.instructions)
                messages.append(self._open)
            self._open.parts.append(part)
        self._pending = []
        request = ModelRequestContext(
            model=self._model,
            messages=list(messages),
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        request = await self._capability.before_model_request(self._context, request)
        return list(request.messages)

    async def _limited(self, wire: Wire, part: ToolReturnPart) -> ToolReturnPart:
        assert self._limits is not None
        result = await self._limits.after_tool_execute(
            self._context,
            call=ToolCallPart(part.tool_name, "{}", part.tool_call_id),
            tool_def=ToolDefinition(name=part.tool_name),
            args={},
            result=part.content,
        )
        kept = result.return_value if isinstance(result, ToolReturn) else result
        return part if kept is part.content else ToolReturnPart(part.tool_name, kept, part.tool_call_id)

    def finish(self, out: Any) -> list[Wire]:
        wires = self._run.system + list(self._run.wires(out))
        self._sent = wires
        return wires


def _sliding(budget_tokens: int, tokenizer: Tokenizer, *, half_kept: bool = False) -> Any:
    kept = {"keep_tokens": budget_tokens // 2} if half_kept else {}
    return SlidingWindowCompaction(max_tokens=budget_tokens, tokenizer=tokenizer, **kept)


def _clear(budget_tokens: int, tokenizer: Tokenizer) -> Any:
    return ClearToolResults(max_tokens=budget_tokens, tokenizer=tokenizer)


def _summarizing(budget_tokens: int, tokenizer: Tokenizer) -> Any:
    return SummarizingCompaction(max_tokens=budget_tokens, tokenizer=tokenizer)


def _tiered(budget_tokens: int, tokenizer: Tokenizer) -> Any:
    return TieredCompaction(
        tiers=[
            ClearToolResults(max_tokens=1, keep_pairs=3, tokenizer=tokenizer),
            SummarizingCompaction(max_messages=1, keep_messages=20, tokenizer=tokenizer),
        ],
        target_tokens=budget_tokens,
        tokenizer=tokenizer,
    )


def _spilling() -> ToolOutputLimits[Any]:
    return ToolOutputLimits(store=_Store())


def _truncating() -> ToolOutputLimits[Any]:
    return ToolOutputLimits(bands=[Band(over=_LIMIT_CHARS, action=Truncate())])


SYSTEMS: Final[Mapping[str, MakeSystem]] = {
    "pydantic-ai SlidingWindow": partial(_HarnessSystem, capability=_sliding),
    "pydantic-ai SlidingWindow (half kept)": partial(_HarnessSystem, capability=partial(_sliding, half_kept=True)),
    "pydantic-ai ClearToolResults": partial(_HarnessSystem, capability=_clear),
    "pydantic-ai Summarizing": partial(_HarnessSystem, capability=_summarizing),
    "pydantic-ai Tiered": partial(_HarnessSystem, capability=_tiered),
    "pydantic-ai limits + Tiered": partial(_HarnessSystem, capability=_tiered, limits=_spilling),
    "pydantic-ai limits (truncate) + Tiered": partial(_HarnessSystem, capability=_tiered, limits=_truncating),
}

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "pydantic-ai SlidingWindow (half kept, own counter)": partial(
        _HarnessSystem, capability=partial(_sliding, half_kept=True), own_counter=True
    ),
    "pydantic-ai Summarizing (own counter)": partial(_HarnessSystem, capability=_summarizing, own_counter=True),
    "pydantic-ai limits + Tiered (own counter)": partial(
        _HarnessSystem, capability=_tiered, limits=_spilling, own_counter=True
    ),
}
