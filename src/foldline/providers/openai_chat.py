"""Requests of OpenAI Chat Completions, as most servers take them. Source: OpenAI API reference, Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from foldline.engine.context import Request
from foldline.messages import Json, Wire
from foldline.providers.cache_points import chat_points, wants_chat_points
from foldline.providers.chat_assembly import ChatAssembler
from foldline.providers.endpoint import Endpoint

__all__ = ["ChatDialect", "is_openai", "output_field"]

_OUTPUT_FIELDS: Final = ("max_completion_tokens", "max_tokens")
_UNKNOWN_FIELD: Final = re.compile(
    r"(?i)unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|forbidden|"
    r"extra (?:inputs?|fields?)"
)
_OPTIONAL: Final = ("stream_options", "prompt_cache_key")


def is_openai(endpoint: Endpoint) -> bool:
    """Whether the server is OpenAI's own, or Azure's of it, which take what others refuse."""
    return endpoint.host == "api.openai.com" or endpoint.host.endswith(".openai.azure.com")


def output_field(endpoint: Endpoint) -> str:
    """The name of the output cap: OpenAI's reasoning models refuse `max_tokens`, many servers know nothing else."""
    given = next((name for name in _OUTPUT_FIELDS if endpoint.extra.get(name) is not None), None)
    return given or _OUTPUT_FIELDS[0 if is_openai(endpoint) else 1]


class ChatDialect:
    """The dialect "openai-chat"."""

    path: Final = "/chat/completions"

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """The system text as the first message, then the messages as they are."""
        messages: list[Wire] = [*_system_message(request), *request.messages]
        if wants_chat_points(endpoint):
            lead = len(messages) - len(request.messages)
            stable = request.stable_until + lead if request.stable_until else 0
            messages = chat_points(
                messages, stable_until=stable, tokens=request.tokens, model=endpoint.model, once=request.once
            )
        field = output_field(endpoint)
        cap = request.max_output_tokens
        wanted = endpoint.extra.get(field)
        body: dict[str, Json] = {
            "model": endpoint.model,
            "messages": messages,
            **({"tools": list(request.tools)} if request.tools else {}),
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"prompt_cache_key": endpoint.session_id} if endpoint.session_id and is_openai(endpoint) else {}),
            **endpoint.extra,
            # The session lowers its cap where a server asks for it, so a setting can only be lower still.
            field: min(cap, wanted) if isinstance(wanted, int) else cap,
        }
        return {name: value for name, value in body.items() if value is not None}

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Without the optional field that is named as unknown; the output cap under its other name."""
        if not _UNKNOWN_FIELD.search(refusal):
            return None
        for name in _OPTIONAL:
            if name in body and name in refusal:
                return {key: value for key, value in body.items() if key != name}
        new, old = _OUTPUT_FIELDS
        # A refusal may advise the right name, so the wrong one is the one that was sent.
        sent = new if new in body else old
        other = old if sent == new else new
        if sent in body and re.search(rf"\b{sent}\b", refusal):
            return {other if key == sent else key: value for key, value in body.items()}
        return None

    def assembler(self) -> ChatAssembler:
        """A new assembler."""
        return ChatAssembler()


def _system_message(request: Request) -> list[Wire]:
    system = request.system
    if not system:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    if all(block.keys() <= {"type", "text"} for block in system):
        # Many servers' templates know text only.
        return [{"role": "system", "content": "\n\n".join(str(block.get("text", "")) for block in system)}]
    return [{"role": "system", "content": list(system)}]
