"""Gemini `generateContent` (API reference: Generating content; docs: Thought signatures, Troubleshooting guide)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from foldline.codecs.dialect import dialect_named
from foldline.testing.forms.base import FakeTurn, Form, Prompt, Stream, StreamEvent, pieces, with_field
from foldline.testing.script import Body, Refusal
from foldline.testing.token_counts import dumped

__all__ = ["FORM", "GeminiForm"]

_FINISH: Final = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_PLACE: Final = re.compile(r"/models/(?P<model>[^/:]+):(?P<method>\w+)$")


_CALL_TURN: Final = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_PARTS: Final = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_RULE_WORDS: Final = {
    "empty-request": "* GenerateContentRequest.contents: contents is not specified",
    "role": "Please use a valid role: user, model.",
    "user-first": _CALL_TURN,
    "empty-content": "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.",
    "empty-part": (
        "* GenerateContentRequest.contents[{at}].parts[0].data: required oneof field 'data' must have one initialized "
        "field"
    ),
    "result-without-call": _RESPONSE_PARTS,
    "call-without-result": _RESPONSE_PARTS,
    "call-place": _CALL_TURN,
    "signature": (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. (content block {at})"
    ),
    "call-name": "* GenerateContentRequest.contents[{at}].parts[0].function_call.name: Invalid function name.",
    "tool-name": "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name.",
    "amount": "Please use fewer images or pages: {detail}.",
}
_STATUS_WORDS: Final = {
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission",
    # The words of a limit per minute. "You exceeded your current quota" stands for one per day too, and only details of
    # the error, which a fake does not have, tell them apart.
    429: "Resource has been exhausted (e.g. check quota). Please retry in 2s.",
    500: "An internal error has occurred. Please retry or report in the troubleshooting guide.",
    503: "The model is overloaded. Please try again later.",
    504: "Deadline expired before operation could complete.",
}


class GeminiForm:
    """The dialect "gemini"; with `alt=sse` a stream is one of events, without it an array that grows."""

    dialect = "gemini"
    rule_words: Mapping[str, str] = _RULE_WORDS
    status_words: Mapping[int, str] = _STATUS_WORDS
    status_codes: Mapping[int, str] = MappingProxyType({})
    fault_status = 500
    count_field = "totalTokens"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """Model and streaming stand in the path, the output cap in `generationConfig`."""
        found = _PLACE.search(path)
        # The path names the model, so a broken path is a broken request too.
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

    def whole(self, turn: FakeTurn) -> Mapping[str, Any]:
        """One candidate."""
        return _response(turn, _parts(turn), last=True)

    def stream(self, turn: FakeTurn) -> Stream:
        """Each event is a whole response with some parts; the last has the finish reason and the usage."""
        # The signature of a text comes in a part of its own, after the text, as the real API streams it.
        content: list[StreamEvent] = []
        for part in _parts(turn):
            text = part.get("text")
            if not text:
                content.append(_response(turn, [part]))
                continue
            rest = {name: value for name, value in part.items() if name not in ("text", "thoughtSignature")}
            content += [_response(turn, [{"text": piece, **rest}]) for piece in pieces(text, turn.reply.piece_chars)]
            if "thoughtSignature" in part:
                # An empty text beside a signature is valid, and a client must keep it.
                content.append(_response(turn, [{"text": "", "thoughtSignature": part["thoughtSignature"]}]))
        return Stream([], content, [_response(turn, [], last=True)], 0)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Events without a name."""
        del number
        return f"data: {dumped(event)}\r\n\r\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"error": {"code", "message", "status"}}."""
        del number
        body = dialect_named("gemini").errors.refused(refusal.status, refusal.message, None)
        return {"error": {**body["error"], **({"status": refusal.code} if refusal.code else {})}}

    def error_event(self, refusal: Refusal, turn: FakeTurn) -> StreamEvent:
        """The same object as an event."""
        return self.error(refusal, turn.number)

    def session(self, rounds: int, result: str, task: str) -> list[Mapping[str, Any]]:
        """Calls are signed, as those of the model itself are."""
        out: list[Mapping[str, Any]] = [{"role": "user", "parts": [{"text": task}]}]
        for r in range(rounds):
            call = {"id": f"call_{r}", "name": "read_file", "args": {"path": f"src/{r}.py"}}
            signed = {"functionCall": call, "thoughtSignature": "c2lnbmVk"}
            response = {"id": f"call_{r}", "name": "read_file", "response": {"output": result}}
            out.append({"role": "model", "parts": [{"text": f"Step {r}."}, signed]})
            out.append({"role": "user", "parts": [{"functionResponse": response}]})
        return out

    def place(self, index: str) -> str:
        """contents[3]"""
        return f"contents[{index}]" if index else "contents"

    def refuse_json(self, reason: str) -> Refusal:
        """The parser's reason."""
        return Refusal(400, "json", f"We could not parse the JSON body of your request: {reason}")

    def refuse_field(self, place: str | None, reason: str) -> Refusal:
        """The place, then the reason."""
        return Refusal(400, "field", f"{place}: {reason}", None, place)

    def refuse_key(self, *, given: bool) -> Refusal:
        """400 for a wrong key, 403 for none."""
        return Refusal(400 if given else 403, "auth", "API key not valid. Please pass a valid API key.")

    def refuse_model(self, model: str) -> Refusal:
        """The name with its prefix."""
        return Refusal(404, "model", f"models/{model} is not found for API version v1beta")

    def refuse_bytes(self, max_request_bytes: int) -> Refusal:
        """The API's own limit, whatever this fake's is: clients match on the words."""
        del max_request_bytes
        return Refusal(400, "bytes", "Request payload size exceeds the limit: 20971520 bytes.")

    def refuse_prompt(self, tokens: int, window_tokens: int) -> Refusal:
        """Both figures."""
        body = dialect_named("gemini").errors.overflow(tokens, window_tokens, "")
        return Refusal(400, "overflow", body["error"]["message"])

    def refuse_sum(self, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
        """None: Gemini bounds input and output apart."""
        return None

    def refuse_output(self, output_tokens: int, cap_tokens: int, model: str) -> Refusal:
        """The range of accepted values."""
        del model
        message = (
            f"Unable to submit request because it has a maxOutputTokens value of {output_tokens} but the supported "
            f"range is from 1 (inclusive) to {cap_tokens + 1} (exclusive)."
        )
        return Refusal(400, "output-cap", message)


FORM: Final[Form] = GeminiForm()
"""The form of the dialect."""


def _system(given: Any) -> Any:
    return given.get("parts") if isinstance(given, Mapping) else given


def _parts(turn: FakeTurn) -> list[dict[str, Any]]:
    reply = turn.reply
    signature = b64encode(turn.named("sig").encode()).decode()  # bytes in the API: clients decode it
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text:
        parts.append({"text": reply.text} if reply.calls else {"text": reply.text, "thoughtSignature": signature})
    for n, (name, given) in enumerate(reply.calls):
        # Of parallel calls only the first is signed ("Thought signatures").
        part: dict[str, Any] = {"functionCall": {"id": turn.named("call", n), "name": name, "args": dict(given)}}
        parts.append(part if n else {**part, "thoughtSignature": signature})
    return parts


def _response(turn: FakeTurn, parts: list[dict[str, Any]], *, last: bool = False) -> Mapping[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        # The reason stands in the last event alone.
        candidate["finishReason"] = _FINISH.get(turn.finish, turn.finish)
    out = {"candidates": [candidate], "modelVersion": turn.model, "responseId": turn.named("resp")}
    return with_field(out, "usageMetadata", _usage(turn) if last else None)


def _usage(turn: FakeTurn) -> Mapping[str, Any] | None:
    # Cached tokens are part of the prompt's count; thoughts are not part of the candidates' (UsageMetadata).
    counts = turn.counts
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
