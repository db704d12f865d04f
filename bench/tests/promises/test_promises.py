"""Every promise can be broken, and is kept by Foldline."""

from __future__ import annotations

from typing import Any

import pytest
from bench.tests.promises import broken

from foldline_bench.promises.promises import PROMISES
from foldline_bench.promises.suite import ConformancePlan, ConformanceReport, conformance
from foldline_bench.promises.targets.callables import target_of
from foldline_bench.promises.targets.local import local_target

WINDOW_TOKENS = 4_000


def report_on(target: Any, *only: str, cases: tuple[str, ...] = (), seconds: float = 60.0) -> ConformanceReport:
    plan = ConformancePlan(windows=(WINDOW_TOKENS,), only=only, cases=cases, seconds=seconds)
    return conformance(target_of("broken", target), plan, command="foldline conformance broken")


# Which fault breaks which promise: at the request where it must show, and in words that say what is wrong.
FAULTS: list[tuple[str, Any, str]] = [
    ("fits", broken.TooLarge, "tokens in a window of 4,000"),
    ("fits", broken.SaysNothing, "the words of the user alone are larger than the window"),
    ("fits", broken.GivesUp, "none was made, though it can be: MemoryError: too much"),
    ("valid", broken.Invalid, "call-without-result"),
    ("words", broken.ShortWords, "the newest words of the user are not there whole"),
    ("system", broken.NoSystem, "the system text is not there word for word"),
    ("pinned", broken.NoPins, "is not there whole"),
    ("prefix", broken.Restless, "its beginning has changed, though the window is half empty"),
    ("prefix", broken.Sliding, "requests have another beginning than the one before"),
    ("kept", broken.Mutating, "of the caller has been changed"),
    ("kept", broken.emptied, "of the caller has been changed"),
    ("kept", broken.Forgetting, "message 7 is not read back as it was"),
    ("parallel", broken.HalfParallel, "nothing of the newest result"),
    ("errors", broken.NoErrors, "is not there in its own words"),
    ("errors", broken.Unmarked, "is no longer marked as an error"),
    ("images", broken.NoImages, "of the 1 images of the newest question are there"),
    ("huge", broken.NoHuge, "nothing of the newest result"),
    ("unicode", broken.HalfCharacters, "was replaced (U+FFFD)"),
    ("unicode", broken.Surrogates, "half a character"),
    ("empty", broken.Raw, "says-nothing"),
    ("order", broken.Raw, "call-without-result"),
    ("long", broken.Rereading, "times as many for as much that is new"),
    ("recovers", broken.Deaf, "after 5 refusals"),
    ("recovers", broken.Fragile, "gave up, though it can be made smaller"),
    ("ends", broken.Deaf, "no end to this"),
    ("ends", broken.Shrinking, "once more with nothing new: it is another one"),
    ("ends", broken.dropping, "once more with nothing new: it is another one"),
]


@pytest.mark.parametrize(("promise", "target", "words"), FAULTS, ids=[f"{p}-{t.__name__}" for p, t, _ in FAULTS])
def test_a_fault_breaks_its_promise_and_the_row_says_where(promise: str, target: Any, words: str) -> None:
    shape = "too-large" if target is broken.SaysNothing else "tools"
    judged = PROMISES[promise].judge is not None and len(PROMISES[promise].shapes) != 1
    cases = (f"{shape}/openai-chat/{WINDOW_TOKENS}",) if judged else ()
    [row] = report_on(target, promise, cases=cases).rows
    assert row.status == "failed"
    assert words in row.first_fault
    assert row.first_fault.startswith(("request", "after request", "refusal", "requests", "message"))
    assert row.reproduce == (f"foldline conformance broken --only {promise} --case {row.first_case} --seed 0")


def test_a_tool_that_does_not_come_back_is_left_and_breaks_the_promise_of_an_end() -> None:
    report = report_on(broken.Hanging, "fits", "ends", cases=("chat/openai-chat/4000",), seconds=0.5)
    assert [row.status for row in report.rows] == ["failed", "failed"]
    assert all("did not come back within 0.5 s" in row.first_fault for row in report.rows)


def test_the_case_of_a_fault_alone_shows_it_again() -> None:
    [row] = report_on(
        broken.TooLarge, "fits", cases=tuple(f"{shape}/openai-chat/4000" for shape in ("small", "chat"))
    ).rows
    [again] = report_on(broken.TooLarge, "fits", cases=(row.first_case,)).rows
    assert (again.cases, again.first_fault) == (1, row.first_fault)


def test_every_promise_of_a_tool_without_http_has_a_fault_that_breaks_it() -> None:
    assert {promise for promise, _, _ in FAULTS} == PROMISES.keys() - {"streams"}


def test_a_context_keeps_every_promise_in_every_dialect() -> None:
    plan = ConformancePlan(windows=(WINDOW_TOKENS,))
    report = conformance(local_target("foldline"), plan)
    assert [(row.promise, row.first_case, row.first_fault) for row in report.rows if row.status == "failed"] == []
    assert [row.promise for row in report.rows if row.status != "passed"] == ["streams"]
    assert (report.passed, report.applicable) == (17, 17)


@pytest.mark.parametrize("seed", [1, 2])
def test_other_seeds_draw_other_histories_which_hold_too(seed: int) -> None:
    shapes = [f"{shape}/{dialect}/6000" for shape in ("mixed", "order") for dialect in ("openai-chat", "anthropic")]
    plan = ConformancePlan(windows=(6_000,), seed=seed, only=("fits", "valid", "words", "order"), cases=tuple(shapes))
    report = conformance(local_target("foldline", ("openai-chat", "anthropic")), plan)
    assert {row.status for row in report.rows} == {"passed"}


def test_what_a_tool_has_not_is_not_held_against_it() -> None:
    def everything(messages: list[Any], window: int) -> list[Any]:
        del window
        return messages

    cases = tuple(f"{name}/openai-chat/4000" for name in ("chat", "small", "ends"))
    rows = {row.promise: row.status for row in report_on(everything, cases=cases).rows}
    absent = {"pinned", "long", "recovers", "streams"}
    assert {name for name, status in rows.items() if status == "not applicable"} >= absent
    assert rows["fits"] == "failed"
    assert rows["kept"] == rows["ends"] == "passed"
