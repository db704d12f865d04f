"""The promises, each as a law on random sessions: legal and broken, in three dialects, under every policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.engine.context import Completion, Context, Request
from foldline.engine.one_shot import check, count, fit
from foldline.errors import DoesNotFit, FoldlineError, SummaryError
from foldline.messages import ToolResult
from foldline.tokens import ESTIMATE
from foldline.view.transcript import Entry, Fold
from foldline.view.user_words import speaks
from tests.property.depth import promise
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, legal, sessions, text
from tests.remembered import REMEMBERED

policies = st.sampled_from(POLICIES)
windows = st.integers(60, 4_000)


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    """A summariser that answers briefly."""
    return f"Goal: go on. {len(messages)} texts were read."


def grown(dialect: str, wires: list[Wire], policy: str, window: int, **extra: Any) -> tuple[Context, list[Request]]:
    """A context that was given a session turn by turn, and the requests that fitted."""
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, counter=REMEMBERED, **extra)
    out: list[Request] = []
    for number, wire in enumerate(wires):
        context.append(wire)
        if number % 3 == 2 or number == len(wires) - 1:
            try:
                out.append(context.prepare())
            except DoesNotFit as no:
                assert no.floor_tokens > no.limit and no.parts
    return context, out


def begins_with_thinking(messages: Sequence[Any]) -> bool:
    """Whether the running tool loop begins with thinking, or there is none (Anthropic, "Extended thinking")."""
    first = "thinking"
    for message in reversed(messages):
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        if message["role"] == "assistant":
            first = blocks[0]["type"]
        elif any(block["type"] != "tool_result" for block in blocks):
            break
    return first == "thinking"


def text_of(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@promise
@given(sessions(), policies, windows)
def test_promise_1_nothing_is_lost(session: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    """Everything that came in is in the log as it came, and every original that is not shown can be read."""
    dialect, wires, _ = session
    context, _ = grown(dialect, wires, policy, window)
    entries = [event for event in context.events if isinstance(event, Entry)]
    assert all(a.recorded is b for a, b in zip(entries, wires, strict=True))
    for fold in (event for event in context.events if isinstance(event, Fold)):
        if fold.id in {f.id for e in entries for f in context.explain(e.seq)}:
            originals = [json.loads(data) for data in context.original(fold)]
            assert originals == [json.loads(json.dumps(e.recorded)) for e in entries[fold.start : fold.stop]]


@promise
@given(sessions(), policies, windows)
def test_promise_2_every_request_is_valid(session: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    """Whatever came in, the provider takes what goes out; what had to be repaired is reported."""
    dialect, wires, is_legal = session
    context, requests = grown(dialect, wires, policy, window)
    for request in requests:
        assert check(request.messages, dialect=dialect) == []
    runs = wires[-1]["role"] == "user" if dialect == "anthropic" else False  # a turn that ended needs no thinking
    if runs and is_legal and begins_with_thinking(wires):
        shown = context.view.wires()[0]  # as it stands, also when it did not fit
        assert begins_with_thinking(shown), "the running loop was cut before a step without thinking"
    if is_legal and requests and len(wires) == len(requests[-1].messages):
        # A result that comes late takes the place of an answer of ours, which is reported once.
        assert {repair.rule for repair in requests[-1].repairs} <= {"late-result"}


@promise
@given(sessions(), policies, windows)
def test_promise_3_every_request_fits(session: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    """A request is within its limit, or the floor is named, and fitting at that floor works."""
    dialect, wires, _ = session
    _, requests = grown(dialect, wires, policy, window)
    for request in requests:
        assert request.tokens <= 0.9 * window
        assert count(request.messages, dialect=dialect, system=request.system) == request.tokens
    try:
        out = fit(wires, max_tokens=window, dialect=dialect, policy=policy, counter=REMEMBERED)
        assert out.tokens <= window
    except DoesNotFit as no:
        assert no.floor_tokens > no.limit == window and no.parts
        at_floor = fit(wires, max_tokens=no.floor_tokens, dialect=dialect, policy=policy, counter=REMEMBERED)
        assert at_floor.tokens <= no.floor_tokens and check(at_floor.messages, dialect=dialect) == []


@promise
@given(sessions(), policies, windows)
def test_promise_4_untouched_bytes_stay_untouched(
    session: tuple[str, list[Wire], bool], policy: str, window: int
) -> None:
    """A message that no fold and no repair touches is sent as the very object that came in."""
    dialect, wires, is_legal = session
    context, requests = grown(dialect, wires, policy, window)
    if not requests:
        return
    sent = {id(message) for message in context.view.wires()[0]}
    for seq, wire in enumerate(wires):
        if is_legal and not context.explain(seq) and not context.view.repairs:
            assert id(wire) in sent
    before = [json.dumps(wire) for wire in wires]
    fit(wires, max_tokens=100_000, dialect=dialect)
    assert [json.dumps(wire) for wire in wires] == before, "the caller's messages were changed"


@promise
@given(sessions(), policies, windows)
def test_promise_5_the_prefix_is_stable(session: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    """Between two folds, each request is the one before and new messages."""
    dialect, wires, is_legal = session
    _, requests = grown(dialect, wires, policy, window)
    for before, after in pairwise(requests):
        stable = after.stable_until
        assert text_of(before.messages[:stable]) == text_of(after.messages[:stable])
        if not after.folds and is_legal and not before.repairs and not after.repairs:
            assert after.messages[: len(before.messages)] == before.messages
            assert stable >= len(before.messages)


@promise
@given(sessions(), policies, windows)
def test_promise_6_a_fold_shrinks_and_folding_again_changes_nothing(
    session: tuple[str, list[Wire], bool], policy: str, window: int
) -> None:
    """Every fold is smaller than what it covers; the same need does not fold twice."""
    dialect, wires, _ = session
    context, requests = grown(dialect, wires, policy, window)
    for fold in (event for event in context.events if isinstance(event, Fold)):
        assert fold.tokens < fold.before_tokens
    try:
        first = context.prepare()
    except DoesNotFit:
        return
    again = context.prepare()
    assert again.messages == first.messages and not again.folds and again.stable_until == len(again.messages)
    assert len(requests) >= 1


BAD = ("empty", "cut off", "refused", "too large", "not smaller", "raises", "no text")


def bad(kind: str) -> Any:
    """A summariser that fails in one of the ways promise 7 names."""

    def answer(messages: list[dict[str, str]], max_output_tokens: int) -> Any:
        if kind == "raises":
            raise RuntimeError("model down")
        return {
            "empty": "  \n",
            "cut off": Completion("Goal: to", "length"),
            "refused": "I'm sorry, I can't help with that.",
            "too large": "word " * (max_output_tokens * 3),
            "not smaller": Completion("", "stop"),
            "no text": None,
        }[kind]

    return answer


@promise
@given(sessions(), policies, st.sampled_from(BAD))
def test_promise_7_folding_is_atomic(session: tuple[str, list[Wire], bool], policy: str, kind: str) -> None:
    """A summary that fails leaves the request byte-identical."""
    dialect, wires, _ = session
    context = Context(dialect=dialect, policy=policy, window=100_000, max_output_tokens=0, counter=REMEMBERED)
    context.extend(wires)
    before = context.prepare()
    with pytest.raises(SummaryError):
        context.compact(summarize=bad(kind))
    after = context.prepare()
    assert after.messages == before.messages and after.tokens == before.tokens and not after.folds


@promise
@given(sessions(), st.sampled_from(("balanced", "sliding", "checkpoint")), windows, st.sampled_from(BAD))
def test_promise_8_the_last_rung_needs_no_model(
    session: tuple[str, list[Wire], bool], policy: str, window: int, kind: str
) -> None:
    """A summariser that fails in any way does not keep a request from fitting."""
    dialect, wires, _ = session
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, counter=REMEMBERED)
    context.extend(wires)
    try:
        request = context.prepare(bad(kind))
    except DoesNotFit as no:
        assert no.floor_tokens > no.limit
        return
    assert check(request.messages, dialect=dialect) == [] and request.tokens <= 0.9 * window


@promise
@given(sessions(), policies, windows, st.data())
def test_promise_9_what_must_stay_stays(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """The newest user's words, system text, pinned groups and calls that wait are shown as they are."""
    dialect, wires, is_legal = session
    if not is_legal:
        return
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, counter=REMEMBERED)
    entries = context.extend(wires)
    pinned = data.draw(st.sampled_from(entries))
    context.pin(pinned.seq)
    waiting = BUILDERS[dialect].turn(["open"], [], "wait", None)
    context.extend(waiting)
    try:
        request = context.prepare(good if data.draw(st.booleans()) else None)
    except DoesNotFit:
        return
    group = [entry for entry in entries if entry.group == pinned.group]
    users = [entry for entry in entries if speaks(entry.message)]
    newest = users[-1]
    for entry in [*group, *(e for e in entries if e.message.role == "system")]:
        assert entry.recorded in request.messages
    assert waiting[-1] in request.messages
    shown = text_of(request.messages)
    for part in newest.message.parts:
        if not isinstance(part, ToolResult) and hasattr(part, "text"):
            assert json.dumps(part.text)[1:-1] in shown


@promise
@given(sessions(), policies, windows)
def test_promise_10_every_fold_says_why_and_undo_takes_it_back(
    session: tuple[str, list[Wire], bool], policy: str, window: int
) -> None:
    """Reducer, reason, sizes and original are on each fold; undoing everything shows what came in."""
    dialect, wires, _ = session
    plain = Context(dialect=dialect, policy=policy, window=10**7, max_output_tokens=0, auto=False, counter=REMEMBERED)
    plain.extend(wires)
    context, _ = grown(dialect, wires, policy, window)
    for fold in (event for event in context.events if isinstance(event, Fold)):
        assert fold.reducer and fold.reason and fold.archive and fold.stop > fold.start
    while context.undo():
        pass
    assert context.view.wires()[0] == plain.view.wires()[0]
    assert context.view.estimated_tokens == plain.view.estimated_tokens


class Metered:
    """A counter that notes how much text it was given."""

    name = "metered"

    def __init__(self) -> None:
        self.characters = 0

    def text(self, text: str, /) -> int:
        self.characters += len(text)
        return ESTIMATE.text(text)


@promise
@given(st.sampled_from(DIALECTS), st.data(), text(60))
def test_promise_11_a_turn_costs_what_is_new(dialect: str, data: st.DataObject, result: str) -> None:
    """Between folds a turn counts its own text only, however long the session is."""
    meter = Metered()
    context = Context(dialect=dialect, window=10**7, max_output_tokens=0, counter=meter)
    context.extend(data.draw(legal(dialect)))
    context.prepare()
    for number in range(3):
        turn = BUILDERS[dialect].turn([f"new{number}"], [result], "w", None)
        meter.characters = 0
        context.extend(turn)
        context.prepare()
        assert meter.characters <= 2 * len(json.dumps(turn, ensure_ascii=False)) + 400


@promise
@given(sessions(), policies, windows, st.data())
def test_replaying_the_log_gives_the_live_view(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """Every event in order leads to the same request, the same size and the same tiles."""
    dialect, wires, _ = session
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": window, "max_output_tokens": 0}
    settings |= {"counter": REMEMBERED}
    context = Context(**settings)
    for wire in wires:
        context.append(wire)
        action = data.draw(st.sampled_from(("", "", "", "prepare", "ask", "compact", "undo", "pin", "fork")))
        try:
            if action in ("prepare", "ask"):
                context.prepare(good if action == "ask" else None)
            elif action == "compact":
                context.compact(summarize=good)
            elif action == "undo":
                context.undo()
            elif action == "pin":
                context.pin(data.draw(st.sampled_from(list(context.view.entries))))
            elif action == "fork":
                context.sync([*wires[: data.draw(st.integers(0, 3))], *BUILDERS[dialect].user("another way", False)])
        except FoldlineError:
            continue
    again = Context.replay(context.events, **settings)
    assert again.view.wires()[0] == context.view.wires()[0]
    assert again.view.estimated_tokens == context.view.estimated_tokens
    assert again.view.entries_and_folds == context.view.entries_and_folds
    assert codec(dialect).dialect == dialect
