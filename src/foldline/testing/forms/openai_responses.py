"""OpenAI Responses (API reference: the response object, streaming events)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from foldline.testing.forms.base import FakeTurn, Form, Prompt, Stream, StreamEvent, pieces
from foldline.testing.forms.openai_chat import PATTERN, OpenAIForm, missing, positive, too_much_output
from foldline.testing.script import Body, Refusal
from foldline.testing.token_counts import dumped

__all__ = ["FORM", "ResponsesForm"]

_INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
_ENCRYPTED: Final = "reasoning.encrypted_content"
# Fields of the request that a response repeats, with their defaults: clients validate that all are there.
_ECHOED: Final[Mapping[str, Any]] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}


_RULE_WORDS: Final = {
    "empty-request": (
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
    ),
    "object": "Invalid type for 'input[{at}]': expected an object with a type or a role.",
    "encoding": "We could not parse the JSON body of your request: input[{at}] is not valid UTF-8 JSON.",
    "role": (
        "Invalid value for 'input[{at}].role'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
    ),
    "content": "Invalid type for 'input[{at}].content': expected one of a string or array of objects ({detail}).",
    "result-without-call": "No tool call found for function call output with call_id {ids}.",
    "call-without-result": "No tool output found for function call {ids}.",
    "result-content": "Missing required parameter: 'input[{at}].output'.",
    "item-ids": "Duplicate item found with id {ids}. Remove duplicate items from your input and try again.",
    "call-name": f"Invalid 'input[{{at}}].name': {PATTERN}",
    "tool-name": f"Invalid 'tools[0].name': {PATTERN}",
    "call-id-length": (
        "Invalid 'input[{at}].call_id': string too long. Expected a string with maximum length 64, but got a "
        "longer string instead."
    ),
    "item-id-form": "Invalid 'input[{at}].id'. Expected an ID that begins with the mark of its type ({detail}).",
    "image": "The image data you provided does not represent a valid image (input[{at}]).",
    "amount": "Invalid 'input': {detail}.",
    "reasoning-alone": "Item 'input[{at}]' of type 'reasoning' was provided without its required following item.",
}


class ResponsesForm(OpenAIForm):
    """The dialect "openai-responses". Nothing is stored: `previous_response_id` finds nothing."""

    dialect = "openai-responses"
    messages = "input"
    rule_words: Mapping[str, str] = _RULE_WORDS

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`input` may be a text, which is one user message."""
        del path
        if not isinstance(body.get("model"), str) or not body["model"]:
            return missing("model")
        # A stored conversation cannot be faked honestly: clients must learn that it is gone.
        before = body.get("previous_response_id")
        if before is not None:
            message = f"Previous response with id '{before}' not found."
            return Refusal(400, "field", message, "previous_response_not_found", "previous_response_id")
        if "input" not in body:
            return missing("input")
        output = positive(body, "max_output_tokens")
        if isinstance(output, Refusal):
            return output
        given = body["input"]
        return Prompt(
            model=body["model"],
            messages=[{"role": "user", "content": given}] if isinstance(given, str) and given else given,
            system=body.get("instructions"),
            tools=body.get("tools"),
            max_output_tokens=output,
            streamed=body.get("stream") is True,
        )

    def whole(self, turn: FakeTurn) -> Mapping[str, Any]:
        """A response; one with `fails` set is a failed one."""
        return _finished(turn)

    def stream(self, turn: FakeTurn) -> Stream:
        """response.created, response.in_progress, the events of each item, response.completed (or .incomplete)."""
        begun = _response(turn, "in_progress", [])
        opening = [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
        content: list[StreamEvent] = []
        for index, item in enumerate(_items(turn)):
            content += _item_events(item, index, turn.reply.piece_chars)
        finished = _finished(turn)
        return Stream(opening, content, [{"type": f"response.{finished['status']}", "response": finished}], 2)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Named events, each with its running number."""
        fields = {**event, "sequence_number": number} if isinstance(event, Mapping) else {"type": event}
        return f"event: {fields['type']}\ndata: {dumped(fields)}\n\n".encode("utf-8", "surrogatepass")

    def error_event(self, refusal: Refusal, turn: FakeTurn) -> StreamEvent:
        """An `error` event, but a failed response where the request itself is at fault (an overflow)."""
        code = refusal.code or "server_error"
        # Faults of the server come as a bare event, those of the request inside the failed response.
        if refusal.status >= 500:
            return {"type": "error", "code": code, "message": refusal.message, "param": None}
        failed = _response(turn, "failed", []) | {"error": {"code": code, "message": refusal.message}}
        return {"type": "response.failed", "response": failed}

    def session(self, rounds: int, result: str, task: str) -> list[Mapping[str, Any]]:
        """A call and its result are items."""
        words = [{"type": "input_text", "text": task}]
        out: list[Mapping[str, Any]] = [{"type": "message", "role": "user", "content": words}]
        for r in range(rounds):
            ids = {"id": f"fc_{r}", "call_id": f"call_{r}"}
            arguments = json.dumps({"path": f"src/{r}.py"})
            out.append({"type": "function_call", **ids, "name": "read_file", "arguments": arguments})
            out.append({"type": "function_call_output", "call_id": f"call_{r}", "output": result})
        return out

    def refuse_prompt(self, tokens: int, window_tokens: int) -> Refusal:
        """The code `context_length_exceeded`."""
        message = (
            f"Input tokens exceed the configured limit of {window_tokens} tokens. Your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return Refusal(400, "overflow", message, "context_length_exceeded", "input")

    def refuse_sum(self, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
        """None: this API has no such rule."""
        return None

    def refuse_output(self, output_tokens: int, cap_tokens: int, model: str) -> Refusal:
        """The only name of the field."""
        del model
        return too_much_output("max_output_tokens", output_tokens, cap_tokens)


FORM: Final[Form] = ResponsesForm()
"""The form of the dialect."""


def _response(turn: FakeTurn, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": turn.named("resp"),
        "object": "response",
        "created_at": turn.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": turn.model,
        "output": output,
        "previous_response_id": None,
        "usage": None,
        **{name: turn.body.get(name, usual) for name, usual in _ECHOED.items()},
    }


def _finished(turn: FakeTurn) -> dict[str, Any]:
    usual = turn.finish in {"stop", "tool_calls"}
    response = _response(turn, "completed" if usual else "incomplete", _items(turn))
    if not usual:
        response["incomplete_details"] = {"reason": _INCOMPLETE.get(turn.finish, turn.finish)}
    if (counts := turn.counts) is not None:
        response["usage"] = {
            "input_tokens": counts.input_tokens,
            "input_tokens_details": {"cached_tokens": counts.cached_tokens},
            "output_tokens": counts.output_tokens,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
            "total_tokens": counts.input_tokens + counts.output_tokens,
        }
    return response


def _items(turn: FakeTurn) -> list[dict[str, Any]]:
    reply = turn.reply
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        item = {"id": turn.named("rs"), "type": "reasoning", "summary": summary}
        wanted = turn.body.get("include")
        # Encrypted reasoning comes only on request, and is what makes it usable without storage.
        if isinstance(wanted, list) and _ENCRYPTED in wanted:
            item["encrypted_content"] = turn.named("enc")
        items.append(item)
    # A turn always has an item: an empty reply is an empty message.
    if reply.text or not reply.calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        status = "completed" if turn.finish in {"stop", "tool_calls"} else "incomplete"
        head = {"id": turn.named("msg"), "type": "message", "status": status, "role": "assistant"}
        items.append({**head, "content": [text]})
    for n, (name, given) in enumerate(reply.calls):
        ids = {"id": turn.named("fc", n), "type": "function_call", "status": "completed"}
        items.append({**ids, "call_id": turn.named("call", n), "name": name, "arguments": dumped(given)})
    return items


def _item_events(item: dict[str, Any], index: int, chars: int) -> list[StreamEvent]:
    at = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    if item["type"] == "function_call":
        begun["arguments"] = ""
        inner = _deltas("response.function_call_arguments", at, item["arguments"], chars, field="arguments")
        inner[-1] = {**inner[-1], "name": item["name"]}
    elif item["type"] == "message":
        begun["content"] = []
        part = item["content"][0]
        place = {**at, "content_index": 0}
        added = {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        deltas = _deltas("response.output_text", place, part["text"], chars, field="text", more={"logprobs": []})
        inner = [added, *deltas, {"type": "response.content_part.done", **place, "part": part}]
    else:
        begun["summary"] = []
        part = item["summary"][0]
        place = {**at, "summary_index": 0}
        added = {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
        deltas = _deltas("response.reasoning_summary_text", place, part["text"], chars, field="text")
        inner = [added, *deltas, {"type": "response.reasoning_summary_part.done", **place, "part": part}]
    added_item = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [added_item, *inner, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _deltas(
    name: str, at: Mapping[str, Any], text: str, chars: int, *, field: str, more: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the pieces of a text, then the event that repeats it whole."""
    deltas = [{"type": f"{name}.delta", **at, "delta": piece, **(more or {})} for piece in pieces(text, chars)]
    return [*deltas, {"type": f"{name}.done", **at, field: text, **(more or {})}]
