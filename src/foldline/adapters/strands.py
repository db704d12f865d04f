"""Strands Agents: a middleware of an agent. Extra: `strands`.

Attached at `InvokeModelStage` by `agent.add_middleware` (strands-agents 1.62), around each call of the model: what it
passes on are copies, and `agent.messages` and every session keep the whole history. The agent's own conversation
manager edits that history in place, so it must be `NullConversationManager`.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.content_blocks import chat_call, chat_tool, counted_block, restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.adapters.translation import shown_places
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire
from foldline.view.transcript import Usage

try:
    from strands.middleware import InvokeModelContext, InvokeModelStage
except ImportError as error:
    raise MissingExtra("strands", "the adapter for Strands Agents") from error

__all__ = ["FoldlineStrands", "StrandsMessages"]

# What stands beside the content in Chat Completions, each block being an object with one of these names.
_BESIDE: Final = frozenset({"toolResult", "toolUse", "reasoningContent"})
_DOCUMENTS: Final[Mapping[str, str]] = {"pdf": "application/pdf"}


class StrandsMessages:
    """Messages of Strands as those of Chat Completions, whichever provider they go to.

    A message of the user holds all results of a turn, and words. A block that nothing shortens goes out as it is.
    """

    dialect: Final = "openai-chat"

    def read(self, message: Any, /) -> Sequence[Wire]:
        """One object for each result of a tool, and one for everything else; metadata is left out."""
        results = [_result(block["toolResult"]) for block in message["content"] if "toolResult" in block]
        rest = [block for block in message["content"] if "toolResult" not in block]
        return [*results, _said(message["role"], rest)] if rest or not results else results

    def write(self, wires: Sequence[Wire], original: Any | None, /) -> Sequence[Any]:
        """Copies of the original with what is different, or new messages."""
        if original is None:
            return [_made(wire) for wire in wires]
        before = self.read(original)
        if list(wires) == list(before):
            return [original]
        results = [block for block in original["content"] if "toolResult" in block]
        rest = [block for block in original["content"] if "toolResult" not in block]
        content: list[Any] = []
        for wire, place in zip(wires, shown_places(wires, before), strict=True):
            if place is None:
                content += _made(wire)["content"]
            elif place < len(results):
                content.append(results[place] if wire == before[place] else _changed_result(wire, results[place]))
            else:
                content += _changed(wire, before[place], rest)
        # What only a rule of Chat Completions has changed is as it was.
        return [original if content == [*results, *rest] else {**original, "content": content}]


def _result(result: Any) -> Wire:
    blocks = [_block(block, "tool") for block in result["content"]]
    plain = len(blocks) == 1 and not {"text", "json"}.isdisjoint(result["content"][0])
    return {
        "role": "tool",
        "tool_call_id": result["toolUseId"],
        "content": blocks[0]["text"] if plain else blocks,
    }


def _said(role: str, blocks: Sequence[Any]) -> Wire:
    """What a message says beside results: thoughts and calls where Chat Completions has them."""
    own = _own(blocks)
    plain = not own or (len(own) == 1 and set(own[0]) == {"text"})
    content = "".join(block["text"] for block in own) if plain else [_block(block, role) for block in own]
    wire: dict[str, Any] = {"role": role, "content": content}
    if thoughts := [_thought(block["reasoningContent"]) for block in blocks if "reasoningContent" in block]:
        wire["thinking_blocks"] = thoughts
    if calls := [block["toolUse"] for block in blocks if "toolUse" in block]:
        wire["tool_calls"] = [chat_call(call["toolUseId"], call["name"], _arguments(call["input"])) for call in calls]
    return wire


def _own(blocks: Sequence[Any]) -> list[Any]:
    return [block for block in blocks if not _BESIDE & set(block)]


def _thought(reasoning: Any) -> Json:
    text = reasoning.get("reasoningText") or {}
    if "text" not in text:
        return {"type": "redacted_thinking", "data": _base64(reasoning.get("redactedContent") or b"")}
    return {"type": "thinking", "thinking": text["text"], "signature": text.get("signature") or ""}


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)


def _base64(data: Any) -> str:
    return base64.b64encode(data).decode() if isinstance(data, bytes) else str(data)


def _block(block: Any, role: str) -> Json:
    """A block as it is counted."""
    if "text" in block and isinstance(block["text"], str):
        return {"type": "text", "text": block["text"]}
    if "json" in block:
        return {"type": "text", "text": json.dumps(block["json"], ensure_ascii=False, default=str)}
    if "cachePoint" in block:
        return {"type": "text", "text": ""}
    kind = next(iter(block))
    told, data = block[kind], (block[kind].get("source") or {}).get("bytes") if isinstance(block[kind], dict) else None
    if data is None:
        return counted_block({"type": kind, kind: told}, role)
    form = str(told.get("format"))
    mime = f"image/{form}" if kind == "image" else _DOCUMENTS.get(form, f"application/{form}")
    return counted_block({"type": kind, "base64": _base64(data), "mime_type": mime}, role)


def _items(content: Any) -> list[Any]:
    """Content of Chat Completions as blocks of Strands; those that are already stay."""
    if isinstance(content, str):
        return [{"text": content}]
    return [_item(block) if "type" in block else block for block in content or ()]


def _item(block: Any) -> Any:
    head, _, data = block.get("image_url", {}).get("url", "").partition(";base64,")
    if not data:
        return {"text": block.get("text", "")}
    form = head.rpartition("/")[2]
    return {"image": {"format": form, "source": {"bytes": base64.b64decode(data)}}}


def _changed_result(wire: Wire, block: Any) -> Any:
    result, content = block["toolResult"], wire.get("content")
    before = _result(result)
    if not isinstance(before["content"], str):
        content = [one for sent in restored_blocks(wire, before, result["content"]) for one in sent]
    return {"toolResult": {**result, "toolUseId": wire["tool_call_id"], "content": _items(content)}}


def _changed(wire: Wire, before: Wire, blocks: Sequence[Any]) -> Iterator[Any]:
    """The blocks beside results that are shown, each as it is shown."""
    own = _own(blocks)
    counted = {**before, "content": [_block(block, str(before["role"])) for block in own]}
    sent = iter(restored_blocks(wire, counted, own))
    arguments = {call["id"]: call["function"]["arguments"] for call in wire.get("tool_calls") or ()}
    for block in blocks:
        if "reasoningContent" in block:
            if "thinking_blocks" in wire:
                yield block
        elif "toolUse" in block:
            given = arguments.get(block["toolUse"]["toolUseId"])
            if given is not None:
                same = given == _arguments(block["toolUse"]["input"])
                yield block if same else {"toolUse": {**block["toolUse"], "input": _input(given)}}
        else:
            yield from _items(next(sent))
    yield from (block for added in sent for block in _items(added))


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _made(wire: Wire) -> Any:
    content = _items(wire.get("content") or "")
    if wire["role"] == "tool":
        result = {"toolUseId": wire["tool_call_id"], "status": "success", "content": content}
        return {"role": "user", "content": [{"toolResult": result}]}
    calls = [(call["id"], call["function"]) for call in wire.get("tool_calls") or ()]
    used = [
        {"toolUse": {"toolUseId": call_id, "name": call["name"], "input": _input(call["arguments"])}}
        for call_id, call in calls
    ]
    said = [block for block in content if block.get("text") != "" or not used]
    return {"role": "assistant" if wire["role"] == "assistant" else "user", "content": [*said, *used]}


class FoldlineStrands:
    """Keeps the calls of an agent inside the model's window; the settings are those of `AdapterSettings`.

    `attach(agent)` puts it around the agent's calls; several agents may share it.
    """

    def __init__(self, **settings: Unpack[AdapterSettings]) -> None:
        self._adapter: Adapter[Any] = Adapter(StrandsMessages(), settings)

    def attach(self, agent: Any) -> None:
        """Put this around the calls of an agent. Strands cannot take it off again."""
        agent.add_middleware(InvokeModelStage, self)

    def context(self, agent: Any) -> Context | None:
        """The context of an agent's conversation, to look into between calls; None while there is none."""
        return self._adapter.context(_key(agent))

    async def __call__(
        self, context: InvokeModelContext, next_fn: Callable[[InvokeModelContext], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        """The events of a call that fits: the wrap handler of the stage."""

        if context.model.stateful:  # the server has the history
            async for event in next_fn(context):
                yield event
            return

        async def sent(shown: ShownCall[Any]) -> AsyncGenerator[Any, None]:
            async for event in next_fn(_shown(context, shown)):
                yield event

        async for event in self._adapter.stream_async(_model_call(context), sent, _EVENTS):
            yield event


def _key(agent: Any) -> Hashable:
    return (agent.session_id, agent.agent_id)


def _config(model: Any) -> Mapping[str, Any]:
    config = getattr(model, "config", None)
    return config if isinstance(config, Mapping) else {}


def _cap(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """The name and the figure of the cap on output, which some models have among `params`."""
    places = {**config, **(config.get("params") or {})}
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next(((name, places[name]) for name in names if isinstance(places.get(name), int)), None)


def _model_call(context: InvokeModelContext) -> ModelCall[Any]:
    model, config, system = context.model, _config(context.model), context.system_prompt
    cap, client = _cap(config), getattr(model, "client_args", None) or {}
    return ModelCall(
        messages=context.messages,
        key=_key(context.agent),
        model=str(config["model_id"]) if "model_id" in config else None,
        system=[_block(block, "system") for block in system] if isinstance(system, list) else system,
        tools=[chat_tool(spec["name"], spec["description"], _schema(spec)) for spec in context.tool_specs],
        window=model.context_window_limit,
        max_output_tokens=None if cap is None else cap[1],
        endpoint=str(client.get("base_url") or type(model).__name__),
    )


def _schema(spec: Any) -> Any:
    schema = spec["inputSchema"]
    return schema.get("json", schema)


def _shown(context: InvokeModelContext, shown: ShownCall[Any]) -> InvokeModelContext:
    changes: dict[str, Any] = {"messages": shown.messages}
    if shown.system is None and context.system_prompt is not None:
        changes["system_prompt"] = None
    config = dict(_config(context.model))
    if shown.max_output_tokens is not None and config:
        name, _ = _cap(config) or ("max_tokens", 0)
        among = name in (config.get("params") or {}) or ("params" in config and name not in config)
        cap = {name: shown.max_output_tokens}
        model = copy.copy(context.model)  # the model itself serves other calls too
        model.config = {**config, "params": {**config["params"], **cap}} if among else {**config, **cap}
        changes["model"] = model
    return context.replace(**changes)


def _usage(event: Any) -> Usage | None:
    """What the provider reported: whatever Strands counts as input, the total holds what a cache read and wrote too."""
    usage = event["stop"][2] if "stop" in event else {}
    if not usage.get("totalTokens"):
        return None
    return Usage(
        input_tokens=usage["totalTokens"] - usage["outputTokens"],
        output_tokens=usage["outputTokens"],
        cached_tokens=usage.get("cacheReadInputTokens") or 0,
        written_tokens=usage.get("cacheWriteInputTokens") or 0,
    )


def _begins(event: Any) -> bool:
    """Whether an event holds a part of the answer, or ends it."""
    return "stop" in event or "delta" in event or "data" in event or "contentBlockDelta" in (event.get("event") or {})


_EVENTS: Final[StreamEvents[Any]] = StreamEvents(begins=_begins, usage_of=_usage)
