"""The shapes of answers as JSON Schema, by name: for the document, and for the tests that hold answers to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from foldline.agent.events import EndReason

__all__ = ["SCHEMAS", "ref"]

TEXT: Final = {"type": "string"}
WHOLE: Final = {"type": "integer"}
FLAG: Final = {"type": "boolean"}
ANY: Final[Mapping[str, Any]] = {}


def ref(name: str) -> dict[str, Any]:
    """A reference to a shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _object(*groups: Mapping[str, Any], optional: tuple[str, ...] = (), **more: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: schema for group in (*groups, more) for name, schema in group.items()}
    needed = [name for name in fields if name not in optional]
    return {"type": "object", "required": needed, "properties": fields, "additionalProperties": False}


_STATE = _one_of("shown", "hidden", "shortened", "pinned", "repaired")
_PRESSURE = _one_of("none", "soft", "hard")
_ROW: Final[dict[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("id", "title", "created", "updated", "dialect", "policy"), TEXT),
    **dict.fromkeys(("model", "parent"), _or_null("string")),
    **dict.fromkeys(("turns", "messages", "folds", "tokens", "window_tokens", "queued"), WHOLE),
    "state": _one_of("idle", "running"),
}
_FIGURES = (
    "max_context_tokens",
    "current_context_tokens",
    "last_prompt_tokens",
    "last_completion_tokens",
    "total_prompt_tokens",
    "total_completion_tokens",
    "ask_at_tokens",
    "used_tokens",
)
_FOLD: Final[dict[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("id", "start", "stop", "before_tokens", "tokens"), WHOLE),
    **dict.fromkeys(("reducer", "reason", "shown"), TEXT),
    **dict.fromkeys(("form", "in_effect"), FLAG),
    "archive": _or_null("string"),
}
_ENTRY: Final[dict[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("seq", "tokens"), WHOLE),
    **dict.fromkeys(("role", "kind", "at", "text"), TEXT),
    "cut": FLAG,
    "calls": _list(_object(id=TEXT, name=TEXT, arguments=TEXT)),
    "results": _list(_object(call_id=TEXT, text=TEXT)),
    "state": _STATE,
    "fold": _or_null("integer"),
}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {"type": TEXT, "title": TEXT, "status": WHOLE, "detail": TEXT, "field": TEXT},
    },
    "Figures": _object(dict.fromkeys(_FIGURES, WHOLE), utilization={"type": "number"}),
    "SessionRow": _object(_ROW, damage=TEXT, optional=("damage",)),
    "Sessions": _object(sessions=_list(ref("SessionRow")), next=_or_null("string")),
    "Session": _object(
        _ROW,
        figures=ref("Figures"),
        usage=_object(prompt_tokens=WHOLE, completion_tokens=WHOLE),
        pressure=_PRESSURE,
        limit_tokens=WHOLE,
    ),
    "Turn": _object(
        session=TEXT,
        reason=_one_of(*get_args(EndReason)),
        text=TEXT,
        message=TEXT,
        iterations=WHOLE,
        seq=_or_null("integer"),
        figures={"anyOf": [ref("Figures"), {"type": "null"}]},
    ),
    "TurnRow": _object(
        dict.fromkeys(("number", "start", "stop", "prompt_tokens", "completion_tokens"), WHOLE),
        dict.fromkeys(("began", "ended", "reason"), TEXT),
        folds=_list(WHOLE),
    ),
    "Turns": _object(turns=_list(ref("TurnRow"))),
    "Fold": _object(_FOLD),
    "Folds": _object(folds=_list(ref("Fold"))),
    "Entry": _object(_ENTRY),
    "WholeEntry": _object(_ENTRY, folds=_list(ref("Fold"))),
    "History": _object(messages=_list(ref("Entry")), first=WHOLE, next=_or_null("integer")),
    "Context": _object(
        dict.fromkeys(("tokens", "window_tokens", "max_output_tokens"), WHOLE),
        dialect=TEXT,
        model=_or_null("string"),
        messages=_list({"type": "object"}),
        system=ANY,
        tools=ANY,
        rows=_list(
            _object(
                dict.fromkeys(("start", "stop", "tokens"), WHOLE),
                dict.fromkeys(("role", "kind", "text"), TEXT),
                fold=_or_null("integer"),
                state=_STATE,
            )
        ),
        parts=_object(system=WHOLE, tools=WHOLE, folded=WHOLE, messages=WHOLE),
        pressure=_PRESSURE,
    ),
    "Compacted": _object(before=ref("Figures"), after=ref("Figures"), folds=_list(ref("Fold")), summary=TEXT),
    "Undone": _object(unfolded=_list(WHOLE)),
    "Pinned": _object(seq=WHOLE, pinned=FLAG),
    "Cancelled": _object(cancelled=FLAG),
    "Health": _object(status=_one_of("ok", "stopping"), version=TEXT),
    "Ready": _object(status=_one_of("ready")),
    "Document": {"type": "object"},
}
"""Every shape of an answer. Objects have these fields and no others, but for problems, which may have figures."""
