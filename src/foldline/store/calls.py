"""The record of model calls: its tables, and its readers. `call_log` writes it.

A message is stored in `texts` once. Few messages change from one request to the next, so `slots` says from which call
to which a text was at a position: a call costs rows only for new or moved messages. The view `llm_calls` assembles
every request in plain SQL, so that any SQLite shell reads it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from foldline.codecs.dialect import ROWS
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.sqlite import errno_of, is_damaged, make_private_file

__all__ = [
    "REPLY",
    "RecordedCall",
    "RequestHead",
    "newest_request_head",
    "open_to_read",
    "open_to_write",
    "read_calls",
    "read_sessions",
    "sqlite_errors",
]

REPLY: Final = "reply"
"""The purpose of a call that answers the user. Other purposes are summaries and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One recorded call, without the texts of its request.

    `request_bytes` is the size of the messages as JSON in UTF-8. `estimated` means that a token count is our own,
    because the server reported none. `folds` is the number of folds made before the call.
    """

    id: int
    session_id: str
    purpose: str
    model: str
    created_at: datetime
    message_count: int
    request_bytes: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool
    seconds: float
    folds: int
    error: str


def read_calls(path: Path | str, *, session_id: str | None = None) -> list[RecordedCall]:
    """The calls of a session, or of all sessions, oldest first. Read-only. O(calls).

    Raises FileNotFoundError, OSError, and InvalidInput for a file that is no record of calls.
    """
    place = Path(path).absolute()
    where, parameters = ("", ()) if session_id is None else ("WHERE session_id = ?", (session_id,))
    database = open_to_read(place)
    try:
        with sqlite_errors(place):
            rows = database.execute(
                "SELECT calls.id, session_id, purpose, model, created_at, message_count, request_bytes, prompt_tokens,"
                " cached_tokens, completion_tokens, estimated, seconds, folds, error"
                f" FROM calls JOIN lanes ON lanes.id = lane {where} ORDER BY calls.id",
                parameters,
            )
            rows.row_factory = sqlite3.Row
            return [_call(row) for row in rows]
    finally:
        database.close()


def read_sessions(path: Path | str) -> list[str]:
    """The ids of sessions with calls, most recent call first. Raises as `read_calls` does. O(calls)."""
    place = Path(path).absolute()
    database = open_to_read(place)
    try:
        with sqlite_errors(place):
            rows = database.execute(
                "SELECT session_id FROM calls JOIN lanes ON lanes.id = lane GROUP BY session_id"
                " ORDER BY MAX(calls.id) DESC"
            )
            return [session_id for (session_id,) in rows]
    finally:
        database.close()


def _call(row: sqlite3.Row) -> RecordedCall:
    # SQLite has neither times nor booleans.
    fields = dict(row)
    fields["created_at"] = datetime.fromisoformat(fields["created_at"])
    fields["estimated"] = bool(fields["estimated"])
    return RecordedCall(**fields)


# Marks the file as ours in its header ("PRAGMA application_id" of SQLite).
_APPLICATION: Final = int.from_bytes(b"Fold")


_VERSION: Final = 1


# A slot is half-open: from `since_call` on, before `until_call`; NULL while it is current. Texts are found by hash,
# calls by time and by lane, slots by their key, which WITHOUT ROWID makes the table itself.
#
# CROSS JOIN fixes the order of the join ("Query Planner", section on manual control): the newest calls are then read by
# the index on the time, and only the selected ones are assembled.
_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS lanes (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    UNIQUE (session_id, purpose)
);
CREATE TABLE IF NOT EXISTS texts (
    id INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL REFERENCES lanes (id),
    model TEXT NOT NULL,
    message_count INTEGER NOT NULL,
    request_bytes INTEGER NOT NULL,
    system INTEGER REFERENCES texts (id),
    tools INTEGER REFERENCES texts (id),
    parameters INTEGER NOT NULL REFERENCES texts (id),
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    seconds REAL NOT NULL,
    folds INTEGER NOT NULL,
    error TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_time ON calls (created_at);
CREATE INDEX IF NOT EXISTS calls_by_lane ON calls (lane);
CREATE TABLE IF NOT EXISTS slots (
    lane INTEGER NOT NULL REFERENCES lanes (id),
    position INTEGER NOT NULL,
    since_call INTEGER NOT NULL,
    until_call INTEGER,
    text INTEGER NOT NULL REFERENCES texts (id),
    PRIMARY KEY (lane, position, since_call)
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS llm_calls AS
SELECT
    calls.id,
    lanes.session_id,
    lanes.purpose,
    calls.model,
    '[' || COALESCE((
        SELECT group_concat(body, ',') FROM (
            SELECT texts.body FROM slots CROSS JOIN texts ON texts.id = slots.text
            WHERE slots.lane = calls.lane AND slots.position < calls.message_count
                AND slots.since_call <= calls.id AND (slots.until_call IS NULL OR slots.until_call > calls.id)
            ORDER BY slots.position
        )
    ), '') || ']' AS request_messages,
    calls.message_count,
    calls.request_bytes,
    (SELECT body FROM texts WHERE texts.id = calls.system) AS request_system,
    (SELECT body FROM texts WHERE texts.id = calls.tools) AS request_tools,
    (SELECT body FROM texts WHERE texts.id = calls.parameters) AS request_parameters,
    calls.prompt_tokens,
    calls.completion_tokens,
    calls.cached_tokens,
    calls.estimated,
    calls.seconds,
    calls.folds,
    calls.error,
    calls.created_at
FROM calls CROSS JOIN lanes ON lanes.id = calls.lane;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


def open_to_write(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """A connection for writing; creates the file (0600), its folder (0700) and the tables unless they exist.

    Raises InvalidInput for a file of another program, OSError when it cannot be opened or written.
    """
    make_private_file(path)
    with sqlite_errors(path):
        # No isolation level: the `sqlite3` module would begin transactions on its own, and not at the right places.
        # Used by several threads, one at a time: a server writes in another thread than it opens and closes in.
        database = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            _prepare(database, path)
        except BaseException:
            database.close()
            raise
    return database


def open_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises FileNotFoundError, and as `open_to_write` does."""
    # For a clear error: SQLite says "unable to open database file" whatever the reason.
    os.stat(path)
    with sqlite_errors(path):
        database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            if not _is_ours(database, path):
                raise InvalidInput("is not a record of model calls", place=str(path))
        except BaseException:
            database.close()
            raise
    return database


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into OSError (disk full, no permission, busy) or InvalidInput (no database, or damaged)."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        number = errno_of(error)
        if number is not None:
            raise OSError(number, f"the record of model calls: {error}", str(path)) from error
        if is_damaged(error):
            reason = f"is damaged, or not a record of model calls ({error}); move it away to start a new one"
            raise InvalidInput(reason, place=str(path)) from error
        raise


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    if _is_ours(database, path):
        database.execute("PRAGMA journal_mode = WAL")
    else:
        # So that `prune` shrinks the file; must precede the first table.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")  # harmless when another process was faster
    # With WAL and NORMAL a power cut may lose the newest calls but never damages the file. That suits a record: nothing
    # acts on it.
    database.execute("PRAGMA synchronous = NORMAL")


def _is_ours(database: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables exist; False for an empty file. Raises InvalidInput for another program's database."""
    database.execute("BEGIN")  # one snapshot: another process may be creating the tables
    try:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
    # Tables alone are no proof: another program may have a table of the same name.
    if application == _APPLICATION:
        if version > _VERSION:
            raise InvalidInput(f"was written by a newer Foldline (form {version:,})", place=str(path))
        return True
    if tables or application or version:
        raise InvalidInput("is a database of another program", place=str(path))
    return False


# From the table of dialects, so that a new one is not forgotten here. Each lists the field that counts first.
_OUTPUT_CAPS: Final = tuple(dict.fromkeys(name for row in ROWS.values() for name in row.body.caps))


_LEADING_ROLES: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """System text, tool schemas and output cap of a request; None for what it lacked."""

    system: str | Sequence[Mapping[str, Json]] | None
    tools: Sequence[Mapping[str, Json]] | None
    max_output_tokens: int | None


def newest_request_head(path: Path | str, session_id: str) -> RequestHead | None:
    """The head of a session's newest request, which its log does not hold; None without a recorded call.

    Read-only. Cache points are removed. O(one request). Raises OSError, and InvalidInput for a file that is no record
    of calls.
    """
    # Replies only: a summary has a system text of its own, which says nothing about the session.
    place = Path(path).absolute()
    try:
        database = open_to_read(place)
    except FileNotFoundError:
        return None
    try:
        with sqlite_errors(place):
            row = database.execute(
                "SELECT request_system, request_tools, request_parameters, request_messages FROM llm_calls"
                " WHERE session_id = ? AND purpose = ? ORDER BY id DESC LIMIT 1",
                (session_id, REPLY),
            ).fetchone()
    finally:
        database.close()
    if row is None:
        return None
    system, tools, parameters, messages = (json.loads(text or "null") for text in row)
    if isinstance(system, dict):  # Gemini has an object with parts
        system = system.get("parts")
    nested = parameters.get("generationConfig")
    parameters |= nested if isinstance(nested, dict) else {}
    if system is None:
        system = _leading_system(messages)
    caps = (parameters.get(name) for name in _OUTPUT_CAPS)
    return RequestHead(
        system=_without_cache_points(system) or None,
        tools=_without_cache_points(tools) or None,
        max_output_tokens=next((cap for cap in caps if isinstance(cap, int)), None),
    )


def _leading_system(messages: Json) -> Json:
    """The system text in the first message, where Chat Completions has it."""
    first = messages[0] if messages else None
    return first.get("content") if isinstance(first, dict) and first.get("role") in _LEADING_ROLES else None


def _without_cache_points(value: Json) -> Json:
    """The value without cache points: the provider's adapter sets them anew in each request."""
    if not isinstance(value, list):
        return value
    return [
        {name: inner for name, inner in each.items() if name != "cache_control"} if isinstance(each, dict) else each
        for each in value
    ]
