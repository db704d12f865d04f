"""Keys of sessions in tables, for the sessions of one scope.

Lookups and bindings are short, and somebody waits for them: a database that does not answer is given up soon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Select, select, text
from sqlalchemy.exc import IntegrityError

from foldline.errors import InvalidInput
from foldline.store.sql.database import Database
from foldline.store.sql.log import SessionRecords, as_text
from foldline.store.sql.schema import bindings, sessions

__all__ = ["SqlKeys", "encode_key"]

_FIRST_BATCH: Final = 64  # the likeliest keys come first; mostly the rest need not be sent

# Both look up one key after the other by the index. For a long list PostgreSQL would read the whole table as long as it
# has no statistics of it, which took seven times as long.
_FIRST_BOUND: Final = {
    "sqlite": text(
        "SELECT wanted.key AS place, s.id FROM json_each(:keys) AS wanted"
        " CROSS JOIN foldline_bindings AS b ON b.scope = :scope AND b.key = wanted.value"
        " CROSS JOIN foldline_sessions AS s ON s.number = b.session ORDER BY wanted.key LIMIT 1"
    ),
    "postgresql": text(
        "SELECT wanted.place - 1 AS place, s.id FROM json_array_elements_text(CAST(:keys AS json))"
        " WITH ORDINALITY AS wanted (key, place) CROSS JOIN LATERAL (SELECT b.session FROM foldline_bindings AS b"
        " WHERE b.scope = :scope AND b.key = wanted.key LIMIT 1) AS found"
        " JOIN foldline_sessions AS s ON s.number = found.session ORDER BY wanted.place LIMIT 1"
    ),
}

_KEY_CHARS: Final = 1_000  # PostgreSQL refuses index keys of about 2,700 bytes


@dataclass(frozen=True, slots=True)
class SqlKeys:
    """The keys of the sessions of one scope: a user, or an outer session. All methods raise OSError."""

    database: Database
    scope: int

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first bound key among these and its session. At most two queries; raises InvalidInput."""
        if not keys:
            return None
        with self.database.reading(quick=True) as connection:
            # Not written in SQLAlchemy's expressions: JSON as a table differs between the two databases in every word.
            query = _FIRST_BOUND[connection.dialect.name]
            for start, batch in ((0, keys[:_FIRST_BATCH]), (_FIRST_BATCH, keys[_FIRST_BATCH:])):
                parameters = {"keys": as_text([encode_key(key) for key in batch]), "scope": self.scope}
                row = connection.execute(query, parameters).first() if batch else None
                if row is not None:
                    return keys[start + int(row.place)], str(row.id)
        return None

    def bind_all(self, keys: Iterable[str], log: SessionRecords) -> None:
        """Bind these keys to a session in one transaction. Raises InvalidInput when it was deleted."""
        # Sorted: two processes that lock the same keys in different orders would deadlock.
        rows = [{"scope": self.scope, "key": key, "session": log.session} for key in sorted(set(map(encode_key, keys)))]
        if not rows:
            return
        new = self.database.insert(bindings)
        columns = [bindings.c.scope, bindings.c.key]
        change = new.on_conflict_do_update(index_elements=columns, set_={"session": log.session})
        try:
            with self.database.writing(quick=True) as connection:
                connection.execute(change, rows)
        except IntegrityError:
            raise InvalidInput("the session no longer exists", place=log.place) from None

    def bindings(self) -> dict[str, str]:
        """Every bound key and its session."""
        with self.database.reading() as connection:
            rows = connection.execute(self._bound()).all()
        return {decode_key(row.key): row.id for row in rows}

    def _bound(self) -> Select[tuple[str, str]]:
        joined = select(bindings.c.key, sessions.c.id).join_from(
            bindings, sessions, bindings.c.session == sessions.c.number
        )
        return joined.where(bindings.c.scope == self.scope)


def decode_key(stored: object) -> str:
    """A key from its stored form. A damaged one is returned as stored: no caller looks for it."""
    try:
        key: str = json.loads(f'"{stored}"')
    except ValueError:
        return str(stored)
    return key


def encode_key(key: str) -> str:
    """The stored form of a key: in ASCII, like records. Raises InvalidInput when it is too long."""
    stored = json.dumps(key)[1:-1]  # `as_text` takes four times as long, and there are thousands
    if len(stored) > _KEY_CHARS:
        raise InvalidInput(f"is longer than {_KEY_CHARS:,} characters: {key[:80]!r}", place="key")
    return stored
