"""Accuracies and their intervals, each system for itself and paired with the full view.

Two things could have come out differently: which questions were drawn, and which sessions. An interval for the first
takes each question for itself (Wilson's, and Agresti and Min's for pairs); one for the second resamples whole sessions,
as questions about one session depend on each other. What is reported is the wider one on each side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final

from foldline_bench.measure.intervals import enough, interval
from foldline_bench.probe.questions import KINDS
from foldline_bench.probe.values import OUTCOMES, AskedQuestion, GivenAnswer, PairedFigures, ProbeFigures, ProbeRun
from foldline_bench.probe.views import FULL
from foldline_bench.values import Interval

__all__ = ["ALL", "accuracy_interval", "compare_runs", "difference_interval"]

ALL: Final = "all"
"""The key of the figures over all kinds."""

_Z: Final = 1.959964  # of the middle 95 %

Answered = Mapping[str, Sequence[bool]]
"""Right or not, by session."""

Paired = Mapping[str, Sequence[int]]
"""By session: 1 right from this view alone, -1 right from the full one alone, 0 alike."""


def compare_runs(runs: Sequence[ProbeRun], questions: Sequence[AskedQuestion]) -> None:
    """Fill in the figures of all runs. O(answers · resamples)."""
    by_id = {question["id"]: question for question in questions}
    full = {answer["question"]: answer for run in runs if run["system"] == FULL for answer in _counted(run["answers"])}
    for run in runs:
        for kind in (*KINDS, ALL):
            answers = [each for each in run["answers"] if kind in (ALL, by_id[each["question"]]["kind"])]
            if answers:
                run["figures"][kind] = _figures(answers, by_id, {} if run["system"] == FULL else full)


def _counted(answers: Iterable[GivenAnswer]) -> list[GivenAnswer]:
    """The answers that say something about a view: an error of a provider does not."""
    return [answer for answer in answers if answer["outcome"] != "failed"]


def _figures(
    answers: Sequence[GivenAnswer], questions: Mapping[str, AskedQuestion], full: Mapping[str, GivenAnswer]
) -> ProbeFigures:
    outcomes = Counter(answer["outcome"] for answer in answers)
    right: dict[str, list[bool]] = defaultdict(list)
    paired: dict[str, list[int]] = defaultdict(list)
    for answer in _counted(answers):
        session = questions[answer["question"]]["session"]
        right[session].append(answer["outcome"] == "right")
        if (other := full.get(answer["question"])) is not None:
            paired[session].append((answer["outcome"] == "right") - (other["outcome"] == "right"))
    chances = [1 / len(questions[answer["question"]]["options"]) for answer in answers]
    return ProbeFigures(
        asked=len(answers),
        outcomes={name: outcomes[name] for name in OUTCOMES if outcomes[name]},
        chance=sum(chances) / len(chances),
        accuracy=accuracy_interval(right),
        paired=_pairs(paired),
    )


def _pairs(paired: Paired) -> PairedFigures | None:
    found = difference_interval(paired)
    if found is None:
        return None
    every = [value for values in paired.values() for value in values]
    return PairedFigures(pairs=len(every), gained=every.count(1), lost=every.count(-1), difference=found)


def accuracy_interval(right: Answered) -> Interval | None:
    """Return the share of right answers and its interval; None without answers. O(resamples · answers)."""
    every = [value for values in right.values() for value in values]
    if not every:
        return None
    # Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927: it holds for few answers,
    # and for shares near 0 and 1, where the usual one is a point.
    count, value = len(every), sum(every) / len(every)
    middle = (value + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z * sqrt(value * (1 - value) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return _wider(value, max(0.0, middle - half), min(1.0, middle + half), right)


def difference_interval(paired: Paired) -> Interval | None:
    """Return the difference of two accuracies over pairs and its interval; None without pairs. O(resamples · pairs)."""
    every = [value for values in paired.values() for value in values]
    if not every:
        return None
    # Agresti and Min, "Simple improved confidence intervals for comparing matched proportions", 2005: half a pair is
    # added to each of the four cells, so that pairs that all agree are not taken for certainty.
    count = len(every) + 2
    gained, lost = every.count(1) + 0.5, every.count(-1) + 0.5
    middle = (gained - lost) / count
    half = _Z * sqrt(gained + lost - (gained - lost) ** 2 / count) / count
    return _wider(sum(every) / len(every), max(-1.0, middle - half), min(1.0, middle + half), paired)


def _wider(value: float, low: float, high: float, by_session: Mapping[str, Sequence[int]]) -> Interval:
    sessions = [values for values in by_session.values() if values]
    drawn = interval(sessions, _mean_of_all) if enough(len(sessions)) else None
    if drawn is not None:
        low, high = min(low, drawn["low"]), max(high, drawn["high"])
    return Interval(value=value, low=min(low, value), high=max(high, value), sessions=len(sessions))


def _mean_of_all(sessions: Sequence[Sequence[int]]) -> float:
    return sum(map(sum, sessions)) / sum(map(len, sessions))
