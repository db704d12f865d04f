"""Repair: intact records stay in their places, losses are named, and the old log is saved."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.store.test_session import Ticking

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.store import FileStore
from foldline.store.repair import LOST
from foldline.view.transcript import Entry, Fold


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "sessions", clock=Ticking())


def long(store: FileStore, dialect: str) -> tuple[str, Context]:
    """A session with calls, folds, a fork and a pin."""
    build = BUILDERS[dialect]
    with store.create(dialect=dialect, window=1_500) as session:
        context = Context(dialect=dialect, window=1_500, max_output_tokens=0)
        context.extend(build.user("first words", False))
        for number in range(14):
            context.extend(build.turn([f"c{number}"], ["result " * 60], "w " * 20, None))
            context.extend(build.user(f"go on {number}", False))
            context.prepare()
        context.undo()
        context.pin(len(context.view.entries) - 1)
        context.prepare()
        session.append(context.events)
        session.save(context)
    return session.id, context


def lines_of(store: FileStore, name: str) -> list[bytes]:
    return (store.root / name / "events.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_wherever_the_damage_is_the_session_goes_on(store: FileStore, dialect: str) -> None:
    name, context = long(store, dialect)
    whole = lines_of(store, name)
    path = store.root / name / "events.jsonl"
    chance = random.Random(3)
    for _ in range(12):
        hit = sorted(chance.sample(range(1, len(whole) - 1), chance.choice((1, 1, 2, 3))))
        spoilt = [b"\x00\x00" + line[2:] if number in hit else line for number, line in enumerate(whole)]
        path.write_bytes(b"".join(spoilt))
        with pytest.raises(InvalidInput, match=f"line {hit[0] + 1}:"):
            store.open(name)
        done = store.repair(name)
        assert done is not None
        assert done.lines == tuple(number + 1 for number in hit)
        assert Path(done.old_log).read_bytes() == b"".join(spoilt)
        lost = [json.loads(whole[number]) for number in hit]
        assert done.lost_messages == sum(record["type"] == "message" for record in lost)
        with store.open(name) as session:
            again = Context.replay(session.events(), dialect=dialect, window=1_500, max_output_tokens=0)
            request = again.prepare()
            assert check(request.messages, dialect=dialect) == []
            assert request.tokens <= 0.9 * 1_500
            old = {e.seq: e.recorded for e in context.events if isinstance(e, Entry)}
            new = {e.seq: e.recorded for e in again.events if isinstance(e, Entry)}
            assert old.keys() == new.keys()
            gone = {seq for seq in old if old[seq] != new[seq]}
            assert all(LOST in json.dumps(new[seq]) for seq in gone)
            assert LOST not in json.dumps(request.messages)
            assert len(gone) == done.lost_messages
        assert store.repair(name) is None


def test_folds_before_the_damage_stay(store: FileStore) -> None:
    name, context = long(store, "openai-chat")
    lines = lines_of(store, name)
    first = next(number for number, line in enumerate(lines) if b'"type":"fold"' in line)
    lines[-2] = b"garbage\n"
    (store.root / name / "events.jsonl").write_bytes(b"".join(lines))
    done = store.repair(name)
    assert done is not None
    assert str(done).startswith(f"line {len(lines) - 1} of the log was damaged; 0 messages are lost")
    folds = [event for event in store.read(name).events if isinstance(event, Fold)]
    assert folds[0] == next(event for event in context.events if isinstance(event, Fold))
    assert first < len(lines) - 2


def test_a_log_in_order_is_left_alone(store: FileStore) -> None:
    name, _ = long(store, "openai-chat")
    before = lines_of(store, name)
    assert store.repair(name) is None
    assert lines_of(store, name) == before


def test_a_damaged_first_record_is_restored_from_the_snapshot(store: FileStore) -> None:
    name, context = long(store, "anthropic")
    path = store.root / name / "events.jsonl"
    path.write_bytes(b"?" + path.read_bytes()[1:])
    assert "line 1" in store.sessions()[0].damage
    assert store.repair(name) is not None
    again = store.read(name)
    assert (again.header.id, again.header.dialect) == (name, "anthropic")
    assert [e for e in again.events if isinstance(e, Entry)] == [
        e for e in store.read(name).events if isinstance(e, Entry)
    ]
    assert len([e for e in again.events if isinstance(e, Entry)]) == len(context.view.entries)


def test_a_damaged_first_record_without_a_snapshot_is_inferred(store: FileStore) -> None:
    name, context = long(store, "anthropic")
    path = store.root / name / "events.jsonl"
    (path.parent / "state.yaml").unlink()
    whole = path.read_bytes()
    for spoilt in (whole.replace(b'"policy":"balanced"', b'"policy":"bblanced"', 1), b"?" * 9 + whole[9:]):
        path.write_bytes(spoilt)
        (path.parent / "state.yaml").unlink(missing_ok=True)
        done = store.repair(name)
        assert done is not None
        assert (done.lines, done.lost_messages) == ((1,), 0)
        again = store.read(name)
        assert (again.header.id, again.header.dialect) == (name, "anthropic")
        assert [e.recorded for e in again.events if isinstance(e, Entry)] == [
            e.recorded for e in context.events if isinstance(e, Entry)
        ]


def test_messages_that_the_snapshot_knows_of_are_counted_where_the_end_is_missing(store: FileStore) -> None:
    name, context = long(store, "openai-chat")
    path = store.root / name / "events.jsonl"
    whole = len(context.view.entries)
    path.write_bytes(b"")
    done = store.repair(name)
    assert done is not None
    assert done.lost_messages == whole
    assert f"{whole} messages are lost" in str(done)
    again = store.read(name)
    assert len([event for event in again.events if isinstance(event, Entry)]) == whole
    assert store.repair(name) is None
    with store.open(name) as session:
        session.append([])


def test_a_log_of_which_nothing_is_left_is_not_made_up(store: FileStore) -> None:
    name, _ = long(store, "openai-chat")
    (store.root / name / "state.yaml").unlink()
    (store.root / name / "events.jsonl").write_bytes(b"?\n?\n")
    with pytest.raises(InvalidInput, match="line 1: the record of the session is damaged"):
        store.repair(name)


def test_a_session_in_use_is_not_repaired(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session, pytest.raises(InvalidInput, match="another process"):
        store.repair(session.id)
