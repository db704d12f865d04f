"""Rollout files of Codex: one record per line, the item in `payload`; older files hold bare items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.recorded.json_values import FileReading, Value, json_type

__all__ = ["is_codex", "read_codex"]

_RECORD_TYPES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")

# Items that the model was never sent: undo points, and the results of Codex's own compactions.
_INTERNAL_ITEMS: Final = ("ghost_snapshot", "compaction", "context_compaction", "other")


def is_codex(value: Json) -> bool:
    """Whether a JSON value is a record of a rollout file, of either form."""
    if not isinstance(value, dict):
        return False
    wrapped = value.get("type") in _RECORD_TYPES and "payload" in value
    bare_head = "type" not in value and {"id", "timestamp", "instructions"} <= value.keys()
    return wrapped or bare_head or value.get("record_type") == "state"


def read_codex(records: Sequence[Value], reading: FileReading) -> tuple[list[dict[str, Any]], str | None, Json]:
    """The items as they were sent, the model, and the system text. O(size).

    Omitted: events for the screen, turn settings, undo points, and compactions (the items they replaced are kept).
    """
    out: list[dict[str, Any]] = []
    model: str | None = None
    system: Json = None
    for record in records:
        if not isinstance(record.value, dict):
            reading.fault(InvalidInput(f"not a record: {json_type(record.value)}", place=record.place))
            continue
        kind, payload = record.value.get("type"), record.value.get("payload")
        if kind == "response_item" and not isinstance(payload, dict):
            reading.fault(InvalidInput('"payload" is not an object', place=record.place))
            continue
        if isinstance(payload, dict) and kind in ("session_meta", "turn_context"):
            base = payload.get("base_instructions")
            system = system or (base.get("text") if isinstance(base, dict) else None)
            model = model or (payload["model"] if isinstance(payload.get("model"), str) else None)
        item = payload if kind == "response_item" else record.value if "payload" not in record.value else None
        if isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] not in _INTERNAL_ITEMS:
            out.append(_sent_item(item))
    return out, model, system


def _sent_item(item: Mapping[str, Json]) -> dict[str, Any]:
    """An item in the form in which the API takes it: without a null id, an output object as its text."""
    wire = {key: value for key, value in item.items() if not (key == "id" and value is None)}
    output = wire.get("output")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        wire["output"] = output["content"]
    return wire
