"""Tuning: a user's own sessions replayed under many settings, and the one to take. One function does it: `tune`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from foldline_bench.tuning.backends import Backend, BackendFailed, InProcess, LocalProcesses
from foldline_bench.tuning.carry_over import CarryOver, HeldOutPart
from foldline_bench.tuning.front import ResampledFigure, SettingFigures
from foldline_bench.tuning.report import agents_yaml
from foldline_bench.tuning.search import ExcludedSession, NothingToTune, TuneProgress, TuneResult, Tuning
from foldline_bench.tuning.sources import located
from foldline_bench.tuning.trial_store import open_trial_store, trial_count
from foldline_bench.tuning.values import Conditions, SessionSource, Setting, TrialOutcome

__all__ = [
    "Backend",
    "BackendFailed",
    "CarryOver",
    "Conditions",
    "ExcludedSession",
    "HeldOutPart",
    "InProcess",
    "LocalProcesses",
    "NothingToTune",
    "ResampledFigure",
    "SessionSource",
    "Setting",
    "SettingFigures",
    "TrialOutcome",
    "TuneProgress",
    "TuneResult",
    "agents_yaml",
    "located",
    "trial_count",
    "tune",
]


def tune(
    sources: Sequence[SessionSource],
    conditions: Conditions,
    *,
    engine: Backend,
    state: Path,
    settings: Sequence[Setting] = (),
    fresh: bool = False,
    min_far: float | None = None,
    check: bool = True,
    on_step: Callable[[TuneProgress], None] = lambda _step: None,
) -> TuneResult:
    """Replay sessions under many settings, and find those that none beats in bill with re-reads and far recall.

    `settings` are what the search begins with; without any it has a net of its own over all policies. `state` is a
    folder for the results of each replay: what is there from before is not run again, unless `fresh`. With an engine
    of several processes call it under `if __name__ == "__main__":`, as multiprocessing wants it.
    With `check` it also settles on four fifths of the sessions and measures on the fifth, all five in turn.
    Raises NothingToTune (an InvalidInput), OSError, and what the engine raises.
    """
    with open_trial_store(state, fresh=fresh) as kept, engine:
        return Tuning(engine, conditions, kept, on_step).search(
            sources, settings=settings, min_far=min_far, check=check
        )
