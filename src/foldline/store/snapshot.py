"""`state.yaml`: the state of a session for lists and for people. Made from the log, bounded, dispensable.

JSON is a subset of YAML 1.2, so the file is written without a YAML library: one field per line, its value as JSON, and
one JSON object for each message that the model is shown. Only the output of this module is read back; anything else
counts as lost and is made again from the log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final
from zlib import crc32

from foldline.engine.settings import memory_limit
from foldline.errors import InvalidInput
from foldline.messages import Json, Message, Opaque, Text
from foldline.store.files import write_atomic
from foldline.text.redaction import redact
from foldline.view.view import View

__all__ = [
    "LATEST",
    "MESSAGE_CHARS",
    "TITLE_CHARS",
    "ListedSession",
    "Snapshot",
    "latest_of",
    "newest_first",
    "read_snapshot",
    "shown_messages",
    "snapshot_from",
    "snapshot_record",
    "title_of",
    "write_snapshot",
]

TITLE_CHARS: Final = 80
MESSAGE_CHARS: Final = 2_000
"""The share of one message; the log holds the whole."""

_NAME_CHARS: Final = 200
# Read at most, for all fields before the messages. Ours need one or two kilobytes; a file of another program may have
# gigabytes.
_HEAD_BYTES: Final = 65_536
_VERSION: Final = 1
_HEADING: Final = "# How this session stands, made from events.jsonl. It may be deleted: it is made again.\n"
_FIELD = re.compile(r"([a-z_]+): (.*)\n")

# YAML calls these unprintable, or reads them as line breaks. UTF-8 cannot hold lone surrogates at all.
_UNFIT = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a session when its log had `log_bytes` bytes: with another length it is stale.

    `messages`, `turns` and `folds` (in effect) are counts; `tokens` is the used part of `window_tokens`. Times are ISO
    8601 in UTC. In tables `log_bytes` counts records.
    """

    id: str
    created: str
    updated: str
    dialect: str
    model: str | None
    policy: str
    title: str
    parent: str | None
    turns: int
    messages: int
    folds: int
    tokens: int
    window_tokens: int
    log_bytes: int


def title_of(text: str) -> str:
    """The first words of a text on one line, as the title of a session. Lists show it, so secrets are redacted."""
    line = " ".join(redact(text[: 20 * TITLE_CHARS]).split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def shown_messages(view: View, max_input_tokens: int | None) -> Iterator[dict[str, Json]]:
    """The newest messages that the model is shown, oldest first, up to the memory limit. O(those).

    Each is cut to MESSAGE_CHARS; `cut_chars` is the number of characters missing.
    """
    # From the end, and lazily: the view of a long session has thousands of messages, and the file must stay small
    # because it is written after every turn.
    newest = (message for tile in reversed(view.tiles) for message in reversed(tile.messages))
    for message in reversed(list(islice(newest, memory_limit(max_input_tokens)))):
        yield _shown(message)


def _shown(message: Message) -> dict[str, Json]:
    # One budget for the whole message: any of its parts may be a megabyte.
    left, cut = MESSAGE_CHARS, 0

    def fit(text: str) -> str:
        nonlocal left, cut
        taken = text[:left]
        left -= len(taken)
        cut += len(text) - len(taken)
        return taken

    out: dict[str, Json] = {"role": message.role}
    if message.kind:
        out["kind"] = message.kind
    words = "\n".join(part.text for part in message.parts if isinstance(part, Text | Opaque) and part.text)
    if words:
        out["text"] = fit(words)
    # A message may hold any number of calls: `cut_chars` alone accounts for those without room.
    calls = [(call.name[:_NAME_CHARS], fit(call.arguments), left) for call in message.calls]
    if calls:
        out["calls"] = [{"name": name, "arguments": text} for name, text, room in calls if text or room]
    results = [(result.call_id[:_NAME_CHARS], fit(result.text), left) for result in message.results]
    if results:
        out["results"] = [{"call": name, "text": text} for name, text, room in results if text or room]
    if cut:
        out["cut_chars"] = cut
    return out


def write_snapshot(path: Path, snapshot: Snapshot, shown: Iterable[Json]) -> None:
    """Write a snapshot atomically, readable by its owner only. Raises OSError (a full disk)."""
    write_atomic(path, (line.encode() for line in _lines(snapshot, shown)))


def read_snapshot(path: Path, *, sealed: bool = False) -> Snapshot | None:
    """The fields of a snapshot; None when there is none, or `write_snapshot` did not write it. O(fields).

    A snapshot of an older version has no checksum: with `sealed` it counts as lost.
    """
    # Not blocking: somebody may have put a named pipe in its place.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            values = _fields(file)
    except (OSError, ValueError, RecursionError):  # unreadable, not UTF-8, not JSON
        return None
    if values is None or values.pop("v", None) != _VERSION or (sealed and "crc" not in values):
        return None
    return snapshot_from(values)


def snapshot_record(snapshot: Snapshot) -> dict[str, Json]:
    """The fields of a snapshot and a checksum over them, as stored."""
    values: dict[str, Json] = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    return {**values, "crc": _crc(values)}


def snapshot_from(values: Mapping[str, Any]) -> Snapshot | None:
    """The snapshot with these fields; None when they are not a snapshot's, or do not match their checksum."""
    # Without a checksum it is of an older version, good for a list. With a wrong one it proves nothing: a flipped digit
    # in `log_bytes` would report an intact log as cut off.
    if "crc" in values:
        values = dict(values)
        if values.pop("crc") != _crc(values):
            return None
    # Exactly these fields: a snapshot of another version is made again, which costs one reading of the log.
    if values.keys() != {field.name for field in fields(Snapshot)}:
        return None
    if any(not _fits(values[field.name], str(field.type)) for field in fields(Snapshot)):
        return None
    return Snapshot(**values)


def _lines(snapshot: Snapshot, shown: Iterable[Json]) -> Iterator[str]:
    yield _HEADING
    yield f"v: {_VERSION}\n"
    for name, value in snapshot_record(snapshot).items():
        yield f"{name}: {_json(value)}\n"
    count = 0
    for count, message in enumerate(shown, 1):
        yield f"{'shown:' + chr(10) if count == 1 else ''}- {_json(message)}\n"
    if not count:
        yield "shown: []\n"


def _crc(values: Mapping[str, Any]) -> str:
    """CRC-32 of the fields, in any order; "", which matches no checksum, when they are no JSON."""
    try:
        return f"{crc32(json.dumps(dict(values), sort_keys=True).encode()):08x}"
    except (TypeError, ValueError, RecursionError):
        return ""


def _json(value: Json) -> str:
    # JSON leaves some characters raw that YAML forbids; as escapes both read them alike.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _fields(file: IO[bytes]) -> dict[str, Any] | None:
    """The fields before the messages; None when there is anything else among them."""
    out: dict[str, Any] = {}
    for line in file.read(_HEAD_BYTES).decode("utf-8", "replace").splitlines(keepends=True):
        if line.startswith("shown:"):
            return out
        if line == _HEADING:
            continue
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        out[found[1]] = json.loads(found[2])
    return None


def _fits(value: object, kind: str) -> bool:
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, str) or (value is None and "None" in kind)


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session in a list; `damage` is the reason when it cannot be read and has no snapshot."""

    id: str
    snapshot: Snapshot | None
    damage: str = ""


LATEST: Final = "latest"
"""The name of the session that was written last."""


def newest_first(found: Iterable[ListedSession]) -> list[ListedSession]:
    """The sessions, last written first; unreadable ones at the end."""
    # Times are ISO 8601 in UTC with three decimals, so they sort as text. The id decides between equal ones.
    return sorted(found, key=lambda one: (one.snapshot.updated if one.snapshot else "", one.id), reverse=True)


def latest_of(listed: Iterable[ListedSession]) -> str:
    """The id of the first readable session. Raises InvalidInput when there is none."""
    # A damaged session is passed over, but named when there is no other: "no session yet" would hide the damage.
    damaged = ""
    for one in listed:
        if one.snapshot is not None:
            return one.id
        damaged = damaged or f"no session can be read; {one.id}: {one.damage}"
    raise InvalidInput(damaged or "there is no session yet", place="session")
