"""The keys by which sessions are found, in tables: what a store promises of them, for the sessions of one scope.

To look keys up and to bind them is short, and somebody waits for it: a database that does not answer is given up soon.
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

_FIRST_ASKED: Final = 64
"""Who looks for a session by many keys begins with the likeliest: then the others are not even sent."""

# Both look for one key after the other by the index. Left to itself, PostgreSQL reads the whole table for a long list
# as long as it has no statistics of it, which took seven times as long.
_FIRST_BOUND: Final = {
    "sqlite": text(
        "SELECT asked.key AS place, s.id FROM json_each(:keys) AS asked"
        " CROSS JOIN foldline_bindings AS b ON b.scope = :scope AND b.key = asked.value"
        " CROSS JOIN foldline_sessions AS s ON s.number = b.session ORDER BY asked.key LIMIT 1"
    ),
    "postgresql": text(
        "SELECT asked.place - 1 AS place, s.id FROM json_array_elements_text(CAST(:keys AS json))"
        " WITH ORDINALITY AS asked (key, place) CROSS JOIN LATERAL (SELECT b.session FROM foldline_bindings AS b"
        " WHERE b.scope = :scope AND b.key = asked.key LIMIT 1) AS found"
        " JOIN foldline_sessions AS s ON s.number = found.session ORDER BY asked.place LIMIT 1"
    ),
}

_KEY_CHARS: Final = 1_000
"""PostgreSQL refuses keys of about 2,700 bytes in an index."""


@dataclass(frozen=True, slots=True)
class SqlKeys:
    """The keys of the sessions within one of them, or of those of a user. All raise OSError."""

    database: Database
    scope: int

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first of these keys that is bound, and its session. Two queries at most; raises InvalidInput."""
        if not keys:
            return None
        with self.database.reading(quick=True) as connection:
            query = _FIRST_BOUND[connection.dialect.name]
            for start, some in ((0, keys[:_FIRST_ASKED]), (_FIRST_ASKED, keys[_FIRST_ASKED:])):
                named = {"keys": as_text([encode_key(key) for key in some]), "scope": self.scope}
                found = connection.execute(query, named).first() if some else None
                if found is not None:
                    return keys[start + int(found.place)], str(found.id)
        return None

    def bind_all(self, keys: Iterable[str], log: SessionRecords) -> None:
        """Have a session go by these keys, in one transaction. Raises InvalidInput when it is gone."""
        # In one order, so that no two processes wait for each other's keys.
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
            raise InvalidInput("there is no such session any more", place=log.place) from None

    def bindings(self) -> dict[str, str]:
        """Every key and its session."""
        with self.database.reading() as connection:
            rows = connection.execute(self._bound()).all()
        return {decode_key(row.key): row.id for row in rows}

    def _bound(self) -> Select[tuple[str, str]]:
        joined = select(bindings.c.key, sessions.c.id).join_from(
            bindings, sessions, bindings.c.session == sessions.c.number
        )
        return joined.where(bindings.c.scope == self.scope)


def decode_key(kept: object) -> str:
    """A key as it was given, from its table. One that was altered there is told as it stands: nobody asks for it."""
    try:
        key: str = json.loads(f'"{kept}"')
    except ValueError:
        return str(kept)
    return key


def encode_key(key: str) -> str:
    """A key of ours as it stands in its table: in ASCII, as records are. Raises InvalidInput (too long)."""
    kept = json.dumps(key)[1:-1]  # `as_text` takes four times as long, and there are thousands
    if len(kept) > _KEY_CHARS:
        raise InvalidInput(f"is longer than {_KEY_CHARS:,} characters: {key[:80]!r}", place="key")
    return kept
