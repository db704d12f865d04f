"""A compaction that was asked for: everything but system text and what must stay becomes a summary, or a digest."""

from __future__ import annotations

from dataclasses import replace

from foldline.engine.engine import Engine, Steps
from foldline.engine.folding import Folding, moves, telling
from foldline.errors import SummaryError
from foldline.reducers.base import Ask
from foldline.reducers.digest import FallbackDigest
from foldline.reducers.summarize import Summarize
from foldline.view.budget import Need, Pressure
from foldline.view.transcript import Fold, Unfold

__all__ = ["compact"]


def compact(engine: Engine, instructions: str | None, folding: Folding) -> Steps[tuple[Fold, ...]]:
    """Fold all that may be folded, with what follows by the policy; the folds that came of it.

    Without a model a digest stands for each span. Raises SummaryError: then the view is as it was.
    """
    summarize = engine.policy.compactor.focused(instructions)
    # A checkpoint either way: the figures of the session begin anew there (S4.04).
    reducer = summarize if folding.asks else FallbackDigest(summarize, name=summarize.name)
    folding.requested = True
    with engine.during(folding), telling(engine, "compaction was asked for"):
        yield from _compacted(engine, reducer, engine.need(Pressure.SOFT, 0), folding)
    return tuple(fold for fold in folding.folds if fold.id in engine.folds)


def _compacted(engine: Engine, reducer: Summarize | FallbackDigest, need: Need, folding: Folding) -> Steps[None]:
    try:
        view = engine.view
        found = yield from moves(engine, reducer, replace(need, target_tokens=need.limit_tokens))
        if engine.view is not view:
            raise SummaryError("the session has changed under the summary")
        if not found:
            raise SummaryError("there is nothing to fold")
        folds: list[Fold] = []
        for move in found:
            fold = (yield from engine.answered(move)) if isinstance(move, Ask) else move
            folds.append(fold)
        if any(engine.commit(fold) is None for fold in folds):
            raise SummaryError("the session has changed under the summary")
        yield from engine.run(engine.policy.after_compact, Pressure.SOFT, 0, False)
    except BaseException as error:
        if isinstance(error, SummaryError):
            engine.fail(reducer.name, error.reason, 0, engine.next_seq)
        made = {fold.id for fold in folding.folds if fold.id in engine.folds}  # none, unless the session changed
        if not engine.released:
            engine.take_back(sorted(made))
            engine.news = [event for event in engine.news if _number(event) not in made]
        raise


def _number(event: Fold | Unfold) -> int:
    return event.id if isinstance(event, Fold) else event.fold
