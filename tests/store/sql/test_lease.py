"""Leases: nobody else writes a session while its writer lives, another can soon after its death, and never both."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.store.children import child
from tests.store.places import Places, retry_while_taken
from tests.store.test_contract import begun, context_of, made, say, texts, user
from tests.store.test_session import told_before_its_end

from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken
from foldline.store import StoredSession
from foldline.store.sql.database import Database
from foldline.store.sql.store import SqlStore
from foldline.view.transcript import Event

ROOT = Path(__file__).parents[3]
LEASE_SECONDS = 0.5
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def store(place: str) -> Iterator[SqlStore]:
    with closing(SqlStore.at(place, lease_seconds=LEASE_SECONDS)) as opened:
        yield opened


@pytest.fixture
def other(place: str) -> Iterator[SqlStore]:
    with closing(lasting(place)) as opened:
        yield opened


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def lease_until(database: Database) -> float:
    with database.reading() as connection:
        return float(connection.exec_driver_sql("SELECT max(lease_until) FROM foldline_sessions").scalar() or 0)


def renewed(database: Database, seconds: float) -> None:
    """Wait until a lease was extended by this much."""
    before = lease_until(database)
    until(lambda: lease_until(database) >= before + seconds)


def run_out(database: Database) -> None:
    """Expire all leases, as if their holders had slept."""
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE foldline_sessions SET lease_until = 1 WHERE owner IS NOT NULL")


def lasting(place: str) -> SqlStore:
    """A store that renews no lease during a test."""
    return SqlStore.at(place, lease_seconds=600)


# --- while the writer lives -------------------------------------------------------------------------------------------


def test_a_long_call_of_a_model_keeps_its_session(place: str, other: SqlStore, database: Database) -> None:
    store = SqlStore.at(place, lease_seconds=2.0)
    with closing(store), begun(store) as session, begun(session.agents()) as agent:
        renewed(database, 0.5)  # nothing was written meanwhile
        with pytest.raises(SessionTaken):
            other.open(session.id)
        with pytest.raises(SessionTaken):
            other.agents(session.id).open(agent.id)
        say(session, "still mine")


def test_a_session_that_was_let_go_of_is_not_renewed(store: SqlStore, database: Database) -> None:
    with begun(store) as held, begun(store) as session:
        session.release()
        renewed(database, LEASE_SECONDS)
        with database.reading() as connection:
            owned = connection.exec_driver_sql("SELECT id FROM foldline_sessions WHERE owner IS NOT NULL")
            assert list(owned.scalars()) == [held.id]


def test_a_session_that_nobody_has_in_hand_any_more_is_free_soon(store: SqlStore, other: SqlStore) -> None:
    session = store.create(dialect="openai-chat")
    name, gone = session.id, weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    retry_while_taken(lambda: other.open(name)).close()


def test_a_closed_store_holds_nothing_and_leaves_no_thread(place: str, other: SqlStore) -> None:
    before = set(threading.enumerate())
    store = lasting(place)
    session = store.create(dialect="openai-chat")
    [thread] = set(threading.enumerate()) - before
    assert thread.daemon
    store.close()
    assert not thread.is_alive()
    other.open(session.id).close()
    with pytest.raises(SessionLost):
        session.note(a=1)
    session.close()
    store.close()


def test_a_process_ends_though_it_closed_nothing(place: str) -> None:
    code = (
        "import sys; from foldline.store.addresses import open_store; "
        "store = open_store(sys.argv[1]); session = store.create(dialect='openai-chat'); print(session.id)"
    )
    done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip()) == 24


# --- after its death, or its sleep ------------------------------------------------------------------------------------


@posix_only
def test_the_session_of_a_killed_process_is_free_when_its_lease_has_run_out(
    store: SqlStore, place: str, database: Database
) -> None:
    with begun(store, window=2_000) as session:
        name = session.id
    told_before_its_end(place, name, 3, 600.0)
    with pytest.raises(SessionTaken):
        store.open(name)
    run_out(database)
    store.open(name).close()


def sleep_and_write(pipe: Connection, place: str) -> None:
    with closing(SqlStore.at(place, lease_seconds=LEASE_SECONDS)) as store:
        session = store.open("latest")
        pipe.send("held")
        while True:
            said = pipe.recv()
            try:
                session.note(said=said)
                pipe.send("written")
            except SessionLost:
                pipe.send("lost")


@posix_only
def test_a_process_that_slept_past_its_lease_writes_nothing(store: SqlStore, place: str) -> None:
    name = made(store)
    with child(sleep_and_write, place) as sleeper:
        assert sleeper.receive() == "held"
        assert sleeper.exchange("before") == "written"
        for woken_while_it_is_taken in (True, False):
            os.kill(sleeper.pid, signal.SIGSTOP)
            with closing(retry_while_taken(lambda: store.open(name))) as session:
                session.note(said="by another")
                if woken_while_it_is_taken:
                    os.kill(sleeper.pid, signal.SIGCONT)
                    assert sleeper.exchange("too late") == "lost"
                session.note(said="by another")
            if not woken_while_it_is_taken:
                os.kill(sleeper.pid, signal.SIGCONT)
            assert sleeper.exchange("nobody has it, but it is another's work now") == "lost"
    said = [record["said"] for record in store.records(name) if record["type"] == "note"]
    assert said == ["before", *["by another"] * 4]


def test_an_overtaken_writer_can_write_nothing_at_all(place: str, other: SqlStore, database: Database) -> None:
    store = lasting(place)
    with closing(store), begun(store) as session:
        writes: list[Callable[[Context], object]] = [
            lambda context: session.append(context.events_after(1)),
            lambda context: session.turn("begun"),
            lambda context: session.note(a=1),
            lambda context: session.change(title="T"),
            lambda context: session.put_original(b"data"),
            session.save,
            lambda context: session.discard(),
        ]
        context = say(session, "0")
        for number, write in enumerate(writes, 1):
            run_out(database)
            with closing(other.open(session.id)) as second:
                say(second, str(number))
                context.append(user("lost"))
                for _ in range(2):
                    with pytest.raises(SessionLost, match="another process has taken this session over"):
                        write(context)
                with pytest.raises(SessionTaken):
                    session.acquire()
            assert not session.acquire(), "it is not as it was left"
            context = context_of(session)
            assert session.tally.messages == number + 1
        assert texts(store, session.id) == [str(number) for number in range(len(writes) + 1)]
        assert session.header.title == ""
        assert list(store.originals(session.id)) == []


def test_a_sleeper_that_nobody_overtook_goes_on(place: str, database: Database) -> None:
    with closing(lasting(place)) as store, begun(store) as session:
        run_out(database)
        say(session, "good morning")
        assert texts(store, session.id) == ["good morning"]
        assert lease_until(database) > 1


def test_the_session_of_a_dead_process_can_be_deleted_after_its_lease(
    place: str, other: SqlStore, database: Database
) -> None:
    with closing(lasting(place)) as store, begun(store) as session:
        with pytest.raises(SessionTaken):
            other.delete(session.id)
        run_out(database)
        other.delete(session.id)
        with pytest.raises(SessionLost):
            session.note(a=1)
        with pytest.raises(InvalidInput, match="session no longer exists"):
            session.acquire()


# --- a server that restarts -------------------------------------------------------------------------------------------


def crash(database: Database) -> None:
    """Kill one process of the server, which then ends all the others, recovers and restarts."""
    with suppress(OSError), database.reading() as one, database.reading() as other:
        pid = one.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        while True:  # until the server has noticed, and ended the other one too
            other.exec_driver_sql("SELECT 1")


def lease_until_if_there(database: Database) -> float:
    """As `lease_until`; 0 while the server is down."""
    try:
        return lease_until(database)
    except OSError:
        return 0.0


def written(session: StoredSession, events: Sequence[Event]) -> bool:
    """Whether events were written; the caller repeats the write otherwise, as an agent does."""
    try:
        session.append(events)
        return True
    except OSError as error:
        assert error.filename == session.place.removesuffix(f" {session.id}")
        return False


@posix_only
def test_a_session_outlives_a_crash_of_its_server(places: Places) -> None:
    place = places("postgresql")
    with (
        closing(SqlStore.at(place, lease_seconds=3.0)) as store,
        closing(Database(place)) as database,
        begun(store, window=50_000) as session,
    ):
        context = say(session, "before")
        before = context.event_count
        context.append(user("after"))
        crash(database)
        until(partial(written, session, context.events_after(before)))
        until(lambda: lease_until_if_there(database) > 0)
        renewed(database, 0.5)  # the thread asks again
        assert texts(store, session.id) == ["before", "after"]
