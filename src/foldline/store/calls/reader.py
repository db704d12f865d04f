"""What was recorded of model calls, without the texts of their requests."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from foldline.store.calls.schema import faults, open_to_read

__all__ = ["REPLY", "RecordedCall", "read_calls", "read_sessions"]

REPLY: Final = "reply"
"""The purpose of a call that answers the user; others are summaries and what else the agent asks a model for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call as it was recorded, without the texts. `request_bytes` is the size of its messages as JSON in UTF-8.

    `estimated` says that a count of tokens is ours, since the server made no report. `folds` were made before it.
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
    """The calls of a session, or of all, oldest first, without their texts; changes nothing. O(calls).

    Raises FileNotFoundError, OSError, and InvalidInput for a file that is no record of calls.
    """
    place = Path(path).absolute()
    where, given = ("", ()) if session_id is None else ("WHERE session_id = ?", (session_id,))
    database = open_to_read(place)
    try:
        with faults(place):
            rows = database.execute(
                "SELECT calls.id, session_id, purpose, model, created_at, message_count, request_bytes, prompt_tokens,"
                " cached_tokens, completion_tokens, estimated, seconds, folds, error"
                f" FROM calls JOIN lanes ON lanes.id = lane {where} ORDER BY calls.id",
                given,
            )
            rows.row_factory = sqlite3.Row
            return [_call(row) for row in rows]
    finally:
        database.close()


def read_sessions(path: Path | str) -> list[str]:
    """The sessions that have calls, the one called last first. Raises what `read_calls` raises. O(calls)."""
    place = Path(path).absolute()
    database = open_to_read(place)
    try:
        with faults(place):
            rows = database.execute(
                "SELECT session_id FROM calls JOIN lanes ON lanes.id = lane GROUP BY session_id"
                " ORDER BY MAX(calls.id) DESC"
            )
            return [session_id for (session_id,) in rows]
    finally:
        database.close()


def _call(row: sqlite3.Row) -> RecordedCall:
    fields = dict(row)
    fields["created_at"] = datetime.fromisoformat(fields["created_at"])
    fields["estimated"] = bool(fields["estimated"])
    return RecordedCall(**fields)
