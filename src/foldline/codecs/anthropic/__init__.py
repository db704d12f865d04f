"""The dialect "anthropic": Anthropic Messages, which Vertex AI and Bedrock carry for Claude models too."""

from __future__ import annotations

import re
from typing import Any, Final

from foldline.codecs.anthropic.codec import LIMITS, Anthropic
from foldline.codecs.anthropic.rules import RULES, check_messages, check_outside
from foldline.codecs.base import ApiCompaction, BodyForm, Dialect, ErrorBodies, MediaBlocks, Path, StreamWords
from foldline.codecs.blocks import Source
from foldline.messages import Json

__all__ = ["ROW"]

# Anthropic's API reference, "Errors". Any other status is an `api_error` from 500, an `invalid_request_error` below.
_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _refused(status: int, message: str, code: str | None) -> dict[str, Any]:
    del code  # errors of this API have a type and no code
    return _error(_ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error"), message)


def _overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    return _error("invalid_request_error", f"prompt is too long: {tokens} tokens > {limit} maximum{detail}")


# In text of the model each quotation mark has a backslash before it, so a quoted name is a field; usage and the end
# come in events whose type begins with "message_".
def _says(data: bytes) -> bool:
    return b"error" in data or b"message_" in data or b'"usage"' in data


def _source(source: Source) -> dict[str, Any] | None:
    if source.data:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url} if source.url else None


def _image(source: Source, _detail: str) -> dict[str, Any] | None:
    inner = _source(source)
    return {"type": "image", "source": inner} if inner else None


def _document(source: Source) -> dict[str, Any] | None:
    # The API accepts base64 of PDF files only. Text needs no document: it is sent as text.
    inner = _source(source) if source.url or source.media_type == "application/pdf" else None
    return {"type": "document", "source": inner, **({"title": source.name} if source.name else {})} if inner else None


def _tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    return {"name": name, "description": description, "input_schema": schema}


ROW: Final = Dialect(
    name="anthropic",
    codec=Anthropic(),
    rules=RULES,
    check=check_messages,
    check_outside=check_outside,
    limits=LIMITS,
    media=MediaBlocks(_image, _document),
    # A thread holds the conversation at the server (types of the SDK, anthropic 2.14.0: BetaMessageThreadParam).
    body=BodyForm(
        dialect="anthropic", messages="messages", system="system", caps=("max_tokens",), elsewhere=("thread",)
    ),
    paths=(
        Path.of("/messages"),
        Path.of("/messages/count_tokens", counting=True),
        # Vertex AI, "Claude models": the path names the model, the body is that of Messages.
        Path.of(r"/publishers/anthropic/models/count-tokens:rawPredict", counting=True),
        Path.of(r"/publishers/anthropic/models/[^/:]+:rawPredict"),
        Path.of(r"/publishers/anthropic/models/[^/:]+:streamRawPredict", streamed=True),
        # Bedrock, "InvokeModel", "InvokeModelWithResponseStream": the same body, for Claude models.
        Path.of(r"/model/[^/]*(?:anthropic|claude)[^/]*/invoke"),
        Path.of(r"/model/[^/]*(?:anthropic|claude)[^/]*/invoke-with-response-stream", streamed=True, binary=True),
    ),
    stream=StreamWords(shape="message", says=_says),
    errors=ErrorBodies(_refused, _overflow),
    tool=_tool,
    key_header=("x-api-key", ""),
    version_in_base=False,
    headers={"anthropic-version": "2023-06-01"},  # the only current one (API reference, "Versions")
    cache_rule="anthropic",
    card_window=("max_input_tokens", "context_window"),
    maker="anthropic",
    free_text_calls=False,
    failed_results=True,
    results_inside=True,
    cache_markers=True,
    compaction=ApiCompaction(frozenset({"anthropic"}), re.compile(r"claude", re.IGNORECASE)),
)
"""The row of the dialect."""
