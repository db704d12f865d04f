"""OpenAI Chat Completions (API reference: the chat completion object, the chat completion chunk object)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.testing.forms.base import FakeTurn, Form, Prompt, Stream, StreamEvent, pieces, with_field
from foldline.testing.script import Body, Refusal
from foldline.testing.token_counts import dumped

__all__ = ["FORM", "PATTERN", "ChatForm", "OpenAIForm", "missing", "positive", "too_much_output"]

_FINISH: Final = {"refusal": "content_filter"}


_ROLES: Final = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
PATTERN: Final = (
    "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$', of bounded length."
)
"""The end of a refusal of a name."""

_RULE_WORDS: Final = {
    "empty-request": (
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
    ),
    "object": "Invalid type for 'messages[{at}]': expected an object with a role.",
    "encoding": "We could not parse the JSON body of your request: messages[{at}] is not valid UTF-8 JSON.",
    "role": f"Invalid value for 'messages[{{at}}].role'. Supported values are: {_ROLES}.",
    "content": ("Invalid type for 'messages[{at}].content': expected one of a string or array of objects ({detail})."),
    "result-without-call": (
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'. messages[{at}] has tool_call_id {ids}."
    ),
    "call-without-result": (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
    ),
    "result-content": "Invalid value for 'messages[{at}].content': expected a string, got null.",
    "empty-calls": (
        "Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead."
    ),
    "call-ids": "Duplicate value for 'tool_call_id' in messages[{at}].tool_calls.",
    "says-nothing": "Assistant message must have either content or tool_calls, but not none (messages[{at}]).",
    "call-name": f"Invalid 'messages[{{at}}].tool_calls[0].function.name': {PATTERN}",
    "tool-name": f"Invalid 'tools[0].function.name': {PATTERN}",
    "call-id-length": (
        "Invalid 'messages[{at}].tool_calls[0].id': string too long. Expected a string with maximum length 64, but "
        "got a longer string instead."
    ),
    "author": (
        "Invalid 'messages[{at}].name': string does not match pattern. Expected a string that matches the pattern "
        "'^[^\\s<|\\\\/>]+$'."
    ),
    "image": (
        "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', "
        "'jpeg', 'gif', 'webp']. (messages[{at}])"
    ),
    "image-place": (
        "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but this message "
        "contains an image URL."
    ),
    "result-text": (
        "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but this message "
        "with role 'tool' contains an image URL."
    ),
    "amount": "Invalid 'messages': {detail}.",
    "alternation": (
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    ),
}

# OpenAI, "Error codes"; the 429 has the figures that the real one carries.
_STATUS_WORDS: Final = {
    401: "Incorrect API key provided.",
    413: "Request body too large.",
    429: (
        "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s."
    ),
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The engine is currently overloaded, please try again later",
    504: "The request timed out.",
}
_STATUS_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class OpenAIForm:
    """What both dialects of OpenAI, and most compatible servers, have in common."""

    messages = "messages"
    status_words: Mapping[int, str] = _STATUS_WORDS
    status_codes: Mapping[int, str] = _STATUS_CODES
    fault_status = 500
    count_field = "input_tokens"

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"error": …}."""
        del number
        status = refusal.status
        kind = "server_error" if status >= 500 else "tokens" if status == 429 else "invalid_request_error"
        fields = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
        return {"error": fields}

    def place(self, index: str) -> str:
        """messages[3]"""
        return f"{self.messages}[{index}]" if index else self.messages

    def refuse_json(self, reason: str) -> Refusal:
        """The parser's reason."""
        return Refusal(400, "json", f"We could not parse the JSON body of your request: {reason}")

    def refuse_field(self, place: str | None, reason: str) -> Refusal:
        """The code `invalid_type`."""
        return Refusal(400, "field", f"{place}: {reason}", "invalid_type", place)

    def refuse_key(self, *, given: bool) -> Refusal:
        """A code only for a wrong key."""
        if not given:
            return Refusal(401, "auth", "Missing bearer authentication in header: you didn't provide an API key.")
        return Refusal(401, "auth", "Incorrect API key provided.", "invalid_api_key")

    def refuse_model(self, model: str) -> Refusal:
        """The code `model_not_found`."""
        message = f"The model `{model}` does not exist or you do not have access to it."
        return Refusal(404, "model", message, "model_not_found", "model")

    def refuse_bytes(self, max_request_bytes: int) -> Refusal:
        """The limit in bytes."""
        message = f"Request body too large. The maximum request size is {max_request_bytes} bytes."
        return Refusal(413, "bytes", message)


class ChatForm(OpenAIForm):
    """The dialect "openai-chat"."""

    dialect = "openai-chat"
    rule_words: Mapping[str, str] = _RULE_WORDS

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`max_completion_tokens` is the newer name of `max_tokens`; system text is among the messages."""
        del path
        if not isinstance(body.get("model"), str) or not body["model"]:
            return Refusal(400, "field", "you must provide a model parameter")
        if "messages" not in body:
            return missing("messages")
        # The newer name takes precedence where both are set.
        name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        output = positive(body, name)
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

    def whole(self, turn: FakeTurn) -> Mapping[str, Any]:
        """A chat completion."""
        reply = turn.reply
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
        if reply.reasoning:  # DeepSeek's field, which vLLM and llama.cpp adopted
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": turn.named("call", n),
                    "type": "function",
                    "function": {"name": name, "arguments": dumped(given)},
                }
                for n, (name, given) in enumerate(reply.calls)
            ]
        finish = _FINISH.get(turn.finish, turn.finish)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        fields = _head(turn, "chat.completion") | {"choices": [choice]}
        return with_field(fields, "usage", _usage(turn))

    def stream(self, turn: FakeTurn) -> Stream:
        """Chunks: the role, the pieces, the finish reason, the usage if the request includes it, and [DONE]."""
        # With `include_usage` every chunk has a null usage except the last, whose choices are empty (API reference).
        reply = turn.reply
        asked = turn.body.get("stream_options")
        usage = _usage(turn) if isinstance(asked, Mapping) and asked.get("include_usage") is True else None

        def chunk(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
            fields = _head(turn, "chat.completion.chunk") | {"choices": choices}
            return fields if usage is None else fields | {"usage": None}

        def delta(given: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
            return chunk([{"index": 0, "delta": given, "logprobs": None, "finish_reason": finish}])

        content = [delta({"reasoning_content": piece}) for piece in pieces(reply.reasoning, reply.piece_chars)]
        content += [delta({"content": piece}) for piece in pieces(reply.text, reply.piece_chars)]
        for n, (name, given) in enumerate(reply.calls):
            # Only the first chunk of a call has its id and name; clients collect the rest by index.
            first = {"index": n, "id": turn.named("call", n), "type": "function"}
            content.append(delta({"tool_calls": [first | {"function": {"name": name, "arguments": ""}}]}))
            content += [
                delta({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
                for piece in pieces(dumped(given), reply.piece_chars)
            ]
        # The finish reason has a chunk of its own, with an empty delta.
        closing: list[StreamEvent] = [delta({}, _FINISH.get(turn.finish, turn.finish))]
        if usage is not None:
            closing.append(dict(chunk([])) | {"usage": usage})
        # As the API does it: null for a turn of calls alone.
        first_content = None if reply.calls and not reply.text else ""
        return Stream([delta({"role": "assistant", "content": first_content})], content, [*closing, "[DONE]"])

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Data lines without names."""
        del number
        return f"data: {event if isinstance(event, str) else dumped(event)}\n\n".encode("utf-8", "surrogatepass")

    def error_event(self, refusal: Refusal, turn: FakeTurn) -> StreamEvent:
        """The error object in place of a chunk."""
        return self.error(refusal, turn.number)

    def session(self, rounds: int, result: str, task: str) -> list[Mapping[str, Any]]:
        """Results are messages of the role "tool"."""
        out: list[Mapping[str, Any]] = [{"role": "user", "content": task}]
        for r in range(rounds):
            function = {"name": "read_file", "arguments": json.dumps({"path": f"src/{r}.py"})}
            call = {"id": f"call_{r}", "type": "function", "function": function}
            out.append({"role": "assistant", "content": f"Step {r}.", "tool_calls": [call]})
            out.append({"role": "tool", "tool_call_id": f"call_{r}", "content": result})
        return out

    def refuse_prompt(self, tokens: int, window_tokens: int) -> Refusal:
        """The code `context_length_exceeded`."""
        message = (
            f"This model's maximum context length is {window_tokens} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages."
        )
        return Refusal(400, "overflow", message, "context_length_exceeded", "messages")

    def refuse_sum(self, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
        """The same code: older models and compatible servers add the completion to the prompt."""
        message = (
            f"This model's maximum context length is {window_tokens} tokens. However, you requested "
            f"{tokens + output_tokens} tokens ({tokens} in the messages, {output_tokens} in the completion). Please "
            "reduce the length of the messages or completion."
        )
        return Refusal(400, "output-overflow", message, "context_length_exceeded", "messages")

    def refuse_output(self, output_tokens: int, cap_tokens: int, model: str) -> Refusal:
        """The older name of the field."""
        del model
        return too_much_output("max_tokens", output_tokens, cap_tokens)


def missing(name: str) -> Refusal:
    """Refuse a request without a required field."""
    return Refusal(400, "field", f"Missing required parameter: '{name}'.", "missing_required_parameter", name)


def positive(body: Body, name: str) -> int | Refusal | None:
    """Return a positive number of tokens, or None if the field is missing or null."""
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    message = f"Invalid '{name}': expected an integer of at least 1, but got {dumped(value)[:40]} instead."
    return Refusal(400, "field", message, "invalid_value", name)


def too_much_output(name: str, output_tokens: int, cap_tokens: int) -> Refusal:
    """Refuse more output than the model can write."""
    message = (
        f"{name} is too large: {output_tokens}. This model supports at most {cap_tokens} completion tokens, whereas "
        f"you provided {output_tokens}."
    )
    return Refusal(400, "output-cap", message, "invalid_value", name)


FORM: Final[Form] = ChatForm()
"""The form of the dialect."""


def _head(turn: FakeTurn, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn.number:06d}", "object": kind, "created": turn.created, "model": turn.model}


def _usage(turn: FakeTurn) -> Mapping[str, Any] | None:
    counts = turn.counts
    if counts is None:
        return None
    return {
        "prompt_tokens": counts.input_tokens,
        "completion_tokens": counts.output_tokens,
        "total_tokens": counts.input_tokens + counts.output_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
    }
