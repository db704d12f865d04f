"""The bounds of one session as the result of a bench has them."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["BoundFigures"]


class BoundFigures(TypedDict):
    """The best in hindsight for the run with warm caches, in tokens at the full input price, and the bill by it.

    `schedule_tokens`: the cheapest with folds like the policy's own, of which there are `folds`; `anew_tokens`: where
    each fold writes the whole digest anew. `ratio` and `anew_ratio` are the policy's bill by these.
    `far_tokens`, `facts_tokens`, `messages_tokens`: the cheapest with knowledge of what every reply will refer to, as
    `foldline_bench.bounds.clairvoyant` says; `needs_ratio` is the policy's bill by `far_tokens`, at the same far
    recall. A policy that shortens messages may pay less than `messages_tokens`, and none less than the others.
    `total_tokens` is the bill with re-reads (high), and `moments_tokens`, `stages_tokens`, `alone_tokens` and
    `uses_tokens` are least ones of it, as `foldline_bench.bounds.stages` says; `stages_ratio` and `alone_ratio` are
    the total by these two.
    """

    schedule_tokens: float
    anew_tokens: float
    folds: int
    ratio: float
    anew_ratio: float
    far_tokens: float
    facts_tokens: float
    messages_tokens: float
    needs_ratio: float
    total_tokens: float
    moments_tokens: float
    stages_tokens: float
    alone_tokens: float
    uses_tokens: float
    stages_ratio: float
    alone_ratio: float
