"""Summaries written ahead, on random sessions: whether one was prepared or not, the promises hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.engine.events import SummaryWritten
from foldline.engine.one_shot import check, count
from foldline.engine.presets import policy as preset
from foldline.errors import DoesNotFit
from foldline.testing import ScriptedModel
from foldline.tokens import message_tokens
from foldline.view.transcript import Entry, Fold
from tests.property.depth import costly
from tests.property.sessions import Wire, sessions
from tests.remembered import REMEMBERED

ASKING = ("balanced", "cost", "quality", "economical", "sliding", "checkpoint", "layered")
TEXTS = ("Goal: go on. It was read.", "", "words that do not fit " * 400, "Goal: go on. 40412 of them passed.")


@costly
@given(
    sessions(),
    st.sampled_from(ASKING),
    st.floats(0.2, 1.2),
    st.floats(0.2, 0.95),
    st.lists(st.tuples(st.sampled_from(("write", "ask", "supply", "undo", "nothing")), st.sampled_from(TEXTS))),
)
def test_prepared_or_not_the_promises_hold(
    session: tuple[str, list[Wire], bool],
    policy: str,
    share: float,
    mark: float,
    acts: list[tuple[str, str]],
) -> None:
    """Valid, within the window, nothing lost, stable between folds, atomic, and the same when it is replayed."""
    dialect, wires, is_legal = session
    read = codec(dialect)
    window = max(60, int(share * sum(message_tokens(read.read(wire), REMEMBERED) for wire in wires)))
    heard: list[Any] = []
    under: dict[str, Any] = {
        "dialect": dialect,
        "policy": replace(preset(policy), ahead=mark),
        "window": window,
        "max_output_tokens": 0,
        "counter": REMEMBERED,
    }
    ctx = Context(on_event=heard.append, **under)
    before: list[Any] = []
    repaired = False
    for number, wire in enumerate(wires):
        ctx.append(wire)
        act, words = acts[number % len(acts)] if acts else ("write", TEXTS[0])
        shown = ctx.view.shown()
        if act == "write":
            ctx.ahead.write(ScriptedModel([words], repeat=True))
        elif act == "ask":
            ctx.ahead.ask()
        elif act == "supply" and ctx.ahead.state == "writing":
            while ctx.ahead.supply(words) is not None:
                pass
        assert ctx.view.shown() == shown  # nothing is seen of it until its fold
        if act == "undo":
            ctx.undo()
        if number % 2:
            continue
        try:
            request = ctx.prepare()
        except DoesNotFit as no:
            assert no.floor_tokens > no.limit and no.parts
            continue
        assert check(request.messages, dialect=dialect) == []
        assert request.tokens <= 0.9 * window
        assert count(request.messages, dialect=dialect, system=request.system, counter=REMEMBERED) <= request.tokens
        assert request.messages[: request.stable_until] == before[: request.stable_until]
        if not request.folds and is_legal and not request.repairs and not repaired:
            assert request.messages[: len(before)] == before
        before, repaired = list(request.messages), bool(request.repairs)
    assert [entry.recorded for entry in ctx.events if isinstance(entry, Entry)] == wires
    again = Context.replay(ctx.events, **under)
    assert again.view.shown() == ctx.view.shown()
    written = [each for each in heard if isinstance(each, SummaryWritten)]
    used = [
        each
        for each in ctx.events
        if isinstance(each, Fold) and any((each.start, each.stop) == (one.start, one.stop) for one in written)
    ]
    event(f"written: {bool(written)}, put in: {bool(used)}")
