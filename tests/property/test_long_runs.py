"""Sessions that live: forks, undo, usage, recovery and byte budgets in any order, in three dialects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.errors import DoesNotFit, FoldlineError
from foldline.failures.classification import classify
from foldline.view.tiles import Tile
from foldline.view.transcript import Event
from tests.property.depth import dear
from tests.property.sessions import BUILDERS, POLICIES, Wire, sessions

OVERFLOW = classify(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
ACTIONS = ("prepare", "ask", "compact", "undo", "pin", "fork", "observe", "recover", "edit")


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    """A summariser that answers briefly."""
    return f"Goal: go on. {len(messages)} texts were read."


def in_effect(tiles: list[Tile]) -> set[int]:
    """The ids of all folds that a view shows or covers."""
    out: set[int] = set()
    for tile in tiles:
        out |= {form.id for form in tile.forms.values()} | in_effect(tile.inner)
        out |= {tile.fold.id} if tile.fold is not None else set()
    return out


def act(context: Context, action: str, dialect: str, wires: list[Wire], data: st.DataObject) -> None:
    """One thing that may happen to a session."""
    if action in ("prepare", "ask"):
        request = context.prepare(good if action == "ask" else None)
        assert check(request.messages, dialect=dialect, system=request.system) == []
    elif action == "compact":
        context.compact(summarize=good)
    elif action == "undo":
        context.undo()
    elif action == "pin":
        context.pin(data.draw(st.sampled_from(list(context.view.entries))))
    elif action == "fork":
        kept = [json.loads(json.dumps(wire)) for wire in wires[: data.draw(st.integers(0, 4))]]
        context.sync([*kept, *BUILDERS[dialect].user("another way", False)])
    elif action == "observe":
        tokens = data.draw(st.integers(1, 3_000))
        context.observe({"input_tokens": tokens, "output_tokens": 5})
    elif action == "recover":
        context.recover(OVERFLOW)


@dear
@given(sessions(), st.sampled_from(POLICIES), st.integers(200, 4_000), st.data())
def test_a_log_repeated_is_the_session_itself(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """The repeated context shows the same, counts the same, and takes back the same; folds named are folds shown."""
    dialect, wires, _ = session
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": window, "max_output_tokens": 0}
    context = Context(**settings)
    for wire in wires:
        context.append(wire)
        try:
            act(context, data.draw(st.sampled_from(ACTIONS)), dialect, wires, data)
        except FoldlineError:
            continue
        named = {fold.id: fold for seq in context.view.entries for fold in context.explain(seq)}
        shown = in_effect(context.view.tiles)
        assert shown <= named.keys()
        assert {number for number, fold in named.items() if not fold.form} <= shown
    again = Context.replay(context.events, **settings)
    while True:
        assert again.view.wires()[0] == context.view.wires()[0]
        assert again.view.tokens == context.view.tokens
        taken = context.undo()
        assert again.undo() == taken
        if not taken:
            break


@dear
@given(sessions(), st.sampled_from(POLICIES), st.integers(200, 4_000), st.data())
def test_letting_go_of_what_was_folded_changes_no_request(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """Released or not: the same requests, figures and errors; what is written down leads to the same session."""
    dialect, wires, _ = session
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": window, "max_output_tokens": 0}
    whole, light = Context(**settings), Context(**settings)
    written: list[Event] = []
    actions = st.sampled_from(("prepare", "ask", "compact", "observe", "recover"))
    for wire in wires * 2:
        action, tokens = data.draw(actions), data.draw(st.integers(1, 3_000))
        told: list[object] = []
        for context in (whole, light):
            context.append(wire)
            try:
                if action == "observe":
                    context.observe({"input_tokens": tokens, "output_tokens": 5})
                else:
                    act(context, action, dialect, wires, data)
            except FoldlineError as error:
                told.append(str(error))
            told.append(context.figures)
            told.append(context.view.wires()[0])
        assert told[: len(told) // 2] == told[len(told) // 2 :]
        written += light.events_after(len(written))
        light.release()
        assert light.event_count == len(written) == whole.event_count
    again = Context.replay(written, **settings)
    assert again.view.wires()[0] == whole.view.wires()[0]
    assert again.limits == whole.limits
    assert again.figures == whole.figures


@dear
@given(sessions(), st.sampled_from(POLICIES), st.integers(100, 6_000))
def test_a_byte_budget_holds(session: tuple[str, list[Wire], bool], policy: str, most: int) -> None:
    """The messages as JSON are within the byte budget, or what does not fit is named in bytes."""
    dialect, wires, _ = session
    try:
        out = fit(wires, max_tokens=10**6, dialect=dialect, policy=policy, max_request_bytes=most)
    except DoesNotFit as no:
        assert no.unit == "bytes"
        assert no.parts
        return
    assert len(json.dumps(out.messages, ensure_ascii=False, separators=(",", ":")).encode()) <= most
    assert check(out.messages, dialect=dialect) == []


@dear
@given(sessions(), st.data())
def test_an_edit_in_place_is_noticed_by_sync(session: tuple[str, list[Wire], bool], data: st.DataObject) -> None:
    """A framework that edits its own messages gets the request for what they are now."""
    dialect, wires, is_legal = session
    if not is_legal:
        return
    live = [json.loads(json.dumps(wire)) for wire in wires]
    context = Context(dialect=dialect, window=10**6, max_output_tokens=0, policy="confirm")
    context.sync(live)
    context.prepare()
    live[data.draw(st.integers(0, len(live) - 1))]["cache_control"] = {"type": "ephemeral"}
    context.sync(live)
    assert context.prepare().messages == live
