"""`state.yaml`: how a session stands, for lists and for people. Made from the log, bounded, never needed.

YAML 1.2 holds JSON whole, so the file is written without a YAML library: one field per line, its value as JSON, and one
JSON object for each message that the model is shown. Only what this module writes is read back; anything else counts as
lost, and is made again from the log.
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
from foldline.failures import redact
from foldline.messages import Json, Message, Opaque, Text
from foldline.store.files import write_atomic
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
"""What one message may take of the snapshot; the whole of it is in the log."""

_NAME_CHARS: Final = 200
_HEAD_BYTES: Final = 65_536  # all fields before the messages; a file that needs more was not written here
_VERSION: Final = 1
_HEADING: Final = "# How this session stands, made from events.jsonl. It may be deleted: it is made again.\n"
_FIELD = re.compile(r"([a-z_]+): (.*)\n")

# YAML calls these unprintable, or takes them for line breaks. Lone surrogates cannot be written at all.
_UNFIT = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How a session stood when its log was `log_bytes` long: another length means that this is stale.

    `messages`, `turns` and `folds` (in effect) are counts; `tokens` is what is used of `window_tokens`. Times are ISO
    8601 in UTC.
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
    """The first words of a text on one line, as the title of a session: it is listed, so secrets are taken out."""
    line = " ".join(redact(text[: 20 * TITLE_CHARS]).split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def shown_messages(view: View, max_input_tokens: int | None) -> Iterator[dict[str, Json]]:
    """The newest messages that the model is shown, oldest first: as many as the memory limit says. O(those).

    Each is cut to MESSAGE_CHARS; `cut_chars` says how much is missing.
    """
    newest = (message for tile in reversed(view.tiles) for message in reversed(tile.messages))
    for message in reversed(list(islice(newest, memory_limit(max_input_tokens)))):
        yield _shown(message)


def _shown(message: Message) -> dict[str, Json]:
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
    # A message may hold any number of calls: those for which there is no room are told by `cut_chars` alone.
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
    """Puts a snapshot in place, whole or not at all, readable by its owner only. Raises OSError (a full disk)."""
    write_atomic(path, (line.encode() for line in _lines(snapshot, shown)))


def read_snapshot(path: Path, *, sealed: bool = False) -> Snapshot | None:
    """The fields of a snapshot; None when it is not there, or is not what `write_snapshot` wrote. O(fields).

    One of an older version has no checksum: it counts as lost where it is to be `sealed`.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            given = _fields(file)
    except (OSError, ValueError, RecursionError):  # unreadable, no UTF-8, no JSON
        return None
    if given is None or given.pop("v", None) != _VERSION or (sealed and "crc" not in given):
        return None
    return snapshot_from(given)


def snapshot_record(snapshot: Snapshot) -> dict[str, Json]:
    """The fields of a snapshot and a checksum over them, as they are kept."""
    given: dict[str, Json] = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    return {**given, "crc": _crc(given)}


def snapshot_from(given: Mapping[str, Any]) -> Snapshot | None:
    """The snapshot with these fields; None when they are not those of one, or not those that were written."""
    if "crc" in given:
        given = dict(given)
        if given.pop("crc") != _crc(given):
            return None
    if given.keys() != {field.name for field in fields(Snapshot)}:
        return None
    if any(not _fits(given[field.name], str(field.type)) for field in fields(Snapshot)):
        return None
    return Snapshot(**given)


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


def _crc(given: Mapping[str, Any]) -> str:
    """CRC-32 of the fields, in any order. Raises nothing: what has no form in JSON fits to no checksum."""
    try:
        return f"{crc32(json.dumps(dict(given), sort_keys=True).encode()):08x}"
    except (TypeError, ValueError, RecursionError):
        return ""


def _json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _fields(file: IO[bytes]) -> dict[str, Any] | None:
    """The fields before the messages; None when they do not end where they should."""
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
    """A session in a list; without a snapshot `damage` says why it cannot be read."""

    id: str
    snapshot: Snapshot | None
    damage: str = ""


LATEST: Final = "latest"
"""What names the session that was written last."""


def newest_first(found: Iterable[ListedSession]) -> list[ListedSession]:
    """The one written last first; what cannot be read last."""
    return sorted(found, key=lambda one: (one.snapshot.updated if one.snapshot else "", one.id), reverse=True)


def latest_of(listed: Iterable[ListedSession]) -> str:
    """The id of the first that can be read. Raises InvalidInput when there is none."""
    damaged = ""
    for one in listed:
        if one.snapshot is not None:
            return one.id
        damaged = damaged or f"no session can be read; {one.id}: {one.damage}"
    raise InvalidInput(damaged or "there is no session yet", place="session")
