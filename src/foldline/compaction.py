"""A compaction that was asked for: everything but system text and what must stay becomes a summary, or a digest."""

from __future__ import annotations

from dataclasses import replace

from foldline.budget import Need, Pressure
from foldline.engine import Engine, Steps
from foldline.errors import SummaryError
from foldline.events import folding
from foldline.reducers.base import Ask
from foldline.reducers.summarize import Summarize
from foldline.reducers.without_model import WithoutModel
from foldline.transcript import Fold, Unfold

__all__ = ["compact"]


def compact(engine: Engine, instructions: str | None, *, asking: bool) -> Steps[tuple[Fold, ...]]:
    """Fold all that may be folded, with what follows by the policy; the folds that came of it.

    `asking` says whether there is a model; without one a digest stands for each span. Raises SummaryError: then the
    view is as it was.
    """
    summarize = engine.policy.compactor.focused(instructions)
    need = engine.need(Pressure.SOFT, 0)
    # A checkpoint either way: the figures of the session begin anew there (S4.04).
    reducer = summarize if asking else WithoutModel(summarize, name=summarize.name)
    engine.view.asked = True
    with engine.batching() as batch, folding(engine, "compaction was asked for"):
        yield from _compacted(engine, reducer, need, batch)
    return tuple(engine.folds[number] for number in batch if number in engine.folds)


def _compacted(engine: Engine, reducer: Summarize | WithoutModel, need: Need, batch: list[int]) -> Steps[None]:
    try:
        moves: list[Fold | Ask] = list(reducer.propose(engine.view, replace(need, target_tokens=need.limit_tokens)))
        if not moves:
            raise SummaryError("there is nothing to fold")
        folds: list[Fold] = []
        for move in moves:
            fold = (yield from engine.answered(move)) if isinstance(move, Ask) else move
            folds.append(fold)
        if any(engine.commit(fold) is None for fold in folds):
            raise SummaryError("the session has changed under the summary")
        yield from engine.run(engine.policy.after_compact, Pressure.SOFT, 0, False)
    except BaseException as error:
        if isinstance(error, SummaryError):
            engine.fail(reducer.name, error.reason, 0, engine.next_seq)
        made = [number for number in batch if number in engine.folds]  # none, unless the session changed
        if not engine.released:
            engine.take_back(made)
            engine.news = [event for event in engine.news if _number(event) not in batch]
        raise
    finally:
        engine.view.asked = False


def _number(event: Fold | Unfold) -> int:
    return event.id if isinstance(event, Fold) else event.fold
