"""Answers that hold a compaction and nothing else: no model replies after it. Whole, or as the stream of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Any, Final
from uuid import uuid4

from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.request_body import RequestBody, to_json
from foldline.doors.proxy.compaction.usage_figures import compaction_iteration, no_tokens, responses_usage
from foldline.doors.proxy.error_responses import ErrorResponse
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.view.transcript import Usage

__all__ = [
    "block_events",
    "compacted_window",
    "item_events",
    "item_response",
    "message_answer",
    "refusal_answer",
    "sse",
]

_JSON: Final = b"application/json"
_STREAM: Final = b"text/event-stream; charset=utf-8"

# Fields of a request that the API repeats in its response (OpenAI, API reference: The response object).
_REPEATED: Final = (
    "instructions max_output_tokens metadata parallel_tool_calls reasoning service_tier store temperature text "
    "tool_choice tools top_p truncation user"
).split()


def _answer(media: bytes, body: bytes, status: int = 200) -> ErrorResponse:
    headers = ((b"content-type", media), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-cache"))
    return ErrorResponse(status, headers, body)


def sse(events: Iterable[Mapping[str, Json]]) -> bytes:
    """Return events as a stream of named events."""
    frames = (f"event: {event['type']}\ndata: {to_json(dict(event))}\n\n" for event in events)
    return "".join(frames).encode("utf-8", "surrogatepass")


def refusal_answer(dialect: str, refused: InvalidInput, status: int = 400) -> ErrorResponse:
    """Return the error for an invalid request, in the form of its API."""
    error: dict[str, Json]
    code = refused.code if isinstance(refused, CompactionRefused) else None
    if dialect == "anthropic":
        error = {"type": "invalid_request_error", "message": str(refused)}
        if code is not None:
            error["details"] = {"error_code": code}
        value: dict[str, Json] = {"type": "error", "error": error, "request_id": f"req_{uuid4().hex[:24]}"}
    else:
        error = {"message": refused.reason, "type": "invalid_request_error"}
        value = {"error": {**error, "param": refused.place, "code": code}}
    return _answer(_JSON, to_json(value).encode(), status)


# --- Messages ---------------------------------------------------------------------------------------------------------


def message_answer(
    body: RequestBody, block: Mapping[str, Json], usages: Sequence[Usage], applied: list[Json] | None
) -> ErrorResponse:
    """Return a message that holds a block alone. `applied` are the edits that were applied, None without any list."""
    management: Json = None if applied is None else {"applied_edits": applied}
    usage = no_tokens([compaction_iteration(usages)])
    whole: dict[str, Json] = {
        "id": f"msg_{uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": body.model,
        "content": [dict(block)],
        "stop_reason": "compaction",
        "stop_sequence": None,
        "usage": usage,
        "context_management": management,
    }
    if not body.streamed:
        return _answer(_JSON, to_json(whole).encode())
    nothing = {name: value for name, value in usage.items() if name != "iterations"}
    opened = {**whole, "content": [], "stop_reason": None, "usage": nothing, "context_management": None}
    delta: dict[str, Json] = {"stop_reason": "compaction", "stop_sequence": None}
    events: list[Mapping[str, Json]] = [
        {"type": "message_start", "message": opened},
        *block_events(block),
        {"type": "message_delta", "delta": delta, "usage": usage, "context_management": management},
        {"type": "message_stop"},
    ]
    return _answer(_STREAM, sse(events))


def block_events(block: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the events of a block at the start of a message.

    A signed block arrives whole; one of a threshold in a single delta (Anthropic docs, the pages of both).
    """
    stop: Mapping[str, Json] = {"type": "content_block_stop", "index": 0}
    if "signature" in block:
        return [{"type": "content_block_start", "index": 0, "content_block": dict(block)}, stop]
    start: dict[str, Json] = {"type": "compaction", "content": None}
    delta: dict[str, Json] = {**block, "type": "compaction_delta"}
    return [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        stop,
    ]


# --- Responses --------------------------------------------------------------------------------------------------------


def compacted_window(output: list[Json], usages: Sequence[Usage]) -> ErrorResponse:
    """Return the answer of `/responses/compact`."""
    value: dict[str, Json] = {
        "id": f"resp_{uuid4().hex}",
        "object": "response.compaction",
        "created_at": int(time()),
        "output": output,
        "usage": responses_usage(usages),
    }
    return _answer(_JSON, to_json(value).encode())


def item_response(body: RequestBody, item: Mapping[str, Json], usages: Sequence[Usage]) -> ErrorResponse:
    """Return a response that holds an item alone, as to a `compaction_trigger`."""
    repeated: dict[str, Any] = {name: body.fields.get(name) for name in _REPEATED}
    whole: dict[str, Json] = {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time()),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": body.model,
        "output": [dict(item)],
        **repeated,
        "parallel_tool_calls": repeated["parallel_tool_calls"] is not False,
        "tool_choice": repeated["tool_choice"] or "auto",
        "tools": repeated["tools"] or [],
        "usage": responses_usage(usages),
    }
    if not body.streamed:
        return _answer(_JSON, to_json(whole).encode())
    opened: dict[str, Json] = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Mapping[str, Json]] = [
        {"type": "response.created", "response": opened},
        {"type": "response.in_progress", "response": opened},
        *item_events(item),
        {"type": "response.completed", "response": whole},
    ]
    return _answer(_STREAM, sse({**event, "sequence_number": number} for number, event in enumerate(events)))


def item_events(item: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the events of an item at the start of the output, without their numbers."""
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": dict(item)},
        {"type": "response.compaction.compacting", "output_index": 0, "item_id": item.get("id")},
        {"type": "response.output_item.done", "output_index": 0, "item": dict(item)},
    ]
