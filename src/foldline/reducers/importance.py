"""Which old results matter: what was referred to since, what failed, and the newest view of a file stay longer.

Measured by the names that only results held and that recorded replies went back to (docs/policies.md, far tool).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from foldline.text.identifiers import ALARM, names
from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Seq
from foldline.view.view import View

__all__ = ["importance", "text_importance"]

# Factor of a result of whose names a quarter was used by the user or the agent, and of one without such a name.
REFERRED, NOT_REFERRED = 1.5, 0.5

# Share of the names of a result that makes it fully referred to: agents pick few of many.
ENOUGH = 0.25

# Factor of a result that says what went wrong: what was tried in vain is tried again when it is forgotten.
FAILED = 1.5

# Factor of the newest view of a file, and of one that was followed by a newer one of the same file.
NEWEST, OLDER = 1.5, 0.6

# Beginning and end that are looked at for what went wrong: programs say it there.
_EDGE_CHARS = 2_000

# Characters of a call that are looked at: longer arguments carry what is written, not which file.
_MOST_CHARS = 20_000

# Characters of the longest path that is taken for one: a longer run is data.
_LONGEST = 400

_RUN = re.compile(r"(?<![\w.@~+/-])[\w.@~+/-]++")
_ENDING = re.compile(r"\w\.[A-Za-z]\w{0,7}$")


def importance(view: View, found: Iterable[tuple[int, Tile, Entry]]) -> dict[Seq, float]:
    """How much each message with results matters, about 1 for most. O(size of calls and results)."""
    entries: list[tuple[Entry, frozenset[str]]] = []
    last: Tile | None = None
    named: dict[str, frozenset[str]] = {}
    for _, tile, entry in found:
        if tile is not last:
            calls = [call for other in tile.entries for call in other.message.calls]
            named = {call.id: _files(call.arguments) for call in calls}
            last = tile
        asked = [named.get(result.call_id, frozenset[str]()) for result in entry.message.results]
        entries.append((entry, frozenset[str]().union(*asked)))
    newest = {file: entry.seq for entry, files in entries for file in files}
    return {entry.seq: _worth(view, entry) * _newness(entry.seq, files, newest) for entry, files in entries}


def _files(arguments: str) -> frozenset[str]:
    """What looks like files in the arguments of a call: a path, or a name with an ending."""
    ends = f"{arguments[:_MOST_CHARS]}\n{arguments[_MOST_CHARS:][-_EDGE_CHARS:]}"  # a path may stand behind a content
    runs = (run for run in _RUN.findall(ends) if len(run) <= _LONGEST)
    return frozenset(run for run in runs if "/" in run or _ENDING.search(run))


def _newness(seq: Seq, files: frozenset[str], newest: dict[str, Seq]) -> float:
    if not files:
        return 1.0
    return NEWEST if any(newest[file] == seq for file in files) else OLDER


def _worth(view: View, entry: Entry) -> float:
    text = "\n".join(result.text for result in entry.message.results)
    return text_importance(text, view, failed=any(result.is_error for result in entry.message.results))


def text_importance(text: str, view: View, *, failed: bool = False) -> float:
    """How much a text matters by what was referred to since and by what failed, about 1 for most. O(size)."""
    named = names(text)
    used = sum(name in view.spoken for name in named)
    referred = min(1.0, used / (ENOUGH * len(named))) if named else 0.0
    failed = failed or bool(ALARM.search(text[:_EDGE_CHARS]) or ALARM.search(text[-_EDGE_CHARS:]))
    return (NOT_REFERRED + (REFERRED - NOT_REFERRED) * referred) * (FAILED if failed else 1.0)
