"""Google's Agent Development Kit: a model that wraps another, and a callback that names conversations.

Extra: `google-adk`. Attached at `BaseLlm.generate_content_async` (google-adk 2.13 and later; tests run 2.13.0), where
view, usage and errors meet: a plugin's `on_model_error_callback` can answer an error, but not with a stream. The events
of a session stay whole.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.codecs.blocks import same_items
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire

try:
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types
    from pydantic import Field, PrivateAttr
except ImportError as error:
    raise MissingExtra("google-adk", "the adapter for Google's ADK") from error

__all__ = ["FoldlineLlm", "PartContents", "session_name"]

_CONVERSATION: ContextVar[Hashable | None] = ContextVar("foldline_adk_conversation", default=None)


def session_name(callback_context: Any, llm_request: LlmRequest) -> None:
    """A `before_model_callback` that names the conversation: by the session and the agent. It changes nothing.

    Without it a conversation is found by its contents, and an edit or a branch of it is another one.
    """
    _CONVERSATION.set((callback_context.session.id, callback_context.agent_name))


class PartContents:
    """Contents of google-genai, which are those of Gemini's API already. A part that nothing shortens stays itself."""

    dialect: Final = "gemini"

    def read(self, message: types.Content, /) -> Sequence[Wire]:
        """The content as JSON; none for an empty one."""
        if not message.parts:
            return ()
        return ({"role": message.role or "user", "parts": [_json(part) for part in message.parts]},)

    def write(self, wires: Sequence[Wire], original: types.Content | None, /) -> Sequence[types.Content]:
        """Copies of the original with the parts that differ, or new contents."""
        out: list[types.Content] = []
        for wire in wires:
            own = [] if original is None else [(part, _json(part)) for part in original.parts or ()]
            parts = [_part(one, own) for one in _parts(wire)]
            role = "model" if wire["role"] in ("model", "assistant") else "user"
            if original is None or role != (original.role or "user"):
                out.append(types.Content(role=role, parts=parts))
            elif same_items(parts, original.parts or ()):
                out.append(original)
            else:
                out.append(original.model_copy(update={"parts": parts}))
        return out


def _json(model: Any) -> Json:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _parts(wire: Wire) -> Sequence[Json]:
    parts = wire.get("parts") or ()
    return [{"text": parts}] if isinstance(parts, str) else [parts] if isinstance(parts, Mapping) else parts


def _part(wire: Json, own: list[tuple[types.Part, Json]]) -> types.Part:
    """The part that this JSON shows: the framework's own where it is shown whole, each once."""
    at = next((at for at, (_, before) in enumerate(own) if before == wire), None)
    if at is not None:
        return own.pop(at)[0]
    # As JSON: signatures and the bytes of files are base64 in it.
    return types.Part.model_validate_json(json.dumps(wire))


class FoldlineLlm(BaseLlm):
    """A model that sends what fits to the model that it wraps, and retries an overflow inside the call.

    The settings are those of `AdapterSettings`. One may serve many agents and sessions.
    """

    wrapped: Any = Field(description="The model that is wrapped.")
    _adapter: Any = PrivateAttr(default=None)

    def __init__(self, wrapped: BaseLlm, **settings: Unpack[AdapterSettings]) -> None:
        super().__init__(model=wrapped.model, wrapped=wrapped)
        self._adapter = Adapter(PartContents(), settings)

    def context(self, session_id: Hashable | None = None, agent_name: str | None = None) -> Context | None:
        """The context of an agent in a session, as `session_name` names it; without names the one asked last."""
        key = None if session_id is None else (session_id, agent_name)
        found: Context | None = self._adapter.context(key)
        return found

    @property
    def capabilities(self) -> Any:
        """What the model that is wrapped can do."""
        return self.wrapped.capabilities

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[Any]:
        """A live connection of the model that is wrapped: its server has the history."""
        connection: AbstractAsyncContextManager[Any] = self.wrapped.connect(llm_request)
        return connection

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The responses to what fits of the contents."""

        async def send(shown: ShownCall[types.Content]) -> AsyncGenerator[LlmResponse, None]:
            async for response in self.wrapped.generate_content_async(_request(shown, llm_request), stream):
                yield response

        key = _CONVERSATION.get()
        _CONVERSATION.set(None)  # said for this call alone: the next one has its own callback, or none
        if llm_request.previous_interaction_id:  # the server has the history, and the request what is new
            responses = self.wrapped.generate_content_async(llm_request, stream)
        else:
            responses = self._adapter.stream_async(self._call(llm_request, key), send, _EVENTS)
        async for response in responses:
            yield response

    def _call(self, request: LlmRequest, key: Hashable | None) -> ModelCall[types.Content]:
        config = request.config
        return ModelCall(
            messages=request.contents,
            key=key,
            model=request.model or self.model,
            system=_system(config.system_instruction),
            tools=[_json(tool) for tool in config.tools or () if hasattr(tool, "model_dump")],
            max_output_tokens=config.max_output_tokens,
            endpoint=str(getattr(self.wrapped, "base_url", None) or ""),
        )


def _system(given: Any) -> str | None:
    """The text of an instruction in any of its forms: a string, a part, a content, a list of these."""
    if given is None or isinstance(given, str):
        return given or None
    inner = given if isinstance(given, list | tuple) else getattr(given, "parts", None)
    texts = [getattr(given, "text", None)] if inner is None else [_system(one) for one in inner]
    return "\n".join(text for text in texts if text) or None


def _request(shown: ShownCall[types.Content], request: LlmRequest) -> LlmRequest:
    changes: dict[str, Any] = {}
    if shown.max_output_tokens is not None:
        changes["max_output_tokens"] = shown.max_output_tokens
    if shown.system is None and request.config.system_instruction:
        changes["system_instruction"] = None
    config = request.config.model_copy(update=changes) if changes else request.config
    return request.model_copy(update={"contents": shown.messages, "config": config})


_EVENTS: Final[StreamEvents[Any]] = StreamEvents(
    begins=lambda response: response.content is not None or response.error_code is not None,
    usage_of=lambda response: response.usage_metadata,
)
