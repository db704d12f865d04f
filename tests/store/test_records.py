"""Records: a session that is written, read back and replayed is unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly, dear
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, sessions

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Message, Text, ToolCall, ToolResult
from foldline.reducers.digest import DigestItems
from foldline.store.records import VERSION, event_of, record_of, sealed
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, RentState, Unfold, Usage

ACTIONS = ("", "", "prepare", "prepare", "ask", "compact", "undo", "pin", "fork", "observe")


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    return f"Goal: go on. {len(messages)} texts were read."


def stored(events: tuple[Event, ...], dialect: str) -> list[Event]:
    """The events after a round trip through JSON text."""
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


@dear
@given(sessions(), st.sampled_from(POLICIES), st.integers(60, 4_000), st.data())
def test_a_stored_session_replays_as_a_live_log_does(
    session: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """Compare view, sizes, folds, repairs, pins, batches and the next requests with a replay of the live events."""
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
    # Whether a request with an answer in a late result's place was sent, no event says.
    assert again.view.repairs == tuple(found for found in context.view.repairs if found.rule != "late-result")
    assert again.view.entries_and_folds == context.view.entries_and_folds
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
    """The next request, or the reason why there is none."""
    try:
        made = context.prepare()
    except FoldlineError as error:
        return str(error)
    return text(made.messages), made.system, made.tokens, made.max_output_tokens, made.stable_until, made.folds


def test_a_record_omits_defaults() -> None:
    context = Context(window=4_000)
    context.append({"role": "user", "content": "hi"})
    context.append({"role": "user", "content": "note"}, agent_visible=False, user_visible=False, kind="notice")
    first, second = (record_of(event, codec("openai-chat")) for event in context.events)
    assert first == {"type": "message", "seq": 0, "group": 0, "tokens": 5, "message": {"role": "user", "content": "hi"}}
    assert second == {
        "type": "message",
        "seq": 1,
        "group": 1,
        "tokens": 5,
        "hidden": True,
        "user_visible": False,
        "kind": "notice",
        "message": {"role": "user", "content": "note"},
    }
    assert record_of(Pin(3), codec("openai-chat")) == {"type": "pin", "seq": 3}
    assert record_of(Usage(input_tokens=9, reported=False), codec("openai-chat")) == {
        "type": "usage",
        "input_tokens": 9,
        "reported": False,
    }


@pytest.mark.parametrize(
    "event",
    [
        Usage(input_tokens=1, doubt="the provider counted no input at all"),
        Unfold(3),
        Pin(2, pinned=False),
        Branch(1, 5),
        Limited(window_tokens=100, max_output_tokens=0, max_input_tokens=7),
        Limited(window_tokens=100, max_output_tokens=5),
        Usage(input_tokens=9, rent=RentState(requests=7, turns=2)),
        Usage(
            input_tokens=9,
            rent=RentState(requests=9, turns=3, cold_turns=1, in_turn=4, newest_user=0, paid=500, spent=900),
            output_tokens=8,
            cached_tokens=7,
            written_tokens=6,
            request=5,
            estimated_tokens=4,
            current=True,
            reported=False,
        ),
    ],
    ids=lambda event: type(event).__name__,
)
def test_figures_come_back_and_unknown_fields_are_ignored(event: Event) -> None:
    record = json.loads(json.dumps(record_of(event, codec("openai-chat"))))
    assert event_of({**record, "at": "2026", "later": {"x": 1}}, codec("openai-chat")) == event


SHOWN = [
    Message("user", (Text("made by hand"),)),
    Message("assistant", (Text("a"), ToolCall("c", "look", "{}")), kind="summary", pinned=True, user_visible=False),
    Message("user", (Text("digest", raw=DigestItems((("said", True), ("did", False)))),), kind="digest"),
    Message("tool", (ToolResult("c", (Text("x"),), is_error=True),), wire={"role": "tool", "content": "x"}),
    Message("system", (Text("other words"),), wire={"role": "user", "content": "words"}),
    Message("user", (Text("other", raw=DigestItems((("said", True),))),), wire={"role": "user", "content": "words"}),
]


@pytest.mark.parametrize("message", SHOWN, ids=lambda message: message.role)
def test_a_shown_message_is_read_back_unchanged(message: Message) -> None:
    fold = Fold(start=0, stop=2, shown=(message,), tokens=1, reducer="house", reason="why", id=4, batch=2)
    assert stored((fold,), "openai-chat") == [fold]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_later_digest_condenses_the_items_of_a_stored_one(dialect: str) -> None:
    settings: dict[str, Any] = {"dialect": dialect, "policy": "balanced", "window": 900, "max_output_tokens": 0}
    context = Context(**settings)
    for number in range(30):
        context.extend(BUILDERS[dialect].user(f"wish {number} " + "word " * 40, False))
        context.prepare()
    again = Context.replay(stored(context.events, dialect), **settings)
    digests = [m for e in again.events if isinstance(e, Fold) for m in e.shown if m.kind == "digest"]
    assert any(isinstance(part, Text) and isinstance(part.raw, DigestItems) for m in digests for part in m.parts)
    for number in range(30, 60):
        for one in (context, again):
            one.extend(BUILDERS[dialect].user(f"wish {number} " + "word " * 40, False))
        assert text(again.prepare().messages) == text(context.prepare().messages)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "unknown type None"),
        ({"type": []}, "unknown type"),
        ({"type": "fold", "start": True}, "start: must be of type int"),
        ({"type": "usage"}, "usage: is incomplete"),
        ({"type": "usage", "input_tokens": "9"}, "input_tokens: must be of type int"),
        ({"type": "usage", "input_tokens": 9, "rent": 3}, "rent: must be of type dict"),
        ({"type": "usage", "input_tokens": 9, "rent": {"turns": 1}}, "rent: is incomplete: one of requests"),
        ({"type": "usage", "input_tokens": 9, "rent": {"turns": 1, "requests": "2"}}, "requests: must be of type int"),
        ({"type": "branch", "start": 1}, "branch: is incomplete"),
        ({"type": "message", "json": "{"}, "json: holds no JSON"),
        ({"type": "message", "json": '{"json": "{}"}'}, "json: holds no record"),
        ({"type": "message", "json": 3}, "json: must be of type str"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_by_its_field(record: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        event_of(record, codec("openai-chat"))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ("text", "shown: must be an object"),
        ({"role": "user", "parts": [{"part": "dream"}]}, "parts: holds something that is not a part"),
        ({"role": "user", "parts": [{"part": "call", "id": "c"}]}, "parts: holds an incomplete call"),
        ({"message": {"role": "user", "content": "x"}, "told": [1]}, "told: must be a list"),
        ({"kind": "digest"}, "role: must be of type str"),
    ],
)
def test_a_fold_that_makes_no_sense_is_refused_by_its_field(shown: object, words: str) -> None:
    fold = Fold(start=0, stop=2, shown=(), tokens=1, reducer="house", reason="why", id=4)
    record = {**record_of(fold, codec("openai-chat")), "shown": [shown]}
    with pytest.raises(InvalidInput, match=words):
        event_of(record, codec("openai-chat"))


def test_the_error_for_an_unknown_type_names_a_newer_version() -> None:
    with pytest.raises(InvalidInput, match="newer version"):
        event_of({"type": "dream"}, codec("openai-chat"), version=VERSION + 1)


VALUES = st.recursive(
    st.none() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@costly
@given(VALUES)
def test_any_value_that_python_reads_comes_back(value: object) -> None:
    wire = {"role": "user", "content": "hi", "x": value}
    entry = Entry(0, 0, codec("openai-chat").read(wire), 5, wire)
    record = sealed(record_of(entry, codec("openai-chat")))
    again = event_of(json.loads(json.dumps(record, allow_nan=False)), codec("openai-chat"))
    assert isinstance(again, Entry)
    assert text(again.recorded) == text(wire)
