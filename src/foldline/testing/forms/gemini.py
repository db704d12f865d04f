"""Gemini `generateContent` (API reference: Generating content; docs: Thought signatures, Troubleshooting guide)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from foldline.testing.counting import dumped
from foldline.testing.forms.base import Made, Prompt, Stream, StreamEvent, pieces, with_field
from foldline.testing.values import Body, Refusal

__all__ = ["GeminiForm"]

_FINISH: Final = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_PLACE: Final = re.compile(r"/models/(?P<model>[^/:]+):(?P<method>\w+)$")


class GeminiForm:
    """The dialect "gemini"; with `alt=sse` a stream is one of events, without it an array that grows."""

    dialect = "gemini"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """Model and streaming stand in the path, the output cap in `generationConfig`."""
        found = _PLACE.search(path)
        if found is None or "contents" not in body:
            return Refusal(400, "field", "* GenerateContentRequest.contents: contents is not specified")
        config = body.get("generationConfig") or {}
        cap = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
        if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
            return Refusal(400, "field", "max_output_tokens must be positive.")
        return Prompt(
            model=found["model"],
            messages=body["contents"],
            system=_system(body.get("systemInstruction", body.get("system_instruction"))),
            tools=body.get("tools"),
            max_output_tokens=cap,
            streamed=found["method"] == "streamGenerateContent",
        )

    def whole(self, made: Made) -> Mapping[str, Any]:
        """One candidate."""
        return _response(made, _parts(made), last=True)

    def stream(self, made: Made) -> Stream:
        """Each event is a whole response with some parts; the last has the reason and the usage."""
        content: list[StreamEvent] = []
        for part in _parts(made):
            text = part.get("text")
            if not text:
                content.append(_response(made, [part]))
                continue
            rest = {name: value for name, value in part.items() if name not in ("text", "thoughtSignature")}
            content += [_response(made, [{"text": piece, **rest}]) for piece in pieces(text, made.reply.piece_chars)]
            if "thoughtSignature" in part:
                content.append(_response(made, [{"text": "", "thoughtSignature": part["thoughtSignature"]}]))
        return Stream([], content, [_response(made, [], last=True)], 0)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Events without a name."""
        del number
        return f"data: {dumped(event)}\r\n\r\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"error": {"code", "message", "status"}}."""
        del number
        status = _STATUSES.get(refusal.status, "INTERNAL")
        return {"error": {"code": refusal.status, "message": refusal.message, "status": refusal.code or status}}

    def error_event(self, refusal: Refusal, made: Made) -> StreamEvent:
        """The same object as an event."""
        return self.error(refusal, made.number)


def _system(given: Any) -> Any:
    return given.get("parts") if isinstance(given, Mapping) else given


def _parts(made: Made) -> list[dict[str, Any]]:
    reply = made.reply
    signature = made.named("sig")
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text:
        parts.append({"text": reply.text} if reply.calls else {"text": reply.text, "thoughtSignature": signature})
    for n, (name, given) in enumerate(reply.calls):
        part: dict[str, Any] = {"functionCall": {"id": made.named("call", n), "name": name, "args": dict(given)}}
        parts.append(part if n else {**part, "thoughtSignature": signature})
    return parts


def _response(made: Made, parts: list[dict[str, Any]], *, last: bool = False) -> Mapping[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        candidate["finishReason"] = _FINISH.get(made.finish, made.finish)
    out = {"candidates": [candidate], "modelVersion": made.model, "responseId": made.named("resp")}
    return with_field(out, "usageMetadata", _usage(made) if last else None)


def _usage(made: Made) -> Mapping[str, Any] | None:
    """Cached tokens stand in the prompt's count, thoughts beside those of the candidates (UsageMetadata)."""
    counts = made.counts
    if counts is None:
        return None
    usage = {
        "promptTokenCount": counts.input_tokens,
        "candidatesTokenCount": counts.output_tokens - counts.reasoning_tokens,
        "totalTokenCount": counts.input_tokens + counts.output_tokens,
    }
    if counts.cached_tokens:
        usage["cachedContentTokenCount"] = counts.cached_tokens
    if counts.reasoning_tokens:
        usage["thoughtsTokenCount"] = counts.reasoning_tokens
    return usage
