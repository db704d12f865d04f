"""Session files of Claude Code: one record per line, the message inside records of type "user" and "assistant"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.recorded.json_values import FileReading, Unread, Value, json_type

__all__ = ["is_claude_code", "read_claude_code"]


def is_claude_code(value: Json) -> bool:
    """Whether a JSON value is a message record of Claude Code."""
    has_role = isinstance(value, dict) and value.get("type") in ("user", "assistant")
    return has_role and isinstance(value.get("message"), dict)


def read_claude_code(records: Sequence[Value], reading: FileReading) -> tuple[list[dict[str, Any]], str | None]:
    """The messages as they were sent, and the model. O(size).

    A reply that was streamed over several records becomes one message again, and so do consecutive tool results.
    Omitted: side chains (unless the whole file is one), error notices shown as replies, the summaries of its own
    compaction, and records written twice.
    """
    messages = [record for record in records if is_claude_code(record.value) and not _is_internal(record.value)]
    # The file of a sub-agent consists of one side chain: there it is the session.
    main = [record for record in messages if not record.value.get("isSidechain")] or messages
    if reading.lenient:
        _note_missing(main, records, reading)
    out: list[dict[str, Any]] = []
    replies: dict[str, dict[str, Any]] = {}
    model: str | None = None
    # A record written twice has one id: its last copy counts, at the position of the first.
    for record in {str(record.value.get("uuid", record.place)): record for record in main}.values():
        message = record.value["message"]
        try:
            blocks = _blocks(message.get("content"), record.place)
        except InvalidInput as error:
            reading.fault(error)
            continue
        if record.value["type"] == "assistant":
            model = model or (message["model"] if isinstance(message.get("model"), str) else None)
            reply = replies.get(str(message.get("id")))
            if message.get("id") and reply is not None:
                # One record per streamed block; a tool may have answered in between, so the reply need not be last.
                reply["content"] += [block for block in blocks if block not in reply["content"]]
                continue
            out.append({"role": "assistant", "content": blocks})
            if message.get("id"):
                replies[str(message["id"])] = out[-1]
        elif out and out[-1]["role"] == "user" and any(block.get("type") == "tool_result" for block in blocks):
            out[-1]["content"] = _results_first(_blocks(out[-1]["content"], record.place) + blocks)
        else:
            content = message.get("content")
            out.append({"role": "user", "content": content if isinstance(content, str) else blocks})
    return out, model


def _note_missing(main: Sequence[Value], records: Sequence[Value], reading: FileReading) -> None:
    """Report values that are no records, and records whose parent is not in the file."""
    for record in records:
        if not isinstance(record.value, dict):
            reading.unread.append(Unread(record.place, f"not a record: {json_type(record.value)}"))
    ids = {str(record.value.get("uuid")) for record in records if isinstance(record.value, dict)}
    for record in main[1:]:  # the first one may continue another file
        parent = record.value.get("parentUuid")
        if isinstance(parent, str) and parent not in ids:
            reading.unread.append(Unread(record.place, "what stood before it is not in the file"))


def _is_internal(value: Mapping[str, Json]) -> bool:
    """Whether Claude Code wrote a record for itself: the model never saw it, or saw it instead of the history."""
    synthetic = value["message"].get("model") == "<synthetic>"
    return bool(value.get("isApiErrorMessage") or value.get("isCompactSummary") or synthetic)


def _blocks(content: Json, place: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise InvalidInput('"message.content" is not text or a list of blocks', place=place)
    return list(content)


def _results_first(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Anthropic refuses a message in which text stands before the results of the calls.
    return sorted(blocks, key=lambda block: block.get("type") != "tool_result")
