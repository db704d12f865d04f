"""What comes is read before the fold that needs it, in batches, and changes nothing that is sent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.reducers.reading import ReadAhead
from foldline.testing import session

LINE = "src/pkg_{turn}/part_{n}.py: def load_rows_{n}_{turn}(path) reads rows of a file and returns them\n"


def wires(rounds: int) -> list[Any]:
    """A session of so many calls, each with a result of its own of about 300 tokens."""
    return [
        {**wire, "content": "".join(LINE.format(n=n, turn=turn) for n in range(12))} if wire["role"] == "tool" else wire
        for turn, wire in enumerate(session(rounds, result="x"))
    ]


def names_known(context: Context) -> int:
    kept = context.view.texts._names
    return len({**kept._old, **kept._new})


def grown(rounds: int, window: int, policy: str = "balanced") -> Context:
    context = Context(policy=policy, window=window, max_output_tokens=0)
    for wire in wires(rounds):
        context.append(wire)
        if wire["role"] == "tool":
            assert not context.prepare().folds
    return context


def test_a_session_that_stays_short_is_not_read_ahead() -> None:
    assert names_known(grown(20, window=100_000)) == 0


def test_results_are_read_once_half_of_the_window_is_used() -> None:
    assert names_known(grown(20, window=12_000)) >= 15


def test_few_turns_read_and_each_reads_no_more_than_a_bound() -> None:
    context = Context(policy="confirm", window=40_000, max_output_tokens=0)
    context.extend(wires(60))
    reading, stops = ReadAhead(), [0]
    for _ in range(12):
        reading.go_on(context.view, 1_000)
        stops.append(reading.to)
    view = context.view
    assert view.between(view.index(reading.to), len(view.tiles)) < 2_000  # the rest waits for a whole batch
    batches = [view.between(view.index(start), view.index(stop)) for start, stop in pairwise(stops) if start < stop]
    assert len(batches) >= 3
    assert max(batches) <= 12_000


def test_a_view_that_is_too_large_to_be_remembered_is_not_read() -> None:
    context = Context(policy="confirm", window=1_000_000, max_output_tokens=0)
    context.extend(wires(400))
    reading = ReadAhead()
    reading.go_on(context.view, 1_000)
    assert reading.to == context.view.tiles[-1].stop
    assert names_known(context) == 0


@pytest.mark.parametrize("policy", ["balanced", "economical", "quality", "cost"])
def test_requests_are_the_same_as_without_reading(policy: str) -> None:
    def requests(read_to: int) -> tuple[list[list[Any]], int]:
        context = Context(policy=policy, window=8_000, max_output_tokens=0)
        context._engine.reading.to = read_to
        out, most = [], 0
        for wire in wires(60):
            context.append(wire)
            if wire["role"] != "assistant":
                out.append(list(context.prepare().messages))
                most = max(most, names_known(context))
        return out, most

    (sent, known), (plain, fewer) = requests(0), requests(1_000_000)
    assert sent == plain
    assert known >= fewer


def test_what_was_read_is_what_a_fold_looks_up() -> None:
    context = grown(20, window=12_000)
    text = next(entry.message.results[0].text for entry in context.view.entries.values() if entry.message.results)
    known = context.view.texts._names.get(text)
    assert known
    assert context.view.texts.names(text) is known
