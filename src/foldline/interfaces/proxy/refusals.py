"""What the proxy says when it refuses: errors in the form of the client's own dialect.

Clients that compact by themselves know an overflow by its code or by its words, which are therefore the providers' own:

- Anthropic: "prompt is too long: N tokens > M maximum" (Claude Code and opencode match the beginning, and read both
  figures), 400, `invalid_request_error`.
- OpenAI: the code `context_length_exceeded` (Codex, opencode), and "maximum context length is M tokens" (litellm,
  cline, goose, LangChain), 400. Responses says "exceeds the context window".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from foldline.messages import Json

__all__ = ["Refusal", "overflow", "refused"]

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


def overflow(dialect: str, *, tokens: int, limit: int, detail: str = "") -> Refusal:
    """The dialect's own error for a prompt of `tokens` where `limit` may be sent; `detail` says what can be done."""
    said = f" ({_short(detail)})" if detail else ""
    if dialect == "anthropic":
        message = f"prompt is too long: {tokens} tokens > {limit} maximum{said}"
        return _made(400, _anthropic("invalid_request_error", message))
    if dialect == "openai-responses":
        message = (
            f"Your input exceeds the context window of this model: {tokens} tokens, the maximum context length is "
            f"{limit} tokens. Please adjust your input and try again.{said}"
        )
        return _made(400, _openai("invalid_request_error", message, "context_length_exceeded", "input"))
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens. "
        f"Please reduce the length of the messages.{said}"
    )
    return _made(400, _openai("invalid_request_error", message, "context_length_exceeded", "messages"))


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


def _anthropic(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _openai(kind: str, message: str, code: str | None, param: str | None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _made(status: int, value: Json, headers: Sequence[tuple[bytes, bytes]] = ()) -> Refusal:
    body = json.dumps(value).encode()
    own = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    return Refusal(status, (*own, *headers), body)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MOST_DETAIL_CHARS else f"{plain[: _MOST_DETAIL_CHARS - 1]}…"
