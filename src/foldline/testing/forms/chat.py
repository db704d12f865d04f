"""OpenAI Chat Completions (API reference: the chat completion object, the chat completion chunk object)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.testing.counting import dumped
from foldline.testing.forms.base import Made, Prompt, Stream, StreamEvent, missing, pieces, whole_number, with_field
from foldline.testing.values import Body, Refusal

__all__ = ["ChatForm", "openai_error"]

_FINISH: Final = {"refusal": "content_filter"}


def openai_error(refusal: Refusal) -> Mapping[str, Any]:
    """The error object of both OpenAI dialects, and of most compatible servers."""
    kind = "server_error" if refusal.status >= 500 else "tokens" if refusal.status == 429 else "invalid_request_error"
    fields = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": fields}


class ChatForm:
    """The dialect "openai-chat"."""

    dialect = "openai-chat"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`max_completion_tokens` is the newer name of `max_tokens`; system text stands among the messages."""
        del path
        if not isinstance(body.get("model"), str) or not body["model"]:
            return Refusal(400, "field", "you must provide a model parameter")
        if "messages" not in body:
            return missing("messages")
        name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        output = whole_number(body, name)
        if isinstance(output, Refusal):
            return output
        return Prompt(
            model=body["model"],
            messages=body["messages"],
            system=None,
            tools=body.get("tools"),
            max_output_tokens=output,
            streamed=body.get("stream") is True,
        )

    def whole(self, made: Made) -> Mapping[str, Any]:
        """A chat completion."""
        reply = made.reply
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
        if reply.reasoning:  # DeepSeek's field, taken up by vLLM and llama.cpp
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": made.named("call", n),
                    "type": "function",
                    "function": {"name": name, "arguments": dumped(given)},
                }
                for n, (name, given) in enumerate(reply.calls)
            ]
        finish = _FINISH.get(made.finish, made.finish)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        fields = _head(made, "chat.completion") | {"choices": [choice]}
        return with_field(fields, "usage", _usage(made))

    def stream(self, made: Made) -> Stream:
        """Chunks: the role first, then pieces, the reason it ended, the usage if it was asked for, and [DONE]."""
        reply = made.reply
        asked = made.body.get("stream_options")
        usage = _usage(made) if isinstance(asked, Mapping) and asked.get("include_usage") is True else None

        def chunk(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
            fields = _head(made, "chat.completion.chunk") | {"choices": choices}
            return fields if usage is None else fields | {"usage": None}

        def delta(given: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
            return chunk([{"index": 0, "delta": given, "logprobs": None, "finish_reason": finish}])

        content = [delta({"reasoning_content": piece}) for piece in pieces(reply.reasoning, reply.piece_chars)]
        content += [delta({"content": piece}) for piece in pieces(reply.text, reply.piece_chars)]
        for n, (name, given) in enumerate(reply.calls):
            first = {"index": n, "id": made.named("call", n), "type": "function"}
            content.append(delta({"tool_calls": [first | {"function": {"name": name, "arguments": ""}}]}))
            content += [
                delta({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
                for piece in pieces(dumped(given), reply.piece_chars)
            ]
        closing: list[StreamEvent] = [delta({}, _FINISH.get(made.finish, made.finish))]
        if usage is not None:
            closing.append(dict(chunk([])) | {"usage": usage})
        first_content = None if reply.calls and not reply.text else ""
        return Stream([delta({"role": "assistant", "content": first_content})], content, [*closing, "[DONE]"])

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Data lines without names."""
        del number
        return f"data: {event if isinstance(event, str) else dumped(event)}\n\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"error": …}."""
        del number
        return openai_error(refusal)

    def error_event(self, refusal: Refusal, made: Made) -> StreamEvent:
        """The same object in place of a chunk."""
        del made
        return openai_error(refusal)


def _head(made: Made, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{made.number:06d}", "object": kind, "created": made.created, "model": made.model}


def _usage(made: Made) -> Mapping[str, Any] | None:
    counts = made.counts
    if counts is None:
        return None
    return {
        "prompt_tokens": counts.input_tokens,
        "completion_tokens": counts.output_tokens,
        "total_tokens": counts.input_tokens + counts.output_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
    }
