"""LlamaIndex: an LLM that wraps another. Extra: `llama-index`.

Attached at `LLM.chat`, `achat`, `stream_chat`, `astream_chat` (llama-index-core 0.14.5 and later; tests run 0.14.25):
view, usage and errors meet there, and a memory sees neither of the last two. It keeps the whole history.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.content_blocks import counted_block, restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.codecs.blocks import same_items
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire

try:
    from llama_index.core.base.llms.types import (
        CachePoint,
        ChatMessage,
        ChatResponse,
        ImageBlock,
        LLMMetadata,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import LLM
except ImportError as error:
    raise MissingExtra("llama-index", "the adapter for LlamaIndex") from error

__all__ = ["BlockMessages", "FoldlineLLM"]

_ROLES: Final[Mapping[str, str]] = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
_APART: Final = (ThinkingBlock, ToolCallBlock, CachePoint)
_SYSTEM: Final = (MessageRole.SYSTEM, MessageRole.DEVELOPER)


class BlockMessages:
    """LlamaIndex's messages as those of Chat Completions, whichever provider they go to.

    A block that nothing shortens goes out as it is, so that forms of one provider are never rewritten.
    """

    dialect: Final = "openai-chat"

    def read(self, message: ChatMessage, /) -> Sequence[Wire]:
        """One object for each message; of `additional_kwargs` the calls and their ids alone."""
        role = _ROLES.get(message.role.value, message.role.value)
        call_id = message.additional_kwargs.get("tool_call_id") or message.additional_kwargs.get("call_id")
        wire: dict[str, Any] = {"role": "user" if role == "tool" and call_id is None else role}
        wire["content"] = [_counted(block, wire["role"]) for block in message.blocks if not isinstance(block, _APART)]
        if thoughts := [_thought(block) for block in message.blocks if isinstance(block, ThinkingBlock)]:
            wire["thinking_blocks"] = thoughts
        if role == "assistant" and (calls := _calls(message)):
            wire["tool_calls"] = calls
        if wire["role"] == "tool":
            wire["tool_call_id"] = call_id
        return (wire,)

    def write(self, wires: Sequence[Wire], original: ChatMessage | None, /) -> Sequence[ChatMessage]:
        """Copies of the original with what is different, or new messages."""
        if original is None:
            return [_made(wire) for wire in wires]
        return [_copied(wire, original, self.read(original)[0]) for wire in wires]


def _counted(block: Any, role: str) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    fields = block.model_dump(mode="json", exclude_none=True)
    kind = fields.pop("block_type", type(block).__name__)
    if isinstance(block, ImageBlock) and "image" in fields:
        fields = {"base64": fields["image"], "mime_type": block.image_mimetype or "image/png"}
    return counted_block({**fields, "type": kind}, role)


def _thought(block: ThinkingBlock) -> Json:
    signature = block.additional_information.get("signature")
    return {"type": "thinking", "thinking": block.content or "", "signature": str(signature or "")}


def _calls(message: ChatMessage) -> list[Json]:
    """The calls in the blocks, or those that an integration has left in the provider's form."""
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if blocks:
        return [_call(block.tool_call_id, block.tool_name, block.tool_kwargs) for block in blocks]
    return [
        _call(fields.get("id"), function.get("name"), function.get("arguments"))
        for left in message.additional_kwargs.get("tool_calls") or ()
        if (fields := left if isinstance(left, Mapping) else left.model_dump())
        and isinstance(function := fields.get("function"), Mapping)
    ]


def _call(call_id: str | None, name: str | None, given: Any) -> Json:
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False, default=str)
    return {"id": call_id or "", "type": "function", "function": {"name": name or "", "arguments": arguments}}


def _made(wire: Wire) -> ChatMessage:
    blocks = [_block(block) for block in _listed(wire)["content"]]
    for call in wire.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            ToolCallBlock(tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=function["arguments"])
        )
    # System text too goes as the user's: not every provider takes it among the messages.
    role = wire["role"] if wire["role"] in ("assistant", "tool") else "user"
    answered = {"tool_call_id": wire["tool_call_id"]} if role == "tool" else {}
    return ChatMessage(role=MessageRole(role), blocks=blocks, additional_kwargs=answered)


def _listed(wire: Mapping[str, Any]) -> Wire:
    content = wire.get("content") or []
    return {**wire, "content": [{"type": "text", "text": content}] if isinstance(content, str) else content}


def _block(block: Any) -> Any:
    """A block of Foldline's own as LlamaIndex's; a block that is shown whole is one already."""
    if not isinstance(block, Mapping):
        return block
    url = block.get("image_url")
    return ImageBlock(url=url["url"]) if url else TextBlock(text=block.get("text", ""))


def _copied(wire: Wire, original: ChatMessage, before: Wire) -> ChatMessage:
    if wire["role"] != before["role"]:
        return _made(wire)
    own = [block for block in original.blocks if not isinstance(block, _APART)]
    sent = iter(restored_blocks(_listed(wire), before, own))
    calls = {call["id"]: call["function"]["arguments"] for call in wire.get("tool_calls") or ()}
    blocks: list[Any] = []
    for block in original.blocks:
        if isinstance(block, ThinkingBlock):
            blocks += [block] if "thinking_blocks" in wire else []
        elif isinstance(block, ToolCallBlock):
            blocks += _called(block, calls.get(block.tool_call_id or ""))
        elif isinstance(block, CachePoint):
            blocks.append(block)
        else:
            blocks += map(_block, next(sent))
    blocks += [_block(block) for found in sent for block in found]
    update: dict[str, Any] = {} if same_items(blocks, original.blocks) else {"blocks": blocks}
    if wire.get("tool_calls") != before.get("tool_calls") and original.additional_kwargs.get("tool_calls"):
        update["additional_kwargs"] = {**original.additional_kwargs, "tool_calls": wire.get("tool_calls") or []}
    return original.model_copy(update=update) if update else original


def _called(block: ToolCallBlock, arguments: str | None) -> list[ToolCallBlock]:
    if arguments is None:
        return []
    if arguments == _call("", "", block.tool_kwargs)["function"]["arguments"]:
        return [block]
    given: Any = arguments
    if isinstance(block.tool_kwargs, Mapping):
        try:
            given = json.loads(arguments)
        except ValueError:
            given = arguments
    return [block.model_copy(update={"tool_kwargs": given})]


def _passed(name: str) -> Callable[..., Any]:
    """A method that is the one of the LLM that is wrapped."""

    def passed(self: Any, *given: Any, **named: Any) -> Any:
        return getattr(self.llm, name)(*given, **named)

    return passed


class FoldlineLLM(FunctionCallingLLM):
    """An LLM that sends what fits to the LLM that it wraps, and retries an overflow inside the call.

    The settings are those of `AdapterSettings`. `conversation` names the conversation that has this LLM; without it one
    is found by its messages, and an edit of them begins another.
    """

    llm: Any = Field(description="The LLM that is wrapped.")
    _conversation: Any = PrivateAttr(default=None)
    _adapter: Any = PrivateAttr(default=None)

    def __init__(self, llm: LLM, *, conversation: Hashable | None = None, **settings: Unpack[AdapterSettings]) -> None:
        shared = ("callback_manager", "system_prompt", "output_parser", "pydantic_program_mode")
        prompts = ("messages_to_prompt", "completion_to_prompt", "query_wrapper_prompt")
        super().__init__(llm=llm, **{name: getattr(llm, name) for name in (*shared, *prompts)})
        self._conversation = conversation
        self._adapter = Adapter(BlockMessages(), settings)

    def context(self) -> Context | None:
        """The context of the conversation that was asked last, to look into between calls; None while there is none."""
        found: Context | None = self._adapter.context(self._conversation)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "llm" not in self.__dict__:
            return super().__getattr__(name)
        return getattr(self.llm, name)  # its model, its temperature

    @property
    def metadata(self) -> LLMMetadata:
        """What the LLM that is wrapped says of itself."""
        return self.llm.metadata

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """The answer to what fits of the messages."""
        return self._adapter.call(*self._call("chat", messages, kwargs), _usage)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """The same in an agent that runs async."""
        return await self._adapter.call_async(*self._call("achat", messages, kwargs), _usage)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """The answer as a stream."""
        call, ask = self._call("stream_chat", messages, kwargs)

        def send(shown: ShownCall[ChatMessage]) -> Generator[ChatResponse, None, None]:
            yield from ask(shown)

        return self._adapter.stream(call, send, _EVENTS)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """The answer as an async stream."""
        call, ask = self._call("astream_chat", messages, kwargs)

        async def send(shown: ShownCall[ChatMessage]) -> AsyncGenerator[ChatResponse, None]:
            async for response in await ask(shown):
                yield response

        return self._adapter.stream_async(call, send, _EVENTS)

    # A completion of one prompt has no history to fold.
    complete = _passed("complete")
    acomplete = _passed("acomplete")
    stream_complete = _passed("stream_complete")
    astream_complete = _passed("astream_complete")
    get_tool_calls_from_response = _passed("get_tool_calls_from_response")
    _prepare_chat_with_tools = _passed("_prepare_chat_with_tools")
    _prepare_chat_with_tools_compat = _passed("_prepare_chat_with_tools_compat")
    _validate_chat_with_tools_response = _passed("_validate_chat_with_tools_response")

    def _call(
        self, method: str, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]
    ) -> tuple[ModelCall[ChatMessage], Callable[[ShownCall[ChatMessage]], Any]]:
        """The call, and a function that makes it by this method of the LLM that is wrapped."""
        metadata, llm = self.llm.metadata, self.llm
        # System text stands apart: a memory may write another one for each call.
        first = next((at for at, one in enumerate(messages) if one.role not in _SYSTEM), len(messages))
        system = messages[:first]
        cap_name = "max_output_tokens" if hasattr(llm, "max_output_tokens") else "max_tokens"
        made_with = getattr(llm, cap_name, None)
        window, cap = metadata.context_window, kwargs.get(cap_name) or made_with

        def ask(shown: ShownCall[ChatMessage]) -> Any:
            lowered = {} if shown.max_output_tokens is None else {cap_name: shown.max_output_tokens}
            # Some integrations prefer the cap that an LLM was made with to that of a call.
            asked = llm.model_copy(update=lowered) if lowered and made_with is not None else llm
            sent = [*(() if shown.system is None else system), *shown.messages]
            return getattr(asked, method)(sent, **{**kwargs, **lowered})

        call = ModelCall(
            messages=messages[first:],
            key=self._conversation,
            model=metadata.model_name or None,
            system="\n".join(one.content or "" for one in system) or None,
            tools=kwargs.get("tools") or None,
            # The default is the figure of an LLM whose integration knows none.
            window=window if window > 0 and window != DEFAULT_CONTEXT_WINDOW else None,
            max_output_tokens=cap if isinstance(cap, int) and cap > 0 else None,
            endpoint=str(getattr(llm, "api_base", None) or getattr(llm, "base_url", None) or ""),
        )
        return call, ask


def _usage(response: ChatResponse) -> object | None:
    """The provider's report, where the integration has left it."""
    raw = response.raw
    places = [response.additional_kwargs, raw if isinstance(raw, Mapping) else getattr(raw, "__dict__", {})]
    reports = (place.get(name) for place in places for name in ("usage", "usage_metadata"))
    return next((report for report in reports if report), None)


_EVENTS: Final[StreamEvents[Any]] = StreamEvents(
    begins=lambda response: bool(
        response.delta
        or response.additional_kwargs.get("thinking_delta")
        or any(isinstance(block, ThinkingBlock | ToolCallBlock) for block in response.message.blocks)
    ),
    usage_of=_usage,
)
