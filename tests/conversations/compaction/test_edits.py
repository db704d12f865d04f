"""Edits of Anthropic are read with the provider's defaults, and refused in its words."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.conversations.compaction.edits import (
    ClearThinking,
    ClearToolUses,
    CompactAt,
    Edits,
    OnDemand,
    read_edits,
    read_on_demand,
)
from foldline.conversations.compaction.refusals import CompactionRefused

USES, THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
AT = "context_management.edits.0"


def edits(*given: Any) -> Edits:
    return read_edits({"context_management": {"edits": list(given)}})


def test_each_edit_has_the_defaults_of_the_provider() -> None:
    found = edits({"type": THINKING}, {"type": USES}, {"type": COMPACT})
    assert found.thinking == ClearThinking(1)
    assert found.tool_uses == ClearToolUses(100_000, False, 3, 0, frozenset(), False)
    assert found.compact == CompactAt(150_000, False, None)
    assert found.asked


def test_a_request_without_a_list_asks_for_nothing() -> None:
    assert read_edits({}) == read_edits({"context_management": None}) == Edits()
    assert read_edits({"context_management": {}}) == Edits(asked=True)


def test_every_option_is_read() -> None:
    found = edits(
        {"type": THINKING, "keep": {"type": "thinking_turns", "value": 4}},
        {
            "type": USES,
            "trigger": {"type": "tool_uses", "value": 7},
            "keep": {"type": "tool_uses", "value": 0},
            "clear_at_least": {"type": "input_tokens", "value": 5_000},
            "exclude_tools": ["memory"],
            "clear_tool_inputs": ["shell"],
        },
        {"type": COMPACT, "trigger": None, "pause_after_compaction": True, "instructions": "  "},
    )
    assert found.thinking == ClearThinking(4)
    assert found.tool_uses == ClearToolUses(7, True, 0, 5_000, frozenset({"memory"}), frozenset({"shell"}))
    assert found.compact == CompactAt(150_000, True, None)


@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
def test_all_thinking_may_stay(keep: Any) -> None:
    assert edits({"type": THINKING, "keep": keep}).thinking == ClearThinking(None)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([3], "context_management.edits.0"),
        ([{}], "context_management.edits.0"),
        ([{"type": ["x"]}], "context_management.edits.0"),
        ([{"type": USES}, {"type": THINKING}], "context_management"),
        ([{"type": USES}, {"type": USES}], "context_management.edits"),
        ([{"type": USES, "trigger": 5}], f"{AT}.{USES}.trigger"),
        ([{"type": USES, "trigger": {"type": "bytes", "value": 5}}], f"{AT}.{USES}.trigger.type"),
        ([{"type": USES, "keep": {"type": "tool_uses", "value": -1}}], f"{AT}.{USES}.keep.value"),
        ([{"type": USES, "keep": {"type": "tool_uses", "value": True}}], f"{AT}.{USES}.keep.value"),
        ([{"type": USES, "keep": {"type": "tool_uses"}}], f"{AT}.{USES}.keep.value"),
        ([{"type": USES, "exclude_tools": "memory"}], f"{AT}.{USES}.exclude_tools"),
        ([{"type": USES, "exclude_tools": [1]}], f"{AT}.{USES}.exclude_tools.0"),
        ([{"type": USES, "clear_tool_inputs": "yes"}], f"{AT}.{USES}.clear_tool_inputs"),
        ([{"type": USES, "other": 1}], f"{AT}.{USES}.other"),
        ([{"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}], f"{AT}.{THINKING}.keep.value"),
        ([{"type": THINKING, "keep": "none"}], f"{AT}.{THINKING}.keep"),
        ([{"type": COMPACT, "trigger": {"type": "input_tokens", "value": 1.5}}], f"{AT}.{COMPACT}.trigger.value"),
        ([{"type": COMPACT, "pause_after_compaction": "yes"}], f"{AT}.{COMPACT}.pause_after_compaction"),
        ([{"type": COMPACT, "instructions": ["x"]}], f"{AT}.{COMPACT}.instructions"),
        ([{"type": COMPACT, "instructions": "x" * 16_385}], f"{AT}.{COMPACT}.instructions"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given: list[Any], place: str) -> None:
    with pytest.raises(CompactionRefused) as raised:
        edits(*given)
    assert raised.value.place == place


def test_a_request_for_a_summary_is_read_with_its_instructions() -> None:
    assert read_on_demand({}) is None
    assert read_on_demand({"compaction": {"type": "summarize"}}) == OnDemand(None)
    asked = {"compaction": {"type": "summarize", "instructions": " Keep names. "}, "tool_choice": {"type": "auto"}}
    assert read_on_demand(asked) == OnDemand("Keep names.")


def test_a_budget_that_is_left_cannot_go_with_a_summary() -> None:
    asked = {"compaction": {"type": "summarize"}, "output_config": {"task_budget": {"remaining": 3}}}
    with pytest.raises(CompactionRefused, match="remaining"):
        read_on_demand(asked)
