"""Reading and forging the log of a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from foldline.store import EventLog, read_events

__all__ = ["Record", "change", "records_in", "replace_records", "write_older_form"]

Record: TypeAlias = dict[str, Any]


def records_in(path: Path) -> list[Record]:
    """The records of a log, without numbers and checksums."""
    return list(read_events(path))


def replace_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace the log by these records, with valid checksums."""
    path.unlink(missing_ok=True)
    (path.parent / "state.yaml").unlink(missing_ok=True)
    with EventLog(path) as log:
        log.extend(records)


def change(path: Path, number: int, by: Callable[[Record], Record]) -> None:
    """Alter one record and recompute the checksums."""
    records = records_in(path)
    records[number] = by(records[number])
    replace_records(path, records)


def write_older_form(path: Path) -> bytes:
    """Rewrite the log as an older version wrote it, without numbers and checksums; returns the bytes."""
    texts = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records_in(path))
    data = b"".join(text.encode("utf-8", "surrogatepass") + b"\n" for text in texts)
    path.write_bytes(data)
    (path.parent / "state.yaml").unlink(missing_ok=True)
    return data
