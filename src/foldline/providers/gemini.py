"""Gemini `generateContent` over HTTP.

Source: Gemini API reference, "Generating content" (each event of a stream is a whole GenerateContentResponse) and docs,
"Thought signatures": a signature may come in a separate part with an empty text and must go back in the same part, so a
part with a signature is never joined with another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from foldline.codecs import dialect_named
from foldline.codecs.gemini.parts import field_in, is_signed, key_of
from foldline.engine.context import Request
from foldline.messages import Json
from foldline.providers.base import (
    AssembledReply,
    CallStarted,
    HttpDialect,
    Piece,
    ReasoningDelta,
    TextDelta,
    finish_reason_of,
    object_in,
    reported,
)
from foldline.providers.bodies import Event, StreamedError
from foldline.providers.endpoint import Endpoint

__all__ = ["DIALECT", "GeminiDialect"]

_CONFIG: Final = "generationConfig"
_CAP: Final = "maxOutputTokens"


class GeminiDialect:
    """The dialect "gemini"."""

    path: Final = "/models/{model}:streamGenerateContent?alt=sse"

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """Return a body with the system text as an object and the cap in `generationConfig`."""
        extra = endpoint.extra.get(_CONFIG)
        # Merged, not replaced: the cap and the user's fields share this object.
        config = dict(extra) if isinstance(extra, Mapping) else {}
        key, cap_tokens = key_of(config, _CAP), request.max_output_tokens
        wanted = config.get(key)
        body: dict[str, Json] = {
            "systemInstruction": dialect_named("gemini").body.system_json(request.system or None),
            "tools": _tools(request),
            "contents": list(request.messages),
            **endpoint.extra,
            _CONFIG: {**config, key: min(cap_tokens, wanted) if isinstance(wanted, int) else cap_tokens},
        }
        return {name: value for name, value in body.items() if value is not None}

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Return None: every field sent here is part of the dialect."""
        return None

    def assembler(self) -> _ContentAssembler:
        """Return a new assembler."""
        return _ContentAssembler()


DIALECT: Final[HttpDialect] = GeminiDialect()
"""The dialect of this module, which `foldline.providers.http` finds by its name."""


def _tools(request: Request) -> Json:
    """Return the tools with all functions in one tool, as in the API's own examples. Other tools stay unchanged."""
    functions: list[Json] = []
    others: list[Json] = []
    for tool in request.tools or ():
        declared = field_in(tool, "functionDeclarations")
        if isinstance(declared, list) and len(tool) == 1:
            functions += declared
        else:
            others.append(tool)
    return [*([{"functionDeclarations": functions}] if functions else []), *others] or None


class _ContentAssembler:
    def __init__(self) -> None:
        self.finished = False  # usage may follow the reason, so the stream is read to its end
        self._parts: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []  # the text of each part in pieces, joined once
        self._usage: Json = None
        self._reason: Json = None

    def feed(self, event: Event) -> Iterator[Piece]:
        yield from self.feed_body(object_in(event))

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        if body.get("error"):
            raise StreamedError(dict(body))
        self._usage = reported(field_in(body, "usageMetadata")) or self._usage
        # A blocked prompt has no candidates, and its reason is the only end of the stream.
        feedback = field_in(body, "promptFeedback")
        if isinstance(feedback, Mapping) and field_in(feedback, "blockReason"):
            self._reason = field_in(feedback, "blockReason")
        candidates = body.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(candidate, Mapping):
            return
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                yield from self._add_part(part)
        self._reason = field_in(candidate, "finishReason") or self._reason

    def result(self) -> AssembledReply | None:
        if self._reason is None:
            return None
        parts = [_joined(part, texts) for part, texts in zip(self._parts, self._texts, strict=True)]
        # An empty text is dropped, unless it carries a signature.
        parts = [part for part in parts if part.get("text", "x") or is_signed(part)]
        # The API says "STOP" for a turn with calls too.
        calls = any("functionCall" in part for part in parts)
        messages = ({"role": "model", "parts": parts},) if parts else ()
        return AssembledReply(messages, finish_reason_of(self._reason, calls=calls), self._usage)

    def _add_part(self, part: Mapping[str, Any]) -> Iterator[Piece]:
        text = part.get("text")
        if not isinstance(text, str):
            self._parts.append(dict(part))
            self._texts.append([])
            call = field_in(part, "functionCall")
            if isinstance(call, Mapping) and isinstance(call.get("name"), str):
                yield CallStarted(call["name"])
            return
        # Joined only within one kind of part: a signature belongs to the very part that it came in.
        if self._continues(part):
            self._texts[-1].append(text)
        else:
            self._parts.append(dict(part))
            self._texts.append([text])
        if text:
            yield ReasoningDelta(text) if part.get("thought") is True else TextDelta(text)

    def _continues(self, part: Mapping[str, Any]) -> bool:
        """Whether a piece of text continues the part before it: both plain text, or both thoughts, and unsigned."""
        if not self._parts or is_signed(part):
            return False
        last = self._parts[-1]
        kinds = [{name for name in one if name != "text"} for one in (last, part)]
        return "text" in last and not is_signed(last) and kinds[0] == kinds[1] <= {"thought"}


def _joined(part: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    return {**part, "text": "".join(texts)} if texts else part
