"""The figures of a probe, and its bill, as tables of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from foldline.catalog.models import lookup
from foldline.text.formatting import DASH, money, plural, share
from foldline_bench.probe.bill import ProbeBill
from foldline_bench.probe.figures import ALL
from foldline_bench.probe.questions import KINDS
from foldline_bench.probe.values import PairedFigures, ProbeFigures, ProbeResult, ProbeRun, run_label
from foldline_bench.probe.views import BLIND, FULL
from foldline_bench.table import Table
from foldline_bench.values import Interval

__all__ = ["PROBE_LEGEND", "answers_table", "bill_table", "probe_heading", "probe_notes"]

PROBE_LEGEND: Final = """\
full    the whole session before the question, or the newest part that the model has room for; blind: nothing
right   share of right answers, and its 95 % interval; chance: of blind guesses among the options
against full
        right from this view less right from the full one, over the questions that both answered, and its 95 %
        interval: one with 0 in it shows no difference; +: right from this view alone, -: from the full one alone
? %     the model says that the session does not show it; other %: no option that can be told, refused, cut off, or
        nothing was sent; failed: errors of the provider, left out of all shares"""

_NO_ANSWER: Final = ("unreadable", "refused", "cut", "unsent")
_COLUMNS: Final = (
    "questions",
    "right",
    "95 %",
    "chance",
    "against\nfull",
    "95 %",
    "+",
    "-",
    "? %",
    "other\n%",
    "failed",
)


def probe_heading(result: ProbeResult, *, asked: bool = True) -> str:
    """Return one line: what was asked, or would be, of which model."""
    judge = result["judge"]
    sessions = len({question["session"] for question in result["questions"]})
    where = f" of {judge['provider']}" if judge["provider"] else ""
    return (
        f"{plural(len(result['questions']), 'question')} ({_kinds(result)}) about {plural(sessions, 'session')}, "
        f"{'answered by' if asked else 'to be answered by'} {judge['model'] or 'a model'}{where} "
        f"(window {judge['window_tokens']:,} tokens); sizes by {result['counter']}"
    )


def _kinds(result: ProbeResult) -> str:
    asked = [question["kind"] for question in result["questions"]]
    return ", ".join(f"{asked.count(kind)} {kind}" for kind in KINDS)


def answers_table(result: ProbeResult) -> Table:
    """One row per kind of question and system."""
    rows = []
    for kind in (*KINDS, ALL):
        for run in result["runs"]:
            figures = run["figures"].get(kind)
            if figures is not None:
                rows.append((f"{kind}: {run_label(run)}", *_cells(figures)))
    return Table(("view", *_COLUMNS), tuple(rows))


def _cells(figures: ProbeFigures) -> tuple[str, ...]:
    outcomes = figures["outcomes"]
    failed = outcomes.get("failed", 0)
    counted = figures["asked"] - failed
    return (
        f"{figures['asked']:,}",
        share(figures["accuracy"]["value"] if figures["accuracy"] else None),
        _between(figures["accuracy"]),
        share(figures["chance"]),
        *_paired_cells(figures["paired"]),
        _percent(outcomes.get("unknown", 0), counted),
        _percent(sum(outcomes.get(name, 0) for name in _NO_ANSWER), counted),
        f"{failed:,}",
    )


def _paired_cells(paired: PairedFigures | None) -> tuple[str, ...]:
    if paired is None:
        return (DASH,) * 4
    found = paired["difference"]
    # In words: a dash between signed figures would be read as a sign.
    between = f"{found['low']:+.2f} to {found['high']:+.2f}"
    return (f"{found['value']:+.2f}", between, f"{paired['gained']:,}", f"{paired['lost']:,}")


def _between(found: Interval | None) -> str:
    return DASH if found is None else f"{found['low']:.2f}–{found['high']:.2f}"


def _percent(count: int, whole: int) -> str:
    return DASH if not whole else f"{100 * count / whole:.0f}"


def probe_notes(result: ProbeResult) -> list[str]:
    """Notes below the figures: kinds with fewer questions than wanted, cut views, errors of the provider."""
    out = []
    asked = [question["kind"] for question in result["questions"]]
    for kind, wanted in result["wanted"].items():
        if (there := asked.count(kind)) < wanted:
            out.append(f"{kind}: {there} of {plural(wanted, 'question')}; these sessions have no more")
    out += [note for run in result["runs"] for note in _run_notes(run)]
    out += _used(result)
    return out


def _used(result: ProbeResult) -> Iterable[str]:
    """What the provider reported, and its price where that is known."""
    model = lookup(result["judge"]["model"])
    answers = [answer for run in result["runs"] for answer in run["answers"] if answer["input_tokens"] is not None]
    used = [(a["input_tokens"] or 0, a["cached_tokens"] or 0, a["output_tokens"] or 0) for a in answers]
    if used:
        read, cached, written = (sum(column) for column in zip(*used, strict=True))
        prices = [model.usd(*tokens) for tokens in used]
        known = [price for price in prices if price is not None]
        # Without what was written to a cache, which an answer does not keep.
        price = f"; about {money(sum(known))}" if len(known) == len(prices) else ""
        yield f"used: {read:,} input tokens, {cached:,} of them from a cache, and {written:,} output tokens{price}"


def _run_notes(run: ProbeRun) -> Iterable[str]:
    answers = run["answers"]
    cut = [answer for answer in answers if not answer["whole"]]
    if cut:
        most = max(answer["shown_tokens"] for answer in cut)
        what = "the newest part of the session" if run["system"] == FULL else "the newest part of the view"
        yield f"{run_label(run)}: only {what}, of at most {most:,} tokens, for {len(cut)} of {len(answers)} answers"
    if answers and run["system"] != BLIND:
        mean = sum(answer["shown_tokens"] for answer in answers) // len(answers)
        yield f"{run_label(run)}: {mean:,} tokens shown on average"
    failures = [answer["failure"] for answer in answers if answer["failure"]]
    if failures:
        yield f"{run_label(run)}: {plural(len(failures), 'failed request')}; the first: {failures[0]}"


def bill_table(bill: ProbeBill) -> tuple[Table, Sequence[str]]:
    """The input of each system, and lines with the sums and the price."""
    rows = [(name, f"{tokens:,}") for name, tokens in bill.by_system.items()]
    sums = (
        f"{plural(bill.requests, 'request')}: {bill.input_tokens:,} input tokens, of which a cache may have "
        f"{bill.repeated_tokens:,}; {bill.output_tokens:,} output tokens with one letter each, at most "
        f"{bill.most_output_tokens:,}"
    )
    price = "the price of the model is not known"
    if bill.low_usd is not None and bill.high_usd is not None:
        price = (
            f"{money(bill.low_usd)} with a cache and one letter each, at most {money(bill.high_usd)} without a cache "
            "and with every reply at its limit"
        )
    return Table(("view", "input tokens"), (*rows, ("all", f"{bill.input_tokens:,}"))), (sums, price)
