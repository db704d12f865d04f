"""LangChain, LangGraph and deepagents: a middleware of `create_agent` and of `create_deep_agent`. Extra: `langchain`.

Attached at `AgentMiddleware.wrap_model_call` and `awrap_model_call` (langchain 1.0 and later; tests run 1.5.2): the
state of the graph, and with it every checkpoint, keeps the whole history.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.content_blocks import counted_block, restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.codecs.blocks import same_items
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire
from foldline.view.transcript import Usage

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        HumanMessage,
        RemoveMessage,
        ToolMessage,
    )
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
except ImportError as error:
    raise MissingExtra("langchain", "the adapter for LangChain") from error

__all__ = ["DEEP_AGENTS", "FoldlineMiddleware", "LangChainMessages"]

DEEP_AGENTS: Final = "SummarizationMiddleware"
"""The `name` with which the middleware takes the place of the summariser of deepagents."""

_ROLES: Final[Mapping[str, str]] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
# Calls stand in `tool_calls` as well, whatever form a provider's integration gives them among the content.
_CALLS: Final = frozenset({"tool_use", "function_call", "tool_call", "input_json_delta", "invalid_tool_call"})


class LangChainMessages:
    """LangChain's messages as those of Chat Completions, whichever provider they go to.

    A message whose blocks nothing shortens goes out as it is, so that forms of one provider are never rewritten.
    """

    dialect: Final = "openai-chat"

    def read(self, message: BaseMessage, /) -> Sequence[Wire]:
        """One object for each message; ids, usage and other metadata are left out."""
        if isinstance(message, RemoveMessage):
            return ()
        role = message.role if isinstance(message, ChatMessage) else _ROLES.get(message.type, "user")
        wire: dict[str, Any] = {"role": role}
        content = message.content
        if isinstance(content, str):
            wire["content"] = content
        else:
            wire["content"] = [
                counted_block(block, role) for block in content if _type(block) not in _THOUGHTS | _CALLS
            ]
            if thoughts := [block for block in content if _type(block) in _THOUGHTS]:
                wire["thinking_blocks"] = thoughts
        if isinstance(message, AIMessage) and (calls := _calls(message)):
            wire["tool_calls"] = calls
        if isinstance(message, ToolMessage):
            wire["tool_call_id"] = message.tool_call_id
        return (wire,)

    def write(self, wires: Sequence[Wire], original: BaseMessage | None, /) -> Sequence[BaseMessage]:
        """Copies of the original with what is different, or new messages."""
        if original is None:
            return [_made(wire) for wire in wires]
        return [_copied(wire, original, self.read(original)[0]) for wire in wires]


def _type(block: str | Mapping[str, Any]) -> str:
    return "text" if isinstance(block, str) else str(block.get("type"))


def _calls(message: AIMessage) -> list[Json]:
    calls: list[Json] = []
    for call in (*message.tool_calls, *message.invalid_tool_calls):
        given = call["args"]
        arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
        calls.append({"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}})
    return calls


def _arguments(call: Json) -> Json:
    try:
        found = json.loads(call["function"]["arguments"])
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": call["function"]["arguments"]}


def _tool_calls(wire: Wire) -> list[Any]:
    return [
        {"name": call["function"]["name"], "args": _arguments(call), "id": call["id"], "type": "tool_call"}
        for call in wire.get("tool_calls") or ()
    ]


def _made(wire: Wire) -> BaseMessage:
    content = wire.get("content") or ""
    match wire["role"]:
        case "assistant":
            return AIMessage(content=content, tool_calls=_tool_calls(wire))
        case "tool":
            return ToolMessage(content=content, tool_call_id=wire["tool_call_id"])
        case _:  # system text too: not every provider takes it among the messages
            return HumanMessage(content=content)


def _copied(wire: Wire, original: BaseMessage, before: Wire) -> BaseMessage:
    """A copy of a message with what differs between its JSON `before` and the JSON to send."""
    if wire["role"] != before["role"]:
        return _made(wire)
    update: dict[str, Any] = {}
    if wire.get("content") != before.get("content") or wire.get("thinking_blocks") != before.get("thinking_blocks"):
        update["content"] = _content(wire, original, before)
    if wire.get("tool_calls") != before.get("tool_calls"):
        update |= {"tool_calls": _tool_calls(wire), "invalid_tool_calls": []}
        content = update.get("content", original.content)
        if not isinstance(content, str):
            update["content"] = [_with_arguments(block, wire) for block in content]
    if wire.get("tool_call_id") != before.get("tool_call_id"):
        update["tool_call_id"] = wire["tool_call_id"]
    # What only a rule of Chat Completions has changed is as it was: LangChain has a form of its own for each provider.
    return original if update == {"content": original.content} else original.model_copy(update=update)


def _content(wire: Wire, original: BaseMessage, before: Wire) -> Any:
    if isinstance(original.content, str):
        return wire.get("content") or ""
    own = [block for block in original.content if _type(block) not in _THOUGHTS | _CALLS]
    sent = iter(restored_blocks(wire, before, own))
    out: list[Any] = []
    for block in original.content:
        if _type(block) in _THOUGHTS:
            out += [block] if "thinking_blocks" in wire else []
        elif _type(block) in _CALLS:
            out.append(block)
        else:
            out += next(sent)
    for added in sent:
        out += added
    return original.content if same_items(out, original.content) else out


def _with_arguments(block: Any, wire: Wire) -> Any:
    """A call among the content with the arguments that its twin in `tool_calls` has now."""
    if _type(block) not in _CALLS:
        return block
    names = {block.get("id"), block.get("call_id")}
    call = next((call for call in wire.get("tool_calls") or () if call["id"] in names), None)
    if call is None:
        return block
    arguments = _arguments(call)
    changed = {"input": arguments, "args": arguments, "arguments": call["function"]["arguments"]}
    return {**block, **{field: value for field, value in changed.items() if field in block}}


class FoldlineMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps the calls of an agent inside the model's window; the state of the agent stays whole.

    The settings are those of `AdapterSettings`. `name=DEEP_AGENTS` takes the place of the summariser of deepagents.
    """

    def __init__(self, *, name: str = "FoldlineMiddleware", **settings: Unpack[AdapterSettings]) -> None:
        super().__init__()
        self._name = name
        self._adapter: Adapter[BaseMessage] = Adapter(LangChainMessages(), settings)
        self._tools: dict[int, tuple[object, Json]] = {}

    @property
    def name(self) -> str:
        """The name by which an agent tells its middlewares apart."""
        return self._name

    def context(self, thread_id: Hashable | None = None) -> Context | None:
        """The context of a thread, to look into between calls; None while there is none."""
        return self._adapter.context(None if thread_id is None else (thread_id, ""))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the call as it fits."""
        return self._adapter.call(self._call(request), lambda shown: handler(_request(request, shown)), _usage)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same in an agent that runs async."""
        return await self._adapter.call_async(
            self._call(request), lambda shown: handler(_request(request, shown)), _usage
        )

    def _call(self, request: ModelRequest[Any]) -> ModelCall[BaseMessage]:
        model = request.model
        profile = getattr(model, "profile", None) or {}
        system = request.system_message.content if request.system_message is not None else None
        return ModelCall(
            messages=request.messages,
            key=_thread(),
            model=_first_text(model, "model_name", "model", "model_id"),
            system=system
            if system is None or isinstance(system, str)
            else [counted_block(block, "system") for block in system],
            tools=self._definitions(request.tools),
            window=profile.get("max_input_tokens"),
            max_output_tokens=_cap(request),
            endpoint=_first_text(model, "openai_api_base", "anthropic_api_url", "base_url") or "",
        )

    def _definitions(self, tools: Sequence[BaseTool | dict[str, Any]]) -> list[Json]:
        # A definition is made of a signature, which takes as long as a call of the adapter: once for each tool.
        made = {id(tool): self._tools.get(id(tool)) or (tool, _definition(tool)) for tool in tools}
        self._tools = made
        return [made[id(tool)][1] for tool in tools]


def _definition(tool: BaseTool | dict[str, Any]) -> Json:
    return convert_to_openai_tool(tool) if isinstance(tool, BaseTool) else tool


def _thread() -> Hashable | None:
    """The thread of the graph that runs, and the sub-graph in it; None outside of a thread."""
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # called by itself, outside of a graph
        return None
    if (thread := configurable.get("thread_id")) is None:
        return None
    # The last part names the step, anew each time; those before it are the calls of sub-graphs that lead here.
    return (thread, str(configurable.get("checkpoint_ns") or "").rpartition("|")[0])


def _first_text(model: object, *names: str) -> str | None:
    found = (getattr(model, name, None) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)


def _cap_name(request: ModelRequest[Any]) -> str:
    """What the integration calls the cap of the output."""
    return "max_output_tokens" if hasattr(request.model, "max_output_tokens") else "max_tokens"


def _cap(request: ModelRequest[Any]) -> int | None:
    name = _cap_name(request)
    cap = request.model_settings.get(name) or getattr(request.model, name, None)
    return cap if isinstance(cap, int) and cap > 0 else None


def _request(request: ModelRequest[Any], shown: ShownCall[BaseMessage]) -> ModelRequest[Any]:
    changes: dict[str, Any] = {"messages": shown.messages}
    if shown.system is None and request.system_message is not None:
        changes["system_message"] = None
    if shown.max_output_tokens is not None:
        changes["model_settings"] = {**request.model_settings, _cap_name(request): shown.max_output_tokens}
    return request.override(**changes)


def _usage(response: ModelResponse[Any]) -> Usage | None:
    """What the provider reported: LangChain's `usage_metadata`, whose input holds what was read from the cache."""
    reports = (message.usage_metadata for message in response.result if isinstance(message, AIMessage))
    found = next((report for report in reports if report), None)
    if found is None:
        return None
    details: Mapping[str, Any] = found.get("input_token_details") or {}
    long = details.get("ephemeral_1h_input_tokens") or 0
    written = (details.get("cache_creation") or 0) + (details.get("ephemeral_5m_input_tokens") or 0) + long
    return Usage(
        input_tokens=found["input_tokens"],
        output_tokens=found["output_tokens"],
        cached_tokens=details.get("cache_read") or 0,
        written_tokens=written,
        written_long_tokens=long,
    )
