"""Anthropic Messages (API reference: Messages, Streaming messages, Errors)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from foldline.testing.forms.base import FakeTurn, Form, Prompt, Stream, StreamEvent, pieces, with_field
from foldline.testing.script import Body, Refusal
from foldline.testing.token_counts import dumped

__all__ = ["FORM", "AnthropicForm"]

_STOP: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


_RULE_WORDS: Final = {
    "empty-request": "messages: at least one message is required",
    "object": "messages.{at}: Input should be a valid dictionary with a role",
    "encoding": "The request body is not valid JSON: messages.{at} is not UTF-8",
    "role": "messages.{at}.role: Input should be 'user' or 'assistant'",
    "content": "messages.{at}.content: Input should be a valid list ({detail})",
    "user-first": 'messages: first message must use the "user" role',
    "empty-content": (
        "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
    ),
    "blank-text": "messages.{at}: text content blocks must be non-empty",
    "result-without-call": (
        "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {ids}. Each `tool_result` block "
        "must have a corresponding `tool_use` block in the previous message."
    ),
    "call-without-result": (
        "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message."
    ),
    "second-result": (
        "messages.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {ids}"
    ),
    "results-first": (
        "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: `tool_result` "
        "blocks must come first in the content array."
    ),
    "empty-error": "messages.{at}.content: tool_result: content cannot be empty if `is_error` is true",
    "call-ids": "messages.{at}.content: `tool_use` ids must be unique",
    "id-pattern": "messages.{at}.content.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "input-object": "messages.{at}.content.tool_use.input: Input should be a valid dictionary",
    "signature": "messages.{at}.content.thinking.signature: Field required",
    "system-text": "system: text content blocks must be non-empty",
    "tool-names": "tools: Tool names must be unique.",
    "call-name": "messages.{at}.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'",
    "tool-name": "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
    "failed-media": ("messages.{at}.content.0.tool_result: all content must be type `text` if `is_error` is true"),
    "image": "messages.{at}.content.0.image.source.base64: Could not process image ({detail})",
    "amount": "Too much media: {detail}",
    "cache-thinking": "messages.{at}.content.0.thinking.cache_control: Extra inputs are not permitted",
    "cache-count": "A maximum of 4 blocks with cache_control may be provided. Found {number}.",
    "cache-order": (
        "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
        "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
    ),
}

# Anthropic docs, "Errors"; the 429 has the figures that the real one carries.
_STATUS_WORDS: Final = {
    401: "invalid x-api-key",
    402: "Your credit balance is too low to access the API. Please go to Plans & Billing to purchase credits.",
    403: "Your API key does not have permission to use the specified resource.",
    413: "Request exceeds the maximum size",
    429: "This request would exceed the rate limit for your organization of 30,000 input tokens per minute.",
    500: "Internal server error",
    503: "Service unavailable",
    504: "Request timed out",
    529: "Overloaded",
}


class AnthropicForm:
    """The dialect "anthropic"."""

    dialect = "anthropic"
    rule_words: Mapping[str, str] = _RULE_WORDS
    status_words: Mapping[int, str] = _STATUS_WORDS
    status_codes: Mapping[int, str] = MappingProxyType({})
    fault_status = 529
    count_field = "input_tokens"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`max_tokens` is required, except for a count of tokens."""
        if not isinstance(body.get("model"), str) or not body["model"]:
            return _missing("model")
        if "messages" not in body:
            return _missing("messages")
        output = body.get("max_tokens")
        # The only dialect in which the output cap is required.
        if output is None and not path.endswith("/count_tokens"):
            return _missing("max_tokens")
        if output is not None and (not isinstance(output, int) or isinstance(output, bool) or output < 1):
            reason = "Input should be a valid integer greater than or equal to 1"
            return Refusal(400, "field", f"max_tokens: {reason}")
        return Prompt(
            model=body["model"],
            messages=body["messages"],
            system=body.get("system"),
            tools=body.get("tools"),
            max_output_tokens=output,
            streamed=body.get("stream") is True,
        )

    def whole(self, turn: FakeTurn) -> Mapping[str, Any]:
        """A message."""
        content = _content(turn)
        return with_field(_head(turn, content, _STOP.get(turn.finish, turn.finish)), "usage", _usage(turn))

    def stream(self, turn: FakeTurn) -> Stream:
        """message_start, the blocks with a ping after the first start, message_delta, message_stop."""
        # A ping may come anywhere ("Streaming messages"), and clients that expect a delta there break on it.
        counts = turn.counts
        # The opening event reports the input and one output token; the last event has the final count.
        start = with_field(_head(turn, [], None), "usage", None if counts is None else _usage(turn, output_tokens=1))
        content: list[StreamEvent] = []
        for index, block in enumerate(_content(turn)):
            content.append({"type": "content_block_start", "index": index, "content_block": _emptied(block)})
            if index == 0:
                content.append({"type": "ping"})
            content += [
                {"type": "content_block_delta", "index": index, "delta": delta}
                for delta in _deltas(block, turn.reply.piece_chars)
            ]
            content.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": _STOP.get(turn.finish, turn.finish), "stop_sequence": None}
        last = with_field({"type": "message_delta", "delta": stop}, "usage", _usage(turn))
        return Stream([{"type": "message_start", "message": start}], content, [last, {"type": "message_stop"}], 2)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Named events; the data repeat the name."""
        del number
        name = event["type"] if isinstance(event, Mapping) else "message"
        return f"event: {name}\ndata: {dumped(event)}\n\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"type": "error", "error": …}."""
        # Types by status: API reference, "Errors".
        usual = "api_error" if refusal.status >= 500 else "invalid_request_error"
        kind = refusal.code or _TYPES.get(refusal.status, usual)
        fields = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": fields, "request_id": f"req_{number:06d}"}

    def error_event(self, refusal: Refusal, turn: FakeTurn) -> StreamEvent:
        """The same object as an event of its own name."""
        return self.error(refusal, turn.number)

    def session(self, rounds: int, result: str, task: str) -> list[Mapping[str, Any]]:
        """Results are blocks in a message of the user."""
        out: list[Mapping[str, Any]] = [{"role": "user", "content": task}]
        for r in range(rounds):
            call = {"type": "tool_use", "id": f"call_{r}", "name": "read_file", "input": {"path": f"src/{r}.py"}}
            out.append({"role": "assistant", "content": [{"type": "text", "text": f"Step {r}."}, call]})
            out.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{r}", "content": result}]}
            )
        return out

    def place(self, index: str) -> str:
        """messages.3"""
        return f"messages.{index}" if index else "messages"

    def refuse_json(self, reason: str) -> Refusal:
        """Without a code: errors of this API have a type alone."""
        return Refusal(400, "json", f"The request body is not valid JSON: {reason}")

    def refuse_field(self, place: str | None, reason: str) -> Refusal:
        """The place, then the reason."""
        return Refusal(400, "field", f"{place}: {reason}", None, place)

    def refuse_key(self, *, given: bool) -> Refusal:
        """An `authentication_error`."""
        return Refusal(401, "auth", "invalid x-api-key" if given else "x-api-key header is required")

    def refuse_model(self, model: str) -> Refusal:
        """A `not_found_error`."""
        return Refusal(404, "model", f"model: {model}")

    def refuse_bytes(self, max_request_bytes: int) -> Refusal:
        """A `request_too_large`, which names no limit."""
        del max_request_bytes
        return Refusal(413, "bytes", "Request exceeds the maximum size")

    def refuse_prompt(self, tokens: int, window_tokens: int) -> Refusal:
        """Both figures."""
        return Refusal(400, "overflow", f"prompt is too long: {tokens} tokens > {window_tokens} maximum")

    def refuse_sum(self, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
        """All three figures."""
        message = (
            f"input length and `max_tokens` exceed context limit: {tokens} + {output_tokens} > {window_tokens}, "
            "decrease input length or `max_tokens` and try again"
        )
        return Refusal(400, "output-overflow", message)

    def refuse_output(self, output_tokens: int, cap_tokens: int, model: str) -> Refusal:
        """The cap of the model."""
        message = (
            f"max_tokens: {output_tokens} > {cap_tokens}, which is the maximum allowed number of output tokens for "
            f"{model}"
        )
        return Refusal(400, "output-cap", message)


def _missing(name: str) -> Refusal:
    return Refusal(400, "field", f"{name}: Field required")


FORM: Final[Form] = AnthropicForm()
"""The form of the dialect."""


def _head(turn: FakeTurn, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
    return {
        "id": turn.named("msg"),
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }


def _content(turn: FakeTurn) -> list[dict[str, Any]]:
    reply = turn.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": turn.named("sig")})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for n, (name, given) in enumerate(reply.calls):
        blocks.append({"type": "tool_use", "id": turn.named("toolu", n), "name": name, "input": dict(given)})
    return blocks


# A block starts empty: its content comes in deltas, the input of a call as text of JSON.
def _emptied(block: Mapping[str, Any]) -> Mapping[str, Any]:
    empty = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: Mapping[str, Any], chars: int) -> list[Mapping[str, Any]]:
    if block["type"] == "tool_use":
        # The real stream begins the input with an empty piece.
        parts = ["", *pieces(dumped(block["input"]), chars)]
        return [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
    if block["type"] == "text":
        return [{"type": "text_delta", "text": piece} for piece in pieces(block["text"], chars)]
    thoughts: list[Mapping[str, Any]] = [
        {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"], chars)
    ]
    return [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]


def _usage(turn: FakeTurn, output_tokens: int | None = None) -> Mapping[str, Any] | None:
    # Cached and written tokens are not part of the input count ("Prompt caching": tracking performance).
    counts = turn.counts
    if counts is None:
        return None
    return {
        "input_tokens": counts.input_tokens - counts.cached_tokens - counts.written_tokens,
        "cache_creation_input_tokens": counts.written_tokens,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens if output_tokens is None else output_tokens,
    }
