from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from foldline.engine.one_shot import check
from foldline.tokens import ESTIMATE
from foldline_bench.peers.plain_peer import CUT, MASK, SYSTEMS
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import System


def history(results: int, chars: int = 400) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    for turn in range(results):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        text = f"{turn} begins {'x' * chars} {turn} ends"
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": text}
        out += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    return out


def system(name: str, budget_tokens: int = 1_000) -> System:
    return SYSTEMS[name](budget_tokens, lambda wire: len(str(wire.get("content"))), FixedSummariser(ESTIMATE))


def results(out: Sequence[Any]) -> list[str]:
    return [wire["content"] for wire in out if wire["role"] == "tool"]


def test_masking_leaves_the_first_two_and_the_last_five_results() -> None:
    given = history(10)
    shown = results(system("mask (first 2, last 5)").view(given))
    assert [place for place, text in enumerate(shown) if text == MASK] == [2, 3, 4]
    few = history(7)
    assert system("mask (first 2, last 5)").view(few) == few


def test_masking_in_batches_waits_for_the_budget_and_keeps_what_it_masked() -> None:
    given, rule = history(9), system("mask (in batches, last 3)", 2_500)
    assert rule.view(given[:11]) == given[:11]
    masked = [text == MASK for text in results(rule.view(given[:15]))]
    assert masked == [True, True, True, True, False, False, False]
    assert [text == MASK for text in results(rule.view(given))] == [*masked, False, False]


@pytest.mark.parametrize("chars", [2_000, 8_000])
def test_a_result_is_cut_when_it_arrives_and_stays_so(chars: int) -> None:
    rule = system(f"cut on arrival ({chars:,} characters)")
    given = history(2, chars=10_000)
    first = rule.view(given[:3])
    [text] = results(first)
    assert len(text) == chars + len(CUT)
    assert text.startswith("0 begins")
    assert text.endswith("0 ends")
    assert rule.view(given)[:3] == first
    assert len(results(given)[0]) > 10_000


def test_cut_results_are_masked_once_the_budget_is_reached() -> None:
    rule = system("cut (8,000 characters) and mask", 20_000)
    shown = results(rule.view(history(5, chars=9_000)))
    assert [text == MASK for text in shown] == [True, True, False, False, False]
    assert CUT in shown[-1]


def test_the_oldest_messages_leave_once_the_budget_is_reached_and_calls_go_with_their_results() -> None:
    given = [{"role": "system", "content": "Be brief."}, *history(12, chars=900)]
    rule = system("cut (2,000 characters) and drop", 5_000)
    assert rule.view(given[:12]) == given[:12]
    first = rule.view(given[:14])
    assert first[:2] == given[:2]
    assert first[2:] == given[10:14]
    assert rule.view(given[:16]) == [*first, *given[14:16]]
    for stop in range(18, len(given), 2):
        shown = rule.view(given[:stop])
        assert sum(len(wire["content"]) for wire in shown) <= 5_000
        assert check(shown, dialect="openai-chat", system=None, tools=None) == []
