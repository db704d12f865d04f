"""The records and the originals of a session in tables. Records are text, byte for byte as written.

Each text ends with its number and a checksum, like the lines of a file (`checksums`), so that every reader detects rows
that were altered, lost, doubled or moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import IntegrityError

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.checksums import Damage, Verifier
from foldline.store.event_log import parse_object
from foldline.store.recording import Header, decode_log
from foldline.store.records import Record, seq_of
from foldline.store.sql.database import Database
from foldline.store.sql.schema import originals, records, sessions
from foldline.view.archive import key_of
from foldline.view.transcript import Event

__all__ = ["SessionRecords", "SqlArchive", "StoredRow", "as_rows", "as_text", "columns_fault", "length_fault"]

# Records per query. Each query is a transaction of its own, so that a slow reader holds no lock, and the memory of a
# read is bounded.
_PAGE: Final = 100


def as_text(value: Json) -> str:
    """Strict JSON in ASCII. Raises InvalidInput.

    PostgreSQL's text holds neither NUL nor a lone surrogate, but their escapes are plain characters. Its jsonb would
    refuse even these, and reorder the fields.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a record is not JSON: {error}") from error


def as_rows(session: int, checks: Verifier, new: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
    """The rows of the next records, sealed by `checks`. Raises InvalidInput."""
    for record in new:
        body, number = as_text(record), checks.number
        sealed = checks.sealed_line(body.encode()).decode()
        yield {"session": session, "number": number, **columns_of(record), "body": sealed}


def columns_of(record: Record) -> dict[str, Any]:
    """The columns by which a record is found, beside its text. Raises InvalidInput."""
    # No query looks into the text. `seq` finds a message, `at` is for people who look into the table by hand.
    at = record.get("at")
    return {"seq": seq_of(record), "at": as_text(at)[1:-1] if isinstance(at, str) else None}


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the table of records, unchecked: SQLite stores any type in any column."""

    number: Any
    seq: Any
    at: Any
    data: bytes

    @classmethod
    def of(cls, number: Any, seq: Any, at: Any, body: Any) -> StoredRow:
        """The row with these columns."""
        return cls(number, seq, at, body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class SessionRecords:
    """Reads the records of one session."""

    database: Database
    session: int
    id: str

    @property
    def place(self) -> str:
        """Where a person finds the session."""
        return f"{self.database.place} {self.id}"

    def where(self, number: int) -> str:
        """Where a person finds a record."""
        return f"{self.place}, record {number}"

    def length(self) -> int:
        """The number of records. Raises OSError, and InvalidInput when the session was deleted, or when its newest
        record does not match that number.
        """
        # Both in one query: between two of them a writer may append.
        newest = select(func.max(records.c.number)).where(records.c.session == self.session).scalar_subquery()
        with self.database.reading() as connection:
            query = select(sessions.c.records, newest).where(sessions.c.number == self.session)
            found = connection.execute(query).one_or_none()
        if found is None:
            raise InvalidInput("the session no longer exists", place=self.place)
        if (wrong := length_fault(*found)) is not None:
            raise self._damaged(wrong)
        return int(found[0])

    def records(self, start: int = 0, stop: int | None = None, checks: Verifier | None = None) -> Iterator[Record]:
        """The records with start <= number < stop, as far as they exist now. O(those). Raises InvalidInput, OSError.

        Given `checks`, it verifies with these, which then can seal the next record.
        """
        # The length is fixed first: what a writer appends meanwhile is for the next reader, and a reader always ends.
        length = self.length()
        stop = length if stop is None else min(stop, length)
        if checks is None:
            checks = Verifier() if start == 0 else Verifier(start, self._root(), before=None)
        for first in range(start, stop, _PAGE):
            last = min(first + _PAGE, stop)
            page = self._page(records.c.number >= first, records.c.number < last)
            present = {row.number for row in page}
            if (gone := next((number for number in range(first, last) if number not in present), None)) is not None:
                self.length()  # raises when the session was deleted meanwhile
                raise self._damaged(Damage(gone, None, "missing", "it is missing"))
            yield from [self._record(row, checks) for row in page]

    def messages(self, start: int, stop: int) -> list[Record]:
        """The messages with start <= seq < stop. O(those), and O(messages) when some are missing.

        Raises InvalidInput, OSError.
        """
        # By the column, which nothing seals. So each row found is verified against its record, and a gap is explained
        # by reading the whole log: a wrong `seq` must not hide a message.
        page = self._page(records.c.seq >= start, records.c.seq < stop)
        if len(page) < stop - start:
            self._check_gaps()
        root = self._root() if page else None
        return [self._record(row, Verifier(row.number, root, before=None)) for row in page]

    def decoded(
        self, stop: int | None = None, checks: Verifier | None = None
    ) -> Iterator[tuple[Header, Record, Event | None]]:
        """The decoded log: see `recording.decode_log`."""
        return decode_log(self.records(0, stop, checks), self.where)

    def rows(self) -> list[StoredRow]:
        """Every row, unchecked. O(log)."""
        return self._page()

    def _page(self, *which: ColumnElement[bool]) -> list[StoredRow]:
        columns = (records.c.number, records.c.seq, records.c.at, records.c.body)
        query = select(*columns).where(records.c.session == self.session, *which)
        with self.database.reading() as connection:
            return [StoredRow.of(*row) for row in connection.execute(query.order_by(records.c.number))]

    def _check_gaps(self) -> None:
        """Raise InvalidInput when the column `seq` lacks a message or numbers one wrongly."""
        query = select(func.count(records.c.seq), func.max(records.c.seq)).where(records.c.session == self.session)
        with self.database.reading() as connection:
            count, newest = connection.execute(query).one()
        if count and (not isinstance(newest, int) or newest + 1 != count):
            for _ in self.records():  # reading all names the damaged record
                pass

    def _root(self) -> int | None:
        """The root of the checksums of this log."""
        checks = Verifier()
        for row in self._page(records.c.number == 0):
            self._record(row, checks)
        return checks.root

    def _record(self, row: StoredRow, checks: Verifier) -> Record:
        found = _read_row(row, checks, self.id)
        if isinstance(found, Damage):
            raise self._damaged(found)
        return found

    def _damaged(self, damage: Damage) -> InvalidInput:
        why = f"damaged: {damage.reason} (foldline sessions repair {self.id} keeps what can be read)"
        return InvalidInput(why, place=self.where(damage.line))


def _read_row(row: StoredRow, checks: Verifier, name: str) -> Record | Damage:
    """The record in a row of this session, or its fault."""
    if not isinstance(row.number, int):
        return _misnumbered(0, row.number)
    body = checks.body(row.data)
    record = parse_object(row.data if isinstance(body, tuple) else body)
    if isinstance(record, str):
        return Damage(row.number, None, "not-json", record)
    if isinstance(body, tuple):
        return Damage(row.number, None, *body)
    return columns_fault(row, record, name) or record


def columns_fault(row: StoredRow, record: Record, name: str) -> Damage | None:
    """The fault of a row whose columns, or whose session, contradict its record; None when they agree."""
    if row.number == 0 and record.get("id") != name:
        why = f"it belongs to the session {str(record.get('id'))[:80]}, but is stored under another id"
        return Damage(row.number, None, "contradiction", why)
    try:
        if columns_of(record) == {"seq": row.seq, "at": row.at}:
            return None
    except InvalidInput as error:
        return Damage(row.number, None, "contradiction", str(error))
    return Damage(row.number, None, "contradiction", "its columns contradict its text")


def length_fault(length: Any, newest: Any) -> Damage | None:
    """The fault when the number of records and the newest record disagree; None when they agree."""
    if not isinstance(length, int):
        return Damage(0, None, "number", f"the session says that it has {str(length)[:20]!r} records")
    if not isinstance(newest, int | None):
        return _misnumbered(length, newest)
    present = 0 if newest is None else newest + 1
    if present == length:
        return None
    if present < length:
        gone = f"record {present:,} is" if present == length - 1 else f"records {present:,} to {length - 1:,} are"
        return Damage(present, None, "missing", f"{gone} missing at the end")
    return Damage(length, None, "number", f"it exists, but the session says that it has {length:,} records")


def _misnumbered(line: int, number: Any) -> Damage:
    return Damage(line, None, "number", f"there is a record whose number is {str(number)[:20]!r}")


@dataclass(frozen=True, slots=True)
class SqlArchive:
    """The originals of one session; an `Archive`. Each is on disk when `put` returns.

    Methods raise OSError when the database cannot be reached.
    """

    log: SessionRecords

    def put(self, data: bytes, /) -> str:
        """Store the bytes and return their key. Idempotent; O(size). Raises InvalidInput without the session."""
        self.put_all((data,))
        return key_of(data)

    def put_all(self, objects: Iterable[bytes], /) -> None:
        """Store all in one transaction, or none. Otherwise as `put`."""
        # ON CONFLICT DO NOTHING: the key is the hash of the content, so what is stored already is the same.
        rows = [{"session": self.log.session, "sha256": key_of(data), "data": data} for data in objects]
        if not rows:
            return
        database = self.log.database
        try:
            with database.writing() as connection:
                connection.execute(database.insert(originals).on_conflict_do_nothing(), rows)
        except IntegrityError:
            raise InvalidInput("the session no longer exists", place=self.log.place) from None

    def get(self, key: str, /) -> bytes:
        """The bytes under a key, verified against it; O(size). Raises KeyError, and InvalidInput for damaged ones."""
        # PostgreSQL refuses NUL in a text, and no driver encodes a lone surrogate: such a key is unknown, not an error.
        if not isinstance(key, str) or not key.isascii() or "\0" in key:
            raise KeyError(key)
        with self.log.database.reading() as connection:
            data = connection.scalar(select(originals.c.data).where(*self._one(key)))
        if data is None:
            raise KeyError(key)
        if not isinstance(data, bytes) or key_of(data) != key:
            raise InvalidInput("the content does not match its key: it is damaged", place=self.where(key))
        return data

    def where(self, key: str, /) -> str:
        """The place for a key, whether the object exists or not."""
        return f"{self.log.place} archive:{key}"

    def __contains__(self, key: object, /) -> bool:
        if not isinstance(key, str) or not key.isascii() or "\0" in key:
            return False
        with self.log.database.reading() as connection:
            return connection.scalar(select(originals.c.sha256).where(*self._one(key))) is not None

    def keys(self) -> list[str]:
        """The keys of all objects, sorted. O(those)."""
        query = select(originals.c.sha256).where(originals.c.session == self.log.session)
        with self.log.database.reading() as connection:
            return sorted(map(str, connection.scalars(query)))

    def _one(self, key: str) -> tuple[ColumnElement[bool], ...]:
        return originals.c.session == self.log.session, originals.c.sha256 == key
