"""OpenAI Responses (API reference: the response object, streaming events)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foldline.testing.counting import dumped
from foldline.testing.forms.base import Made, Prompt, Stream, StreamEvent, missing, pieces, whole_number
from foldline.testing.forms.chat import openai_error
from foldline.testing.values import Body, Refusal

__all__ = ["ResponsesForm"]

_INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
_ENCRYPTED: Final = "reasoning.encrypted_content"
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


class ResponsesForm:
    """The dialect "openai-responses". Nothing is stored: `previous_response_id` finds nothing."""

    dialect = "openai-responses"

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """`input` may be a text, which is one user message."""
        del path
        if not isinstance(body.get("model"), str) or not body["model"]:
            return missing("model")
        before = body.get("previous_response_id")
        if before is not None:
            message = f"Previous response with id '{before}' not found."
            return Refusal(400, "field", message, "previous_response_not_found", "previous_response_id")
        if "input" not in body:
            return missing("input")
        output = whole_number(body, "max_output_tokens")
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

    def whole(self, made: Made) -> Mapping[str, Any]:
        """A response; one with `fails` set is a failed one."""
        return _finished(made)

    def stream(self, made: Made) -> Stream:
        """response.created, response.in_progress, the events of each item, response.completed (or .incomplete)."""
        begun = _response(made, "in_progress", [])
        opening = [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
        content: list[StreamEvent] = []
        for index, item in enumerate(_items(made)):
            content += _item_events(item, index, made.reply.piece_chars)
        finished = _finished(made)
        return Stream(opening, content, [{"type": f"response.{finished['status']}", "response": finished}], 2)

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Named events, each with its running number."""
        fields = {**event, "sequence_number": number} if isinstance(event, Mapping) else {"type": event}
        return f"event: {fields['type']}\ndata: {dumped(fields)}\n\n".encode("utf-8", "surrogatepass")

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """{"error": …}, as in Chat Completions."""
        del number
        return openai_error(refusal)

    def error_event(self, refusal: Refusal, made: Made) -> StreamEvent:
        """An `error` event; what is about the request itself (an overflow) fails the response instead."""
        code = refusal.code or "server_error"
        if refusal.status >= 500:
            return {"type": "error", "code": code, "message": refusal.message, "param": None}
        failed = _response(made, "failed", []) | {"error": {"code": code, "message": refusal.message}}
        return {"type": "response.failed", "response": failed}


def _response(made: Made, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": made.named("resp"),
        "object": "response",
        "created_at": made.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": made.model,
        "output": output,
        "previous_response_id": None,
        "usage": None,
        **{name: made.body.get(name, usual) for name, usual in _ECHOED.items()},
    }


def _finished(made: Made) -> dict[str, Any]:
    usual = made.finish in {"stop", "tool_calls"}
    response = _response(made, "completed" if usual else "incomplete", _items(made))
    if not usual:
        response["incomplete_details"] = {"reason": _INCOMPLETE.get(made.finish, made.finish)}
    if (counts := made.counts) is not None:
        response["usage"] = {
            "input_tokens": counts.input_tokens,
            "input_tokens_details": {"cached_tokens": counts.cached_tokens},
            "output_tokens": counts.output_tokens,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
            "total_tokens": counts.input_tokens + counts.output_tokens,
        }
    return response


def _items(made: Made) -> list[dict[str, Any]]:
    reply = made.reply
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        item = {"id": made.named("rs"), "type": "reasoning", "summary": summary}
        wanted = made.body.get("include")
        if isinstance(wanted, list) and _ENCRYPTED in wanted:
            item["encrypted_content"] = made.named("enc")
        items.append(item)
    if reply.text or not reply.calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        status = "completed" if made.finish in {"stop", "tool_calls"} else "incomplete"
        head = {"id": made.named("msg"), "type": "message", "status": status, "role": "assistant"}
        items.append({**head, "content": [text]})
    for n, (name, given) in enumerate(reply.calls):
        ids = {"id": made.named("fc", n), "type": "function_call", "status": "completed"}
        items.append({**ids, "call_id": made.named("call", n), "name": name, "arguments": dumped(given)})
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
    """The pieces of a text, then the event that repeats it whole."""
    deltas = [{"type": f"{name}.delta", **at, "delta": piece, **(more or {})} for piece in pieces(text, chars)]
    return [*deltas, {"type": f"{name}.done", **at, field: text, **(more or {})}]
