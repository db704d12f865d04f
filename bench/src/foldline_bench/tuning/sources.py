"""Finds a user's sessions in files, folders, stores, Parquet files and object stores; they are read when needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from time import sleep
from typing import Any, Final, TypeVar

from foldline.errors import InvalidInput
from foldline.recorded.files import parse_session, read_session
from foldline.recorded.sessions import Session
from foldline.store.addresses import is_address, open_store
from foldline.store.folders import FileStore
from foldline.view.transcript import active
from foldline_bench.tuning.values import SessionSource

__all__ = ["ENDINGS", "OBJECTS", "located", "read_source"]

ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".parquet")
"""Endings of files in a folder, or objects under a prefix, that hold sessions."""

OBJECTS: Final = ("s3", "gs")
_PARQUET: Final = ".parquet"

# Pauses before further attempts to read from an object store. They grow, as stores answer overload with an error.
_PAUSES_SECONDS: Final = (0.5, 2.0, 5.0)

T = TypeVar("T")


def located(names: Iterable[str]) -> tuple[SessionSource, ...]:
    """Find the sessions behind names, each once: a file, a folder of files, a store's folder or address, a URI.

    Only lists, and the ids in Parquet files, are read. Raises InvalidInput for a name that stands for none,
    MissingExtra for Parquet and objects without pyarrow, and OSError.
    """
    return tuple(dict.fromkeys(source for name in names for source in _located(name)))


def _located(name: str) -> Iterator[SessionSource]:
    scheme = name.partition("://")[0] if is_address(name) else ""
    if scheme in OBJECTS:
        for uri in _objects().listed(name, ENDINGS):
            yield from _in_file(uri)
    elif scheme:
        yield from _in_store(name)
    elif os.path.isdir(name):
        yield from _in_folder(name)
    elif os.path.exists(name):
        yield from _in_file(name)
    else:
        raise InvalidInput("there is no such file or folder", place=name)


def _in_file(place: str) -> Iterator[SessionSource]:
    """Yield a file's only session, or those in its rows."""
    if not _is_parquet(place):
        yield SessionSource("file", place)
        return
    try:
        labels = _tried(lambda: _parquet().row_ids(place), place)
    except InvalidInput:
        # A damaged Parquet file counts as one session. Reading it reports the damage, and it is left out like any other
        # damaged file instead of ending the run.
        yield SessionSource("file", place)
        return
    for row, label in enumerate(labels):
        yield SessionSource("row", place, str(row), label)


def _is_parquet(place: str) -> bool:
    return (place.partition("?")[0] if is_address(place) else place).endswith(_PARQUET)


def _in_folder(folder: str) -> Iterator[SessionSource]:
    """Yield the sessions of a store, if the folder is one, else those in its files and subfolders."""
    if FileStore(folder).names():
        yield from _in_store(folder)
        return
    files = sorted(
        os.path.join(where, file)
        for where, folders, files in os.walk(folder)
        for file in files
        if file.endswith(ENDINGS) and not file.startswith(".")
    )
    if not files:
        raise InvalidInput(f"holds no session: no store, and no file that ends in {', '.join(ENDINGS)}", place=folder)
    for file in files:
        yield from _in_file(file)


def _in_store(place: str) -> Iterator[SessionSource]:
    scheme, _, path = place.partition(":///")
    if scheme.partition("+")[0] == "sqlite" and path and not os.path.exists(os.path.expanduser(path)):
        raise InvalidInput("there is no such database, and so no session in it", place=place)
    with closing(open_store(place)) as store:
        names = store.names()
        if not names:
            raise InvalidInput("there is no session in it", place=store.place)
    for name in names:
        yield SessionSource("stored", place, name)


def read_source(source: SessionSource) -> Session:
    """Read a session. O(size). Raises InvalidInput with the place named, MissingExtra, OSError."""
    if source.form == "stored":
        return _stored(source)
    return _tried(lambda: _in_a_file(source), source.place)


def _in_a_file(source: SessionSource) -> Session:
    if source.form == "row":
        session: Session = _parquet().read_row(source)
        return session
    if _is_parquet(source.place):
        _parquet().row_ids(source.place)
        raise InvalidInput("could not be read when its rows were looked for", place=source.shown)
    if is_address(source.place):
        return parse_session(_objects().read(source.place), place=source.shown, dialect=None)
    return read_session(source.place)


def _tried(read: Callable[[], T], place: str, pauses_seconds: Sequence[float] = _PAUSES_SECONDS) -> T:
    """Read; from an object store with retries. Raises OSError after the last one."""
    # An error of a local file does not go away.
    if not is_address(place):
        return read()
    for pause_seconds in pauses_seconds:
        try:
            return read()
        except OSError:
            sleep(pause_seconds)
    try:
        return read()
    except OSError as error:
        raise OSError(f"{SessionSource('file', place).shown}: {error}") from error


def _stored(source: SessionSource) -> Session:
    with closing(open_store(source.place)) as store:
        recording = store.read(source.part)
    entries = [entry for entry in active(recording.events) if not entry.hidden]
    if not entries:
        raise InvalidInput("nothing has been said in it yet", place=source.shown)
    header = recording.header
    messages = tuple(entry.recorded for entry in entries)
    return Session(name=header.id, dialect=header.dialect, messages=messages, model=header.model)


def _parquet() -> Any:
    """Import the module when it is needed: sessions in other files need no pyarrow."""
    return import_module("foldline_bench.tuning.parquet")


def _objects() -> Any:
    return import_module("foldline_bench.tuning.objects")
