"""The recorded sessions of a bench: read once before any work, each under a name of its own."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from foldline.cli.console import log
from foldline.cli.histories import counter_for, sessions_in
from foldline.codecs import codec
from foldline.errors import InvalidInput, MissingExtra
from foldline.replay.recall import MessageReader
from foldline.tokens import Counter
from foldline_bench.measure.parts import source_of
from foldline_bench.values import SessionRow, UnreadFile
from foldline_bench.weeks import WEEK_TOKENS, WeekRecording
from foldline_bench.workers.jobs import SessionFile, neutral_counter, read_week

__all__ = ["UNKNOWN", "SessionInputs", "collect_sessions", "counts_exactly", "group_of", "session_paths"]

_EXAMPLES: Final = os.path.join("examples", "sessions")


UNKNOWN: Final = "other"

# The mix of sessions decides every figure over all of them, so figures are also given by kind of work.
# The first match in the source decides.
_KINDS: Final = (
    (
        "issue solving",
        re.compile(r"swe-?agent|swe[-_ ]?bench|openhands|multi_swe|agent-as-a-judge|devai", re.IGNORECASE),
    ),
    ("MCP servers", re.compile(r"mcp", re.IGNORECASE)),
    ("customer service", re.compile(r"tau2?-?bench", re.IGNORECASE)),
    ("chat", re.compile(r"memorybank|aider|chat", re.IGNORECASE)),
    ("coding", re.compile(r"claude.?code|codex|session-share|opencode|openagents|pi-mono", re.IGNORECASE)),
)


def group_of(source: str) -> str:
    """Return the group of a session by its source: a kind of work, else the source's own name, else "other"."""
    for kind, pattern in _KINDS:
        if pattern.search(source):
            return kind
    return source.partition(" (")[0].strip() or UNKNOWN


def session_paths(given: Sequence[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The files, those of folders in the order of their names; and which of them nobody named. By default the examples.

    Raises InvalidInput if there are none.
    """
    if not given and not os.path.isdir(_EXAMPLES):
        raise InvalidInput("none given, and there are no examples here", place="SESSIONS")
    out: list[str] = []
    for path in given or (_EXAMPLES,):
        out += sessions_in(path) if os.path.isdir(path) else [path]
    return tuple(out), frozenset(out) - set(given)


def counts_exactly() -> bool:
    """Whether the exact counter is installed; if not, a line on standard error says so."""
    try:
        counter_for(exact=True, model=None)
    except MissingExtra as error:
        log(f"sizes are estimates: {error}")
        return False
    return True


@dataclass(frozen=True, slots=True)
class SessionInputs:
    """The readable sessions, as files and as rows of the result, and the files that could not be read."""

    files: Sequence[SessionFile]
    rows: Sequence[SessionRow]
    left_out: list[UnreadFile]


def collect_sessions(
    paths: Sequence[str], *, found: Collection[str] = (), exact: bool = False, weeks: bool = False
) -> SessionInputs:
    """Read all files, sized by the neutral counter. O(their size).

    A file of `found` that cannot be read, or that has no reply, is left out. With `weeks` the sessions of each source
    are joined. Raises InvalidInput for any other such file, and if none is left.
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
    if weeks:
        files = _weeks(files, rows)
        rows = [_row(file, counter) for file in files]
    return SessionInputs(files, rows, left_out)


def _weeks(files: Sequence[SessionFile], rows: Sequence[SessionRow]) -> list[SessionFile]:
    """Join the files of each source in the order of their names; a week ends before it is too long."""
    out: list[SessionFile] = []
    of_source: dict[str, list[tuple[SessionFile, SessionRow]]] = defaultdict(list)
    for file, row in zip(files, rows, strict=True):
        of_source[row["origin"]].append((file, row))
    for source, sessions in of_source.items():
        weeks: list[list[SessionFile]] = [[]]
        tokens = 0
        for file, row in sorted(sessions, key=lambda each: each[0].name):
            if weeks[-1] and tokens + row["tokens"] > WEEK_TOKENS:
                weeks.append([])
                tokens = 0
            weeks[-1].append(file)
            tokens += row["tokens"]
        for number, (first, *others) in enumerate(weeks, 1):
            name = f"week of {source}" if len(weeks) == 1 else f"week {number} of {source}"
            joined = tuple(file.path for file in others)
            out.append(SessionFile(name, first.path, joined) if joined else first)
    return out


def _name_files(paths: Sequence[str]) -> list[SessionFile]:
    """Name the files, in the order given; a name that is used again gets a number."""
    used: dict[str, int] = {}
    out = []
    for path in paths:
        name = os.path.basename(path).removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")
        used[name] = times = used.get(name, 0) + 1
        out.append(SessionFile(name if times == 1 else f"{name} ({times})", os.path.abspath(path)))
    return out


def _row(file: SessionFile, counter: Counter) -> SessionRow:
    week = read_week(file)
    session = week.session
    reader = MessageReader(codec(session.dialect), counter)
    seen = [reader.read(wire) for wire in session.messages]
    # A reply in the first place answers no request.
    requests = sum(each.role == "assistant" for each in seen[1:])
    if not requests:
        raise InvalidInput("no reply is recorded in it, and so no request", place=file.path)
    return SessionRow(
        name=file.name,
        source=session.source,
        origin=source_of(session.source, file.path),
        group=group_of(session.source),
        sha256=_hash(file.paths),
        tokens=sum(each.tokens for each in seen),
        messages=len(seen),
        requests=requests,
        week=WeekRecording(week, counter).row() if week.joints else None,
    )


def _hash(paths: Sequence[str]) -> str:
    """The SHA-256 of these files, one after the other."""
    found = sha256()
    for path in paths:
        found.update(Path(path).read_bytes())
    return found.hexdigest()
