"""What one turn between folds takes, counted in functions that are entered: time says nothing on a busy machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from types import FrameType

import pytest

import foldline
from foldline.engine.context import Context
from foldline.tokens import ESTIMATE
from foldline.view.transcript import Entry
from foldline_bench.measure.speed import session

PACKAGE = foldline.__file__.removesuffix("__init__.py")


@contextmanager
def entered(seen: Callable[[str], None]) -> Iterator[None]:
    """Tell the name of each function of the package that is entered, and of others that it calls."""

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            seen(code.co_name if code.co_filename.startswith(PACKAGE) else f"other {code.co_name}")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def test_a_turn_between_folds_enters_no_more_functions_than_it_has_to() -> None:
    context = Context(policy="balanced", window=16_000, max_output_tokens=0)
    turns: list[int] = []
    for new in session(600):
        names: list[str] = []
        with entered(names.append):
            context.extend(new)
            request = context.prepare()
        if not request.folds:
            turns.append(len(names))
    assert len(turns) > 250
    assert median(turns) <= 520, "it was 470 when this was written, and 620 before"


def test_the_text_of_a_result_is_counted_once_on_its_way_into_a_request() -> None:
    counted: list[str] = []

    class Noting:
        name = "noting"

        def text(self, text: str, /) -> int:
            counted.append(text)
            return ESTIMATE.text(text)

    context = Context(policy="balanced", window=16_000, max_output_tokens=0, counter=Noting())
    for new in session(40):
        context.extend(new)
        context.prepare()
    results = [
        entry.message.results[0].text for entry in context.events if isinstance(entry, Entry) and entry.message.results
    ]
    assert len(results) == 19
    assert [counted.count(text) for text in results] == [1] * 19


@pytest.mark.parametrize(
    ("policy", "folding", "between"),
    [
        ("balanced", 23_500, 1_800),  # 22,580 and 1,640 when this was written; a fold was 48,000 at first
        ("economical", 27_700, 3_500),  # 26,630 and 3,210; 45,000
        ("quality", 17_000, 1_650),  # 16,350 and 1,500; 30,700
        ("cost", 17_200, 2_700),  # 16,440 and 2,440; 32,600
    ],
)
def test_a_fold_in_a_long_session_enters_no_more_functions_than_it_has_to(
    policy: str, folding: int, between: int
) -> None:
    context = Context(policy=policy, window=16_000, max_output_tokens=0)
    folds: list[int] = []
    others: list[int] = []
    for turn, new in enumerate(session(1_400)):
        names: list[str] = []
        with entered(names.append):
            context.extend(new)
            request = context.prepare()
        if turn > 300:
            (folds if request.folds else others).append(len(names))
    assert len(folds) >= 5
    assert median(folds) <= folding
    assert max(others) <= between, "turns between folds read ahead in batches"


def test_words_of_the_user_cost_the_same_however_many_rules_they_gave_before() -> None:
    def searches(rules: int) -> int:
        context = Context(policy="balanced", window=128_000, max_output_tokens=0)
        context.append({"role": "system", "content": "You are a coding agent."})
        for number in range(rules):
            context.append({"role": "user", "content": f"Never touch the table orders_{number}."})
        found = 0

        def look(frame: FrameType, event: str, argument: object) -> None:
            nonlocal found
            found += event == "c_call" and getattr(argument, "__name__", "") in ("search", "sub")

        report = "\n".join(f"Never wait for the lock of worker_{place}, it was freed." for place in range(30))
        sys.setprofile(look)
        try:
            context.append({"role": "user", "content": report})
        finally:
            sys.setprofile(None)
        return found

    few, many = searches(2), searches(60)
    assert few > 100
    assert many <= few, "each sentence was read anew for each rule"
