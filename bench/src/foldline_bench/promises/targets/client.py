"""A client of a provider's API, by the standard library alone: what an agent would send through a proxy."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline_bench.promises.targets.base import DeclinedError

__all__ = ["KEY_VARIABLE", "ApiAnswer", "ApiClient"]

KEY_VARIABLE: Final = "FOLDLINE_CONFORMANCE_KEY"
"""The environment variable with the key for a proxy that wants one."""

_WORDS_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The answer to a request: its text, and for a stream whether its closing event came."""

    status: int
    text: str
    ended: bool = True


class ApiClient:
    """Sends requests of all dialects to one server; one connection for each."""

    def __init__(self, url: str, *, seconds: float) -> None:
        where = urlsplit(url)
        try:
            port = where.port
        except ValueError:
            port = -1
        if where.scheme not in {"http", "https"} or not where.hostname or port == -1:
            raise InvalidInput("is no URL of a server, such as http://127.0.0.1:8790", place=url)
        self._secure, self._host, self._port = where.scheme == "https", where.hostname, port
        self._prefix = where.path.rstrip("/").removesuffix("/v1")
        self._seconds = seconds

    def ask(
        self, dialect: str, messages: Sequence[Wire], system: Json, *, model: str, streamed: bool = False
    ) -> ApiAnswer:
        """The answer of the model. Raises DeclinedError where there is no whole answer of HTTP."""
        path, body = _request(dialect, messages, system, model, streamed=streamed)
        made = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = made(self._host, self._port, timeout=self._seconds)
        try:
            connection.request("POST", self._prefix + path, json.dumps(body).encode(), _headers(dialect))
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DeclinedError(f"no answer: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        text = data.decode("utf-8", "replace")
        if response.status >= 400:
            return ApiAnswer(response.status, " ".join(text.split())[:_WORDS_SHOWN])
        try:
            return _streamed(dialect, text) if streamed else ApiAnswer(response.status, _text(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise DeclinedError(f"an answer that is none of {dialect}: {text[:_WORDS_SHOWN]}") from None


def _headers(dialect: str) -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "sk-of-a-test")
    headers = {"content-type": "application/json"}
    match dialect:
        case "anthropic":
            return headers | {"x-api-key": key, "anthropic-version": "2023-06-01"}
        case "gemini":
            return headers | {"x-goog-api-key": key}
        case _:
            return headers | {"authorization": f"Bearer {key}"}


def _request(
    dialect: str, messages: Sequence[Wire], system: Json, model: str, *, streamed: bool
) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request."""
    flag = {"stream": True} if streamed else {}
    match dialect:
        case "openai-chat":
            return "/v1/chat/completions", {"model": model, "messages": list(messages), **flag}
        case "openai-responses":
            told = {"instructions": system} if system else {}
            return "/v1/responses", {"model": model, **told, "input": list(messages), **flag}
        case "anthropic":
            told = {"system": system} if system else {}
            return "/v1/messages", {"model": model, "max_tokens": 64, **told, "messages": list(messages), **flag}
        case _:
            told = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
            verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
            return f"/v1beta/models/{model}:{verb}", {**told, "contents": list(messages)}


def _text(body: Mapping[str, Any]) -> str:
    """The text of a whole answer of any dialect."""
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    if "output" in body:
        blocks = [block for item in body["output"] for block in item.get("content", ())]
    elif "candidates" in body:
        blocks = body["candidates"][0]["content"]["parts"]
    else:
        blocks = body["content"]
    return "".join(block.get("text", "") for block in blocks)


def _streamed(dialect: str, text: str) -> ApiAnswer:
    """The text of a stream of events, and whether it came to its end."""
    events = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    bodies = [json.loads(event) for event in events if event != "[DONE]"]
    ended = "[DONE]" in events or any(map(_closes, bodies))
    del dialect  # each event shows whose it is
    return ApiAnswer(200, "".join(piece for body in bodies for piece in _pieces(body)), ended)


def _closes(body: Mapping[str, Any]) -> bool:
    if any(candidate.get("finishReason") for candidate in body.get("candidates") or ()):
        return True
    return body.get("type") in {"message_stop", "response.completed"}


def _pieces(body: Mapping[str, Any]) -> Iterator[str]:
    for choice in body.get("choices") or ():
        yield choice.get("delta", {}).get("content") or ""
    for candidate in body.get("candidates") or ():
        yield from (part.get("text", "") for part in candidate.get("content", {}).get("parts", ()))
    if body.get("type") == "response.output_text.delta":
        yield body["delta"]
    if body.get("type") == "content_block_delta":
        yield body["delta"].get("text", "")
