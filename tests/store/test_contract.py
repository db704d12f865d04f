"""The contract of a store, on folders, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.store.children import child
from tests.store.places import Places, retry_while_taken, store_at
from tests.store.test_session import Ticking, told_before_its_end

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken
from foldline.messages import Json
from foldline.store import Store, StoredSession
from foldline.store.recording import snapshot_of
from foldline.store.records import Record
from foldline.view.archive import key_of
from foldline.view.transcript import Entry, Limited

ROOT = Path(__file__).parents[2]
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks of POSIX")

KINDS = ("files", "sqlite", "postgresql")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, places: Places) -> str:
    return places(request.param)


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with closing(store_at(place)) as opened:
        yield opened


@pytest.fixture
def other(place: str) -> Iterator[Store]:
    """The same place, opened as by another process."""
    with closing(store_at(place)) as opened:
        yield opened


@contextmanager
def begun(store: Store, window: int = 900, **more: Any) -> Iterator[StoredSession]:
    with closing(store.create(dialect="openai-chat", window=window, **more)) as session:
        yield session


def user(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


def context_of(session: StoredSession) -> Context:
    window = session.header.window
    return Context.replay(session.events(), window=window, max_output_tokens=0, archive=session.archive)


def say(session: StoredSession, *texts: str) -> Context:
    """A session with more messages, stored together with the folds made for them."""
    context = context_of(session)
    before = context.event_count
    for text in texts:
        context.append(user(text))
        context.prepare()
    session.append(context.events_after(before))
    return context


def made(store: Store, *texts: str) -> str:
    with begun(store) as session:
        session.turn("begun")
        session.save(say(session, *texts or ("hello",)))
        session.turn("ended", reason="done")
        return session.id


def texts(store: Store, name: str) -> list[str]:
    return [event.message.text for event in store.read(name).events if isinstance(event, Entry)]


# --- one session ------------------------------------------------------------------------------------------------------


def test_a_session_goes_on_where_it_was(store: Store, other: Store) -> None:
    with begun(store) as session:
        context = say(session, *(f"question {number} " + "word " * 60 for number in range(20)))
        assert context.explain(0), "something was folded"
        name = session.id
    with closing(other.open(name)) as opened:
        again = context_of(opened)
        assert again.events == context.events
        assert again.view.wires()[0] == context.view.wires()[0]
        assert again.undo() == context.undo()
        assert (opened.id, opened.header) == (name, session.header)
        assert opened.tally == session.tally


def test_each_record_is_read_as_written_with_its_time(store: Store) -> None:
    with begun(store, model="gpt-4o", title="A title", parent="p") as session:
        say(session, "hello")
        session.note(what="seen", more=[1, {"a": None}])
        session.change(model="gpt-4.1", window=700)
        name = session.id
    assert (session.header.model, session.header.window) == ("gpt-4.1", 700)
    first, message, *rest = store.records(name)
    assert {key: value for key, value in first.items() if key not in {"id", "at", "created"}} == {
        "type": "session", "v": 1, "dialect": "openai-chat", "model": "gpt-4o", "policy": "balanced", "window": 900,
        "title": "A title", "parent": "p",
    }  # fmt: skip
    assert (first["id"], first["at"]) == (name, session.header.created)
    assert (message["type"], message["seq"], message["message"]) == ("message", 0, user("hello"))
    assert [{key: value for key, value in one.items() if key != "at"} for one in rest] == [
        {"type": "note", "what": "seen", "more": [1, {"a": None}]},
        {"type": "settings", "model": "gpt-4.1", "window": 700},
    ]
    assert all(len(one["at"]) == 24 and one["at"].endswith("Z") for one in (first, message, *rest))
    recording = store.read(name)
    assert (recording.header, recording.tally) == (session.header, session.tally)
    assert [one["type"] for one in recording.other] == ["note", "settings"]


def test_limits_of_a_model_that_was_left_do_not_come_back(store: Store) -> None:
    with begun(store, model="gpt-4o") as session:
        session.append([Limited(window_tokens=500, max_input_tokens=500, max_output_tokens=50)])
        session.change(model="gpt-4.1")
        assert list(session.events()) == []
        session.append([Limited(window_tokens=600, max_input_tokens=600, max_output_tokens=50)])
        name = session.id
    with closing(store.open(name)) as opened:
        assert list(opened.events()) == [Limited(window_tokens=600, max_input_tokens=600, max_output_tokens=50)]


def test_values_that_are_not_json_are_refused_and_nothing_is_written(store: Store) -> None:
    with begun(store) as session:
        say(session, "before")
        for odd in (object(), math.nan, {"deep": {1, 2}}):
            with pytest.raises(InvalidInput):
                session.note(what=odd)
        with pytest.raises(InvalidInput, match="cannot be changed"):
            session.change(dialect="anthropic")
        with pytest.raises(InvalidInput, match="not a valid window"):
            session.change(window="wide")
        say(session, "after")
        assert texts(store, session.id) == ["before", "after"]
        assert len(list(store.records(session.id))) == 3
        assert session.header.window == 900


ODD = [
    "NUL \0 in the middle",
    "half an emoji \ud83d",
    "a backslash \\u0000 and a quote \" ' ; -- %",
    "größer ✓ 👩‍🚀 \u2028 \x7f \ufeff",
    "\\ud800",
]


def test_no_text_is_lost_or_altered(store: Store, places: Places) -> None:
    with begun(store, window=50_000_000) as session:
        say(session, *ODD)
        say(session, "x" * 5_000_000)
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a": NaN}'}}
        context = context_of(session)
        before = context.event_count
        context.append({"role": "assistant", "content": None, "tool_calls": [call], "score": math.inf})
        session.append(context.events_after(before))
        name = session.id
    assert texts(store, name)[:-1] == [*ODD, "x" * 5_000_000]
    sealed = list(store.records(name))[-1]
    assert set(sealed) == {"type", "json", "at"}, "what strict JSON has no form for is kept as a text"
    [entry] = [event for event in store.read(name).events if isinstance(event, Entry)][-1:]
    assert entry.recorded["score"] == math.inf
    assert store.messages(name, start=6, stop=9) == [sealed]


def test_the_keys_of_turns_lead_to_their_first_messages(store: Store, other: Store) -> None:
    with begun(store) as session:
        session.turn("begun", key="never said")
        session.turn("begun", key="first")
        say(session, "one", "more of it")
        session.turn("ended", reason="done")
        session.turn("begun", key="second")
        say(session, "two")
        name = session.id
    with closing(other.open(name)) as opened:
        assert opened.tally.keys == {"first": 0, "second": 2}
        assert opened.tally.running
        assert opened.tally.turns == 3
        opened.turn("ended", reason="interrupted")
        assert not opened.tally.running


def test_originals_are_kept_by_their_hash(store: Store, other: Store) -> None:
    contents = (b"", b"plain", bytes(range(256)), b"\xff\xfe\0" * 1_000_000)
    with begun(store) as session:
        name = session.id
        keys = [
            session.put_original(data) if number % 2 else session.archive.put(data)
            for number, data in enumerate(contents)
        ]
        assert keys == [key_of(data) for data in contents]
        assert session.put_original(contents[1]) == keys[1], "twice is once"
        assert session.archive.put(contents[1]) == keys[1]
        assert keys[1] in session.archive.where(keys[1])
    archive = other.archive(name)
    assert [archive.get(key) for key in keys] == list(contents)
    assert sorted(other.originals(name)) == sorted(contents)
    for missing in (
        "",
        "0" * 64,
        "../../events.jsonl",
        keys[1].upper(),
        "\0",
        "\ud800",
        "' OR 1=1 --",
        keys[1][:-1] + "%",
    ):
        assert missing not in archive
        with pytest.raises(KeyError):
            archive.get(missing)


def test_originals_of_one_session_are_not_those_of_another(store: Store) -> None:
    with begun(store) as one, begun(store) as two:
        key = one.put_original(b"secret")
        assert key not in two.archive
        assert list(store.originals(two.id)) == []


# --- one writer at a time ---------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_a_reader_is_not(store: Store, other: Store) -> None:
    with begun(store) as session:
        say(session, "hello")
        for one in (store, other):
            with pytest.raises(SessionTaken) as caught:
                one.open(session.id)
            assert caught.value.place == session.id
            with pytest.raises(SessionTaken):
                one.delete(session.id)
            assert texts(one, session.id) == ["hello"]
            assert [listed.id for listed in one.sessions()] == [session.id]
        say(session, "still here")
    other.open(session.id).close()
    assert texts(store, session.id) == ["hello", "still here"]


def test_a_session_that_was_let_go_of_is_as_it_was_left(store: Store) -> None:
    with begun(store) as session:
        context = say(session, "hello")
        session.release()
        session.release()
        assert session.acquire()
        assert session.acquire(), "it is ours already"
        before = context.event_count
        context.append(user("more"))
        session.append(context.events_after(before))
        assert texts(store, session.id) == ["hello", "more"]


def test_another_may_write_in_between_and_is_not_overwritten(store: Store, other: Store) -> None:
    with begun(store) as session:
        say(session, "one")
        session.release()
        with closing(other.open(session.id)) as second:
            with pytest.raises(SessionTaken):
                session.acquire()
            second.change(title="Changed", window=800)
            say(second, "two")
            second.turn("begun", key="k")
        assert not session.acquire()
        assert (session.header, session.tally) == (second.header, second.tally)
        assert session.header.title == "Changed"
        assert [event.message.text for event in session.events() if isinstance(event, Entry)] == ["one", "two"]
        say(session, "three")
        session.release()
        assert session.acquire()
    assert texts(store, session.id) == ["one", "two", "three"]


def test_two_that_wait_for_a_person_take_turns(store: Store, other: Store) -> None:
    with begun(store) as one:
        one.release()
        with closing(other.open(one.id)) as two:
            for number in range(6):
                writer, idle = (two, one) if number % 2 == 0 else (one, two)
                idle.release()
                writer.acquire()
                say(writer, str(number))
            assert texts(store, one.id) == [str(number) for number in range(6)]


def test_a_released_session_cannot_be_written(store: Store) -> None:
    with begun(store) as session:
        context = say(session, "hello")
        session.release()
        context.append(user("lost"))
        writes: list[Callable[[], object]] = [
            lambda: session.append(context.events_after(1)),
            lambda: session.turn("begun"),
            lambda: session.note(a=1),
            lambda: session.change(title="T"),
            lambda: session.put_original(b"data"),
            lambda: session.save(context),
            session.discard,
        ]
        for write in writes:
            with pytest.raises(SessionLost):
                write()
        assert session.acquire()
        assert texts(store, session.id) == ["hello"]
        assert session.header.title == ""


def test_a_closed_session_takes_nothing(store: Store) -> None:
    with begun(store) as session:
        pass
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.turn("begun")


def test_a_deleted_session_cannot_be_acquired_again(store: Store, other: Store) -> None:
    with begun(store) as session:
        say(session, "hello")
        session.release()
        other.delete(session.id)
        with pytest.raises(InvalidInput):
            session.acquire()
        assert store.names() == []


@pytest.mark.parametrize("how", ["delete", "discard"])
def test_a_removed_session_leaves_nothing(store: Store, other: Store, how: str) -> None:
    kept = made(store, "kept")
    with begun(store) as session:
        name = session.id
        say(session, "hello")
        session.put_original(b"data")
        with begun(session.agents()) as agent:
            say(agent, "sub")
            agent.put_original(b"its data")
        store.bind("chat", name)
        if how == "discard":
            session.discard()
    if how == "delete":
        store.delete(name)
    assert other.names() == [kept]
    assert other.session_of("chat") is None
    assert other.bindings() == {}
    for gone in (store.open, store.read, store.archive, store.agents, store.delete):
        with pytest.raises(InvalidInput, match="no session"):
            gone(name)
    assert texts(store, kept) == ["kept"]


def test_sessions_of_one_store_are_written_side_by_side(store: Store) -> None:
    def work(number: int) -> str:
        with begun(store) as session:
            for each in range(10):
                say(session, f"{number}.{each}")
            session.save(context_of(session))
            return session.id

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(work, range(8)))
    for number, name in enumerate(names):
        assert texts(store, name) == [f"{number}.{each}" for each in range(10)]


@posix_only
def test_of_many_that_open_a_session_at_once_one_gets_it(store: Store, place: str) -> None:
    name = made(store)
    start = threading.Barrier(6)
    with ExitStack() as open_till_the_end:
        stores = [open_till_the_end.enter_context(closing(store_at(place))) for _ in range(6)]

        def race(one: Store) -> StoredSession | None:
            start.wait()
            try:
                return one.open(name)
            except SessionTaken:
                return None

        with ThreadPoolExecutor(6) as pool:
            got = [session for session in pool.map(race, stores) if session is not None]
        assert len(got) == 1
        got[0].close()


# --- sub-agents -------------------------------------------------------------------------------------------------------


def test_sessions_of_sub_agents_lie_within_their_own(store: Store, other: Store) -> None:
    with begun(store) as session:
        with begun(session.agents()) as agent:
            say(agent, "sub")
            with begun(agent.agents()) as inner:
                say(inner, "sub-sub")
        assert session.agents().names() == [agent.id]
    assert store.names() == [session.id]
    assert [one.id for one in other.sessions()] == [session.id]
    with pytest.raises(InvalidInput, match="no session"):
        other.open(agent.id)
    agents = other.agents(session.id)
    assert agents.names() == [agent.id]
    assert texts(agents, agent.id) == ["sub"]
    assert texts(agents.agents(agent.id), "latest") == ["sub-sub"]
    assert agents.agents(agent.id).agents(inner.id).names() == []
    agents.delete(agent.id)
    assert agents.names() == []
    assert texts(other, session.id) == []


# --- finding and listing ----------------------------------------------------------------------------------------------


def test_an_empty_store_says_so(store: Store) -> None:
    assert (store.names(), store.sessions(), store.bindings()) == ([], [], {})
    with pytest.raises(InvalidInput, match="no session yet"):
        store.find("latest")
    store.close()
    store.close()


def test_a_session_is_found_by_the_beginning_that_only_it_has(store: Store) -> None:
    names = [made(store) for _ in range(3)]
    assert store.names() == sorted(names)
    for name in names:
        assert len(name) == 24
        assert (store.find(name), store.find(name[:22])) == (name, name)
    with pytest.raises(InvalidInput, match="3 sessions begin with '20'"):
        store.find("20")


HOSTILE = ("", "..", "../x", "/etc", "%", "_" * 24, "2026*", "' OR 1=1 --", "\0", "\ud800", "x" * 5_000, "٢٠٢٦", "-")


def test_no_name_leads_anywhere_else(store: Store) -> None:
    made(store)
    reaches: list[Callable[[str], object]] = [store.open, store.read, store.find, store.archive, store.agents]
    reaches += [store.delete, lambda name: store.bind("k", name), lambda name: list(store.originals(name))]
    reaches += [lambda name: list(store.records(name)), lambda name: store.messages(name, start=0, stop=1)]
    for name in HOSTILE:
        for reach in reaches:
            with pytest.raises(InvalidInput, match="no session"):
                reach(name)
    assert len(store.names()) == 1


def test_the_one_written_last_is_first_and_latest(place: str, other: Store) -> None:
    with closing(store_at(place, clock=Ticking())) as store:
        names = [made(store) for _ in range(3)]
        assert store.names() == names
        with closing(store.open(names[1])) as session:
            say(session, "later")
    assert next(iter(other.sessions())).id == names[1]
    assert other.find("latest") == names[1]


def test_a_list_shows_the_state_of_each_session(store: Store, other: Store) -> None:
    with begun(store, model="gpt-4o", policy="cost", parent="p") as session:
        session.turn("begun")
        context = say(session, *(f"question {number} " + "word " * 60 for number in range(20)))
        session.save(context)
    [listed] = other.sessions(save=False)
    found = listed.snapshot
    assert found is not None
    assert (found.id, found.model, found.policy, found.parent) == (session.id, "gpt-4o", "cost", "p")
    assert (found.turns, found.messages, found.folds) == (1, 20, len(session.tally.folds))
    assert found.folds > 0
    assert (found.tokens, found.window_tokens) == (context.figures.used_tokens, 900)
    assert found.title.startswith("question 0 word")
    assert (found.created, found.updated) == (session.header.created, session.tally.updated)
    assert found.log_bytes == other.read(session.id).log_bytes


def test_a_lost_or_stale_snapshot_is_made_again(store: Store, other: Store) -> None:
    with begun(store) as session:
        say(session, "never saved")
        name = session.id
    for _ in range(2):  # once made from the log, once kept
        [listed] = other.sessions()
        assert listed.snapshot is not None
        assert (listed.snapshot.title, listed.snapshot.messages) == ("never saved", 1)
    with closing(store.open(name)) as opened:
        say(opened, "more")
    [listed] = other.sessions(save=False)
    assert listed.snapshot is not None
    assert listed.snapshot.messages == 2


def test_records_are_read_by_their_place_and_messages_by_their_seq(store: Store) -> None:
    with begun(store, window=100_000) as session:
        wires = [user(f"text {number}") for number in range(130)]
        entries = [Entry(at, at, codec("openai-chat").read(wire), 3, wire) for at, wire in enumerate(wires)]
        for start in range(0, 130, 10):
            session.note(number=start)
            session.append(entries[start : start + 10])
        name = session.id
    everything = list(store.records(name))
    assert len(everything) == 144
    for start, stop in ((0, 1), (0, 0), (7, 140), (99, 101), (100, None), (142, 400), (400, 500), (9, 3)):
        assert list(store.records(name, start=start, stop=stop)) == everything[start:stop]
    messages = [one for one in everything if one["type"] == "message"]
    for start, stop in ((0, 1), (0, 0), (7, 120), (129, 500), (130, 140), (9, 3)):
        assert store.messages(name, start=start, stop=stop) == messages[start:stop]


# --- whole sessions ---------------------------------------------------------------------------------------------------


def rich(store: Store) -> str:
    """A session with everything that a session can have."""
    with begun(store) as session:
        session.turn("begun", key="k")
        say(session, *ODD, *(f"question {number} " + "word " * 60 for number in range(20)))
        session.put_original(bytes(range(256)))
        session.turn("ended", reason="done")
        with begun(session.agents()) as agent:
            say(agent, "sub")
            agent.put_original(b"its own")
            with begun(agent.agents()) as inner:
                say(inner, "sub-sub")
        return session.id


def copied(source: Store, target: Store, name: str) -> None:
    [snapshot] = [one.snapshot for one in source.sessions() if one.id == name]
    assert target.import_session(source.records(name), source.originals(name), snapshot=snapshot) == name
    for agent in source.agents(name).names():
        copied(source.agents(name), target.agents(name), agent)


def whole(store: Store, name: str) -> tuple[list[Record], list[bytes], list[Any]]:
    agents = store.agents(name)
    inner = [whole(agents, agent) for agent in agents.names()]
    return list(store.records(name)), sorted(store.originals(name)), inner


@pytest.mark.parametrize("there", KINDS)
@pytest.mark.parametrize("here", KINDS)
def test_a_session_moves_between_any_two_stores_without_loss(places: Places, here: str, there: str) -> None:
    with closing(store_at(places(here))) as source, closing(store_at(places(there))) as target:
        name = rich(source)
        before = whole(source, name)
        assert len(before[2]) == 1 and len(before[1]) > 2
        copied(source, target, name)
        assert whole(target, name) == before
        [listed], [was] = target.sessions(save=False), source.sessions(save=False)
        assert listed.snapshot is not None and was.snapshot is not None
        assert replace(listed.snapshot, log_bytes=0) == replace(was.snapshot, log_bytes=0)
        with closing(source.open(name)) as one, closing(target.open(name)) as two:
            assert (two.header, two.tally) == (one.header, one.tally)
            assert context_of(two).view.wires() == context_of(one).view.wires()
            say(two, "goes on")
        assert whole(source, name) == before
        with pytest.raises(InvalidInput, match="there is a session with this id"):
            target.import_session(source.records(name), source.originals(name))
        assert texts(target, name)[-1] == "goes on"


def test_an_import_that_fails_leaves_nothing(store: Store) -> None:
    header: Record = {
        "type": "session", "v": 1, "id": "20261128-040506-0123abcd", "created": "2026-11-28T04:05:06.000Z",
        "dialect": "openai-chat", "at": "2026-11-28T04:05:06.000Z",
    }  # fmt: skip

    def broken() -> Iterator[Record]:
        yield header
        for number in range(500):
            yield {"type": "note", "number": number}
        raise OSError("the source is gone")

    def spoilt() -> Iterator[bytes]:
        yield b"one"
        raise InvalidInput("the content does not match its key")

    with pytest.raises(OSError, match="source is gone"):
        store.import_session(broken(), ())
    with pytest.raises(InvalidInput, match="its key"):
        store.import_session([header], spoilt())
    with pytest.raises(InvalidInput):
        store.import_session([header, {"type": "note", "what": math.nan}], ())
    for odd in (
        [],
        [{"type": "note"}],
        [header | {"id": "../x"}],
        [header | {"dialect": "none"}],
        [header | {"id": 7}],
    ):
        with pytest.raises(InvalidInput):
            store.import_session(odd, ())
    assert store.names() == []
    assert store.import_session([header], [b"one"]) == header["id"]
    assert list(store.records(header["id"])) == [header]


# --- keys -------------------------------------------------------------------------------------------------------------

KEYS = ["telegram:1:2", "", "a\0b", "half \ud83d", "' OR 1=1 --", "ключ \\u0041", "%", "k" * 900]


def test_a_key_leads_to_one_session(store: Store, other: Store) -> None:
    one, two = made(store), made(store)
    assert store.session_of("nobody") is None
    for key in KEYS:
        assert store.session_of(key) is None
        store.bind(key, one)
    assert other.bindings() == dict.fromkeys(KEYS, one)
    other.bind(KEYS[0], two[:24])
    other.bind(KEYS[1], "latest")
    assert (store.session_of(KEYS[0]), store.session_of(KEYS[1]), store.session_of(KEYS[2])) == (two, two, one)
    store.delete(two)
    assert other.bindings() == dict.fromkeys(KEYS[2:], one)
    assert other.session_of(KEYS[0]) is None


def test_the_first_key_that_leads_anywhere_is_found_among_thousands(store: Store, other: Store) -> None:
    one, two = made(store), made(store)
    many = [f"proxy={number:032x}" for number in range(4_000)]
    assert store.first_session_of([]) is None
    assert store.first_session_of(many) is None
    store.bind_all([many[70], many[3_999], *KEYS], one)
    store.bind_all([many[71], many[1_500]], two)
    for asked, key, session in [
        (many, many[70], one),
        (many[71:], many[71], two),
        (many[72:], many[1_500], two),
        (many[::-1], many[3_999], one),
        (many[3_998::-1], many[1_500], two),
        (["nobody", many[1_500], many[70]], many[1_500], two),
        (["nobody", many[70], many[1_500], many[70]], many[70], one),
    ]:
        assert other.first_session_of(asked) == (key, session)
    for key in KEYS:
        assert other.first_session_of(["nobody", key, many[71]]) == (key, one)
    assert store.first_session_of(many[1_501:3_999]) is None
    with begun(store) as outer:
        assert outer.agents().first_session_of(many) is None, "the sessions of sub-agents have keys of their own"


def test_many_keys_are_bound_at_once(store: Store, other: Store) -> None:
    one, two = made(store), made(store)
    many = [f"{number} half \ud83d" for number in range(2_500)]
    store.bind_all(iter(many), one)
    assert other.bindings() == dict.fromkeys(many, one)
    other.bind_all([many[1], "new", "new"], two[:24])
    store.bind("alone", two)
    assert store.bindings() == dict.fromkeys(many, one) | dict.fromkeys([many[1], "new", "alone"], two)
    assert (store.session_of(many[0]), store.session_of(many[1]), other.session_of("alone")) == (one, two, two)
    store.bind_all([], two)
    for name in HOSTILE:
        with pytest.raises(InvalidInput, match="no session"):
            store.bind_all([many[0], "another"], name)
    assert store.session_of("another") is None


@pytest.mark.parametrize("how", ["delete", "discard"])
def test_keys_of_a_removed_session_lead_nowhere_and_do_not_come_back(store: Store, other: Store, how: str) -> None:
    kept = made(store)
    with begun(store) as session:
        say(session, "hello")
        name, records = session.id, list(store.records(session.id))
        store.bind_all(["a", "b", "c"], name)
        store.bind_all(["c", "d"], kept)
        if how == "discard":
            session.discard()
    if how == "delete":
        other.delete(name)
    assert other.first_session_of(["a", "b"]) is None
    assert store.first_session_of(["a", "b", "c", "d"]) == ("c", kept)
    assert store.bindings() == {"c": kept, "d": kept}
    assert store.import_session(records, ()) == name
    assert other.session_of("a") is None, "they were removed, and not only passed over"
    assert other.bindings() == {"c": kept, "d": kept}


def binding(pipe: Connection, place: str, name: str) -> None:
    with closing(store_at(place)) as store:
        pipe.send("ready")
        pipe.recv()
        for number in count():
            store.bind_all([f"{name} {number} {part}" for part in "abc"], name)
            pipe.send(number)


@posix_only
def test_of_processes_that_bind_at_once_and_are_killed_no_acknowledged_key_is_lost(place: str, store: Store) -> None:
    names = [made(store) for _ in range(3)]
    told: dict[str, int] = {}
    chance = random.Random(5)
    with ExitStack() as running:
        processes = [running.enter_context(child(binding, place, name)) for name in names]
        assert [process.receive() for process in processes] == ["ready"] * 3
        for process in processes:
            process.pipe.send("go")
        for name, process in zip(names, processes, strict=True):
            numbers = [process.receive() for _ in range(chance.randrange(1, 12))]
            process.kill()
            told[name] = max(numbers + process.drain())
    bound = store.bindings()
    for name in names:
        numbers = sorted(int(key.split()[1]) for key, session in bound.items() if session == name)
        keys = len(numbers) // 3
        assert numbers == [number for number in range(keys) for _ in "abc"], "all three, or none"
        assert keys - 1 in (told[name], told[name] + 1), "one may be bound and not told"
    store.bind("and it goes on", names[0])


def test_states_are_shared_and_the_last_write_wins(store: Store, other: Store) -> None:
    for key in KEYS:
        assert store.load_state(key) == {}
        store.save_state(key, {"due": "07:00", "key": key, "list": [1, None, 0.5], "text": "a\u0000\ud800ü"})
        assert other.load_state(key) == {"due": "07:00", "key": key, "list": [1, None, 0.5], "text": "a\u0000\ud800ü"}
        other.save_state(key, {"due": "08:00"})
        assert store.load_state(key) == {"due": "08:00"}
    with begun(store) as session:
        assert session.agents().load_state(KEYS[0]) == {}, "the sessions of sub-agents have keys of their own"


def test_a_state_that_is_not_json_is_refused(store: Store) -> None:
    store.save_state("a", {"kept": True})
    for value in (math.nan, b"bytes", object()):
        bad: Any = {"value": value}
        with pytest.raises(InvalidInput):
            store.save_state("a", bad)
    assert store.load_state("a") == {"kept": True}


def test_a_claimed_key_stays_claimed(store: Store, other: Store) -> None:
    for key in KEYS:
        assert store.claim(key)
        assert not other.claim(key)
    with begun(store) as session:
        assert session.agents().claim(KEYS[0]), "the sessions of sub-agents have keys of their own"


def test_of_threads_that_claim_a_key_one_is_first(place: str) -> None:
    with ExitStack() as open_till_the_end:
        stores = [open_till_the_end.enter_context(closing(store_at(place))) for _ in range(2)]
        with ThreadPoolExecutor(8) as pool:
            for number in range(5):
                start = threading.Barrier(8)

                def race(each: int, key: str, start: threading.Barrier) -> bool:
                    start.wait()
                    return stores[each % 2].claim(key)

                assert sum(pool.map(race, range(8), [f"key {number}"] * 8, [start] * 8)) == 1


def claiming(pipe: Connection, place: str) -> None:
    with closing(store_at(place)) as store:
        pipe.send("ready")
        while True:
            pipe.send(store.claim(pipe.recv()))


@posix_only
def test_of_processes_that_claim_a_key_one_is_first(place: str) -> None:
    with ExitStack() as running:
        # They all make the tables, or find them made.
        processes = [running.enter_context(child(claiming, place)) for _ in range(4)]
        assert [process.receive() for process in processes] == ["ready"] * 4
        for number in range(10):
            for process in processes:
                process.pipe.send(f"run {number}")
            assert sorted(process.receive() for process in processes) == [False, False, False, True]


# --- what was acknowledged is there -----------------------------------------------------------------------------------


@posix_only
def test_acknowledged_messages_survive_every_kill(place: str) -> None:
    lease_seconds = 0.2
    chance = random.Random(4)
    with closing(store_at(place, lease_seconds)) as store:
        with begun(store, window=2_000) as session:
            name = session.id
        said = 0
        for _ in range(4):
            told = told_before_its_end(place, name, chance.randrange(1, 25), lease_seconds)
            assert told == list(range(told[0], told[-1] + 1))
            assert told[0] in (said, said + 1), "it goes on behind what was kept; one may be kept and not told"
            said = told[-1] + 1
            kept = texts(store, name)
            assert [int(text.split()[1]) for text in kept] == list(range(len(kept)))
            assert len(kept) in (said, said + 1)
        with closing(retry_while_taken(lambda: store.open(name))) as opened:
            assert context_of(opened).view.wires()
            say(opened, "and it goes on")
        assert len(texts(store, name)) in (said + 1, said + 2)


def test_of_a_session_at_work_the_list_reads_no_log_and_one_left_in_its_first_turn_is_read(store: Store) -> None:
    with begun(store) as session:
        say(session, "a")
        [behind] = store.sessions(allow_stale=True, running={session.id})
        assert behind.snapshot is not None
        assert (behind.snapshot.messages, behind.snapshot.title, behind.snapshot.turns) == (0, "", 0)
        [left] = store.sessions(allow_stale=True)
        assert left.snapshot is not None
        assert (left.snapshot.messages, left.snapshot.title) == (1, "a")


def test_a_session_that_was_just_created_is_listed_as_it_is(store: Store) -> None:
    with begun(store) as session:
        [listed] = store.sessions(save=False)
        found = listed.snapshot
        assert found is not None
        assert found.log_bytes == store.read(session.id).log_bytes
        assert found == snapshot_of(session.header, session.tally, store.read(session.id).replay(), found.log_bytes)


def test_a_list_may_take_snapshots_that_are_behind(store: Store) -> None:
    with begun(store) as session:
        say(session, "a")
        session.save(context_of(session))
        session.change(title="Later.")
        [behind], [now] = store.sessions(save=False, allow_stale=True), store.sessions(save=False)
        assert behind.snapshot is not None and now.snapshot is not None
        assert (behind.snapshot.title, now.snapshot.title) == ("a", "Later.")
