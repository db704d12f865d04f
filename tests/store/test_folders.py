"""Sessions under one root: found by what a user types, and listed in any state."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.store.logs import change
from tests.store.test_session import Ticking, filled, user

from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.store import FileStore

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="links and modes of POSIX")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "sessions", clock=Ticking())


def made(store: FileStore, text: str = "hello", *, saved: bool = True) -> str:
    with store.create(dialect="openai-chat", window=4_000) as session:
        context = Context(window=4_000)
        session.turn("begun")
        context.append(user(text))
        session.append(context.events)
        if saved:
            session.save(context)
        return session.id


def test_nothing_is_made_before_the_first_session(store: FileStore) -> None:
    assert store.sessions() == []
    with pytest.raises(InvalidInput, match="no session yet"):
        store.find("latest")
    with pytest.raises(InvalidInput, match="no session"):
        store.open("20261128")
    assert not store.root.exists()


def test_ids_sort_by_age_and_are_safe_names(store: FileStore) -> None:
    names = [made(store) for _ in range(5)]
    assert names == sorted(names)
    assert all(len(name) == 24 and set(name) <= set("0123456789abcdef-") for name in names)


def test_the_one_written_last_is_first_and_latest(store: FileStore) -> None:
    names = [made(store) for _ in range(3)]
    assert [one.id for one in store.sessions()] == names[::-1]
    with store.open(names[0]) as session:
        session.turn("begun")
    assert [one.id for one in store.sessions()] == [names[0], names[2], names[1]]
    assert store.find("latest") == names[0]


def test_a_session_is_found_by_the_beginning_that_only_it_has(store: FileStore) -> None:
    names = [made(store) for _ in range(3)]
    assert store.find(names[1]) == names[1]
    assert store.find(names[1][:16]) == names[1]
    with pytest.raises(InvalidInput, match="3 sessions begin with '2026'"):
        store.find("2026")


@pytest.mark.parametrize(
    "name", ["", "..", "../other", "/etc", ".", "20261128-0405*", "a/b", "20261128-040507-zzzzzzzz", "x" * 5_000, "\0"]
)
def test_no_name_leads_anywhere_else(store: FileStore, name: str) -> None:
    made(store)
    (store.root.parent / "other").mkdir()
    with pytest.raises(InvalidInput, match="no session"):
        store.open(name)


def test_a_list_shows_the_state_of_each_session(store: FileStore) -> None:
    with store.create(dialect="openai-chat", model="gpt-4o", policy="cost", window=900, parent="p") as session:
        context = filled(session, 12, 900)
        session.save(context)
    [listed] = store.sessions()
    assert listed.snapshot is not None
    found = listed.snapshot
    assert (found.id, found.model, found.policy, found.parent) == (session.id, "gpt-4o", "cost", "p")
    assert (found.turns, found.messages) == (12, 24)
    assert found.folds == len({fold.id for seq in range(24) for fold in context.explain(seq)}) > 0
    assert (found.tokens, found.window_tokens) == (context.figures.used_tokens, 900)
    assert found.title.startswith("question 0 word")
    assert found.created < found.updated
    assert found.log_bytes == (session.folder / "events.jsonl").stat().st_size


def test_a_lost_or_stale_snapshot_is_made_again(store: FileStore) -> None:
    with store.create(dialect="openai-chat", window=900) as session:
        session.save(filled(session, 12, 900))
    state = session.folder / "state.yaml"
    [before] = store.sessions()
    whole = state.read_bytes()
    for spoilt in (b"", b"v: [", b"v: 1\nid: 7\n", whole[:60], whole.replace(b"turns: 12", b"turns: -1"), b"\xff" * 99):
        state.write_bytes(spoilt)
        assert store.sessions() == [before]
        assert state.read_bytes() == whole
    state.unlink()
    assert store.sessions() == [before]
    with store.open(session.id) as again:
        again.turn("begun")
    [after] = store.sessions()
    assert after.snapshot is not None
    assert after.snapshot.turns == 13


def test_a_snapshot_of_another_session_is_not_believed(store: FileStore) -> None:
    first, second = made(store, "first words"), made(store, "other words")
    assert [one.snapshot.title for one in store.sessions() if one.snapshot] == ["other words", "first words"]
    shutil.copy(store.root / first / "state.yaml", store.root / second / "state.yaml")
    assert [one.snapshot.title for one in store.sessions() if one.snapshot] == ["other words", "first words"]


def test_no_broken_folder_ends_the_list(store: FileStore) -> None:
    good = made(store)
    damaged, empty, bare, newer = (made(store, saved=False) for _ in range(4))
    log = store.root / damaged / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"type":"turn"', b'"type":turn'))
    (store.root / empty / "events.jsonl").write_bytes(b"")
    (store.root / bare / "events.jsonl").unlink()
    change(store.root / newer / "events.jsonl", 1, lambda record: {**record, "type": "dream"})
    (store.root / "notes.txt").write_text("not a session")
    (store.root / "20261128-040000-00000000").write_text("not a folder")
    listed = {one.id: one for one in store.sessions()}
    assert listed[good].snapshot is not None
    assert next(iter(listed)) == good, "what can be used comes first"
    reasons = {name: one.damage for name, one in listed.items() if name != good}
    assert "line 2" in reasons[damaged]
    assert "empty" in reasons[empty]
    assert "no log" in reasons[bare]
    assert "dream" in reasons[newer]
    assert "not the folder" in reasons["20261128-040000-00000000"]
    assert store.find("latest") == good
    for name in reasons:
        with pytest.raises(InvalidInput):
            store.open(name)
    assert not (store.root / bare / "events.jsonl").exists(), "opening makes no log where none was"


@pytest.mark.parametrize(
    "record",
    [
        {"type": "branch", "start": 99, "stop": 100},
        {"type": "fold", "id": 0, "start": 50, "stop": 60, "tokens": 1, "reducer": "r", "reason": "w", "shown": []},
        {"type": "fold", "id": 0, "start": 5, "stop": 1, "tokens": 1, "reducer": "r", "reason": "w", "shown": []},
        {"type": "pin", "seq": 77},
        {"type": "unfold", "fold": 3},
    ],
    ids=lambda record: f"{record['type']} {record.get('start', '')}",
)
def test_records_that_contradict_each_other_harm_no_list(store: FileStore, record: dict[str, object]) -> None:
    good, odd = made(store), made(store)
    with (store.root / odd / "events.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    listed = {one.id: one for one in store.sessions()}
    assert listed[good].snapshot is not None
    assert (listed[odd].snapshot is None) == bool(listed[odd].damage)


@posix_only
def test_inside_the_root_links_are_refused_and_the_root_may_be_one(store: FileStore, tmp_path: Path) -> None:
    real = made(store)
    outside = FileStore(tmp_path / "outside", clock=Ticking())
    secret = made(outside, "a secret")
    (store.root / secret).symlink_to(outside.root / secret)
    linked_log = made(store, saved=False)
    (store.root / linked_log / "events.jsonl").unlink()
    (store.root / linked_log / "events.jsonl").symlink_to(outside.root / secret / "events.jsonl")
    (store.root / real / "state.yaml").unlink()
    (store.root / real / "state.yaml").symlink_to(outside.root / secret / "state.yaml")
    kept = (outside.root / secret / "state.yaml").read_bytes()
    for name in (secret, linked_log):
        for taking in (store.open, store.read, store.repair):
            with pytest.raises(InvalidInput):
                taking(name)
    assert [one.id for one in store.sessions() if one.snapshot] == [real]
    assert (outside.root / secret / "state.yaml").read_bytes() == kept
    (tmp_path / "link").symlink_to(store.root)
    assert FileStore(tmp_path / "link").find(real) == real


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_list_can_be_shown_from_a_disk_that_cannot_be_written(store: FileStore) -> None:
    name = made(store, saved=False)
    folder = store.root / name
    folder.chmod(0o500)
    try:
        assert [one.damage for one in store.sessions()] == [""]
    finally:
        folder.chmod(0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits there")
def test_a_session_that_could_not_be_begun_leaves_nothing(tmp_path: Path) -> None:
    """A disk that is full at the first write: an empty log would be listed as damaged for ever."""
    store = FileStore(tmp_path / "sessions", fsync=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            store.create(dialect="openai-chat")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert store.names() == []
