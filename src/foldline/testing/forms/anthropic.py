"""Anthropic Messages (API reference: Messages, Streaming messages, Errors)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foldline.testing.counting import dumped
from foldline.testing.forms.base import Made, Prompt, Stream, StreamEvent, missing, pieces, whole_number, with_field
from foldline.testing.values import Body, Refusal

__all__ = ["AnthropicForm"]

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


class AnthropicForm:
    """The dialect "anthropic"."""

    dialect = "anthropic"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`max_tokens` must be there, but for a count of tokens."""
        del path
        if not isinstance(body.get("model"), str) or not body["model"]:
            return missing("model", anthropic=True)
        if "messages" not in body:
            return missing("messages", anthropic=True)
        output = whole_number(body, "max_tokens", anthropic=True)
        if isinstance(output, Refusal):
            return output
        return Prompt(
            model=body["model"],
            messages=body["messages"],
            system=body.get("system"),
            tools=body.get("tools"),
            max_output_tokens=output,
            streamed=body.get("stream") is True,
        )

    def whole(self, made: Made) -> Mapping[str, Any]:
        """A message."""
        content = _content(made)
        return with_field(_head(made, content, _STOP.get(made.finish, made.finish)), "usage", _usage(made))

    def stream(self, made: Made) -> Stream:
        """message_start, the blocks with a ping after the first start, message_delta, message_stop."""
        counts = made.counts
        start = with_field(_head(made, [], None), "usage", None if counts is None else _usage(made, output_tokens=1))
        content: list[StreamEvent] = []
        for index, block in enumerate(_content(made)):
            content.append({"type": "content_block_start", "index": index, "content_block": _emptied(block)})
            if index == 0:
                content.append({"type": "ping"})
            content += [
                {"type": "content_block_delta", "index": index, "delta": delta}
                for delta in _deltas(block, made.reply.piece_chars)
            ]
            content.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": _STOP.get(made.finish, made.finish), "stop_sequence": None}
        last = with_field({"type": "message_delta", "delta": stop}, "usage", _usage(made))
        return Stream([{"type": "message_start", "message": start}], content, [last, {"type": "message_stop"}], 2)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Named events; the name stands in the data too."""
        del number
        name = event["type"] if isinstance(event, Mapping) else "message"
        return f"event: {name}\ndata: {dumped(event)}\n\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"type": "error", "error": …}."""
        usual = "api_error" if refusal.status >= 500 else "invalid_request_error"
        kind = refusal.code or _TYPES.get(refusal.status, usual)
        fields = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": fields, "request_id": f"req_{number:06d}"}

    def error_event(self, refusal: Refusal, made: Made) -> StreamEvent:
        """The same object as an event of its own name."""
        return self.error(refusal, made.number)


def _head(made: Made, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
    return {
        "id": made.named("msg"),
        "type": "message",
        "role": "assistant",
        "model": made.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }


def _content(made: Made) -> list[dict[str, Any]]:
    reply = made.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": made.named("sig")})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for n, (name, given) in enumerate(reply.calls):
        blocks.append({"type": "tool_use", "id": made.named("toolu", n), "name": name, "input": dict(given)})
    return blocks


def _emptied(block: Mapping[str, Any]) -> Mapping[str, Any]:
    empty = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: Mapping[str, Any], chars: int) -> list[Mapping[str, Any]]:
    if block["type"] == "tool_use":
        parts = ["", *pieces(dumped(block["input"]), chars)]
        return [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
    if block["type"] == "text":
        return [{"type": "text_delta", "text": piece} for piece in pieces(block["text"], chars)]
    thoughts: list[Mapping[str, Any]] = [
        {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"], chars)
    ]
    return [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]


def _usage(made: Made, output_tokens: int | None = None) -> Mapping[str, Any] | None:
    """Cached and written tokens stand beside the input count, not in it ("Prompt caching": tracking performance)."""
    counts = made.counts
    if counts is None:
        return None
    return {
        "input_tokens": counts.input_tokens - counts.cached_tokens - counts.written_tokens,
        "cache_creation_input_tokens": counts.written_tokens,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens if output_tokens is None else output_tokens,
    }
