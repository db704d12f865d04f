"""Damage in tables is never silent: the fault is reported with its record, and repaired."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.store.test_contract import begun, context_of, say

from foldline.engine.one_shot import check
from foldline.errors import FoldlineError, InvalidInput, SessionTaken
from foldline.store.sql.database import Database
from foldline.store.sql.store import SqlStore
from foldline.view.archive import key_of

Run: TypeAlias = Callable[[str], None]
"""Executes a statement on the rows of one session; `{s}` in it stands for the number of the session."""


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
        r"record 2: damaged: record 3 is here",
    ),
    "one too many": ([EXTRA], r"it exists, but the session says"),
    "counted wrong": (["UPDATE foldline_sessions SET records = records + 1 WHERE number = {s}"], r"missing at the end"),
    "filed under another message": ([f"UPDATE {R} SET seq = 40 {OURS} > 0 AND seq = 1"], r"columns contradict"),
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
    assert b'"type"' in archive.get(str(done.old_log).rpartition(":")[2])
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
    assert "missing at the end" in store.sessions(save=False)[0].damage
    with pytest.raises(InvalidInput, match=r"no session can be read.*missing at the end"):
        store.find("latest")


def test_a_session_filed_under_another_id_is_named_and_goes_by_its_own_again(
    store: SqlStore, database: Database
) -> None:
    name = filled(store)
    whole = list(store.records(name))
    runner(store, database, name)("UPDATE foldline_sessions SET id = 'nobody''s' WHERE number = {s}")
    [listed] = store.sessions(save=False)
    assert f"it belongs to the session {name}, but is stored under another id" in listed.damage
    with pytest.raises(InvalidInput, match="stored under another id"):
        store.open("nobody's")
    done = store.repair("nobody's")
    assert done is not None
    assert str(done).startswith("record 0 of the log was damaged; 0 messages are lost; the old log: ")
    assert name in str(done.old_log)
    assert list(store.records(name))[: len(whole)] == whole
    store.open(name).close()


def test_a_session_is_not_put_back_in_place_of_another(store: SqlStore, database: Database) -> None:
    name, other = filled(store), filled(store)
    run = runner(store, database, name)
    run("UPDATE foldline_sessions SET id = 'x' WHERE number = {s}")
    run(f"UPDATE foldline_sessions SET id = '{name}' WHERE id = '{other}'")
    with pytest.raises(InvalidInput, match=f"another session already has its first id, {name}"):
        store.repair("x")
    assert store.repair(name) is not None, "that of the other is free"
    assert store.repair("x") is not None
    assert {one.id for one in store.sessions() if not one.damage} == {name, other}


def test_a_message_that_its_number_does_not_find_is_named(store: SqlStore, database: Database) -> None:
    name = filled(store)
    assert len(store.messages(name, start=0, stop=100)) == 6
    runner(store, database, name)(f"UPDATE {R} SET seq = 40 WHERE session = {{s}} AND seq = 1")
    for start, stop in ((0, 3), (1, 2), (0, 100)):
        with pytest.raises(InvalidInput, match="columns contradict"):
            store.messages(name, start=start, stop=stop)


@pytest.mark.parametrize("until", ["NULL", "1e300"])
def test_a_lease_without_an_end_excludes_nobody(store: SqlStore, database: Database, until: str) -> None:
    name = filled(store)
    run = runner(store, database, name)
    run(f"UPDATE foldline_sessions SET owner = 'nobody', lease_until = {until} WHERE number = {{s}}")
    store.open(name).close()


def test_an_altered_state_is_reported(store: SqlStore, database: Database) -> None:
    name = filled(store)
    for value in ("[1", "[1]", "7", '"a"'):
        store.save_state("kept", {"a": 1})
        runner(store, database, name)(f"UPDATE foldline_remembered SET value = '{value}'")
        with pytest.raises(InvalidInput, match="the stored state is damaged"):
            store.load_state("kept")
    store.save_state("kept", {"a": 2})
    assert store.load_state("kept") == {"a": 2}


def test_writes_within_a_deleted_session_are_refused(store: SqlStore) -> None:
    name = filled(store)
    inner = store.agents(name)
    store.delete(name)
    for act in (lambda: inner.save_state("a", {}), lambda: inner.claim("a")):
        with pytest.raises(InvalidInput, match="outer session no longer exists"):
            act()


def test_a_snapshot_that_was_altered_is_made_again(store: SqlStore, database: Database) -> None:
    name = filled(store)
    before = store.sessions(save=False)
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
        key = session.put_original(b"as it was")
    cast = "BYTEA" if "postgresql" in store.place else "BLOB"
    runner(store, database, session.id)(f"UPDATE foldline_originals SET data = CAST('altered' AS {cast})")
    assert key == key_of(b"as it was")
    with pytest.raises(InvalidInput, match="does not match its key"):
        list(store.originals(session.id))


# --- any column, anything in it ---------------------------------------------------------------------------------------

ODD = ("'\"'", "X'ff00fe'", "CAST(X'ff00fe' AS TEXT)")
"""Values that SQLite stores in a column of any type."""

COLUMNS = {
    "sessions": ("id", "records", "snapshot", "fence", "owner", "lease_until"),
    "records": ("number", "seq", "at", "body"),
    "originals": ("session", "sha256", "data"),
    "bindings": ("key", "session"),
    "claims": ("key", "at"),
    "remembered": ("key", "value"),
}


def answers(store: SqlStore, name: str) -> dict[str, object]:
    """Everything that a store returns about a session and its keys, or the error instead."""

    def request() -> list[object]:
        with store.open(name) as session:
            asked = context_of(session).prepare()
        assert check(asked.messages) == []
        return list(asked.messages)

    ask: dict[str, Callable[[], object]] = {
        "list": lambda: [(one.id, one.damage) for one in store.sessions(save=False)],
        "records": lambda: list(store.records(name)),
        "middle": lambda: list(store.records(name, start=2, stop=4)),
        "messages": lambda: store.messages(name, start=1, stop=4),
        "newest": lambda: store.messages(name, start=5, stop=6),
        "request": request,
        "originals": lambda: sorted(store.originals(name)),
        "bound": lambda: store.session_of("key"),
        "bindings": store.bindings,
        "claim": lambda: store.claim("claimed"),
        "remembered": lambda: store.load_state("kept"),
    }
    out: dict[str, object] = {}
    for what, act in ask.items():
        try:
            out[what] = act()
        except FoldlineError as error:
            out[what] = error
    return out


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with a session and everything that a store holds besides records; also the id of the session."""
    file = tmp_path_factory.mktemp("beside") / "whole.db"
    with closing(SqlStore.at(f"sqlite:///{file}")) as store:
        name = filled(store)
        with store.open(name) as session:
            session.put_original(b"as it was")
        store.bind("key", name)
        store.claim("claimed")
        store.save_state("kept", {"a": 1})
    return file, name


BESIDE = {
    ("bindings", "key"): {"bound", "bindings"},
    ("bindings", "session"): {"bound", "bindings"},
    ("claims", "key"): {"claim"},
    ("originals", "session"): {"originals"},
    ("remembered", "key"): {"remembered"},
    ("sessions", "id"): {"list", "bound", "bindings"},
}
"""What is no longer found when its key is altered, or is returned under the altered name."""


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("table", "column"), [(table, one) for table, several in COLUMNS.items() for one in several])
def test_any_value_in_a_column_is_reported_or_changes_nothing(
    beside: tuple[Path, str], tmp_path: Path, table: str, column: str, odd: str
) -> None:
    file, name = shutil.copy(beside[0], tmp_path / "harmed.db"), beside[1]
    with closing(SqlStore.at(f"sqlite:///{file}")) as store:
        whole = answers(store, name)
    row = {"sessions": "number > 0", "records": "number = 3"}.get(table, "1")
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute(f"UPDATE foldline_{table} SET {column} = {odd} WHERE {row}")
    with closing(SqlStore.at(f"sqlite:///{file}")) as store:
        now = answers(store, name)
        for what, told in now.items():
            if not isinstance(told, FoldlineError) and what not in BESIDE.get((table, column), ()):
                assert told == whole[what] or what == "list", what
        broken = table == "records" or (table, column) in {("sessions", "id"), ("sessions", "records")}
        assert isinstance(now["request"], FoldlineError) == broken
        if broken:
            [one] = store.sessions(save=False)
            assert store.repair(one.id) is not None
        assert [(one.id, one.damage) for one in store.sessions()] == [(name, "")]
        assert store.repair(name) is None
        assert isinstance(answers(store, name)["request"], list)
