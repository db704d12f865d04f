"""The dialect "openai-chat": Chat Completions of OpenAI, and of most other servers."""

from __future__ import annotations

from typing import Any, Final

from foldline.codecs.base import BodyForm, Dialect, ErrorBodies, MediaBlocks, Path, StreamWords
from foldline.codecs.blocks import Source, data_url
from foldline.codecs.openai_chat.codec import LIMITS, OpenAIChat
from foldline.codecs.openai_chat.rules import RULES, check_chat
from foldline.messages import Json

__all__ = ["ROW", "overflow", "refused"]

# Codes that clients of OpenAI know, and for faults of a proxy two that say who failed.
_CODES: Final = {
    401: "invalid_api_key",
    403: "forbidden",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    502: "upstream_unreachable",
    504: "upstream_timeout",
}


def _error(kind: str, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refused(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return any error in the form of OpenAI, which Responses shares."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return _error(kind, message, code or _CODES.get(status), None)


def overflow(tokens: int, limit: int, detail: str, lead: str = "", param: str = "messages") -> dict[str, Any]:
    """Return the error for a prompt that is too long; `lead` and `param` differ in Responses."""
    # Clients match on this wording, or on the code.
    message = (
        f"{lead}This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
        f"tokens. Please reduce the length of the messages.{detail}"
    )
    return _error("invalid_request_error", message, "context_length_exceeded", param)


def _holds(data: bytes, field: bytes) -> bool:
    """Whether bytes hold a field with a value other than null."""
    # Some servers send both fields as null in every chunk, and reading every chunk is what `says` avoids.
    found = data.count(field)
    return found > 0 and found != data.count(field + b":null") and found != data.count(field + b": null")


def _says(data: bytes) -> bool:
    # In text of the model each quotation mark has a backslash before it, so a quoted name is a field.
    if b"error" in data or b"[DONE]" in data:
        return True
    return _holds(data, b'"finish_reason"') or _holds(data, b'"usage"')


def _image(source: Source, detail: str) -> dict[str, Any] | None:
    url = data_url(source)
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}} if url else None


def _document(source: Source) -> dict[str, Any] | None:
    if source.media_type.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": source.data, "format": source.media_type[6:]}}
    if not source.data:  # a file of this dialect has data or an id of OpenAI's store, and no URL
        return None
    return {"type": "file", "file": {"filename": source.name or "file", "file_data": data_url(source)}}


def _tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


ROW: Final = Dialect(
    name="openai-chat",
    codec=OpenAIChat(),
    rules=RULES,
    check=check_chat,
    limits=LIMITS,
    media=MediaBlocks(_image, _document),
    body=BodyForm(
        dialect="openai-chat", messages="messages", system=None, caps=("max_completion_tokens", "max_tokens")
    ),
    paths=(Path.of("/chat/completions"),),
    stream=StreamWords(shape="choices", says=_says),
    errors=ErrorBodies(refused, overflow),
    tool=_tool,
    alternates=True,
)
"""The row of the dialect."""
