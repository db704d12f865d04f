"""The writer of the record of model calls: each request in full, with its usage and duration.

The view `llm_calls` shows them in any SQLite shell. The text of a message is stored once (see `calls`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from foldline.codecs.dialect import form_of
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.calls import REPLY, open_to_write, sqlite_errors
from foldline.view.transcript import Usage
from foldline.view.usage import usage_of

__all__ = ["CallLog", "usage_or_count"]

_BUSY_SECONDS: Final = 5.0  # a call is written in milliseconds: a longer wait means a stuck writer


@dataclass(slots=True)
class _Lane:
    """The newest request of a session with one purpose: the next one is compared with it."""

    id: int
    texts: list[int]
    sizes: list[int]
    messages: Sequence[Json] = ()
    call: int = 0


class CallLog:
    """Writes model calls to a SQLite file, which several processes may share.

    Opening creates the file (0600: it holds what the session held) and its folder unless they exist. Raises
    InvalidInput for a file of another program, and from any method OSError (a full disk, no permission, a stuck
    writer): then nothing was written, and the caller decides whether to continue. Use it in one thread at a time, and
    close it.

    With `keep_calls` the oldest calls are dropped so that about that many remain: on opening, and after every
    `keep_calls / 10` calls.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        busy_seconds: float = _BUSY_SECONDS,
        keep_calls: int | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._clock = clock
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._keep_calls = keep_calls
        self._since_pruned = 0
        self._database = open_to_write(self._path, busy_seconds=busy_seconds)
        try:
            self._prune_if_due()
        except BaseException:
            self._database.close()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def record(
        self,
        session_id: str,
        body: Mapping[str, Json],
        usage: Usage,
        *,
        seconds: float,
        folds: int = 0,
        error: str = "",
        purpose: str = REPLY,
    ) -> int:
        """Record one call and return its id. `body` is the JSON that was sent (`Reply.request_body`).

        Messages are compared with the last call of the same session and purpose: O(1) for the same object (which nobody
        may have edited in place), O(size) for another; only differences are written. When the server reported nothing,
        `usage` is our own count, marked as such (`usage_or_count`). Raises InvalidInput for a body without a list of
        messages.
        """
        # A purpose has a lane of its own: a summary between two replies would else end every slot and open it again.
        key = (_encodable(session_id), _encodable(purpose))
        messages, others = _parts(body)  # before the transaction: a body that is refused must not hold the lock
        created_at = self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        with self._writing(key):
            lane = self._lane(key)
            texts, sizes = self._texts(messages, lane)
            row = {
                "lane": lane.id,
                "model": _encodable(str(body.get("model") or "")),
                "message_count": len(messages),
                "request_bytes": sum(sizes) + max(len(sizes) - 1, 0) + 2,
                **{name: None if value is None else self._text(_json(value))[0] for name, value in others.items()},
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "estimated": not usage.reported,
                "seconds": seconds,
                "folds": folds,
                "error": _encodable(error),
                "created_at": created_at,
            }
            names = ", ".join(row)
            marks = ", ".join(f":{name}" for name in row)
            # `MAX(id)` of a lane tells other writers that their cached lane is stale.
            call = self._insert(f"INSERT INTO calls ({names}) VALUES ({marks})", row)
            self._update_slots(lane, texts, call)
        # After the commit, and with the message objects: the next request holds most of the same ones, which `is` tells
        # without comparing a megabyte of text.
        lane.call, lane.messages, lane.texts, lane.sizes = call, messages, texts, sizes
        self._since_pruned += 1
        if self._keep_calls is not None and self._since_pruned > self._keep_calls // 10:
            with suppress(OSError):  # the call is written; pruning can wait
                self._prune_if_due()
        return call

    def prune(self, *, keep_calls: int) -> int:
        """Drop all but the newest calls, with texts that only the others used; return their number. O(size kept)."""
        if keep_calls < 1:
            raise InvalidInput(f"must be at least 1, not {keep_calls}", place="keep_calls")
        self._lanes.clear()  # pruning may drop the texts that cached lanes refer to
        with self._writing():
            run = self._database.execute
            dropped = run(
                "DELETE FROM calls WHERE id NOT IN (SELECT id FROM calls ORDER BY id DESC LIMIT ?)", (keep_calls,)
            ).rowcount
            # `llm_calls` needs a slot while a call between its two ends exists. Slots before texts, for the texts that
            # only they used become free here.
            run(
                "DELETE FROM slots WHERE lane NOT IN (SELECT lane FROM calls)"
                " OR until_call <= (SELECT MIN(id) FROM calls WHERE calls.lane = slots.lane)"
            )
            run("DELETE FROM lanes WHERE id NOT IN (SELECT lane FROM calls)")
            run(
                "DELETE FROM texts WHERE id NOT IN (SELECT text FROM slots UNION SELECT parameters FROM calls"
                " UNION SELECT system FROM calls WHERE system IS NOT NULL"
                " UNION SELECT tools FROM calls WHERE tools IS NOT NULL)"
            )
        with sqlite_errors(self._path):
            self._database.executescript("PRAGMA incremental_vacuum;")  # `execute` would run one step: one page
        return dropped

    def _prune_if_due(self) -> None:
        """Drop the oldest calls once a tenth too many exist. O(calls), and O(size kept) when it prunes."""
        self._since_pruned = 0
        if self._keep_calls is None:
            return
        with sqlite_errors(self._path):
            (count,) = self._database.execute("SELECT COUNT(*) FROM calls").fetchone()
        if count > self._keep_calls + self._keep_calls // 10:
            self.prune(keep_calls=self._keep_calls)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _writing(self, key: tuple[str, str] | None = None) -> Iterator[None]:
        """A write transaction. A failure also forgets the lane of `key`, which may be ahead of the file."""
        # The transaction spans reading the lane and writing the call: with two processes the slots would else overlap.
        with sqlite_errors(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if key is not None:
                    self._lanes.pop(key, None)
                if self._database.in_transaction:  # a full disk may have rolled it back already
                    self._database.execute("ROLLBACK")
                raise

    def _lane(self, key: tuple[str, str]) -> _Lane:
        """The lane as stored: read again when another process has written to it since."""
        run = self._database.execute
        lane = self._lanes.get(key)
        if lane is not None:
            (newest,) = run("SELECT MAX(id) FROM calls WHERE lane = ?", (lane.id,)).fetchone()
            if newest == lane.call:
                return lane
        run("INSERT OR IGNORE INTO lanes (session_id, purpose) VALUES (?, ?)", key)
        (number,) = run("SELECT id FROM lanes WHERE session_id = ? AND purpose = ?", key).fetchone()
        slots = run(
            "SELECT text, LENGTH(CAST(body AS BLOB)) FROM slots JOIN texts ON texts.id = text"
            " WHERE lane = ? AND until_call IS NULL ORDER BY position",
            (number,),
        ).fetchall()
        lane = self._lanes[key] = _Lane(number, [text for text, _ in slots], [size for _, size in slots])
        return lane

    def _texts(self, messages: Sequence[Json], lane: _Lane) -> tuple[list[int], list[int]]:
        """The text id and the size of each message. An object identical to the last call's is not serialised again."""
        texts, sizes = [], []
        for place, message in enumerate(messages):
            # Identity only: an equal message is found by its hash anyway, at the cost of encoding it.
            if place < len(lane.messages) and message is lane.messages[place]:
                text, size = lane.texts[place], lane.sizes[place]
            else:
                text, size = self._text(_json(message))
            texts.append(text)
            sizes.append(size)
        return texts, sizes

    def _text(self, body: str) -> tuple[int, int]:
        # By hash and not by the text itself, whose index would store every message twice.
        data = body.encode()
        key = hashlib.sha256(data).digest()
        found = self._database.execute("SELECT id FROM texts WHERE sha256 = ?", (key,)).fetchone()
        if found is None:
            return self._insert("INSERT INTO texts (sha256, body) VALUES (?, ?)", (key, body)), len(data)
        return int(found[0]), len(data)

    def _insert(self, statement: str, row: Mapping[str, Json] | Sequence[Json]) -> int:
        self._database.execute(statement, row)
        (number,) = self._database.execute("SELECT last_insert_rowid()").fetchone()
        return int(number)

    def _update_slots(self, lane: _Lane, texts: Sequence[int], call: int) -> None:
        """Close the slots whose text changed with this call, and open new ones."""
        # Positions, not a diff of lists: a fold at the front moves all that follows, which costs a row each. A better
        # match would need a query that searches for positions, and the view must stay plain SQL.
        before = lane.texts
        closed = [at for at, text in enumerate(before) if at >= len(texts) or texts[at] != text]
        opened = [(at, text) for at, text in enumerate(texts) if at >= len(before) or before[at] != text]
        self._database.executemany(
            "UPDATE slots SET until_call = ? WHERE lane = ? AND position = ? AND until_call IS NULL",
            [(call, lane.id, at) for at in closed],
        )
        self._database.executemany(
            "INSERT INTO slots (lane, position, since_call, text) VALUES (?, ?, ?, ?)",
            [(lane.id, at, call, text) for at, text in opened],
        )


def usage_or_count(
    reported: Mapping[str, Json] | None, *, prompt_tokens: int, completion_tokens: int, request: int = 0
) -> Usage:
    """The usage of a reply, with our own count in place of a missing figure or an impossible 0.

    Streams often end without a report, and some servers report zeros. Our own counts are marked: `reported` is False.
    `doubt` explains a report without readable counts.
    """
    # A reported 0 is possible only where our own count is 0 as well: no request is empty. Servers that count nothing
    # say 0.
    ours = Usage(input_tokens=prompt_tokens, output_tokens=completion_tokens, request=request, reported=False)
    if reported is None:
        return ours
    try:
        usage = usage_of(reported, request)
    except InvalidInput as error:
        return replace(ours, doubt=str(error))
    whole = (usage.input_tokens or not prompt_tokens) and (usage.output_tokens or not completion_tokens)
    return replace(
        usage,
        input_tokens=usage.input_tokens or prompt_tokens,
        output_tokens=usage.output_tokens or completion_tokens,
        reported=usage.reported and bool(whole),
    )


def _parts(body: Mapping[str, Json]) -> tuple[list[Json], dict[str, Json]]:
    """The messages of a request, and its system text, tools and parameters apart: they change at different times."""
    form = form_of(body)
    name, system = ("messages", "system") if form is None else (form.messages, form.system or "")
    messages = body.get(name)
    if not isinstance(messages, list | tuple):
        raise InvalidInput(f"a request has a list of messages, not {type(messages).__name__}", place=name)
    # Apart, because each has a text of its own: tools rarely change, and parameters repeat in every call.
    rest = {key: value for key, value in body.items() if key not in {name, system, "tools"}}
    return list(messages), {"system": body.get(system), "tools": body.get("tools"), "parameters": rest}


def _json(value: Json) -> str:
    """JSON as it is sent: compact, in UTF-8; a lone surrogate, which UTF-8 cannot hold, as an escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a request is not JSON: {error}") from error
    return text


def _encodable(text: str) -> str:
    """The text with lone surrogates replaced, as UTF-8 requires."""
    return text.encode("utf-8", "replace").decode()
