"""No damaged table is taken for a whole one: what is wrong is named by its record, and repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeAlias

import pytest
from tests.store.places import Places
from tests.store.test_contract import begun, context_of, say

from foldline.archive import key_of
from foldline.errors import InvalidInput, SessionTaken
from foldline.fitting import check
from foldline.store.sql import SqlStore
from foldline.store.sql_database import Database

Run: TypeAlias = Callable[[str], None]
"""Runs a statement on the rows of one session; `{s}` in it is the number of that."""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, places: Places) -> str:
    return places(request.param)


@pytest.fixture
def store(place: str) -> Iterator[SqlStore]:
    with closing(SqlStore.at(place)) as opened:
        yield opened


@pytest.fixture
def database(place: str) -> Iterator[Database]:
    with closing(Database(place)) as opened:
        yield opened


def filled(store: SqlStore) -> str:
    with begun(store) as session:
        session.save(say(session, *(f"words {number}" for number in range(6))))
    return session.id


def runner(store: SqlStore, database: Database, name: str) -> Run:
    with database.reading() as connection:
        found = connection.exec_driver_sql(f"SELECT number FROM foldline_sessions WHERE id = '{name}'")
        number = found.scalar_one()

    def run(statement: str) -> None:
        with database.writing() as connection:
            connection.exec_driver_sql(statement.format(s=number))

    return run


R = "foldline_records"
OURS = "WHERE session = {s} AND number"
COPY = f"UPDATE {R} SET body = (SELECT o.body FROM {R} o WHERE o.session = {{s}} AND o.number = 2) {OURS} = 3"
EXTRA = f"INSERT INTO {R} (session, number, body) SELECT session, 999, body FROM {R} {OURS} = 2"
HARMS: dict[str, tuple[list[str], str]] = {
    "altered": ([f"UPDATE {R} SET body = replace(body, 'words 2', 'words 9') {OURS} > 0"], "checksum"),
    "missing": ([f"DELETE FROM {R} {OURS} = 3"], r"record 3.*missing"),
    "several missing": ([f"DELETE FROM {R} {OURS} IN (2, 3, 4)"], r"record 2.*missing"),
    "the last ones missing": ([f"DELETE FROM {R} {OURS} > 4"], r"record 5.*missing at the end"),
    "doubled": ([COPY], r"record 3.*doubled or moved"),
    "swapped": (
        [f"UPDATE {R} SET number = {new} {OURS} = {old}" for old, new in ((2, 1_002), (3, 2), (1_002, 3))],
        r"record 2: damaged: record 3 stands here",
    ),
    "one too many": ([EXTRA], r"it is there, and the session says"),
    "counted wrong": (["UPDATE foldline_sessions SET records = records + 1 WHERE number = {s}"], r"missing at the end"),
    "filed under another message": ([f"UPDATE {R} SET seq = 40 {OURS} > 0 AND seq = 1"], r"columns beside it"),
    "without its checksum": ([f"UPDATE {R} SET body = '{{{{\"type\":7}}}}' {OURS} = 3"], r"no checksum"),
    "no JSON": ([f"UPDATE {R} SET body = '[' {OURS} = 3"], r"record 3: damaged: no JSON"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_table_that_was_tampered_with_is_named_and_repaired(store: SqlStore, database: Database, harm: str) -> None:
    other, name = filled(store), filled(store)
    whole = list(store.records(name))
    run = runner(store, database, name)
    statements, words = HARMS[harm]
    for statement in statements:
        run(statement)
    for taking in (store.open, store.read, lambda name: list(store.records(name))):
        with pytest.raises(InvalidInput, match=words) as caught:
            taking(name)
        assert f"foldline sessions repair {name}" in str(caught.value)
    store.open(other).close()
    done = store.repair(name)
    assert done is not None
    kept = list(store.records(name))
    assert [one for one in kept if one in whole] == [one for one in whole if one in kept]
    assert len([one for one in kept if one in whole]) >= len(whole) - 5
    if harm in ("swapped", "one too many", "counted wrong", "filed under another message"):
        assert [one for one in kept if "repaired" not in one] == whole
    assert any("repaired" in one for one in kept)
    archive = store.archive(name)
    assert b'"type"' in archive.get(str(done.kept).rpartition(":")[2])
    with store.open(name) as session:
        request = context_of(session).prepare()
        assert check(request.messages) == []
        session.note(text="goes on")
    assert store.repair(name) is None
    assert [one.damage for one in store.sessions()] == ["", ""]


def test_a_session_in_use_is_not_repaired(store: SqlStore, place: str) -> None:
    with begun(store) as session, closing(SqlStore.at(place)) as other, pytest.raises(SessionTaken):
        other.repair(session.id)


def test_a_list_marks_a_session_whose_last_records_are_missing(store: SqlStore, database: Database) -> None:
    name = filled(store)
    runner(store, database, name)(f"DELETE FROM {R} WHERE session = {{s}} AND number > 4")
    assert "missing at the end" in store.sessions(keep=False)[0].damage
    with pytest.raises(InvalidInput, match=r"no session can be read.*missing at the end"):
        store.find("latest")


def test_a_snapshot_that_was_altered_is_made_again(store: SqlStore, database: Database) -> None:
    name = filled(store)
    before = store.sessions(keep=False)
    run = runner(store, database, name)
    run("UPDATE foldline_sessions SET snapshot = replace(snapshot, 'words 0', 'another') WHERE number = {s}")
    assert store.sessions() == before


def test_an_older_table_is_read_on_and_guarded_from_there_on(store: SqlStore, database: Database) -> None:
    name = filled(store)
    whole = list(store.records(name))
    run = runner(store, database, name)
    with database.reading() as connection:
        rows = connection.exec_driver_sql(f"SELECT number, body FROM {R} ORDER BY number").all()
    with database.writing() as connection:
        for number, body in rows:
            mark = "%s" if connection.dialect.name == "postgresql" else "?"
            plain = body.partition(f',"n":{number},"crc"')[0] + "}"
            connection.exec_driver_sql(
                f"UPDATE {R} SET body = {mark} WHERE number = {mark}", (plain, number)
            )  # fmt: skip
    assert list(store.records(name)) == whole
    with store.open(name) as session:
        session.note(text="goes on")
        session.note(text="and on")
    assert list(store.records(name, start=2))[:2] == whole[2:4]
    run(f"UPDATE {R} SET body = replace(body, 'words 2', 'words 9') WHERE session = {{s}}")
    with pytest.raises(InvalidInput, match="something before it was altered"):
        store.open(name)


def test_an_original_that_was_altered_is_never_shown(store: SqlStore, database: Database) -> None:
    with begun(store) as session:
        key = session.keep(b"as it was")
    cast = "BYTEA" if "postgresql" in store.place else "BLOB"
    runner(store, database, session.id)(f"UPDATE foldline_originals SET data = CAST('altered' AS {cast})")
    assert key == key_of(b"as it was")
    with pytest.raises(InvalidInput, match="does not match its key"):
        list(store.originals(session.id))
