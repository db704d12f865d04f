from __future__ import annotations

from typing import Any

import pytest

from foldline_bench.measure.refusals import HARD, SOFT, refusals

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "yes"}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "42"}


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([SYSTEM, USER], set()),
        ([SYSTEM, USER, calling("c"), RESULT], set()),
        ([SYSTEM, USER, calling("c", "d"), RESULT, {**RESULT, "tool_call_id": "d"}, REPLY, USER], set()),
        ([], {"empty"}),
        ([SYSTEM], {"empty"}),
        ([SYSTEM, RESULT, USER], {"orphan-result", "first-not-user"}),
        ([USER, calling("c"), RESULT, RESULT], {"orphan-result"}),
        ([USER, calling("c", "d"), RESULT], {"unanswered-call"}),
        ([USER, calling("c"), USER], {"unanswered-call"}),
        ([USER, calling("c")], {"unanswered-call", "ends-with-assistant"}),
        ([{"role": "user", "content": ""}], {"empty-content"}),
        ([USER, {"role": "assistant", "content": None}, USER], {"empty-content"}),
        ([USER, REPLY], {"ends-with-assistant"}),
        ([REPLY, USER], {"first-not-user"}),
        ([USER, SYSTEM, REPLY, USER], {"late-system"}),
        ([USER, calling("c"), SYSTEM, RESULT], {"late-system"}),
    ],
)
def test_what_providers_refuse_is_named(messages: list[dict[str, Any]], broken: set[str]) -> None:
    assert refusals(messages) == broken


def test_each_rule_is_hard_or_soft() -> None:
    assert not HARD & SOFT
