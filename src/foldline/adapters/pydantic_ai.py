"""Pydantic AI: a capability of an agent. Extra: `pydantic-ai`.

Attached at `prepare_model_request`, which runs before each attempt, `after_model_request`, and `on_model_request_error`
with `RetryModelRequest` (2.68; `wrap_model_request` says when the last attempt is over). What they change is unstored.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Unpack, cast

from foldline.adapters.adapter import Adapter
from foldline.adapters.attempts import Attempts
from foldline.adapters.content_blocks import chat_call, chat_tool, counted_block, restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall
from foldline.adapters.translation import shown_places
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire
from foldline.view.transcript import Usage

try:
    from pydantic_ai import messages as forms
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ModelFallback
    from pydantic_ai.exceptions import RetryModelRequest
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext
except ImportError as error:
    raise MissingExtra("pydantic-ai", "the adapter for Pydantic AI") from error

__all__ = ["FoldlineCapability", "PydanticMessages"]

_ATTEMPTS: ContextVar[Attempts[ModelMessage] | None] = ContextVar("foldline_attempts", default=None)
# What stands beside the content of a response in Chat Completions.
_BESIDE: Final = (forms.CompactionPart, forms.ThinkingPart, forms.ToolCallPart)


class PydanticMessages:
    """Pydantic AI's messages as those of Chat Completions, whichever provider they go to.

    A `ModelRequest` holds several: results of tools, words of the user. Parts that no request may lose, such as a
    `CompactionPart` and changes of instructions, are read as system text, which no fold touches.
    """

    dialect: Final = "openai-chat"

    def read(self, message: ModelMessage, /) -> Sequence[Wire]:
        """One object for each part of a request, results first; one for a response, after its compaction."""
        if isinstance(message, ModelRequest):
            return [wire for _, wire in _request_parts(message)]
        kept = [_standing(part) for part in message.parts if isinstance(part, forms.CompactionPart)]
        return [*kept, _said(message)] if len(kept) < len(message.parts) or not kept else kept

    def write(self, wires: Sequence[Wire], original: ModelMessage | None, /) -> Sequence[ModelMessage]:
        """Copies of the original with what is different, or new messages."""
        if original is None:
            return [_made(wire) for wire in wires]
        if list(wires) == list(self.read(original)):
            return [original]
        if isinstance(original, ModelRequest):
            return [replace(original, parts=_changed_request(wires, original))]
        parts = list(_changed_response(wires, original))
        # What only a rule of Chat Completions has changed is as it was.
        return [original if [*map(id, parts)] == [*map(id, original.parts)] else replace(original, parts=parts)]


def _request_parts(message: ModelRequest) -> list[tuple[Any, Wire]]:
    """The parts of a request with what is read of each; results of tools first, as providers want them."""
    return sorted(((part, _part(part)) for part in message.parts), key=lambda pair: pair[1]["role"] != "tool")


def _part(part: Any) -> Wire:
    kind = part.part_kind
    if kind == "user-prompt":
        said = part.content if isinstance(part.content, str) else [_block(item, "user") for item in part.content]
        return {"role": "user", "content": said}
    if kind == "tool-return":
        content = part.model_response_str(wrap_if_error=False)
        if part.files or (isinstance(part.content, list) and all(isinstance(item, str) for item in part.content)):
            content = [_block(item, "tool") for item in part.content_items(mode="str", wrap_if_error=False)]
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
    if kind == "retry-prompt" and part.tool_name is not None:
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}
    if kind in {"retry-prompt", "retry-feedback", "speech"}:
        return {"role": "user", "content": part.content if kind == "speech" else part.model_response()}
    return _standing(part)


def _standing(part: Any) -> Wire:
    """A part that stays: its text, or the name of its kind for one that is not sent as text."""
    content = getattr(part, "content", None)
    return {"role": "system", "content": content if isinstance(content, str) and content else f"[{part.part_kind}]"}


def _block(item: Any, role: str) -> Json:
    """An item of a prompt, a result or a response, as it is counted."""
    if isinstance(item, str | forms.TextContent):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    if isinstance(item, forms.CachePoint):
        return {"type": "text", "text": ""}
    if isinstance(item, forms.BinaryContent):
        kind = "image" if item.is_image else "file"
        return counted_block({"type": kind, "base64": item.base64, "mime_type": item.media_type}, role)
    kind = "image" if isinstance(item, forms.ImageUrl) else item.kind
    return counted_block({"type": kind, "url": getattr(item, "url", None) or getattr(item, "file_id", "")}, role)


def _items(content: Any) -> Any:
    """Content of Chat Completions as that of a prompt or a result; items of Pydantic AI among it stay."""
    if isinstance(content, str):
        return content
    return [_item(block) if isinstance(block, Mapping) and "type" in block else block for block in content or ()]


def _item(block: Mapping[str, Any]) -> Any:
    url = block.get("image_url", {}).get("url", "")
    made = forms.BinaryContent.from_data_uri if url.startswith("data:") else forms.ImageUrl
    return made(url) if url else block.get("text", block)


def _changed_request(wires: Sequence[Wire], original: ModelRequest) -> list[Any]:
    """The parts of a request that are shown, each as it is shown."""
    read, parts = _request_parts(original), []
    for wire, place in zip(wires, shown_places(wires, [before for _, before in read]), strict=True):
        if place is None:
            parts += _made(wire).parts
        else:
            part, before = read[place]
            parts.append(part if wire == before else _changed_part(wire, part, before))
    return parts


def _changed_part(wire: Wire, part: Any, before: Wire) -> Any:
    content = wire.get("content")
    if not isinstance(before["content"], str):
        own = part.content if isinstance(part.content, list | tuple) else [part.content]
        content = [block for sent in restored_blocks(wire, before, own) for block in sent]
    content = _items(content)
    if wire["role"] == "system":
        return forms.SystemPromptPart(content)
    if wire["role"] == "user":
        own = part if isinstance(part, forms.UserPromptPart) else forms.UserPromptPart("")
        return replace(own, content=content)
    kept = {name: getattr(part, name) for name in ("metadata", "timestamp", "outcome") if hasattr(part, name)}
    return forms.ToolReturnPart(part.tool_name, content, wire["tool_call_id"], **kept)


def _said(message: ModelResponse) -> Wire:
    """What a model said, without compaction: its thoughts and calls where Chat Completions has them."""
    own = [part for part in message.parts if not isinstance(part, _BESIDE)]
    plain = not own or (len(own) == 1 and isinstance(own[0], forms.TextPart))
    content = "".join(part.content for part in own) if plain else [_spoken(part) for part in own]
    wire: dict[str, Any] = {"role": "assistant", "content": content}
    if thoughts := [part for part in message.parts if isinstance(part, forms.ThinkingPart)]:
        wire["thinking_blocks"] = [
            {"type": "thinking", "thinking": part.content, "signature": part.signature or ""} for part in thoughts
        ]
    if calls := [part for part in message.parts if isinstance(part, forms.ToolCallPart)]:
        wire["tool_calls"] = [chat_call(part.tool_call_id, part.tool_name, _arguments(part)) for part in calls]
    return wire


def _spoken(part: Any) -> Json:
    if part.part_kind in ("text", "speech", "file"):
        return _block(part.content, "assistant")
    told = _arguments(part) if hasattr(part, "args") else part.model_response_str()
    return {"type": "text", "text": f"[{part.part_kind}] {part.tool_name} {told}"}


def _changed_response(wires: Sequence[Wire], original: ModelResponse) -> Iterator[Any]:
    """The parts of a response that are shown, each as it is shown."""
    wire: Wire = next((one for one in wires if one["role"] == "assistant"), {})
    own = [part for part in original.parts if not isinstance(part, _BESIDE)]
    sent = iter(restored_blocks(wire, {**_said(original), "content": [_spoken(part) for part in own]}, own))
    standing = iter([one["content"] for one in wires if one["role"] == "system"])
    arguments = {call["id"]: call["function"]["arguments"] for call in wire.get("tool_calls") or ()}
    for part in original.parts:
        if isinstance(part, forms.CompactionPart):
            if text := next(standing, None):
                yield part if text == _standing(part)["content"] else replace(part, content=text)
        elif isinstance(part, forms.ThinkingPart):
            if "thinking_blocks" in wire:
                yield part
        elif isinstance(part, forms.ToolCallPart):
            if (given := arguments.get(part.tool_call_id)) is not None:
                kept = {"provider_name": part.provider_name, "provider_details": part.provider_details}
                called = forms.ToolCallPart(part.tool_name, given, part.tool_call_id, **kept)
                yield part if given == _arguments(part) else called
        else:
            yield from (part if block is part else _text_part(block, part) for block in next(sent))
    yield from (_text_part(block, None) for added in sent for block in added)


def _arguments(part: Any) -> str:
    # From the object: a provider's text of it changes where a user interface has stored it as an object.
    return json.dumps(part.args_as_dict(), ensure_ascii=False, default=str)


def _text_part(block: Json, part: Any) -> Any:
    # Without its id: the Responses API takes its own copy of an item that it knows (documentation of `TextPart`).
    own = part if isinstance(part, forms.TextPart) else forms.TextPart("")
    return replace(own, content=block["text"], id=None)


def _made(wire: Wire) -> ModelMessage:
    content = _items(wire.get("content") or "")
    if wire["role"] == "assistant":
        said = [forms.TextPart(text) for text in ([content] if isinstance(content, str) else content) if text]
        calls = [(call["id"], call["function"]) for call in wire.get("tool_calls") or ()]
        return ModelResponse([*said, *(forms.ToolCallPart(f["name"], f["arguments"], name) for name, f in calls)])
    made = (wire.get("name", "tool"), content, wire.get("tool_call_id"))
    return ModelRequest([forms.ToolReturnPart(*made) if wire["role"] == "tool" else forms.UserPromptPart(content)])


class FoldlineCapability(AbstractCapability[Any]):
    """Keeps the requests of an agent inside the model's window; the settings are those of `AdapterSettings`."""

    def __init__(self, **settings: Unpack[AdapterSettings]) -> None:
        self._adapter: Adapter[ModelMessage] = Adapter(PydanticMessages(), settings)

    def context(self, conversation_id: Hashable | None = None) -> Context | None:
        """The context of a conversation, to look into between calls; None while there is none."""
        return self._adapter.context(conversation_id)

    def get_ordering(self) -> CapabilityOrdering:
        """Next to the model: it counts what others leave, and an overflow is folded before another model is asked."""
        return CapabilityOrdering(position="innermost", wrapped_by=[ModelFallback])

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> ModelResponse:
        """Around all attempts at one request."""
        with self._adapter.attempts() as attempts:
            token = _ATTEMPTS.set(attempts)
            try:
                return cast("ModelResponse", await handler(request_context))
            finally:
                _ATTEMPTS.reset(token)

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: Any) -> ModelRequestContext:
        """Send what fits in this attempt."""
        request: ModelRequestContext = request_context
        attempts, system = _ATTEMPTS.get(), _system(request)
        if attempts is None:  # called by hand, outside of a request
            return request
        shown = await attempts.begin(_model_call(ctx, request, system))
        request.messages = shown.messages
        if shown.system is None and system is not None:
            said = shown.messages
            request.messages = [replace(m, instructions=None) if isinstance(m, ModelRequest) else m for m in said]
            request.model_request_parameters = replace(request.model_request_parameters, instruction_parts=[])
        if shown.max_output_tokens is not None:
            request.model_settings = {**(request.model_settings or {}), "max_tokens": shown.max_output_tokens}
        return request

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        """Take the usage that the provider reported."""
        if (attempts := _ATTEMPTS.get()) is not None:
            attempts.answered(_usage(response))
        return response

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        """Ask for another attempt where sending less can help."""
        attempts = _ATTEMPTS.get()
        if attempts is not None and await attempts.failed(error):
            raise RetryModelRequest from error
        raise error


def _model_call(ctx: RunContext[Any], request: ModelRequestContext, system: str | None) -> ModelCall[ModelMessage]:
    model, parameters = request.model, request.model_request_parameters
    cap = {**(model.settings or {}), **(request.model_settings or {})}.get("max_tokens")
    tools = [*parameters.function_tools, *parameters.output_tools]
    own = [chat_tool(tool.name, tool.description, tool.parameters_json_schema) for tool in tools]
    return ModelCall(
        messages=request.messages,
        key=ctx.conversation_id,
        model=model.model_name,
        system=system,
        tools=own + [{"type": tool.kind} for tool in parameters.native_tools],
        window=model.context_window,
        max_output_tokens=cap if isinstance(cap, int) and cap > 0 else None,
        endpoint=model.base_url or model.system,
    )


def _system(request: ModelRequestContext) -> str | None:
    if (parts := request.model_request_parameters.instruction_parts) is not None:
        return forms.InstructionPart.join(parts) or None
    found = (one.instructions for one in reversed(request.messages) if isinstance(one, ModelRequest))
    return next((text for text in found if text), None)


def _usage(response: ModelResponse) -> Usage | None:
    usage = response.usage  # whose input holds what was read from a cache and written to it
    told = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    told |= {"cached_tokens": usage.cache_read_tokens, "written_tokens": usage.cache_write_tokens}
    return Usage(**told) if usage.input_tokens else None
