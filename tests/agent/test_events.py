"""Events as JSON: no field of an event is lost, and each says which event it is."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from foldline.agent.events import _NAMES, AgentEvent, Notice, ToolStarted, as_json
from foldline.engine.events import FoldFinished, Repaired, SilentTruncation
from foldline.providers.base import CallStarted
from foldline.view.transcript import Fold, Repair


@pytest.mark.parametrize(
    ("event", "written"),
    [
        (CallStarted("read_file"), {"event": "call_started", "name": "read_file"}),
        (ToolStarted("1", "x", "{}"), {"event": "tool_started", "call_id": "1", "tool": "x", "arguments": "{}"}),
        (Notice("Well."), {"event": "notice", "text": "Well."}),
        (
            SilentTruncation("cut", 9, 5),
            {"event": "silent_truncation", "reason": "cut", "estimated_tokens": 9, "reported_tokens": 5},
        ),
        (
            Repaired(Repair(3, "orphan", "gone")),
            {"event": "repaired", "repair": {"seq": 3, "rule": "orphan", "detail": "gone"}},
        ),
    ],
)
def test_an_event_keeps_its_fields_and_is_named_once(event: AgentEvent, written: object) -> None:
    assert as_json(event) == written
    assert json.loads(json.dumps(as_json(event))) == written


def test_folds_are_told_without_their_texts() -> None:
    fold = Fold(start=2, stop=14, shown=(), tokens=300, before_tokens=5_000, reducer="digest", reason="full", id=3)
    expected = as_json(FoldFinished((fold,), 300, 4))
    assert expected["event"] == "fold_finished"
    assert expected["folds"] == [
        {
            "id": 3,
            "start": 2,
            "stop": 14,
            "reducer": "digest",
            "reason": "full",
            "before_tokens": 5_000,
            "tokens": 300,
            "archive": None,
        }
    ]


def test_the_documentation_has_every_event_and_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| (.*) \|$", page, re.MULTILINE))
    expected = {name: fields for names, fields in rows.items() for name in re.findall(r"[a-z_]+", names)}
    for kind in get_args(AgentEvent):
        fields = {field.name: field for field in dataclasses.fields(kind)}
        name = _NAMES.get(kind) or str(fields.pop("name").default)
        assert [field for field in fields if f"`{field}`" not in expected[name]] == [], name
