"""The log and the originals of a session in tables: records as text, byte for byte what was written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.exc import IntegrityError

from foldline.archive import key_of
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.recording import Header, followed
from foldline.store.records import Record, seq_of
from foldline.store.sql_database import Database
from foldline.store.sql_schema import originals, records, sessions
from foldline.transcript import Event

__all__ = ["Log", "SqlArchive", "as_rows", "as_text"]

_PAGE: Final = 100
"""Records in memory at a time. Each page is a transaction of its own: a slow reader holds nothing."""


def as_text(value: Json) -> str:
    """Strict JSON in ASCII. Raises InvalidInput.

    PostgreSQL's text holds neither NUL nor a lone surrogate; as escapes they are letters like any other. Its jsonb
    would refuse them, and put the fields into another order.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a record that is no JSON: {error}") from error


def as_rows(session: int, start: int, given: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
    """The rows of records that are numbered from `start` on. Raises InvalidInput."""
    for number, record in enumerate(given, start):
        at = record.get("at")
        yield {
            "session": session,
            "number": number,
            "seq": seq_of(record),
            "at": as_text(at)[1:-1] if isinstance(at, str) else None,
            "body": as_text(record),
        }


@dataclass(frozen=True, slots=True)
class Log:
    """The records of one session, to be read."""

    database: Database
    session: int
    id: str

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.database.place} {self.id}"

    def where(self, number: int) -> str:
        """Where a person finds a record."""
        return f"{self.place}, record {number}"

    def length(self) -> int:
        """How many records there are. Raises InvalidInput when there is no such session any more, OSError."""
        with self.database.reading() as connection:
            found = connection.scalar(select(sessions.c.records).where(sessions.c.number == self.session))
        if found is None:
            raise InvalidInput("there is no such session any more", place=self.place)
        return int(found)

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records with start <= number < stop, as many as there are now. O(those). Raises InvalidInput, OSError."""
        length = self.length()
        stop = length if stop is None else min(stop, length)
        for first in range(start, stop, _PAGE):
            last = min(first + _PAGE, stop)
            page = self._page(records.c.number >= first, records.c.number < last)
            if len(page) < last - first:
                raise InvalidInput("was deleted while it was read, or records are missing", place=self.where(first))
            yield from page

    def messages(self, start: int, stop: int) -> list[Record]:
        """The messages with start <= seq < stop. O(those). Raises InvalidInput, OSError."""
        return self._page(records.c.seq >= start, records.c.seq < stop)

    def followed(self, stop: int | None = None) -> Iterator[tuple[Header, Record, Event | None]]:
        """Each record with the header and the event in it, as `recording.followed` gives them."""
        return followed(self.records(0, stop), self.where)

    def _page(self, *which: ColumnElement[bool]) -> list[Record]:
        asked = select(records.c.number, records.c.body).where(records.c.session == self.session, *which)
        with self.database.reading() as connection:
            rows = connection.execute(asked.order_by(records.c.number)).all()
        return [self._record(row.number, row.body) for row in rows]

    def _record(self, number: int, body: str) -> Record:
        try:
            record = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"no JSON: {error}", place=self.where(number)) from error
        if not isinstance(record, dict):
            raise InvalidInput(f"an event is a JSON object, not {type(record).__name__}", place=self.where(number))
        return record


@dataclass(frozen=True, slots=True)
class SqlArchive:
    """The originals of one session; an `Archive`. Each is on the disk before `put` returns.

    Methods raise OSError when the database is away.
    """

    log: Log

    def put(self, data: bytes, /) -> str:
        """Keep the bytes and return their key. Idempotent; O(size). Raises InvalidInput when the session is gone."""
        self.put_all((data,))
        return key_of(data)

    def put_all(self, several: Iterable[bytes], /) -> None:
        """Keep them all in one transaction, or none. As `put` otherwise."""
        rows = [{"session": self.log.session, "sha256": key_of(data), "data": data} for data in several]
        if not rows:
            return
        database = self.log.database
        try:
            with database.writing() as connection:
                connection.execute(database.insert(originals).on_conflict_do_nothing(), rows)
        except IntegrityError:
            raise InvalidInput("there is no such session any more", place=self.log.place) from None

    def get(self, key: str, /) -> bytes:
        """The bytes under a key, checked against it; O(size). Raises KeyError, and InvalidInput for damaged ones."""
        if not isinstance(key, str) or not key.isascii() or "\0" in key:
            raise KeyError(key)
        with self.log.database.reading() as connection:
            data = connection.scalar(select(originals.c.data).where(*self._one(key)))
        if data is None:
            raise KeyError(key)
        if key_of(bytes(data)) != key:
            raise InvalidInput("the content does not match its key: it is damaged", place=self.where(key))
        return bytes(data)

    def where(self, key: str, /) -> str:
        """The place in the database, whether it is there or not."""
        return f"{self.log.place} archive:{key}"

    def __contains__(self, key: object, /) -> bool:
        if not isinstance(key, str) or not key.isascii() or "\0" in key:
            return False
        with self.log.database.reading() as connection:
            return connection.scalar(select(originals.c.sha256).where(*self._one(key))) is not None

    def keys(self) -> list[str]:
        """The key of each object, in order. O(those)."""
        asked = select(originals.c.sha256).where(originals.c.session == self.log.session)
        with self.log.database.reading() as connection:
            return sorted(connection.scalars(asked))

    def _one(self, key: str) -> tuple[ColumnElement[bool], ...]:
        return originals.c.session == self.log.session, originals.c.sha256 == key
