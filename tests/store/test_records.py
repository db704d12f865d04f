"""Records: a log that is written, read back and replayed is the session that it was."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.sessions import BUILDERS, POLICIES, Wire, sessions

from foldline.codecs import codec
from foldline.context import Context
from foldline.errors import FoldlineError
from foldline.store.records import event_of, record_of
from foldline.transcript import Event

ACTIONS = ("", "", "prepare", "prepare", "ask", "compact", "undo", "pin", "fork", "observe")


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    return f"Goal: go on. {len(messages)} texts were read."


def stored(events: tuple[Event, ...], dialect: str) -> list[Event]:
    """Events by way of JSON text."""
    lines = [json.dumps(record_of(event, codec(dialect))) for event in events]
    return [event_of(json.loads(line), codec(dialect)) for line in lines]


def act(context: Context, action: str, wires: list[Wire], data: st.DataObject) -> None:
    if action in ("prepare", "ask"):
        context.prepare(good if action == "ask" else None)
    elif action == "compact":
        context.compact(summarize=good)
    elif action == "undo":
        context.undo()
    elif action == "pin":
        context.pin(data.draw(st.sampled_from(list(context.view.entries))))
    elif action == "fork":
        other = BUILDERS[context.dialect].user("another way", False)
        context.sync([*wires[: data.draw(st.integers(0, 3))], *other])
    elif action == "observe":
        context.observe({"input_tokens": context.view.tokens + 40, "output_tokens": 11})


@given(sessions(), st.sampled_from(POLICIES), st.integers(60, 4_000), st.data())
def test_a_stored_session_replays_as_a_live_log_does(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """View, sizes, folds, repairs, pins, batches and the next requests are those of a replay of the live events."""
    dialect, wires, _ = session
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": window, "max_output_tokens": 0}
    context = Context(**settings)
    for wire in wires:
        context.append(wire, kind=data.draw(st.sampled_from(("", "", "notice"))))
        try:
            act(context, data.draw(st.sampled_from(ACTIONS)), wires, data)
        except FoldlineError:
            continue
    again = Context.replay(stored(context.events, dialect), **settings)
    assert again.view.wires()[0] == context.view.wires()[0]
    assert text(again.view.wires()[0]) == text(context.view.wires()[0])
    assert again.view.tokens == context.view.tokens
    assert again.view.repairs == context.view.repairs
    assert again.view.tiles == context.view.tiles
    assert again.events == context.events
    assert stored(again.events, dialect) == stored(context.events, dialect)
    reference = Context.replay(context.events, **settings)
    reference.view.wires()  # what was rendered counts as sent
    for _ in range(3):
        assert outcome(again) == outcome(reference)
        assert again.undo() == reference.undo()
        assert text(again.view.wires()[0]) == text(reference.view.wires()[0])


def text(value: object) -> str:
    return json.dumps(value)


def outcome(context: Context) -> object:
    """The next request, or why there is none."""
    try:
        made = context.prepare()
    except FoldlineError as error:
        return str(error)
    return text(made.messages), made.system, made.tokens, made.max_output_tokens, made.stable_until, made.folds
