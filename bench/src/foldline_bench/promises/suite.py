"""The suite: every promise by every history that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from foldline.errors import InvalidInput
from foldline.text.formatting import plural
from foldline_bench.promises.histories import ShapedHistory
from foldline_bench.promises.promises import PROMISES, Promise
from foldline_bench.promises.rounds import OutOfTimeError, limited, run_history
from foldline_bench.promises.shapes import every
from foldline_bench.promises.shipped import shipped_histories
from foldline_bench.promises.targets.base import DeclinedError, Target
from foldline_bench.promises.trials import TrialCase

__all__ = ["ConformancePlan", "ConformanceReport", "PromiseRow", "conformance"]

Status: TypeAlias = Literal["passed", "failed", "not applicable", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformancePlan:
    """What is run: `only` names promises and `cases` cases (none: all); `slack` is for targets that count otherwise."""

    windows: tuple[int, ...]
    seed: int = 0
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    slack: float = 0.1
    seconds: float = 60.0

    def chosen(self) -> list[Promise]:
        """The promises. Raises InvalidInput for an unknown name."""
        if unknown := [name for name in self.only if name not in PROMISES]:
            raise InvalidInput(f"no such promise: {unknown[0]}; there are {', '.join(PROMISES)}", place="--only")
        return [promise for promise in PROMISES.values() if not self.only or promise.name in self.only]

    def wants(self, case: str) -> bool:
        """Whether a case is to be run."""
        return not self.cases or case in self.cases


@dataclass(slots=True)
class PromiseRow:
    """What became of one promise: over how many cases, in how many it was broken, and where first."""

    promise: str
    about: str
    status: Status = "not run"
    cases: int = 0
    failed: int = 0
    first_case: str = ""
    first_fault: str = ""
    reproduce: str = ""

    def note(self, case: str, fault: str | None) -> None:
        """Add a case."""
        self.cases += 1
        if fault is not None:
            self.failed += 1
            if not self.first_case:
                self.first_case, self.first_fault = case, " ".join(fault.split())


@dataclass(slots=True)
class ConformanceReport:
    """All rows for one target; `partial` after Ctrl-C."""

    target: str
    kind: str
    dialects: tuple[str, ...]
    windows: tuple[int, ...]
    seed: int
    foldline: str
    slack: float
    rows: list[PromiseRow]
    histories: int = 0
    requests: int = 0
    partial: bool = False
    schema: int = field(default=1)

    @property
    def passed(self) -> int:
        """How many promises are kept."""
        return sum(row.status == "passed" for row in self.rows)

    @property
    def applicable(self) -> int:
        """How many promises apply, of those that were run."""
        return sum(row.status in {"passed", "failed"} for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {"passed": self.passed, "applicable": self.applicable, **asdict(self)}


def conformance(
    target: Target, plan: ConformancePlan, *, command: str = "", told: Callable[[str], None] | None = None
) -> ConformanceReport:
    """Run the promises. `command` is what to type for this target; `told` gets a line now and then.

    Ctrl-C ends it with what was done. Raises InvalidInput for names that are not there.
    """
    chosen = plan.chosen()
    histories = _histories(target, plan, chosen)
    trials = _trials(target, plan, chosen)
    if plan.cases and not histories and not trials:
        raise InvalidInput(f"no such case for these promises: {', '.join(plan.cases)}", place="--case")
    rows = {promise.name: PromiseRow(promise.name, promise.about) for promise in chosen}
    report = ConformanceReport(
        target=target.name,
        kind=target.kind,
        dialects=target.dialects,
        windows=plan.windows,
        seed=plan.seed,
        foldline=version("foldline"),
        slack=0.0 if target.counts_alike else plan.slack,
        rows=list(rows.values()),
    )
    if told is not None:
        told(f"{plural(len(histories), 'session')} and {plural(len(trials), 'trial')} in {', '.join(target.dialects)}")
    ended = False
    try:
        _judge_histories(target, plan, histories, report)
        _make_trials(target, plan, trials, rows)
        ended = True
    except KeyboardInterrupt:
        report.partial = True
    for promise in chosen:
        row = rows[promise.name]
        if row.failed:
            row.status = "failed"
            row.reproduce = f"{command} --only {promise.name} --case {row.first_case} --seed {plan.seed}"
        elif row.cases:
            row.status = "passed"
        elif ended:
            row.status = "not applicable"
    return report


def _histories(target: Target, plan: ConformancePlan, chosen: Sequence[Promise]) -> list[ShapedHistory]:
    """Those that any of the promises is judged by."""
    found = [
        *every(target.dialects, plan.windows, plan.seed),
        *shipped_histories(target.dialects, plan.windows, plan.sessions),
    ]
    wanted = [promise for promise in chosen if promise.applies(target)]
    return [one for one in found if plan.wants(one.name) and any(promise.covers(one, target) for promise in wanted)]


def _trials(target: Target, plan: ConformancePlan, chosen: Iterable[Promise]) -> list[tuple[Promise, TrialCase]]:
    found = []
    for promise in chosen:
        if promise.attempt is None or not promise.applies(target):
            continue
        for dialect in target.dialects[:1] if promise.once else target.dialects:
            case = TrialCase(promise.name, dialect, plan.windows[0], plan.seed)
            if plan.wants(case.name):
                found.append((promise, case))
    return found


def _judge_histories(
    target: Target, plan: ConformancePlan, histories: Sequence[ShapedHistory], report: ConformanceReport
) -> None:
    rows = {row.promise: row for row in report.rows}
    chosen = [PROMISES[name] for name in rows]
    for history in histories:
        found = run_history(target, history, slack=plan.slack, seconds=plan.seconds)
        report.histories += 1
        report.requests += len(found.exchanges)
        for promise in chosen:
            if promise.judge is not None and promise.applies(target) and promise.covers(history, target):
                rows[promise.name].note(history.name, promise.judge(found))
        if found.stalled and "ends" in rows:
            last = found.exchanges[-1]
            rows["ends"].note(history.name, f"request {last.number}: {last.declined}")


def _make_trials(
    target: Target, plan: ConformancePlan, trials: Iterable[tuple[Promise, TrialCase]], rows: dict[str, PromiseRow]
) -> None:
    for promise, case in trials:
        if promise.attempt is None:
            continue
        # Several runs in one: each has the time of a few.
        seconds = 3 * plan.seconds
        target.ready()
        try:
            with limited(seconds):
                fault = promise.attempt(target, case)
        except DeclinedError as error:
            fault = f"no request was made: {error.broken or error}"
        except OutOfTimeError:
            fault = f"it did not come back within {seconds:g} s"
        rows[promise.name].note(case.name, fault)
