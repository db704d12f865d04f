"""Compares settings by bill with re-reads and far recall: which of them no other beats, and which one to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Final, TypeVar

from foldline.replay.results import ENOUGH
from foldline_bench.measure.intervals import enough, interval
from foldline_bench.tuning.values import Setting, TrialOutcome

__all__ = [
    "ResampledFigure",
    "SettingFigures",
    "chosen",
    "figures_of",
    "front",
    "is_conclusive",
    "layers",
    "point_of",
    "worth_a_row",
]

# The two ends of what has to be read again.
_LOW, _HIGH = 0, 1

# A smaller gain in recall is not worth a row: figures have two decimals.
_SAME: Final = 0.005

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResampledFigure:
    """A figure over the sessions, and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float
    sessions: int

    @property
    def is_conclusive(self) -> bool:
        """Whether it is of enough sessions to show the interval."""
        return enough(self.sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFigures:
    """Figures of one setting over some sessions.

    `cost_tokens` is the price of all input, in tokens at the full input price; `cost` the input's price by that of no
    management, `median_cost` the median of the sessions' own ratios. `with_rereads` is `cost` with all that the agent
    has to read again, the high figure, and `with_rereads_low` the low one; `rereads_low` and `rereads_high` are those
    messages by requests. `far`, `line`, `far_tool` and `near_line`, by what is feasible, are means over the sessions
    with three or more such references, None when there is none. Money is in dollars; None when a model has no
    price in the catalogue.
    """

    setting: Setting
    sessions: int
    invalid: int
    over_budget: int
    refused: int
    tokens: int
    folds: int
    cost_tokens: float
    cost: ResampledFigure
    median_cost: float
    with_rereads: ResampledFigure
    with_rereads_low: float
    rereads_low: float
    rereads_high: float
    near_line: float | None
    far: ResampledFigure | None
    line: float | None
    far_tool: float | None
    input_usd: ResampledFigure | None
    reply_usd: float | None

    @property
    def fits(self) -> bool:
        """Whether every request was made, was valid, and fitted the window."""
        return not (self.invalid or self.over_budget or self.refused)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {**self.setting.as_json(), **self.figures_as_json()}

    def figures_as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values, without the setting."""

        def plain(span: ResampledFigure | None) -> dict[str, Any] | None:
            return None if span is None else asdict(span)

        same = (
            "sessions",
            "invalid",
            "over_budget",
            "refused",
            "tokens",
            "folds",
            "cost_tokens",
            "median_cost",
            "with_rereads_low",
            "rereads_low",
            "rereads_high",
            "near_line",
            "line",
            "far_tool",
        )
        return {
            **{name: getattr(self, name) for name in same},
            "cost": plain(self.cost),
            "with_rereads": plain(self.with_rereads),
            "far": plain(self.far),
            "input_usd": plain(self.input_usd),
            "reply_usd": self.reply_usd,
        }


def figures_of(setting: Setting, outcomes: Sequence[TrialOutcome], none: Mapping[str, TrialOutcome]) -> SettingFigures:
    """Return the figures of one setting, relative to those without management. O(resamples · sessions)."""
    base = [none[outcome.session] for outcome in outcomes]
    pairs = _pairs(outcomes, base)
    money = [outcome.input_usd for outcome in outcomes if outcome.input_usd is not None]
    # A bill over some of the sessions would look like a lower one.
    priced = len(money) == len(outcomes)
    replies = [outcome.reply_usd for outcome in outcomes]
    far = _shares(outcome.far for outcome in outcomes)
    requests = max(1, sum(outcome.requests for outcome in outcomes))
    return SettingFigures(
        setting=setting,
        sessions=len(outcomes),
        invalid=sum(outcome.invalid for outcome in outcomes),
        over_budget=sum(outcome.over_budget for outcome in outcomes),
        refused=sum(outcome.refused for outcome in outcomes),
        tokens=sum(outcome.tokens for outcome in outcomes),
        folds=sum(outcome.folds for outcome in outcomes),
        cost_tokens=sum(outcome.paid_tokens for outcome in outcomes),
        # Sums over sessions, not a mean of ratios: it is the user's own bill, in which large sessions weigh more.
        cost=_span(pairs, _ratio),
        median_cost=median(one / other for one, other in pairs),
        with_rereads=_span(_pairs(outcomes, base, _HIGH), _ratio),
        with_rereads_low=_ratio(_pairs(outcomes, base, _LOW)),
        rereads_low=sum(outcome.rereads[_LOW] for outcome in outcomes) / requests,
        rereads_high=sum(outcome.rereads[_HIGH] for outcome in outcomes) / requests,
        near_line=_mean(_shares(outcome.near_line for outcome in outcomes)),
        far=_span(far, fmean) if far else None,
        line=_mean(_shares(outcome.line for outcome in outcomes)),
        far_tool=_mean(_shares(outcome.far_tool for outcome in outcomes)),
        input_usd=_span(money, sum) if priced else None,
        reply_usd=sum(reply for reply in replies if reply is not None) if priced else None,
    )


def point_of(outcomes: Sequence[TrialOutcome], none: Mapping[str, TrialOutcome]) -> tuple[float, float]:
    """Return the bill with re-reads and the missing far recall: smaller is better for both. O(sessions)."""
    # A bill without them rewards hiding what the agent has just asked for. The high figure, as a line that was there is
    # what the agent decided by.
    base = [none[outcome.session] for outcome in outcomes]
    far = _shares(outcome.far for outcome in outcomes)
    return _ratio(_pairs(outcomes, base, _HIGH)), 1.0 - fmean(far) if far else 0.0


def is_conclusive(outcome: TrialOutcome) -> bool:
    """Whether a session has enough far references for a recall of its own."""
    return outcome.far[1] >= ENOUGH


def _pairs(
    outcomes: Sequence[TrialOutcome], base: Sequence[TrialOutcome], again: int | None = None
) -> list[tuple[float, float]]:
    """Return the input's price under a setting and without management, by session; with what is read `again`."""
    # In money, so that sessions of different models add up; in tokens as soon as one has no price.
    priced = all(one.input_usd is not None and other.input_usd for one, other in zip(outcomes, base, strict=True))
    pairs = []
    for one, other in zip(outcomes, base, strict=True):
        reread = 0.0 if again is None else one.reread_tokens[again]
        if priced and one.input_usd is not None and other.input_usd is not None:
            pairs.append((one.input_usd + reread * other.input_usd / other.paid_tokens, other.input_usd))
        else:
            pairs.append((one.paid_tokens + reread, other.paid_tokens))
    return pairs


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)


def _shares(tallies: Iterable[tuple[int, int]]) -> list[float]:
    return [kept / total for kept, total in tallies if total >= ENOUGH]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _span(values: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> ResampledFigure:
    found = interval(values, statistic)
    assert found is not None, "there are sessions"
    return ResampledFigure(**found)


def front(points: Sequence[tuple[float, float]], same: float = _SAME) -> list[int]:
    """Return the positions of the points that no other beats, by first figure; smaller is better for both. O(n log n).

    Of points whose second figures differ by no more than `same`, only the first is returned.
    """
    # Sorted by the first figure, a point is on the front if its second figure is less than all before it.
    order = sorted(range(len(points)), key=lambda place: (*points[place], place))
    out: list[int] = []
    least = float("inf")
    for place in order:
        if points[place][1] < least - same:
            out.append(place)
            least = points[place][1]
    return out


def layers(points: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Return all positions, layer by layer: the front, then the front of the rest, and so on. O(n² log n) at worst."""
    # Non-dominated sorting, as in NSGA-II (Deb et al., 2002): it ranks by two figures without weighing one by the
    # other.
    left = list(range(len(points)))
    out = []
    while left:
        first = [left[place] for place in front([points[place] for place in left])]
        out.append(first)
        left = [place for place in left if place not in first]
    return out


def worth_a_row(found: Sequence[SettingFigures]) -> list[SettingFigures]:
    """Return the points of a front with visibly more recall than cheaper ones, cheapest first."""
    points = [(figures.with_rereads.value, 1.0 - figures.far.value if figures.far else 0.0) for figures in found]
    return [found[place] for place in front(points)]


def chosen(found: Sequence[SettingFigures], min_far: float | None) -> tuple[SettingFigures, str]:
    """Choose a setting of the front, cheapest first, and say why.

    It is the cheapest with enough recall, by however little; else the knee of those that are worth a row.
    """
    if min_far is not None:
        if found[0].far is None:
            return found[0], "far recall cannot be measured in these sessions, so that only the cost decides"
        for figures in found:
            if figures.far is not None and figures.far.value >= min_far:
                return figures, f"the cheapest with a far recall of {min_far:g} or more"
    lacking = "" if min_far is None else f"none has a far recall of {min_far:g}; "
    rows = worth_a_row(found)
    if len(rows) < 3:
        return rows[-1], f"{lacking}the one with the best far recall" if len(rows) > 1 else f"{lacking}the only one"
    points = [(figures.with_rereads.value, -figures.far.value if figures.far else 0.0) for figures in rows]
    (left, top), (right, bottom) = points[0], points[-1]
    # The knee is the point farthest from the line between the ends, both figures scaled to the distance of the ends.
    # The sum is that distance up to a constant factor; without the scaling the result would depend on units.
    gains = [(right - x) / (right - left) + (top - y) / (top - bottom) for x, y in points]
    best = max(range(len(rows)), key=lambda place: gains[place])
    return rows[best], f"{lacking}the knee: more recall costs more from here on, and less saves less"
