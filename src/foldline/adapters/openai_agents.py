"""openai-agents: a model that wraps another, a provider of such models, and an input filter that names conversations.

Extra: `openai-agents`. Attached at `Model.get_response` and `Model.stream_response` (0.6 and later; tests run 0.24.0):
the items of a session stay whole. `RunConfig.call_model_input_filter` sees neither usage nor errors, so that it cannot
do this by itself; here it says which conversation a call belongs to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire

try:
    from agents import FunctionTool, Handoff, Model, ModelProvider, ModelResponse, ModelSettings, MultiProvider, Tool
    from agents.models.fake_id import FAKE_RESPONSES_ID
    from agents.run import CallModelData, ModelInputData
except ImportError as error:
    raise MissingExtra("openai-agents", "the adapter for openai-agents") from error

__all__ = ["AgentItems", "FoldlineModel", "FoldlineProvider", "conversation"]

_CONVERSATION: ContextVar[Hashable | None] = ContextVar("foldline_conversation", default=None)

# Events of a stream before the first of its answer (OpenAI API reference, "Streaming events").
_BEFORE: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_FAILED: Final = frozenset({"response.failed", "error"})


def conversation(name: Callable[[Any], Hashable] | Hashable) -> Callable[[CallModelData[Any]], ModelInputData]:
    """An input filter for `RunConfig.call_model_input_filter` that names the conversation; it changes nothing.

    `name` is the name itself, or a function of the context of the run. Without one, a conversation is found by the
    items that it begins with, and a branch of it is another conversation.
    """

    def named(data: CallModelData[Any]) -> ModelInputData:
        _CONVERSATION.set(name(data.context) if callable(name) else name)
        return data.model_data

    return named


class AgentItems:
    """Items of openai-agents, which are those of the Responses API already."""

    dialect: Final = "openai-responses"

    def read(self, message: Any, /) -> Sequence[Wire]:
        """The item itself; an object of the SDK as its fields."""
        item = message if isinstance(message, Mapping) else message.model_dump(exclude_unset=True)
        # One id for all that Chat Completions answers: the API would refuse it, which takes an id once.
        return (_without_id(item) if item.get("id") == FAKE_RESPONSES_ID else item,)

    def write(self, wires: Sequence[Wire], original: Any | None, /) -> Sequence[Any]:
        """The JSON itself; messages of Foldline's own in the short form, which every model of the SDK reads."""
        if original is None:
            return [_short_form(wire) for wire in wires]
        given = original if isinstance(original, Mapping) else original.model_dump(exclude_unset=True)
        kept = {"id": FAKE_RESPONSES_ID} if given.get("id") == FAKE_RESPONSES_ID else {}
        return [{**wire, **kept} for wire in wires]


def _without_id(item: Mapping[str, Any]) -> Wire:
    return {field: value for field, value in item.items() if field != "id"}


def _short_form(wire: Wire) -> Wire:
    content = wire.get("content")
    if wire.get("type", "message") != "message" or not isinstance(content, list):
        return dict(wire)
    texts = [block.get("text") for block in content]
    if not all(isinstance(text, str) for text in texts):
        return dict(wire)
    return {"role": wire["role"], "content": "\n".join(texts)}


class FoldlineProvider(ModelProvider):
    """A provider whose models keep inside their window: for `RunConfig(model_provider=…)`. All share the settings."""

    def __init__(self, provider: ModelProvider | None = None, **settings: Unpack[AdapterSettings]) -> None:
        self._provider = MultiProvider() if provider is None else provider
        self._adapter: Adapter[Any] = Adapter(AgentItems(), settings)

    def get_model(self, model_name: str | None) -> Model:
        """The model of the provider that is wrapped, in a model that folds."""
        return FoldlineModel._sharing(self._provider.get_model(model_name), self._adapter)

    def context(self, name: Hashable | None = None) -> Context | None:
        """The context of a conversation, to look into between calls; None while there is none."""
        return self._adapter.context(name)

    async def aclose(self) -> None:
        """Close the provider that is wrapped."""
        await self._provider.aclose()


class FoldlineModel(Model):
    """A model that sends what fits to the model that it wraps, and retries an overflow inside the call."""

    def __init__(self, model: Model, **settings: Unpack[AdapterSettings]) -> None:
        self._model = model
        self._adapter: Adapter[Any] = Adapter(AgentItems(), settings)

    @classmethod
    def _sharing(cls, model: Model, adapter: Adapter[Any]) -> FoldlineModel:
        made = cls.__new__(cls)
        made._model, made._adapter = model, adapter
        return made

    def context(self, name: Hashable | None = None) -> Context | None:
        """The context of a conversation, to look into between calls; None while there is none."""
        return self._adapter.context(name)

    def __getattr__(self, name: str) -> Any:
        # Whatever a model has beside the interface: its name, its client.
        return getattr(self.__dict__["_model"], name)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Close the model that is wrapped."""
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        """What the model that is wrapped says of a failure."""
        return self._model.get_retry_advice(request)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - the name of the interface
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: Any,
        *given: Any,
        **named: Any,
    ) -> ModelResponse:
        """The answer to what fits of the input."""

        async def sent(system: str | None, items: str | list[Any], settings: ModelSettings) -> ModelResponse:
            rest = (settings, tools, output_schema, *given)
            return await self._model.get_response(system, items, *rest, **named)

        if _held_by_server(named):
            return await sent(system_instructions, input, model_settings)
        call = self._call(system_instructions, input, model_settings, tools, _handoffs(given, named))

        async def send(shown: ShownCall[Any]) -> ModelResponse:
            return await sent(*_arguments(shown, input, model_settings))

        return await self._adapter.call_async(call, send, lambda response: _reported(response.usage))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - as above
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: Any,
        *given: Any,
        **named: Any,
    ) -> AsyncIterator[Any]:
        """The events of the answer to what fits of the input."""

        async def sent(
            system: str | None, items: str | list[Any], settings: ModelSettings
        ) -> AsyncGenerator[Any, None]:
            rest = (settings, tools, output_schema, *given)
            async for event in self._model.stream_response(system, items, *rest, **named):
                yield event

        if _held_by_server(named):
            events: AsyncIterator[Any] = sent(system_instructions, input, model_settings)
        else:
            call = self._call(system_instructions, input, model_settings, tools, _handoffs(given, named))
            events = self._adapter.stream_async(
                call, lambda shown: sent(*_arguments(shown, input, model_settings)), _EVENTS
            )
        async for event in events:
            yield event

    def _call(
        self,
        system: str | None,
        items: str | list[Any],
        settings: ModelSettings,
        tools: Sequence[Tool],
        handoffs: Sequence[Handoff[Any, Any]],
    ) -> ModelCall[Any]:
        key = _CONVERSATION.get()
        _CONVERSATION.set(None)  # said for this call alone: the next one has its own filter, or none
        model = getattr(self._model, "model", None)
        return ModelCall(
            messages=[{"role": "user", "content": items}] if isinstance(items, str) else items,
            key=key,
            model=model if isinstance(model, str) else None,
            system=system,
            tools=[*map(_definition, tools), *map(_handoff, handoffs)],
            max_output_tokens=settings.max_tokens,
        )


def _handoffs(given: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Handoff[Any, Any]]:
    """The handoffs, which follow the schema of the output; callers may name them."""
    found: Sequence[Handoff[Any, Any]] = given[0] if given else named.get("handoffs") or ()
    return found


def _held_by_server(named: Mapping[str, Any]) -> bool:
    """Whether the server has the history, and the input only what is new: then there is nothing to fold here."""
    return bool(named.get("previous_response_id") or named.get("conversation_id"))


def _arguments(
    shown: ShownCall[Any], given: str | list[Any], settings: ModelSettings
) -> tuple[str | None, str | list[Any], ModelSettings]:
    items: str | list[Any] = shown.messages
    if isinstance(given, str) and items == [{"role": "user", "content": given}]:
        items = given
    if shown.max_output_tokens is not None:
        settings = replace(settings, max_tokens=shown.max_output_tokens)
    system = shown.system
    return system if isinstance(system, str) else None, items, settings


def _definition(tool: Tool) -> Json:
    if isinstance(tool, FunctionTool):
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
    return {"type": getattr(tool, "name", "tool")}  # run by the provider, which counts them as it likes


def _handoff(handoff: Handoff[Any, Any]) -> Json:
    return {
        "type": "function",
        "name": handoff.tool_name,
        "description": handoff.tool_description,
        "parameters": handoff.input_json_schema,
    }


def _reported(usage: Any) -> object | None:
    """The usage of one call; None where the provider reported nothing, which the SDK shows as zeros."""
    if usage is None or not getattr(usage, "input_tokens", 0):
        return None
    fields = asdict(usage) if is_dataclass(usage) and not isinstance(usage, type) else usage
    return fields if isinstance(fields, Mapping) else usage.model_dump()


def _failure(event: Any) -> object | None:
    if getattr(event, "type", "") not in _FAILED:
        return None
    told = getattr(getattr(event, "response", None), "error", None) or event
    return {"error": told.model_dump(exclude_none=True) if hasattr(told, "model_dump") else str(told)}


_EVENTS: Final[StreamEvents[Any]] = StreamEvents(
    begins=lambda event: getattr(event, "type", "") not in _BEFORE,
    usage_of=lambda event: _reported(getattr(getattr(event, "response", None), "usage", None)),
    failure_in=_failure,
)
