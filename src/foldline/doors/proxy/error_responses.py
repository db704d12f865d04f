"""Errors of the proxy, in the form of the client's own dialect.

Clients that compact by themselves recognise an overflow by its code or its words, so these are the providers' own. What
each client looks for, by its source code:

- Claude Code: `/prompt is too long[^0-9]*(\\d+)\\s*tokens?\\s*>\\s*(\\d+)/i`, and compacts by the figures.
  langchain-anthropic and OpenHands: "prompt is too long". Goose: "too long".
- Codex: the code `context_length_exceeded` of the error in a `response.failed` event (codex-rs, codex-api/src/sse/
  responses.rs), and nothing else: a status of 400 is a bad request to it (core/src/api_bridge.rs).
- opencode, Kilo, pi: `/exceeds the context window/i`, `/maximum context length is \\d+ tokens/i`,
  `/reduce the length of the messages/i`, the code; in a stream an `error` event whose inner error has the code.
- Cline: the code, or "context length|window", "maximum context", with status 400, 413 or 422 and no word of a rate.
- pydantic-ai: the code, "maximum context length". litellm: "maximum context length is". Roo: 400 and "context length".
- langchain-openai: the code; "exceeds the context window" in an error inside a stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, Final
from uuid import uuid4

from foldline.codecs import dialect_named
from foldline.conversations.request_body import RequestBody
from foldline.errors import DoesNotFit
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.messages import Json

__all__ = ["ErrorResponse", "does_not_fit", "error_response", "overflow", "still_too_long", "too_large"]

_MAX_DETAIL_CHARS: Final = 1_000  # clients show it in a line or a box


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A complete error response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def overflow(
    dialect: str, *, tokens: int, limit: int, detail: str = "", streamed: bool = False, model: str = ""
) -> ErrorResponse:
    """The dialect's own error for a prompt of `tokens` where `limit` fit; `detail` says what can be done.

    With `streamed` (the client asked for a stream) Responses answers as OpenAI does: status 200, and a stream whose
    response has failed, with the name of the `model`. A detail that would change how clients classify the error is
    left out.
    """
    plain = _overflow_error(dialect, tokens, limit, "")
    error = plain
    if detail:
        # The detail may quote an upstream whose words mean another failure to a client, such as a rate limit.
        fuller = _overflow_error(dialect, tokens, limit, f" ({_short(detail)})")
        error = fuller if _classification(fuller) == _classification(plain) else plain
    if streamed and dialect_named(dialect).stream.shape == "response":
        return _failed_stream(error["error"], model)
    return _json_response(400, error)


def error_response(
    dialect: str,
    status: int,
    message: str,
    *,
    code: str | None = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> ErrorResponse:
    """Any other error, in the dialect's form, with further `headers`."""
    # Named, or people would look for the error at their provider.
    text = f"foldline: {_short(message)}"
    return _json_response(status, dialect_named(dialect or "openai-chat").errors.refused(status, text, code), headers)


def _overflow_error(dialect: str, tokens: int, limit: int, suffix: str) -> dict[str, Any]:
    return dialect_named(dialect or "openai-chat").errors.overflow(tokens, limit, suffix)


def _classification(error: Mapping[str, Json]) -> tuple[object, ...]:
    """The classification of an error by a client. A detail may contain other figures, or words of another failure."""
    failure = classify(400, error)
    return failure.kind, failure.limit, failure.requested


def too_large(dialect: str, most_bytes: int) -> ErrorResponse:
    """The error for a request whose body is larger than the proxy accepts."""
    return error_response(dialect, 413, f"the request is larger than {most_bytes:,} bytes (--max-request-bytes)")


def does_not_fit(dialect: str, error: DoesNotFit, body: RequestBody | None, window_tokens: int) -> ErrorResponse:
    """The error for a request that cannot be made to fit a window. It names the window as the limit.

    Tokens reserved for the reply count as part of the prompt, as servers count them.
    """
    if error.unit == "bytes":
        return error_response(dialect, 413, str(error))
    reserved_tokens = max(0, window_tokens - error.limit)
    named = "; ".join(map(str, error.parts))
    detail = f"{named}; {reserved_tokens:,} are kept for the reply and for what a count may be wrong by"
    detail = f"{error.reason}: {detail}" if error.reason else detail
    return _overflow_of(dialect, body, error.used_tokens + reserved_tokens, window_tokens, detail)


def still_too_long(
    dialect: str, failure: Failure, body: RequestBody | None, sent_tokens: int, window_tokens: int
) -> ErrorResponse:
    """The error for a request that the upstream refused repeatedly, with the upstream's figures if it gave any."""
    # More than the limit in any case: clients compute from the difference how much to drop.
    limit = failure.limit or window_tokens
    return _overflow_of(dialect, body, max(failure.requested or sent_tokens, limit + 1), limit, failure.message)


def _overflow_of(dialect: str, body: RequestBody | None, tokens: int, limit: int, detail: str) -> ErrorResponse:
    streamed, model = (False, "") if body is None else (body.streamed, body.model)
    return overflow(dialect, tokens=tokens, limit=limit, detail=detail, streamed=streamed, model=model)


def _failed_stream(error: Mapping[str, Json], model: str) -> ErrorResponse:
    """A stream with nothing but this error, twice: clients look for it in one event or the other."""
    # Clients build the response from its first event, so the failure needs one too.
    response: dict[str, Any] = {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
    }
    inner = {"code": error["code"], "message": error["message"]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "error", "error": error},
        {"type": "response.failed", "response": {**response, "status": "failed", "error": inner}},
    ]
    frames = (
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    )
    return _response(200, b"text/event-stream; charset=utf-8", "".join(frames).encode())


def _json_response(
    status: int, value: Mapping[str, Json], headers: Sequence[tuple[bytes, bytes]] = ()
) -> ErrorResponse:
    return _response(status, b"application/json", json.dumps(value).encode(), headers)


def _response(status: int, media: bytes, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> ErrorResponse:
    own = ((b"content-type", media), (b"content-length", str(len(body)).encode()))
    return ErrorResponse(status, (*own, *headers), body)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MAX_DETAIL_CHARS else f"{plain[: _MAX_DETAIL_CHARS - 1]}…"
