"""Figures of one system over many sessions, relative to no management, with intervals; and the Pareto front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from foldline.replay.results import ENOUGH, percentile
from foldline_bench.measure.intervals import interval, mean_of, median_of
from foldline_bench.prices import FRONT_RULE
from foldline_bench.values import (
    Interval,
    MetReferences,
    Price,
    RecallFigures,
    RequestSeconds,
    RereadFigures,
    SessionFigures,
    SummaryCosts,
    SystemFigures,
    SystemPrice,
    SystemRun,
)

__all__ = ["common_sessions", "figures_over", "mark_front", "part_means", "price_of", "recall_of"]


def common_sessions(sessions: Sequence[str], runs: Iterable[SystemRun]) -> list[str]:
    """Return the sessions that all systems finished, in order; systems set apart do not count."""
    # A figure over different sessions compares the sessions, not the systems.
    finished = [run["sessions"].keys() for run in runs if not run["apart"]]
    return [name for name in sessions if all(name in done for done in finished)]


def figures_over(own: Sequence[SessionFigures], base: Sequence[SessionFigures] | None) -> SystemFigures:
    """Return figures of one system over some sessions.

    `base` are the same sessions without management, None if that did not finish. `front` is False here, as it depends
    on the other systems. O(sessions · resamples) for each figure with an interval.
    """
    requests = _sum(own, lambda one: one["requests"])
    tokens = _sum(own, lambda one: one["tokens"])
    hard = _sum(own, lambda one: one["hard"])
    over = _sum(own, lambda one: one["over_budget"])
    errors = _sum(own, lambda one: one["errors"])
    refused = _sum(own, lambda one: one["refused"])
    bounds = [one["bound"] for one in own if one["bound"] is not None]
    schedules = [bound["ratio"] for bound in bounds]
    anew = [bound["anew_ratio"] for bound in bounds]
    needs = [bound["needs_ratio"] for bound in bounds]
    stages = [bound["stages_ratio"] for bound in bounds]
    alone = [bound["alone_ratio"] for bound in bounds]
    return SystemFigures(
        sessions=len(own),
        requests=requests,
        tokens=tokens,
        hit_share=_sum(own, lambda one: one["cached_tokens"]) / tokens if tokens else 0.0,
        hard_share=hard / requests,
        soft_share=_sum(own, lambda one: one["soft"]) / requests,
        invalid_share=_sum(own, lambda one: one["invalid"]) / requests,
        over_share=over / requests,
        worst_ratio=max(one["peak_ratio"] for one in own),
        errors=errors,
        first_error=next((one["first_error"] for one in own if one["first_error"]), None),
        refused=refused,
        sound=not (hard or over or errors or refused),
        front=False,
        rules=_by_rule(one["rules"] for one in own),
        hard_rules=_by_rule(one["hard_rules"] for one in own),
        soft_rules=_by_rule(one["soft_rules"] for one in own),
        cost={rule: {kind: _priced(own, base, rule, kind) for kind in ("warm", "cold")} for rule in own[0]["cost"]},
        recall=_recall(own),
        rereads=_rereads(own, base),
        cpu=_cpu([seconds for one in own for seconds in one["cpu_seconds"]]),
        summaries=_summaries(own),
        bound=interval(schedules, median_of),
        worst_bound=max(schedules, default=None),
        anew_bound=interval(anew, median_of),
        worst_anew_bound=max(anew, default=None),
        needs_bound=interval(needs, median_of),
        worst_needs_bound=max(needs, default=None),
        stages_bound=interval(stages, median_of),
        worst_stages_bound=max(stages, default=None),
        alone_bound=interval(alone, median_of),
        worst_alone_bound=max(alone, default=None),
    )


def _sum(own: Iterable[SessionFigures], of: Callable[[SessionFigures], int]) -> int:
    return sum(map(of, own))


def _by_rule(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return dict(sorted(total.items()))


def price_of(price: Price, kind: str) -> float:
    """Return the price with "warm" or with "cold" caches."""
    return price["warm"] if kind == "warm" else price["cold"]


def _priced(own: Sequence[SessionFigures], base: Sequence[SessionFigures] | None, rule: str, kind: str) -> SystemPrice:
    costs = [price_of(one["cost"][rule], kind) for one in own]
    return _by_none(costs, None if base is None else [price_of(one["cost"][rule], kind) for one in base])


def _by_none(costs: Sequence[float], unmanaged: Sequence[float] | None) -> SystemPrice:
    """Bills of sessions, relative to those without management where these are known."""
    if unmanaged is None:
        return SystemPrice(tokens=sum(costs), pooled_ratio=None, ratio=None)
    # The ratio of the median session: a pooled one would be that of the few largest sessions.
    ratios = [cost / none for cost, none in zip(costs, unmanaged, strict=True) if none]
    pooled = sum(costs) / sum(unmanaged) if sum(unmanaged) else None
    return SystemPrice(tokens=sum(costs), pooled_ratio=pooled, ratio=interval(ratios, median_of))


def _recall(own: Sequence[SessionFigures]) -> RecallFigures:
    recalls = [one["recall"] for one in own]
    distances = range(len(recalls[0]["beyond"]))
    return RecallFigures(
        all=_met_references([recall["all"] for recall in recalls]),
        beyond=[_met_references([recall["beyond"][at] for recall in recalls]) for at in distances],
        line=_met_references([recall["line"] for recall in recalls]),
        far_tool=_met_references([recall["far_tool"] for recall in recalls]),
        near=_met_references([recall["near"] for recall in recalls]),
        near_line=_met_references([recall["near_line"] for recall in recalls]),
        near_feasible=_met_references([recall["near_feasible"] for recall in recalls]),
    )


def _rereads(own: Sequence[SessionFigures], base: Sequence[SessionFigures] | None) -> RereadFigures:
    requests = _sum(own, lambda one: one["requests"])

    unmanaged = None if base is None else [one["cost"][FRONT_RULE]["warm"] for one in base]

    def bill(end: int) -> SystemPrice:
        costs = [one["cost"][FRONT_RULE]["warm"] + one["rereads"]["cost"][FRONT_RULE][end] for one in own]
        return _by_none(costs, unmanaged)

    return RereadFigures(
        low_share=_sum(own, lambda one: one["rereads"]["messages"][0]) / requests,
        high_share=_sum(own, lambda one: one["rereads"]["messages"][1]) / requests,
        low=bill(0),
        high=bill(1),
    )


def _met_references(pairs: Sequence[Sequence[int]]) -> MetReferences:
    kept, total = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    # A session with one or two references would count as 0, 0.5 or 1, and weigh as much as one with a hundred.
    shares = [pair[0] / pair[1] for pair in pairs if pair[1] >= ENOUGH]
    return MetReferences(
        kept=kept, total=total, pooled=kept / total if total else None, per_session=interval(shares, mean_of)
    )


def _cpu(seconds: Sequence[float]) -> RequestSeconds:
    return RequestSeconds(
        mean_seconds=mean_of(seconds) if seconds else 0.0,
        p50_seconds=percentile(seconds, 0.5),
        p95_seconds=percentile(seconds, 0.95),
    )


def _summaries(own: Sequence[SessionFigures]) -> SummaryCosts:
    made = [one["summaries"] for one in own]
    return SummaryCosts(
        calls=sum(one["calls"] for one in made),
        prompt_tokens=sum(one["prompt_tokens"] for one in made),
        cached_tokens=sum(one["cached_tokens"] for one in made),
        output_tokens=sum(one["output_tokens"] for one in made),
        cost={
            rule: Price(
                warm=sum(one["cost"][rule]["warm"] for one in made), cold=sum(one["cost"][rule]["cold"] for one in made)
            )
            for rule in made[0]["cost"]
        },
    )


def part_means(parts: Sequence[SystemFigures]) -> dict[str, Interval | None]:
    """Return the means over parts, each with one vote, and intervals over the parts. O(resamples · parts).

    `cost` and the bills with re-reads, `bill_low` and `bill_high`, are those of the median session of a part;
    `reads_low` and `reads_high` are by requests, `by_stages` and `by_alone` the ratios of the median session to these
    bounds. A part without a figure is left out of its mean.
    """

    # Parts are resampled, not their sessions: the question is what another source would show, and sources differ more
    # than the sessions of one do.
    def mean(of: Callable[[SystemFigures], float | None]) -> Interval | None:
        return interval([found for one in parts if (found := of(one)) is not None], mean_of)

    def ratio(price: SystemPrice) -> float | None:
        return None if price["ratio"] is None else price["ratio"]["value"]

    return {
        "cost": mean(lambda one: ratio(one["cost"][FRONT_RULE]["warm"])),
        "bill_low": mean(lambda one: ratio(one["rereads"]["low"])),
        "bill_high": mean(lambda one: ratio(one["rereads"]["high"])),
        "near_line": mean(lambda one: recall_of(one["recall"]["near_feasible"])),
        "far": mean(lambda one: recall_of(one["recall"]["beyond"][1])),
        "far_line": mean(lambda one: recall_of(one["recall"]["line"])),
        "reads_low": mean(lambda one: one["rereads"]["low_share"]),
        "reads_high": mean(lambda one: one["rereads"]["high_share"]),
        "by_stages": mean(lambda one: one["stages_bound"] and one["stages_bound"]["value"]),
        "by_alone": mean(lambda one: one["alone_bound"] and one["alone_bound"]["value"]),
    }


def recall_of(kept: MetReferences) -> float | None:
    """Return a recall as one number: the mean per session, or the pooled one if no session has enough references."""
    each: Interval | None = kept["per_session"]
    return kept["pooled"] if each is None else each["value"]


def mark_front(figures: Sequence[SystemFigures]) -> None:
    """Set `front` of the systems that no other sound one beats in both cost and far recall. O(n²)."""
    # An unsound system is not on the front and excludes no other: a request that is refused costs nothing.
    points: list[tuple[float, float, SystemFigures]] = []
    for one in figures:
        ratio, far = one["cost"][FRONT_RULE]["warm"]["ratio"], recall_of(one["recall"]["beyond"][1])
        if one["sound"] and ratio is not None and far is not None:
            points.append((ratio["value"], far, one))
    for cost, far, one in points:
        one["front"] = not any(
            # Of two that are equal in both, both stay.
            other_cost <= cost and other_far >= far and (other_cost, other_far) != (cost, far)
            for other_cost, other_far, _ in points
        )
