"""Errors in the words of each provider, for clients that know an overflow by its code or by its words.

What each client looks for stands in `foldline.doors.proxy.refusals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ANTHROPIC_ERRORS", "CHAT_ERRORS", "GEMINI_ERRORS", "RESPONSES_ERRORS", "ErrorBodies"]


@dataclass(frozen=True, slots=True)
class ErrorBodies:
    """`refused(status, message, code)` is any error; `overflow(tokens, limit, detail)` one for a prompt too long."""

    refused: Callable[[int, str, str | None], dict[str, Any]]
    overflow: Callable[[int, int, str], dict[str, Any]]


_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""Anthropic's API reference, "Errors"; all else is an `api_error` from 500 on, an `invalid_request_error` below."""

_CODES: Final = {
    401: "invalid_api_key",
    403: "forbidden",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    502: "upstream_unreachable",
    504: "upstream_timeout",
}

_GEMINI_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Gemini API docs, "Troubleshooting guide": backend error codes; all else is INTERNAL."""


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _openai(kind: str, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _refused_by_anthropic(status: int, message: str, code: str | None) -> dict[str, Any]:
    del code
    return _anthropic(_ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error"), message)


def _refused_by_openai(status: int, message: str, code: str | None) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return _openai(kind, message, code or _CODES.get(status), None)


def _refused_by_gemini(status: int, message: str, code: str | None) -> dict[str, Any]:
    del code
    kind = _GEMINI_STATUSES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": status, "message": message, "status": kind}}


def _anthropic_overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    return _anthropic("invalid_request_error", f"prompt is too long: {tokens} tokens > {limit} maximum{detail}")


def _chat_overflow(tokens: int, limit: int, detail: str, lead: str = "", param: str = "messages") -> dict[str, Any]:
    message = (
        f"{lead}This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
        f"tokens. Please reduce the length of the messages.{detail}"
    )
    return _openai("invalid_request_error", message, "context_length_exceeded", param)


def _responses_overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    return _chat_overflow(tokens, limit, detail, "Your input exceeds the context window of this model. ", "input")


def _gemini_overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).{detail}"
    return _refused_by_gemini(400, message, None)


CHAT_ERRORS: Final = ErrorBodies(_refused_by_openai, _chat_overflow)
RESPONSES_ERRORS: Final = ErrorBodies(_refused_by_openai, _responses_overflow)
ANTHROPIC_ERRORS: Final = ErrorBodies(_refused_by_anthropic, _anthropic_overflow)
GEMINI_ERRORS: Final = ErrorBodies(_refused_by_gemini, _gemini_overflow)
