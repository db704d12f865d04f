"""Runs a probe: makes the questions and the views, asks them one after the other, and keeps what was answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from string import ascii_uppercase
from time import monotonic
from typing import Final

from foldline.errors import InvalidInput, ProviderError
from foldline.providers.base import Provider, Retrying
from foldline.replay import NONE, MeasuredSession
from foldline.tokens import Counter
from foldline_bench.printing import provenance
from foldline_bench.probe.asking import ask, failure_of, unsent_answer
from foldline_bench.probe.figures import compare_runs
from foldline_bench.probe.questions import Derivation, Question, choose_questions, shares
from foldline_bench.probe.values import (
    PROBE_SCHEMA,
    AskedQuestion,
    GivenAnswer,
    JudgeRow,
    ProbeResult,
    ProbeRun,
)
from foldline_bench.probe.views import BLIND, FULL, NOTHING, SessionText, folded_texts, full_text
from foldline_bench.session_inputs import collect_sessions
from foldline_bench.values import LEAST_RATIO, UnreadFile
from foldline_bench.workers.jobs import neutral_counter, read_week
from foldline_bench.workers.offers import own_system

__all__ = ["Asking", "Judge", "PreparedProbe", "ProbePlan", "ProbeStep", "prepare_probe", "run_probe"]

_INPUT_SHARE: Final = 0.9  # of the window: sizes are by our counter, and the judge's own differs
_OUTPUT_SHARE: Final = 8  # an eighth of the window at most
_MAX_OUTPUT_TOKENS: Final = 2_048  # models that think first need more than a letter
_QUESTION_TOKENS: Final = 600  # kept free for instructions and options, more than the longest question takes
_FAR_TOKENS: Final = 8_000
_MOST_FAILURES: Final = 5  # in a row: the provider is down, or wants something else
# What the next question would meet as well: key, payment, rights, a name or path that is unknown.
_LASTING: Final = frozenset({401, 402, 403, 404})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What to ask. `found` are those of `paths` that come from a folder, which may be unreadable."""

    paths: tuple[str, ...]
    found: frozenset[str] = frozenset()
    budgets_tokens: tuple[int, ...]
    systems: tuple[str, ...]
    questions: int
    seed: int = 1
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    """The model that answers, and its window."""

    provider: str
    model: str
    dialect: str
    window_tokens: int

    @property
    def max_output_tokens(self) -> int:
        """What a reply may take."""
        return min(_MAX_OUTPUT_TOKENS, max(1, self.window_tokens // _OUTPUT_SHARE))

    @property
    def room_tokens(self) -> int:
        """What a view may take of the window."""
        kept = min(_QUESTION_TOKENS, self.window_tokens // 3)
        return int(_INPUT_SHARE * self.window_tokens) - self.max_output_tokens - kept


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """Progress: questions asked of all, the system at hand, and a retry that is waited for."""

    system: str
    done: int
    total: int
    retry: Retrying | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """One question from one view."""

    run: ProbeRun
    question: Question
    view: SessionText | None


@dataclass(slots=True)
class PreparedProbe:
    """All questions and views. `answered` runs with the figures so far are in `result`."""

    plan: ProbePlan
    judge: Judge
    counter: Counter
    questions: tuple[Question, ...]
    askings: list[Asking]
    runs: list[ProbeRun]
    left_out: list[UnreadFile]
    far_tokens: int
    least_tokens: int
    began: float = field(default_factory=monotonic)
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def result(self, *, stopped: str = "") -> ProbeResult:
        """The result of what has been answered. O(answers · resamples)."""
        done = sum(len(run["answers"]) for run in self.runs)
        asked = [_asked(question) for question in self.questions]
        compare_runs(self.runs, asked)
        return ProbeResult(
            schema=PROBE_SCHEMA,
            partial=done < len(self.askings),
            stopped=stopped,
            made=provenance(self.began_at, monotonic() - self.began),
            counter=self.counter.name,
            judge=JudgeRow(
                provider=self.judge.provider,
                model=self.judge.model,
                dialect=self.judge.dialect,
                window_tokens=self.judge.window_tokens,
                room_tokens=self.judge.room_tokens,
                max_output_tokens=self.judge.max_output_tokens,
            ),
            seed=self.plan.seed,
            least_tokens=self.least_tokens,
            far_tokens=self.far_tokens,
            wanted=shares(self.plan.questions),
            questions=asked,
            runs=self.runs,
            left_out=self.left_out,
        )


def prepare_probe(plan: ProbePlan, judge: Judge) -> PreparedProbe:
    """Read the sessions, and make the questions and all views. Sends nothing. Raises InvalidInput."""
    _check(plan, judge)
    counter = neutral_counter(plan.exact)
    collected = collect_sessions(plan.paths, found=plan.found, exact=plan.exact)
    least, far = int(LEAST_RATIO * max(plan.budgets_tokens)), min(_FAR_TOKENS, min(plan.budgets_tokens) // 2)
    large = [file for file, row in zip(collected.files, collected.rows, strict=True) if row["tokens"] >= least]
    recordings = [MeasuredSession(read_week(file).session, counter) for file in large]
    questions = choose_questions(
        [Derivation(recording) for recording in recordings],
        count=plan.questions,
        least_tokens=least,
        far_tokens=far,
        seed=plan.seed,
    )
    if not questions:
        raise InvalidInput(f"no session has a question with {least:,} tokens before it", place="budget")
    runs = [_new_run(FULL), _new_run(BLIND)]
    runs += [_new_run(system, budget) for budget in plan.budgets_tokens for system in plan.systems if system != NONE]
    askings: list[Asking] = []
    for recording in recordings:
        own = [question for question in questions if question.session == recording.session.name]
        askings += _askings(recording, own, runs, judge, counter) if own else []
    return PreparedProbe(plan, judge, counter, questions, askings, runs, collected.left_out, far, least)


def _check(plan: ProbePlan, judge: Judge) -> None:
    for system in plan.systems:
        own_system(system)
    if max(plan.budgets_tokens) > judge.room_tokens:
        raise InvalidInput(
            f"{max(plan.budgets_tokens):,} tokens do not fit into what {judge.model or 'the model'} has room for: "
            f"{judge.room_tokens:,} of {judge.window_tokens:,}",
            place="budget",
        )


def _askings(
    recording: MeasuredSession, questions: Sequence[Question], runs: Sequence[ProbeRun], judge: Judge, counter: Counter
) -> list[Asking]:
    """Point by point, and view by view in it: the next question finds its view in the provider's cache."""
    points = sorted({question.point for question in questions})
    room = judge.room_tokens
    views: list[dict[int, SessionText | None]] = []
    for run in runs:
        if run["system"] == FULL:
            views.append({at: full_text(recording, at, room_tokens=room, counter=counter) for at in points})
        elif run["system"] == BLIND:
            views.append(dict.fromkeys(points, NOTHING))
        else:
            budget = run["budget_tokens"] or 0
            system = run["system"]
            views.append(
                folded_texts(recording, points, system=system, budget_tokens=budget, room_tokens=room, counter=counter)
            )
    return [
        Asking(run, question, texts[at])
        for at in points
        for run, texts in zip(runs, views, strict=True)
        for question in questions
        if question.point == at
    ]


def _new_run(system: str, budget_tokens: int | None = None) -> ProbeRun:
    return ProbeRun(system=system, budget_tokens=budget_tokens, answers=[], figures={})


def _asked(question: Question) -> AskedQuestion:
    return AskedQuestion(
        id=question.id,
        session=question.session,
        kind=question.kind,
        about=question.about,
        point=question.point,
        back_tokens=question.back_tokens,
        text=question.text,
        options=list(question.options),
        right=ascii_uppercase[question.right],
        evidence=question.evidence,
    )


# --- asking -----------------------------------------------------------------------------------------------------------


async def run_probe(
    probe: PreparedProbe, provider: Provider, on_step: Callable[[ProbeStep], None] = lambda _step: None
) -> str:
    """Ask all questions, one after the other; return "", or the error that makes it useless to go on.

    Answers are in `probe.runs` as they come: a caller that is interrupted has those before. An error of one question
    counts as `failed`; one of the key, the account or the model ends the run, and so do five in a row. If no answer
    came at all, the last error is returned too.
    """
    failures, came, last = 0, False, ""
    for done, asking in enumerate(probe.askings):
        name = asking.run["system"]
        on_step(ProbeStep(name, done, len(probe.askings)))

        def waiting(piece: Retrying, name: str = name, done: int = done) -> None:
            on_step(ProbeStep(name, done, len(probe.askings), piece))

        try:
            answer = await _answered(probe, asking, provider, waiting)
            failures, came = 0, True
        except ProviderError as error:
            failures, last = failures + 1, failure_of(error)
            if _is_lasting(error) or failures == _MOST_FAILURES:
                return last
            answer = unsent_answer(asking.question, asking.view, last)
        asking.run["answers"].append(answer)
    on_step(ProbeStep("", len(probe.askings), len(probe.askings)))
    return "" if came else last


async def _answered(
    probe: PreparedProbe, asking: Asking, provider: Provider, on_retry: Callable[[Retrying], None]
) -> GivenAnswer:
    if asking.view is None:
        return unsent_answer(asking.question, None)
    return await ask(
        provider,
        asking.question,
        asking.view,
        max_output_tokens=probe.judge.max_output_tokens,
        counter=probe.counter,
        on_retry=on_retry,
    )


def _is_lasting(error: ProviderError) -> bool:
    return error.failure.kind in ("auth", "quota") or error.failure.status in _LASTING
