"""A row of figures for each policy, over all sessions that were replayed.

To add a column to `foldline replay`: a field of `PolicyRow`, computed in `_row`; then the cell in `cli/replay.py` and,
for the page, in `report/replay_page.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from foldline.replay.results import ENOUGH, NONE, HitCount, RecallCounts, Replay, percentile

__all__ = ["PolicyRow", "rows"]

_POOLED: Final = ("all", "near", "near_line", "near_feasible", "far", "line", "far_tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The figures of one policy over all sessions.

    Pooled figures are sums over all requests, so one very long session can decide them. Figures per session give each
    session one vote. Where they differ, read both.

    `cost_ratio` is the median over the sessions of its cost divided by the cost of no management, `pooled_cost_ratio`
    the ratio of the sums; None unless no management was replayed too. `with_rereads_low` and `with_rereads_high` are
    that median of the bill with all that has to be read again; `rereads_low` and `rereads_high` are the messages of
    that, by the requests. `near_line` is by what is feasible. It, `far`, `line` and `far_tool` are means over the
    sessions with three or more such references, None when there is none; `recall` is pooled.
    """

    policy: str
    sessions: int
    requests: int
    invalid: int
    over_budget: int
    refused: int
    tokens: int
    cached_tokens: int
    cost_tokens: float
    cost_ratio: float | None
    pooled_cost_ratio: float | None
    with_rereads_low: float | None
    with_rereads_high: float | None
    rereads_low: float
    rereads_high: float
    recall: RecallCounts
    near_line: float | None
    far: float | None
    line: float | None
    far_tool: float | None
    sessions_with_far: int
    sessions_with_far_tool: int
    prefix_breaks: int
    folds: int
    peak_share: float
    cpu_p50_seconds: float
    cpu_p95_seconds: float

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON values; shares of recall are numbers or null."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "recall"}
        pooled = {name: getattr(self.recall, name) for name in _POOLED}
        shares = {
            name: {"kept": tally.kept, "total": tally.total, "share": tally.share} for name, tally in pooled.items()
        }
        return {**plain, "recall": shares}


def rows(replays: Iterable[Replay]) -> list[PolicyRow]:
    """One row per policy: no management first, then in the order of replay. O(turns)."""
    # A dict keeps the order of insertion, and `sorted` is stable: policies stay in the order of replay.
    by_policy: dict[str, list[Replay]] = {}
    for replay in replays:
        by_policy.setdefault(replay.policy, []).append(replay)
    # By name: a session appears once per policy.
    base = {replay.session: replay.cost_tokens for replay in by_policy.get(NONE, ())}
    names = sorted(by_policy, key=lambda name: name != NONE)
    return [_row(name, by_policy[name], base) for name in names]


def _row(policy: str, replays: Sequence[Replay], base: dict[str, float]) -> PolicyRow:
    turns = [turn for replay in replays for turn in replay.turns]
    # Only sessions that were also replayed without management can be compared.
    compared = [(replay.cost_tokens, base[replay.session]) for replay in replays if base.get(replay.session)]
    with_rereads = [
        [part / base[replay.session] for part in replay.with_rereads_tokens]
        for replay in replays
        if base.get(replay.session)
    ]
    low, high = (median(ends) for ends in zip(*with_rereads, strict=True)) if compared else (None, None)
    again = [replay.rereads for replay in replays]
    recalls = [replay.recall for replay in replays]
    return PolicyRow(
        policy=policy,
        sessions=len(replays),
        requests=len(turns),
        invalid=sum(replay.invalid for replay in replays),
        over_budget=sum(replay.over_budget for replay in replays),
        refused=sum(replay.refused for replay in replays),
        tokens=sum(replay.tokens for replay in replays),
        cached_tokens=sum(replay.cached_tokens for replay in replays),
        cost_tokens=sum(replay.cost_tokens for replay in replays),
        cost_ratio=median(cost / none for cost, none in compared) if compared else None,
        pooled_cost_ratio=sum(c for c, _ in compared) / sum(n for _, n in compared) if compared else None,
        with_rereads_low=low,
        with_rereads_high=high,
        rereads_low=sum(low for low, _ in again) / max(1, len(turns)),
        rereads_high=sum(high for _, high in again) / max(1, len(turns)),
        recall=sum(recalls, RecallCounts()),
        near_line=_per_session(recall.near_feasible for recall in recalls),
        far=_per_session(recall.far for recall in recalls),
        line=_per_session(recall.line for recall in recalls),
        far_tool=_per_session(recall.far_tool for recall in recalls),
        sessions_with_far=sum(recall.far.total >= ENOUGH for recall in recalls),
        sessions_with_far_tool=sum(recall.far_tool.total >= ENOUGH for recall in recalls),
        prefix_breaks=sum(replay.prefix_breaks for replay in replays),
        folds=sum(replay.folds for replay in replays),
        peak_share=max((replay.peak_tokens / replay.limit_tokens for replay in replays), default=0.0),
        cpu_p50_seconds=percentile((turn.cpu_seconds for turn in turns), 0.5),
        cpu_p95_seconds=percentile((turn.cpu_seconds for turn in turns), 0.95),
    )


def _per_session(tallies: Iterable[HitCount]) -> float | None:
    # Sessions with too few references have no vote here; their references still count in the pooled `recall`.
    shares = [tally.kept / tally.total for tally in tallies if tally.total >= ENOUGH]
    return mean(shares) if shares else None
