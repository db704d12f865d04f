"""The log of a session as tests read it, and as they write one that says what they like."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from foldline.store import EventLog, read_events

__all__ = ["Record", "aged", "change", "put_records", "records_in"]

Record: TypeAlias = dict[str, Any]


def records_in(path: Path) -> list[Record]:
    """What was written, without numbers and checksums."""
    return list(read_events(path))


def put_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """A log of these records in place of the one that is there, whole as far as its checksums go."""
    path.unlink(missing_ok=True)
    (path.parent / "state.yaml").unlink(missing_ok=True)
    with EventLog(path) as log:
        log.extend(records)


def change(path: Path, number: int, by: Callable[[Record], Record]) -> None:
    """One record altered by somebody who makes its checksum anew."""
    records = records_in(path)
    records[number] = by(records[number])
    put_records(path, records)


def aged(path: Path) -> bytes:
    """The log as an older version wrote it, without numbers and checksums; it is put in place, and returned."""
    texts = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records_in(path))
    data = b"".join(text.encode("utf-8", "surrogatepass") + b"\n" for text in texts)
    path.write_bytes(data)
    (path.parent / "state.yaml").unlink(missing_ok=True)
    return data
