"""The result of a probe as it is written: one JSON object, and the meaning of each part."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from foldline_bench.values import Interval, Provenance, UnreadFile

__all__ = [
    "OUTCOMES",
    "PROBE_SCHEMA",
    "AskedQuestion",
    "GivenAnswer",
    "JudgeRow",
    "Outcome",
    "PairedFigures",
    "ProbeFigures",
    "ProbeResult",
    "ProbeRun",
    "run_label",
]

PROBE_SCHEMA: Final = 1
"""Goes up when a field changes its meaning or goes away."""

Outcome = Literal["right", "wrong", "unknown", "unreadable", "refused", "cut", "failed", "unsent"]

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "right",
    "wrong",
    "unknown",
    "unreadable",
    "refused",
    "cut",
    "failed",
    "unsent",
)
"""How an answer ended: the right option; another one; "?", the session does not show it; no option that can be told;
the model refuses; cut off at the output limit; an error of the provider; nothing was sent, as what the system must keep
does not fit. Of these `failed` alone says nothing about the view, and is left out of all shares."""


class AskedQuestion(TypedDict):
    """One question. `right` is a letter; the other fields are those of `questions.Question`."""

    id: str
    session: str
    kind: str
    about: str
    point: int
    back_tokens: int
    text: str
    options: list[str]
    right: str
    evidence: str


class GivenAnswer(TypedDict):
    """The answer to one question from one view.

    `shown_tokens` is the size of the view; `whole` is false where its older part was left out for lack of room.
    `letter` is "" for none, `reply` the first characters of the model's words, `failure` the error of a provider.
    Tokens are the provider's own figures, None without a report.
    """

    question: str
    outcome: Outcome
    letter: str
    reply: str
    failure: str
    shown_tokens: int
    whole: bool
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


class PairedFigures(TypedDict):
    """A system compared with the full view, over the questions that both answered.

    `gained` were right from this view alone, `lost` from the full one alone; `difference` is their difference by all.
    """

    pairs: int
    gained: int
    lost: int
    difference: Interval


class ProbeFigures(TypedDict):
    """The figures of one system for a kind of question, or for all kinds.

    `accuracy` is None without an answer; its `sessions` are those that the questions are from. `chance` is the accuracy
    of blind guesses.
    """

    asked: int
    outcomes: dict[str, int]
    chance: float
    accuracy: Interval | None
    paired: PairedFigures | None


class ProbeRun(TypedDict):
    """One system: "full", "blind", or one of ours at a budget. `figures` are by kind; "all" is over all kinds."""

    system: str
    budget_tokens: int | None
    answers: list[GivenAnswer]
    figures: dict[str, ProbeFigures]


class JudgeRow(TypedDict):
    """The model that was asked. `room_tokens` is what a view may take of its window."""

    provider: str
    model: str
    dialect: str
    window_tokens: int
    room_tokens: int
    max_output_tokens: int


class ProbeResult(TypedDict):
    """The whole result. `stopped` is the error that ended a partial run, "" after Ctrl-C or a complete one."""

    schema: int
    partial: bool
    stopped: str
    made: Provenance
    counter: str
    judge: JudgeRow
    seed: int
    least_tokens: int
    far_tokens: int
    wanted: dict[str, int]
    questions: list[AskedQuestion]
    runs: list[ProbeRun]
    left_out: list[UnreadFile]


def run_label(run: ProbeRun) -> str:
    """Return the name of a run in tables: its system, and the budget where it has one."""
    budget = run["budget_tokens"]
    return run["system"] if budget is None else f"{run['system']} {budget:,}"
