"""The recorded sessions of a bench: read once before any work, each under a name of its own."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from foldline.codecs import codec
from foldline.errors import InvalidInput
from foldline.replay.recall import MessageReader
from foldline.tokens import Counter
from foldline_bench.measure.groups import group_of
from foldline_bench.values import SessionRow, UnreadFile
from foldline_bench.workers.jobs import SessionFile, neutral_counter, read_sessions

__all__ = ["SessionInputs", "collect_sessions"]


@dataclass(frozen=True, slots=True)
class SessionInputs:
    """The readable sessions, as files and as rows of the result, and the files that could not be read."""

    files: Sequence[SessionFile]
    rows: Sequence[SessionRow]
    left_out: list[UnreadFile]


def collect_sessions(paths: Sequence[str], *, found: Collection[str] = (), exact: bool = False) -> SessionInputs:
    """Read all files, sized by the neutral counter. O(their size).

    One of `found` that cannot be read, or in which no reply is recorded, is left out. Raises InvalidInput for any
    other, and when none is left.
    """
    counter = neutral_counter(exact)
    files, rows, left_out = [], [], []
    for file, path in zip(_name_files(paths), paths, strict=True):
        try:
            rows.append(_row(file, counter))
        except InvalidInput as error:
            if path not in found:
                raise
            left_out.append(UnreadFile(file=path, reason=error.reason))
        else:
            files.append(file)
    if not files:
        first = left_out[0]
        raise InvalidInput(f"no session can be used, of {len(left_out)}; {first['reason']}", place=first["file"])
    return SessionInputs(files, rows, left_out)


def _name_files(paths: Sequence[str]) -> list[SessionFile]:
    """The files in the order given, each under the name that its content has; one used again gets a number."""
    used: dict[str, int] = {}
    out = []
    for path in paths:
        name = os.path.basename(path).removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")
        used[name] = times = used.get(name, 0) + 1
        out.append(SessionFile(name if times == 1 else f"{name} ({times})", os.path.abspath(path)))
    return out


def _row(file: SessionFile, counter: Counter) -> SessionRow:
    [session] = read_sessions([file])
    reader = MessageReader(codec(session.dialect), counter)
    seen = [reader.read(wire) for wire in session.messages]
    requests = sum(each.role == "assistant" for each in seen[1:])
    if not requests:
        raise InvalidInput("no reply is recorded in it, and so no request", place=file.path)
    return SessionRow(
        name=file.name,
        source=session.source,
        group=group_of(session.source),
        sha256=sha256(Path(file.path).read_bytes()).hexdigest(),
        tokens=sum(each.tokens for each in seen),
        messages=len(seen),
        requests=requests,
    )
