"""LiteLLM: a callback for its SDK, its Router and its proxy, with `completion` and `acompletion` of its own.

Extra: `litellm` (1.108; tests run 1.108.7). Attached at `CustomLogger`: `async_pre_call_deployment_hook` before each
attempt at a deployment, the hooks after one that failed or succeeded, `async_log_success_event` for streams, and
`async_pre_call_hook` of the proxy. No hook is around a call, and none is called by the sync `litellm.completion`. So a
refused call is sent again by LiteLLM's own way out, a fallback to the same model: `context_window_fallback_dict` in the
SDK (once), `context_window_fallbacks` in Router and proxy. `completion` and `acompletion` here do it by themselves.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Hashable, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.attempts import Attempts
from foldline.adapters.histories import MOST_CONVERSATIONS
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.engine.context import Context
from foldline.errors import DoesNotFit, MissingExtra
from foldline.messages import Json, Wire

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise MissingExtra("litellm", "the adapter for LiteLLM") from error

__all__ = ["FoldlineLiteLLM", "LiteLLMMessages", "again"]

_MOST_ATTEMPTS: Final = 5
_WAIT_SECONDS: Final = 0.005
_MOST_WAIT_SECONDS: Final = 0.1
_ATTEMPT: Final = "foldline_attempt"
# Set while `completion` or `acompletion` sends: the hooks then leave the call alone.
_SENDING: ContextVar[bool] = ContextVar("foldline_sending", default=False)


def again(model: str) -> dict[str, list[dict[str, Any]]]:
    """An entry for the `context_window_fallbacks` of a Router: the same model again, with less. The proxy has it."""
    # An attempt that differs in nothing from one before it would be left out.
    return {model: [{"model": model, _ATTEMPT: number} for number in range(1, _MOST_ATTEMPTS)]}


def _with_again(model: str, given: Sequence[Any] | None) -> list[Any]:
    """The fallbacks of a request of the proxy, or those of its configuration, after the same model again."""
    if given is None:
        router = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
        given = getattr(router, "context_window_fallbacks", None) or litellm.context_window_fallbacks or ()
    others = [target for entry in given for target in entry.get(model, ())]
    return [{model: [*again(model)[model], *others]}, *(entry for entry in given if model not in entry)]


class LiteLLMMessages:
    """Messages of LiteLLM, which are those of Chat Completions: objects of its answers, or JSON."""

    dialect: Final = "openai-chat"

    def read(self, message: Any, /) -> Sequence[Wire]:
        """The message itself, without the fields that it leaves empty."""
        fields = _plain(message)
        return ({"role": fields["role"], "content": fields.get("content"), **fields},)

    def write(self, wires: Sequence[Wire], original: Any | None, /) -> Sequence[Any]:
        """The JSON itself, which LiteLLM takes for an object too."""
        return [dict(wire) for wire in wires]


def _plain(value: Any) -> Any:
    """A value as JSON: objects of LiteLLM by their fields, none of them empty. O(its size)."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


class FoldlineLiteLLM(CustomLogger):
    """Keeps the calls of LiteLLM inside the model's window; the settings are those of `AdapterSettings`.

    `completion` and `acompletion` are used in place of those of `litellm`, or the object itself is put among
    `litellm.callbacks` (`litellm_settings.callbacks` of the proxy), for async calls of Chat Completions.
    """

    def __init__(self, **settings: Unpack[AdapterSettings]) -> None:
        super().__init__()
        self._adapter: Adapter[Any] = Adapter(LiteLLMMessages(), settings)
        # Attempts of the hooks that are under way, by the id of the call. One that nobody ends goes in its turn.
        self._open: OrderedDict[str, tuple[Attempts[Any], ModelCall[Any]]] = OrderedDict()
        # Streams that have ended, whose usage is still to come.
        self._ended: dict[str, Attempts[Any]] = {}

    def context(self, session_id: Hashable | None = None) -> Context | None:
        """The context of a session, to look into between calls; None while there is none."""
        return self._adapter.context(session_id)

    # --- in place of litellm's functions -----------------------------------------------------------------------------

    def completion(self, *, model: str, messages: list[Any], **given: Any) -> Any:
        """`litellm.completion` with what fits; with `stream=True` an iterator of its chunks."""
        call = _call(model, messages, given)

        def send(shown: ShownCall[Any]) -> Any:
            return _in_hand(litellm.completion, model=model, **_shown(given, shown))

        if not given.get("stream"):
            return self._adapter.call(call, send, _usage)

        def chunks(shown: ShownCall[Any]) -> Generator[Any, None, None]:
            yield from send(shown)

        return self._adapter.stream(call, chunks, _CHUNKS)

    async def acompletion(self, *, model: str, messages: list[Any], **given: Any) -> Any:
        """`litellm.acompletion` with what fits; with `stream=True` an async iterator of its chunks."""
        call = _call(model, messages, given)

        async def send(shown: ShownCall[Any]) -> Any:
            token = _SENDING.set(True)
            try:
                return await litellm.acompletion(model=model, **_shown(given, shown))
            finally:
                _SENDING.reset(token)

        if not given.get("stream"):
            return await self._adapter.call_async(call, send, _usage)

        async def chunks(shown: ShownCall[Any]) -> AsyncGenerator[Any, None]:
            async for chunk in await send(shown):
                yield chunk

        events: AsyncIterator[Any] = self._adapter.stream_async(call, chunks, _CHUNKS)
        return events

    # --- hooks -------------------------------------------------------------------------------------------------------

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: str) -> Any:
        """In the proxy, before a deployment is chosen: a refusal of the size is tried again."""
        model = data.get("model")
        if call_type in ("completion", "acompletion") and isinstance(model, str):
            data["context_window_fallbacks"] = _with_again(model, data.get("context_window_fallbacks"))
        return data

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Before an attempt: send what fits."""
        kwargs.pop(_ATTEMPT, None)
        if getattr(call_type, "value", call_type) != "acompletion" or _SENDING.get():
            return None
        await self._last_usage()
        call = _call(kwargs["model"], kwargs["messages"], kwargs)
        attempts = self._adapter.new_attempts()
        try:
            sent = _shown(kwargs, await attempts.begin(call))
        except DoesNotFit as error:
            # As LiteLLM knows it, so that a fallback to a larger model still works.
            provider = str(kwargs.get("custom_llm_provider") or "")
            raise litellm.ContextWindowExceededError(str(error), call.model or "", provider) from error
        self._remember(str(kwargs["litellm_call_id"]), attempts, call)
        if "context_window_fallback_dict" not in kwargs:
            sent["context_window_fallback_dict"] = {kwargs["model"]: kwargs["model"]}
        return sent

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """After an attempt that failed: learn from it, and make the list that LiteLLM will send again smaller."""
        attempts, call = self._open.pop(str(request_data.get("litellm_call_id")), (None, None))
        if attempts is None or call is None:
            return
        with closing(attempts):
            if await attempts.failed(exception):
                # The list is ours: the history stands in another one.
                request_data["messages"][:] = (await attempts.begin(call)).messages

    async def async_post_call_success_deployment_hook(self, request_data: Any, response: Any, call_type: Any) -> None:
        """After an answer that came whole: take its usage."""
        self._answered(str(request_data.get("litellm_call_id")), response)

    async def async_post_call_streaming_deployment_hook(
        self, request_data: Any, response_chunk: Any, call_type: Any
    ) -> None:
        """After the last chunk of a stream, before its usage."""
        call_id = str(request_data.get("litellm_call_id"))
        if call_id in self._open:
            self._ended[call_id] = self._open.pop(call_id)[0]

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """After a stream: take its usage."""
        self._answered(str(kwargs.get("litellm_call_id")), response_obj)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """After a stream that broke off."""
        self._answered(str(kwargs.get("litellm_call_id")), None)

    async def _last_usage(self) -> None:
        """Wait a little for the usage of streams that have ended: it is logged in the background, within moments."""
        waited_seconds = 0.0
        while self._ended and waited_seconds < _MOST_WAIT_SECONDS:
            await asyncio.sleep(_WAIT_SECONDS)
            waited_seconds += _WAIT_SECONDS
        while self._ended:
            self._ended.popitem()[1].close()

    def _remember(self, call_id: str, attempts: Attempts[Any], call: ModelCall[Any]) -> None:
        self._open[call_id] = attempts, call
        while len(self._open) > MOST_CONVERSATIONS:
            self._open.popitem(last=False)[1][0].close()

    def _answered(self, call_id: str, response: Any) -> None:
        attempts = self._ended.pop(call_id, None) or self._open.pop(call_id, (None, None))[0]
        if attempts is not None:
            with closing(attempts):
                attempts.answered(_usage(response))


def _in_hand(function: Any, **given: Any) -> Any:
    token = _SENDING.set(True)
    try:
        return function(**given)
    finally:
        _SENDING.reset(token)


def _call(model: str, messages: list[Any], given: Mapping[str, Any]) -> ModelCall[Any]:
    caps = (given.get(name) for name in _CAPS)
    figures = litellm.model_cost.get(model) or litellm.model_cost.get(model.rpartition("/")[2]) or {}
    metadata = given.get("metadata") or {}
    window = figures.get("max_input_tokens")
    return ModelCall(
        messages=messages,
        key=given.get("litellm_session_id") or metadata.get("session_id"),
        model=model.rpartition("/")[2],
        tools=given.get("tools") or (),
        window=window if isinstance(window, int) else None,
        max_output_tokens=next((cap for cap in caps if isinstance(cap, int) and cap > 0), None),
        endpoint=str(given.get("api_base") or given.get("base_url") or model.partition("/")[0]),
    )


_CAPS: Final = ("max_completion_tokens", "max_tokens")


def _shown(given: Mapping[str, Any], shown: ShownCall[Any]) -> dict[str, Any]:
    """The arguments of a call with what is sent in place of its messages."""
    sent = {**given, "messages": shown.messages}
    if shown.max_output_tokens is not None:
        name = next((name for name in _CAPS if given.get(name)), "max_tokens")
        sent[name] = shown.max_output_tokens
    return sent


def _usage(answer: Any) -> Json | None:
    """The report in an answer or in a chunk."""
    usage = getattr(answer, "usage", None)
    return _plain(usage) if getattr(usage, "prompt_tokens", 0) else None


def _begins(chunk: Any) -> bool:
    deltas = [choice.delta for choice in getattr(chunk, "choices", None) or ()]
    return any(
        getattr(delta, name, None) for delta in deltas for name in ("content", "tool_calls", "reasoning_content")
    )


_CHUNKS: Final[StreamEvents[Any]] = StreamEvents(begins=_begins, usage_of=_usage)
