"""What the proxy says when it refuses: errors in the form of the client's own dialect.

Clients that compact by themselves know an overflow by its code or by its words, which are therefore the providers' own.
What each of them looks for, as their sources have it:

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

from foldline.conversations.request_body import RequestBody
from foldline.errors import DoesNotFit
from foldline.failures import Failure, classify
from foldline.messages import Json

__all__ = ["Refusal", "does_not_fit", "overflow", "refused", "still_too_long", "too_large"]

_MOST_DETAIL_CHARS: Final = 1_000

_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""Anthropic's API reference, "Errors"; all else is an `api_error` from 500 on, an `invalid_request_error` below."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that refuses."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def overflow(
    dialect: str, *, tokens: int, limit: int, detail: str = "", streamed: bool = False, model: str = ""
) -> Refusal:
    """The dialect's own error for a prompt of `tokens` where `limit` may be sent; `detail` says what can be done.

    With `streamed` (the client asked for a stream) Responses answers as OpenAI does: status 200, and a stream whose
    response has failed; `model` is named in it. A detail that would make it read as another failure is left out.
    """
    plain = _overflow(dialect, tokens, limit, "")
    told = plain
    if detail:
        fuller = _overflow(dialect, tokens, limit, f" ({_short(detail)})")
        told = fuller if _read(fuller) == _read(plain) else plain
    if streamed and dialect == "openai-responses":
        return _failed_stream(told["error"], model)
    return _made(400, told)


def refused(
    dialect: str,
    status: int,
    message: str,
    *,
    code: str | None = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> Refusal:
    """Any other error, in the dialect's form; `headers` are sent with it."""
    text = f"foldline: {_short(message)}"
    if dialect == "anthropic":
        kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return _made(status, _anthropic(kind, text), headers)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return _made(status, _openai(kind, text, code or _CODES.get(status), None), headers)


_CODES: Final = {
    401: "invalid_api_key",
    403: "forbidden",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    502: "upstream_unreachable",
    504: "upstream_timeout",
}


def _overflow(dialect: str, tokens: int, limit: int, said: str) -> dict[str, Any]:
    if dialect == "anthropic":
        return _anthropic("invalid_request_error", f"prompt is too long: {tokens} tokens > {limit} maximum{said}")
    responses = dialect == "openai-responses"
    lead = "Your input exceeds the context window of this model. " if responses else ""
    message = (
        f"{lead}This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
        f"tokens. Please reduce the length of the messages.{said}"
    )
    return _openai("invalid_request_error", message, "context_length_exceeded", "input" if responses else "messages")


def _read(error: Mapping[str, Json]) -> tuple[object, ...]:
    """What a reader makes of an error: a detail may hold other figures, or words of another failure."""
    failure = classify(400, error)
    return failure.kind, failure.limit, failure.requested


def too_large(dialect: str, most_bytes: int) -> Refusal:
    """The refusal of a request whose body is larger than the proxy takes."""
    return refused(dialect, 413, f"the request is larger than {most_bytes:,} bytes (--max-request-bytes)")


def does_not_fit(dialect: str, error: DoesNotFit, body: RequestBody | None, window_tokens: int) -> Refusal:
    """The refusal of a request that cannot be made to fit a window. The limit that it names is the window.

    What is kept for the reply counts with what must stay, as servers count it.
    """
    if error.unit == "bytes":
        return refused(dialect, 413, str(error))
    kept_tokens = max(0, window_tokens - error.limit)
    named = "; ".join(map(str, error.parts))
    detail = f"{named}; {kept_tokens:,} are kept for the reply and for what a count may be wrong by"
    detail = f"{error.reason}: {detail}" if error.reason else detail
    return _for(dialect, body, error.used_tokens + kept_tokens, window_tokens, detail)


def still_too_long(
    dialect: str, failure: Failure, body: RequestBody | None, sent_tokens: int, window_tokens: int
) -> Refusal:
    """The refusal of a request that the upstream refused again and again, by the upstream's figures if it gave some."""
    limit = failure.limit or window_tokens
    return _for(dialect, body, max(failure.requested or sent_tokens, limit + 1), limit, failure.message)


def _for(dialect: str, body: RequestBody | None, tokens: int, limit: int, detail: str) -> Refusal:
    streamed, model = (False, "") if body is None else (body.streamed, body.model)
    return overflow(dialect, tokens=tokens, limit=limit, detail=detail, streamed=streamed, model=model)


def _failed_stream(error: Mapping[str, Json], model: str) -> Refusal:
    """A stream that says nothing but this error, twice: clients look for it in either event."""
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
    return _answer(200, b"text/event-stream; charset=utf-8", "".join(frames).encode())


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _openai(kind: str, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _made(status: int, value: Mapping[str, Json], headers: Sequence[tuple[bytes, bytes]] = ()) -> Refusal:
    return _answer(status, b"application/json", json.dumps(value).encode(), headers)


def _answer(status: int, media: bytes, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> Refusal:
    own = ((b"content-type", media), (b"content-length", str(len(body)).encode()))
    return Refusal(status, (*own, *headers), body)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MOST_DETAIL_CHARS else f"{plain[: _MOST_DETAIL_CHARS - 1]}…"
