"""Microsoft's Agent Framework: a chat middleware, for an agent or a chat client. Extra: `agent-framework`.

Attached at `ChatMiddleware.process` (agent-framework-core 1.x; tests run 1.23.0), which runs around each call of the
model inside the loop over tools: a `CompactionStrategy` sees neither usage nor errors. Messages of the session are only
read, with their annotations (`_group`, `_excluded`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.content_blocks import counted_block, restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.codecs.blocks import same_items
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire
from foldline.view.transcript import Usage

try:
    from agent_framework import (
        ChatContext,
        ChatMiddleware,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionTool,
        Message,
        ResponseStream,
    )
except ImportError as error:
    raise MissingExtra("agent-framework", "the adapter for Agent Framework") from error

__all__ = ["ContentMessages", "FoldlineChatMiddleware"]

# What the framework keeps in a message for itself, and sends to no model.
_UNSENT: Final = frozenset({"usage", "function_approval_request", "function_approval_response"})
_APART: Final = _UNSENT | {"function_call", "function_result", "text_reasoning"}
_UNREAD: Final = {"additional_properties", "annotations", "id", "raw_representation", "usage_details"}


class ContentMessages:
    """Messages of Agent Framework as those of Chat Completions, whichever service they go to.

    A content that nothing shortens goes out as it is, so that forms of one service are never rewritten.
    """

    dialect: Final = "openai-chat"

    def read(self, message: Message, /) -> Sequence[Wire]:
        """An object for each result, and one for the rest; none for what the framework sends nowhere."""
        contents = message.contents
        role = "user" if message.role == "tool" else message.role
        wire: dict[str, Any] = {"role": role}
        wire["content"] = [_counted(content, role) for content in contents if content.type not in _APART]
        if thoughts := [_thought(content) for content in contents if content.type == "text_reasoning"]:
            wire["thinking_blocks"] = thoughts
        if calls := [_call(content) for content in contents if content.type == "function_call"]:
            wire["tool_calls"] = calls
        results = [_result(content) for content in contents if content.type == "function_result"]
        said = [wire] if wire["content"] or len(wire) > 2 else []
        # A result stands right behind its call: of a service's own tools both are in one message.
        return [*said, *results] if role == "assistant" else [*results, *said]

    def write(self, wires: Sequence[Wire], original: Message | None, /) -> Sequence[Message]:
        """Copies of the original with what is different, or new messages."""
        if original is None:
            return [_made(wire) for wire in wires]
        contents = _contents(wires, original, self.read(original))
        if same_items(contents, original.contents):
            return [original]
        copied = copy.copy(original)
        copied.contents = contents
        copied.additional_properties = dict(original.additional_properties)  # the framework annotates what it sends
        copied.raw_representation = None  # some clients send this in place of the contents
        return [copied]


def _counted(content: Content, role: str) -> Json:
    if content.type == "text":
        return {"type": "text", "text": content.text}
    if content.type in ("data", "uri") and role == "user":
        kind = "image" if str(content.media_type or "").startswith("image/") else "file"
        return counted_block({"type": kind, "url": content.uri, "mime_type": content.media_type}, role)
    return counted_block(content.to_dict(exclude=_UNREAD), role)


def _thought(content: Content) -> Json:
    return {"type": "thinking", "thinking": content.text or "", "signature": content.protected_data or ""}


def _call(content: Content) -> Json:
    given = content.arguments
    arguments = given if isinstance(given, str) else json.dumps(dict(given or {}), ensure_ascii=False, default=str)
    function = {"name": content.name or "", "arguments": arguments}
    return {"id": content.call_id, "type": "function", "function": function}


def _result(content: Content) -> Wire:
    blocks = [_counted(item, "tool") for item in _items(content)]
    return {"role": "tool", "tool_call_id": content.call_id, "content": blocks}


def _items(result: Content) -> Sequence[Content]:
    if result.items:
        return list(result.items)
    told = result.result
    text = told if isinstance(told, str) else "" if told is None else json.dumps(told, ensure_ascii=False, default=str)
    return [Content.from_text(text)]


def _made(wire: Wire) -> Message:
    content = wire.get("content") or ""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if wire["role"] == "tool":
        text = "\n".join(block.get("text", "") for block in blocks)
        return Message("tool", [Content.from_function_result(wire["tool_call_id"], result=text)])
    contents = [_content(block) for block in blocks]
    for call in wire.get("tool_calls") or ():
        function = call["function"]
        contents.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
    # System text too: not every service takes it among the messages.
    return Message("assistant" if wire["role"] == "assistant" else "user", contents)


def _content(block: Any) -> Content:
    """A block of Foldline's own as a content; a content that is shown whole is one already."""
    if isinstance(block, Content):
        return block
    if block.get("type") == "image_url":
        return Content.from_uri(block["image_url"]["url"], media_type="image/png")
    return Content.from_text(block.get("text", ""))


def _contents(wires: Sequence[Wire], original: Message, before: Sequence[Wire]) -> list[Content]:
    """The contents of a message as `wires` show them; `before` is the message as it was read."""
    said = next((wire for wire in wires if wire["role"] != "tool"), None)
    was = next((wire for wire in before if wire["role"] != "tool"), None)
    shown: list[list[Any]] = []
    if said is not None and was is not None:
        own = [content for content in original.contents if content.type not in _APART]
        shown = restored_blocks(said, was, own)
    calls = {call["id"]: call for call in (said or {}).get("tool_calls") or ()}
    # The same call may have several results, in the order of the message.
    results = [wire for wire in wires if wire["role"] == "tool"]
    rest = iter(shown)
    out: list[Content] = []
    for content in original.contents:
        if content.type in _UNSENT:
            out.append(content)
        elif content.type == "text_reasoning":
            out += [content] if said is not None and "thinking_blocks" in said else []
        elif content.type == "function_call":
            out += [_called(content, calls[content.call_id])] if content.call_id in calls else []
        elif content.type == "function_result":
            at = next((at for at, wire in enumerate(results) if wire["tool_call_id"] == content.call_id), None)
            out += [] if at is None else [_answered(content, results.pop(at))]
        else:
            out += map(_content, next(rest, []))
    # What is new stands where nothing was that it may stand for.
    return out + [_content(block) for blocks in rest for block in blocks]


def _called(content: Content, call: Json) -> Content:
    if call == _call(content):
        return content
    copied = copy.copy(content)
    copied.arguments, copied.raw_representation = call["function"]["arguments"], None
    return copied


def _answered(content: Content, wire: Wire) -> Content:
    before, items = _result(content), _items(content)
    if wire["content"] == before["content"]:
        return content
    sent = [_content(one) for found in restored_blocks(wire, before, items) for one in found]
    if same_items(sent, items):
        return content
    copied = copy.copy(content)
    copied.items, copied.raw_representation = sent, None
    copied.result = "\n".join(item.text or "" for item in sent if item.type == "text")
    return copied


class FoldlineChatMiddleware(ChatMiddleware):
    """Keeps the calls of an agent inside the model's window; its session stays whole.

    The settings are those of `AdapterSettings`. For `Agent(middleware=[…])`, or for a chat client, last in the list.
    """

    def __init__(self, **settings: Unpack[AdapterSettings]) -> None:
        self._adapter: Adapter[Message] = Adapter(ContentMessages(), settings)

    def context(self, session_id: Hashable | None = None) -> Context | None:
        """The context of a session, to look into between calls; None while there is none."""
        return self._adapter.context(session_id)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Send the call as it fits."""
        options: Mapping[str, Any] = context.options or {}
        if options.get("conversation_id"):
            # The service has the history, or a provider of history that runs after this: here is only what is new.
            await call_next()
            return
        messages = context.messages
        call = _model_call(context, options)

        async def send(shown: ShownCall[Message]) -> Any:
            context.messages, context.options = shown.messages, _options(shown, options)
            try:
                await call_next()
            finally:
                # Other middleware goes on with the whole history.
                context.messages, context.options = messages, options
            return context.result

        if not context.stream:
            context.result = await self._adapter.call_async(
                call, send, lambda response: None if response is None else _usage(response.usage_details)
            )
            return
        attempts: list[Any] = []

        async def sent(shown: ShownCall[Message]) -> AsyncGenerator[ChatResponseUpdate, None]:
            attempts.append(await send(shown))
            context.result = stream
            async for update in attempts[-1]:
                yield update

        async def final(updates: Sequence[ChatResponseUpdate]) -> ChatResponse[Any]:
            response: ChatResponse[Any] = await attempts[-1].get_final_response()
            return response

        stream = ResponseStream(self._adapter.stream_async(call, sent, _EVENTS), finalizer=final)
        context.result = stream


def _model_call(context: ChatContext, options: Mapping[str, Any]) -> ModelCall[Message]:
    client = context.client
    instructions, tools = options.get("instructions"), options.get("tools")
    tools = tools if isinstance(tools, list | tuple) else [tools]
    model = options.get("model") or getattr(client, "model", None)
    session = getattr(context, "session", None) or context.kwargs.get("session")  # 1.0 has it among the arguments
    cap = options.get("max_tokens")
    return ModelCall(
        messages=context.messages,
        key=getattr(session, "session_id", None),
        model=model if isinstance(model, str) else None,
        system="\n".join(instructions) if isinstance(instructions, list | tuple) else instructions,
        tools=[_definition(tool) for tool in tools if tool is not None],
        max_output_tokens=cap if isinstance(cap, int) and cap > 0 else None,
        endpoint=str(getattr(getattr(client, "client", None), "base_url", "") or ""),
    )


def _definition(tool: Any) -> Json:
    if isinstance(tool, FunctionTool):
        return tool.to_json_schema_spec()
    # Of a tool that the service runs: only the service knows what it takes.
    return dict(tool) if isinstance(tool, Mapping) else {"type": type(tool).__name__}


def _options(shown: ShownCall[Message], options: Mapping[str, Any]) -> Mapping[str, Any]:
    if shown.max_output_tokens is not None:
        options = {**options, "max_tokens": shown.max_output_tokens}
    if shown.system is None and "instructions" in options:
        options = {name: value for name, value in options.items() if name != "instructions"}
    return options


def _usage(found: Mapping[str, Any] | None) -> Usage | None:
    """What a service reported; None where that says nothing."""
    report = found or {}
    read = report.get("cache_read_input_token_count") or 0
    written = report.get("cache_creation_input_token_count") or 0
    # Anthropic's input is what came from no cache and went into none; that of others holds both.
    apart = any(name.startswith("anthropic.") for name in report)
    tokens = (report.get("input_token_count") or 0) + (read + written if apart else 0)
    if not tokens:
        return None
    output_tokens = report.get("output_token_count") or 0
    return Usage(input_tokens=tokens, output_tokens=output_tokens, cached_tokens=read, written_tokens=written)


def _update_usage(update: ChatResponseUpdate) -> Usage | None:
    reports = (content.usage_details for content in update.contents or () if content.type == "usage")
    return next((usage for report in reports if (usage := _usage(report)) is not None), None)


_EVENTS: Final[StreamEvents[ChatResponseUpdate]] = StreamEvents(
    begins=lambda update: any(content.type != "usage" for content in update.contents or ()), usage_of=_update_usage
)
