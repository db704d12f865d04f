"""Stores in tables only: their schema and migrations, one query for a list, and the state after a broken connection."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, inspect, make_url
from tests.store.places import Places
from tests.store.test_contract import begun, context_of, made, say, texts, user

from foldline.errors import InvalidInput
from foldline.store.sql.database import Database
from foldline.store.sql.schema import MIGRATIONS, Migration, migrate, migrations, sessions
from foldline.store.sql.store import SqlStore

TABLES = sessions.metadata


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements sent to databases inside the block."""
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


# --- the form of the tables -------------------------------------------------------------------------------------------


def test_the_steps_lead_to_the_tables_that_are_read(store: SqlStore, database: Database) -> None:
    with database.reading() as connection:
        found = inspect(connection)
        for table in TABLES.tables.values():
            columns = {column["name"]: bool(column["nullable"]) for column in found.get_columns(table.name)}
            assert columns.keys() == {column.name for column in table.columns}
            key = found.get_pk_constraint(table.name)["constrained_columns"]
            assert key == [column.name for column in table.primary_key]
        assert connection.execute(migrations.select()).scalars().all() == [one.number for one in MIGRATIONS]


def second(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE foldline_sessions ADD COLUMN colour TEXT")
    connection.exec_driver_sql("UPDATE foldline_sessions SET colour = 'blue' WHERE number <> 0")


def failing(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE foldline_sessions ADD COLUMN shape TEXT")
    raise InvalidInput("the power is gone")


def colours(database: Database) -> list[str]:
    with database.reading() as connection:
        return list(connection.exec_driver_sql("SELECT colour FROM foldline_sessions WHERE number <> 0").scalars())


@contextmanager
def as_it_was(database: Database) -> Iterator[None]:
    """Restore the tables of this version, because other tests use the database."""
    try:
        yield
    finally:
        with database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM foldline_migrations WHERE number > 1")
            columns = {column["name"] for column in inspect(connection).get_columns("foldline_sessions")}
            if "colour" in columns:
                connection.exec_driver_sql("ALTER TABLE foldline_sessions DROP COLUMN colour")


def test_a_newer_version_brings_the_tables_of_an_older_one_up_to_date(place: str) -> None:
    with closing(SqlStore.at(place)) as store, closing(Database(place)) as database, as_it_was(database):
        name = made(store, "from the old days")
        steps = (*MIGRATIONS, Migration(2, second))
        for _ in range(2):
            migrate(database, steps)
        assert colours(database) == ["blue"]
        assert texts(store, name) == ["from the old days"]
        with pytest.raises(InvalidInput, match=r"newer Foldline \(form 2, this one knows 1\)") as caught:
            SqlStore.at(place)
        assert caught.value.place == database.place


def test_a_step_that_fails_changes_nothing(place: str) -> None:
    with closing(SqlStore.at(place)) as store, closing(Database(place)) as database, as_it_was(database):
        name = made(store)
        with pytest.raises(InvalidInput, match="power is gone"):
            migrate(database, (*MIGRATIONS, Migration(2, second), Migration(3, failing)))
        with database.reading() as connection:
            names = {column["name"] for column in inspect(connection).get_columns("foldline_sessions")}
        assert not names & {"colour", "shape"}
        with closing(SqlStore.at(place)) as again:
            assert texts(again, name) == ["hello"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_servers_that_start_at_once_make_the_tables_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from tests.real.postgresql import fresh_database

    place = f"sqlite:///{tmp_path / 'new.db'}"
    if kind == "postgresql":
        place = fresh_database(request.getfixturevalue("postgresql_url"))
    start = threading.Barrier(8)

    def begin(number: int) -> str:
        start.wait()
        with closing(SqlStore.at(place)) as store:
            migrate(store._database, (*MIGRATIONS, Migration(2, second)))
            return store.place

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(begin, number) for number in range(8)]
    for one in results:
        with suppress(InvalidInput):  # who looks after another has taken the second step is refused
            one.result()
    with closing(Database(place)) as database, database.reading() as connection:
        assert connection.execute(migrations.select()).scalars().all() == [1, 2]


# --- what is asked of the database ------------------------------------------------------------------------------------


def test_a_list_is_one_query_however_many_there_are(store: SqlStore) -> None:
    for _ in range(12):
        made(store)
    stale = [one.id for one in store.sessions()]  # `made` says that the turn ended after it saved
    assert len(stale) == 12
    with statements() as sent:
        assert {one.id for one in store.sessions()} == set(stale)
    assert len([one for one in sent if one.startswith("SELECT")]) == 1


def test_every_query_uses_an_index(places: Places) -> None:
    with closing(SqlStore.at(places("sqlite"))) as store, closing(Database(store.place)) as database:
        name = made(store)
        with statements() as sent:
            store.messages(name, start=0, stop=1)
            list(store.records(name, start=0, stop=1))
        asked = [one for one in sent if "foldline_records" in one]
        assert len(asked) == 4
        with database.reading() as connection:
            for one in asked:
                numbers = tuple(range(one.count("?")))
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", numbers).all()
                assert not any("SCAN" in step.detail for step in plan), plan


def test_a_damaged_row_is_named_and_ends_no_list(store: SqlStore, database: Database) -> None:
    good, bad, spoilt = made(store), made(store), made(store)
    with database.writing() as connection:
        row = "session = (SELECT number FROM foldline_sessions WHERE id = '{}') AND number = 1"
        connection.exec_driver_sql(f"UPDATE foldline_records SET body = '[' WHERE {row.format(bad)}")
        connection.exec_driver_sql(f"UPDATE foldline_sessions SET snapshot = '7' WHERE id = '{spoilt}'")
    listed = {one.id: one for one in store.sessions()}
    assert listed[good].snapshot is not None
    assert listed[spoilt].snapshot is not None
    assert "record 1: damaged: no JSON" in listed[bad].damage
    with pytest.raises(InvalidInput, match=f"{bad}, record 1"):
        store.open(bad)
    with database.writing() as connection:
        connection.exec_driver_sql(f"DELETE FROM foldline_records WHERE {row.format(good)}")
    with pytest.raises(InvalidInput, match="record 1: damaged: it is missing"):
        store.read(good)
    store.delete(bad)  # whoever could not open it has not taken it


def test_an_altered_original_is_noticed(store: SqlStore, database: Database) -> None:
    with begun(store) as session:
        key = session.put_original(b"as it was")
        with database.writing() as connection:
            connection.exec_driver_sql("UPDATE foldline_originals SET data = CAST('altered' AS {})".format(
                "BLOB" if connection.dialect.name == "sqlite" else "BYTEA"))  # fmt: skip
        with pytest.raises(InvalidInput, match="does not match its key"):
            session.archive.get(key)


def test_a_session_cannot_be_begun_within_one_that_was_deleted(store: SqlStore) -> None:
    with begun(store) as session:
        agents, archive = session.agents(), session.archive
    store.delete(session.id)
    with pytest.raises(InvalidInput, match="session no longer exists"):
        agents.create(dialect="openai-chat")
    with pytest.raises(InvalidInput, match="session no longer exists"):
        archive.put(b"data")


def test_a_key_that_no_index_would_hold_is_refused(store: SqlStore) -> None:
    for ask in (store.claim, store.session_of):
        with pytest.raises(InvalidInput, match="longer than 1,000 characters"):
            ask("é" * 501)


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_file_of_sessions_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqlStore.at(f"sqlite:///{tmp_path / 'inner' / 'sessions.db'}")
        with closing(store), begun(store) as session:
            say(session, "hello")
            files = list((tmp_path / "inner").iterdir())
            assert len(files) == 3, "the file, its log and the index of that"
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert (tmp_path / "inner").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_fails_the_append_and_not_the_session(tmp_path: Path) -> None:
    import resource
    import signal

    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with closing(SqlStore.at(f"sqlite:///{tmp_path}/a.db")) as store, begun(store, window=100_000) as session:
        context = say(session, "before")
        context.append(user("x" * 300_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limit[1]))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="database") as caught:
                    session.append(context.events_after(1))
                assert caught.value.filename == store.place
            assert texts(store, session.id) == ["before"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, handler)
        session.append(context.events_after(1))
        assert texts(store, session.id) == ["before", "x" * 300_000]


# --- a connection that breaks -----------------------------------------------------------------------------------------


class Cable:
    """A socket in front of a PostgreSQL server; once cut, it passes the next COMMIT but not its answer."""

    def __init__(self, server: str, folder: Path) -> None:
        self.folder = folder
        self.cut = False
        self.cuts = 0
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        pumps = []
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._server)
                pumps += [
                    threading.Thread(target=self._pump, args=pair) for pair in ((near, far, True), (far, near, False))
                ]
                for pump in pumps[-2:]:
                    pump.start()
        for pump in pumps:
            pump.join()

    def _pump(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if from_client and self.cut and b"COMMIT" in data:
                    self.cut = False
                    self.cuts += 1
                    # The client hears nothing more; whether the server does it before it learns so is its affair.
                    source.shutdown(socket.SHUT_RDWR)
                    target.sendall(data)
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        if not from_client:
            source.close()
            target.close()


@pytest.fixture
def cable(places: Places, tmp_path: Path) -> Iterator[tuple[Cable, str]]:
    url = make_url(places("postgresql"))
    with closing(Cable(f"{url.query['host']}/.s.PGSQL.5432", tmp_path)) as made_of:
        yield made_of, url.set(query={"host": str(tmp_path)}).render_as_string(hide_password=False)


def test_a_commit_whose_answer_was_lost_is_not_written_twice(cable: tuple[Cable, str]) -> None:
    line, place = cable
    with closing(SqlStore.at(place)) as store, begun(store, window=100_000) as session:
        context = context_of(session)
        for number in range(12):
            before = context.event_count
            context.append(user(f"text {number}"))
            line.cut = number % 3 == 1
            if line.cut:
                with pytest.raises(OSError, match="database") as caught:
                    session.append(context.events_after(before))
                assert caught.value.filename == store.place
                if number % 2:
                    session.release()
                    session.acquire()
                    assert len(texts(store, session.id)) == number, "what was not acknowledged was taken back"
            session.append(context.events_after(before))
        assert line.cuts == 4
        assert texts(store, session.id) == [f"text {number}" for number in range(12)]
