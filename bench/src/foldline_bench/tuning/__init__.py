"""Tuning: a user's own sessions replayed under many settings, and the one to take. One function does it: `tune`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from foldline_bench.tuning.block import agents_yaml
from foldline_bench.tuning.engines import Engine, EngineFailed, InProcess, Local
from foldline_bench.tuning.front import Figures, Span
from foldline_bench.tuning.kept import kept_count, kept_runs
from foldline_bench.tuning.search import LeftOut, NothingToTune, Step, Tuned, Tuning
from foldline_bench.tuning.sources import located
from foldline_bench.tuning.values import Conditions, Outcome, Setting, Source

__all__ = [
    "Conditions",
    "Engine",
    "EngineFailed",
    "Figures",
    "InProcess",
    "LeftOut",
    "Local",
    "NothingToTune",
    "Outcome",
    "Setting",
    "Source",
    "Span",
    "Step",
    "Tuned",
    "agents_yaml",
    "kept_count",
    "located",
    "tune",
]


def tune(
    sources: Sequence[Source],
    conditions: Conditions,
    *,
    engine: Engine,
    state: Path,
    settings: Sequence[Setting] = (),
    fresh: bool = False,
    min_far: float | None = None,
    on_step: Callable[[Step], None] = lambda _step: None,
) -> Tuned:
    """Replay sessions under many settings, and find those that none beats in cost and far recall.

    `settings` are what the search begins with; without any it has a net of its own over all policies. `state` is a
    folder for the results of each replay: what is there from before is not run again, unless `fresh`. With an engine
    of several processes call it under `if __name__ == "__main__":`, as multiprocessing wants it.
    Raises NothingToTune (an InvalidInput), OSError, and what the engine raises.
    """
    with kept_runs(state, fresh=fresh) as kept, engine:
        return Tuning(engine, conditions, kept, on_step).search(sources, settings=settings, min_far=min_far)
