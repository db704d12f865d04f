from __future__ import annotations

from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline_bench.probe.figures import ALL, accuracy_interval, compare_runs, difference_interval
from foldline_bench.probe.values import AskedQuestion, GivenAnswer, Outcome, ProbeRun


def test_the_interval_of_one_session_is_wilsons() -> None:
    """0.4 of 10: the example of several manuals, 0.1682 to 0.6873."""
    found = accuracy_interval({"s": [True] * 4 + [False] * 6})
    assert found is not None
    assert (found["value"], found["sessions"]) == (0.4, 1)
    assert found["low"] == pytest.approx(0.1682, abs=1e-4)
    assert found["high"] == pytest.approx(0.6873, abs=1e-4)


def test_answers_that_all_agree_are_no_certainty() -> None:
    one = accuracy_interval({str(session): [True] for session in range(20)})
    two = difference_interval({str(session): [0] for session in range(20)})
    assert one is not None
    assert two is not None
    assert (one["high"], two["value"]) == (1.0, 0.0)
    assert one["low"] < 0.9
    assert two["low"] < -0.05 < 0.05 < two["high"]


def test_without_answers_there_is_no_interval() -> None:
    assert accuracy_interval({"s": []}) is None
    assert difference_interval({}) is None


def test_questions_about_few_sessions_that_agree_within_each_give_a_wider_interval() -> None:
    """Six sessions of 50 questions each: they count for six, not for 300."""
    apart = accuracy_interval({str(session): [session < 3] * 50 for session in range(6)})
    mixed = accuracy_interval({str(session): [True, False] * 25 for session in range(6)})
    assert apart is not None
    assert mixed is not None
    assert apart["value"] == mixed["value"] == 0.5
    assert apart["high"] - apart["low"] > 4 * (mixed["high"] - mixed["low"])


@given(st.dictionaries(st.text(max_size=2), st.lists(st.integers(-1, 1), max_size=9), max_size=8))
def test_an_interval_holds_its_value_and_turns_with_the_sides(paired: dict[str, list[int]]) -> None:
    found = difference_interval(paired)
    turned = difference_interval({name: [-value for value in values] for name, values in paired.items()})
    assert (found is None) == (turned is None) == (not any(paired.values()))
    if found is not None and turned is not None:
        assert -1 <= found["low"] <= found["value"] <= found["high"] <= 1
        assert turned["value"] == -found["value"]


def test_the_interval_of_a_difference_holds_the_truth_in_most_of_many_trials() -> None:
    """30 pairs, of which 3 in 10 are gained and 1 in 10 is lost: the truth is 0.2."""
    chance, held = Random(7), 0
    for _ in range(400):
        values = chance.choices([1, -1, 0], [3, 1, 6], k=30)
        found = difference_interval({"s": values})
        assert found is not None
        held += found["low"] <= 0.2 <= found["high"]
    # As rare as one in a thousand, if 95 % of the intervals hold it.
    fewest = next(n for n in range(400) if sum(comb(400, k) * 0.95**k * 0.05 ** (400 - k) for k in range(n + 1)) > 1e-3)
    assert held >= fewest


def question(number: int, kind: str = "needle") -> AskedQuestion:
    return AskedQuestion(
        id=str(number),
        session="s",
        kind=kind,
        about="path",
        point=9,
        back_tokens=1,
        text="?",
        options=["a", "b", "c", "d"],
        right="A",
        evidence="a",
    )


def answers(*outcomes: Outcome) -> list[GivenAnswer]:
    return [
        GivenAnswer(
            question=str(number),
            outcome=outcome,
            letter="",
            reply="",
            failure="",
            shown_tokens=1,
            whole=True,
            input_tokens=None,
            cached_tokens=None,
            output_tokens=None,
        )
        for number, outcome in enumerate(outcomes)
    ]


def test_a_failed_question_says_nothing_of_either_view() -> None:
    full = ProbeRun(
        system="full", budget_tokens=None, answers=answers("right", "right", "failed", "wrong", "right"), figures={}
    )
    folded = ProbeRun(
        system="cost", budget_tokens=9, answers=answers("right", "unknown", "right", "right", "failed"), figures={}
    )
    compare_runs([full, folded], [question(number, ("needle", "next")[number == 3]) for number in range(5)])
    figures = folded["figures"][ALL]
    assert (figures["asked"], figures["chance"]) == (5, 0.25)
    assert figures["outcomes"] == {"right": 3, "unknown": 1, "failed": 1}
    assert figures["accuracy"] is not None
    assert figures["accuracy"]["value"] == 0.75
    paired = figures["paired"]
    assert paired is not None
    assert (paired["pairs"], paired["gained"], paired["lost"], paired["difference"]["value"]) == (3, 1, 1, 0.0)
    assert full["figures"][ALL]["paired"] is None
    assert folded["figures"]["next"]["asked"] == 1
    assert "why" not in folded["figures"]
