"""The index of keys beside sessions in files: migration of the older form, modes, and harmless failures."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.test_contract import made

from foldline.errors import InvalidInput
from foldline.store import FileStore

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="limits and modes of POSIX")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "sessions", fsync=False)


def in_old_form(store: FileStore, **keys: object) -> Path:
    path = store.root / "keys.json"
    path.write_text(json.dumps(keys))
    return path


@contextmanager
def full_disk() -> Iterator[None]:
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)


def test_no_key_no_index(store: FileStore) -> None:
    name = made(store)
    assert store.first_session_of(["a", "b"]) is None
    assert store.bindings() == {}
    store.bind_all([], name)
    store.delete(name)
    assert os.listdir(store.root) == []


def test_keys_of_an_older_version_are_read_and_migrated(store: FileStore) -> None:
    one, two = made(store), made(store)
    old = in_old_form(store, chat=one, schedule=two, odd=7, gone="20261128-040506-0123abcd")
    assert (store.session_of("chat"), store.session_of("odd"), store.session_of("gone")) == (one, None, None)
    assert store.first_session_of(["odd", "gone", "schedule", "chat"]) == ("schedule", two)
    assert store.bindings() == {"chat": one, "schedule": two}
    assert old.exists(), "who only reads changes nothing"
    store.bind_all(["chat", "proxy"], two)
    assert not old.exists()
    assert store.bindings() == {"chat": two, "schedule": two, "proxy": two}


def test_keys_bound_by_an_older_version_meanwhile_count(store: FileStore) -> None:
    one, two = made(store), made(store)
    store.bind_all(["chat", "proxy"], one)
    old = in_old_form(store, chat=two)
    assert store.first_session_of(["chat"]) == ("chat", two)
    assert store.bindings() == {"chat": two, "proxy": one}
    store.delete(one)
    assert not old.exists()
    assert store.bindings() == {"chat": two}


def test_keys_that_could_not_be_migrated_stay_in_place(store: FileStore) -> None:
    one = made(store)
    old = in_old_form(store, chat=one)
    before = old.read_bytes()
    (store.root / "keys.db").write_bytes(b"something else " * 300)
    with pytest.raises(InvalidInput, match="it can be deleted") as caught:
        store.bind("proxy", one)
    assert caught.value.place == str(store.root / "keys.db")
    assert old.read_bytes() == before
    (store.root / "keys.db").unlink()
    store.bind("proxy", one)
    assert store.bindings() == {"chat": one, "proxy": one}


def test_the_index_of_a_newer_version_is_left_alone(store: FileStore) -> None:
    import sqlite3

    name = made(store)
    store.bind("a", name)
    database = sqlite3.connect(store.root / "keys.db")
    database.execute("PRAGMA user_version = 2")
    database.close()
    for ask in (lambda: store.session_of("a"), lambda: store.bind("b", name), store.bindings):
        with pytest.raises(InvalidInput, match="newer Foldline"):
            ask()


def test_an_index_that_cannot_be_used_keeps_no_session_from_being_removed(store: FileStore) -> None:
    name = made(store)
    store.bind("a", name)
    (store.root / "keys.db").write_bytes(b"something else " * 300)
    store.delete(name)
    assert store.names() == []


@posix_only
def test_the_index_is_its_owners_alone(store: FileStore) -> None:
    before = os.umask(0)
    try:
        store.bind_all(["a", "b"], made(store))
        files = [path for path in store.root.iterdir() if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    finally:
        os.umask(before)


@posix_only
def test_a_full_disk_fails_to_bind_and_keeps_no_session_from_being_removed(store: FileStore) -> None:
    one, two = made(store), made(store)
    store.bind("a", one)
    with full_disk():
        with pytest.raises(OSError, match="keys of sessions") as caught:
            store.bind_all(["a", "b"], two)
        assert caught.value.filename == str(store.root / "keys.db")
        store.delete(one)
    assert store.bindings() == {}
    store.bind_all(["a", "b"], two)
    assert store.bindings() == {"a": two, "b": two}


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_keys_are_found_on_a_disk_that_cannot_be_written(store: FileStore) -> None:
    name = made(store)
    store.bind("a", name)
    (store.root / "keys.db").chmod(0o400)
    store.root.chmod(0o500)
    try:
        assert store.session_of("a") == name
    finally:
        store.root.chmod(0o700)
