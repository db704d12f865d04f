"""How much old results matter: those referred to since, failures and the newest view of a file stay longer.

Measured by the names that only results held and that recorded replies went back to (docs/policies.md, far tool).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Seq
from foldline.view.view import View

__all__ = ["importance", "names_from", "text_importance"]

# Factors of a result of whose names a quarter was used since by the user or the agent, and of one without such names.
REFERRED, NOT_REFERRED = 1.5, 0.5

# The share of used names that counts as fully referred to: agents pick few of many.
ENOUGH = 0.25

# Factor of a failure: what failed is tried again once it is forgotten.
FAILED = 1.5

# Factors of the newest view of a file, and of an older view of the same file.
NEWEST, OLDER = 1.5, 0.6

# How much of the arguments is searched for files, at both ends: longer arguments carry contents, not paths.
_MOST_CHARS, _EDGE_CHARS = 20_000, 2_000

# The longest run of characters taken for a path: a longer one is data.
_LONGEST = 400

_RUN = re.compile(r"(?<![\w.@~+/-])[\w.@~+/-]++")
_ENDING = re.compile(r"\w\.[A-Za-z]\w{0,7}$")


def importance(
    view: View, found: Iterable[tuple[int, Tile, Entry]], wanted: Collection[Seq] | None = None
) -> dict[Seq, float]:
    """The weight of each message with results, or of the wanted ones (None: all), about 1 for most.

    O(calls, and the size of the results that are weighed).
    """
    entries: list[tuple[Entry, frozenset[str]]] = []
    last: Tile | None = None
    named: dict[str, frozenset[str]] = {}
    for _, tile, entry in found:
        if tile is not last:
            calls = [call for other in tile.entries for call in other.message.calls]
            named = {call.id: _files(call.arguments) for call in calls}
            last = tile
        files = [named.get(result.call_id, frozenset[str]()) for result in entry.message.results]
        entries.append((entry, frozenset[str]().union(*files)))
    newest = {file: entry.seq for entry, files in entries for file in files}
    return {
        entry.seq: _worth(view, entry) * _newness(entry.seq, files, newest)
        for entry, files in entries
        if wanted is None or entry.seq in wanted
    }


def _files(arguments: str) -> frozenset[str]:
    """What looks like a file in the arguments of a call: a path, or a name with an extension."""
    return _short(arguments) if len(arguments) <= _SHORT_CHARS else _found(arguments)


def _found(arguments: str) -> frozenset[str]:
    # A path may follow the content of a file.
    ends = f"{arguments[:_MOST_CHARS]}\n{arguments[_MOST_CHARS:][-_EDGE_CHARS:]}"
    runs = (run for run in _RUN.findall(ends) if len(run) <= _LONGEST)
    return frozenset(run for run in runs if "/" in run or _ENDING.search(run))


# Short arguments are known from the fold before. Long ones are not kept: they carry contents.
_SHORT_CHARS = 400
_short = lru_cache(maxsize=2_048)(_found)


def _newness(seq: Seq, files: frozenset[str], newest: dict[str, Seq]) -> float:
    if not files:
        return 1.0
    return NEWEST if any(newest[file] == seq for file in files) else OLDER


def _worth(view: View, entry: Entry) -> float:
    texts = [result.text for result in entry.message.results]
    return text_importance(texts, view, failed=any(result.is_error for result in entry.message.results))


def text_importance(texts: Sequence[str], view: View, *, failed: bool = False) -> float:
    """The weight of texts by references since and by failures, about 1 for most. O(size), of known ones O(names)."""
    text = texts[0] if len(texts) == 1 else "\n".join(texts)
    whole = len(texts) == 1 or len(text) > _MOST_CHARS
    named = view.texts.names(text) if whole else frozenset[str]().union(*map(view.texts.names, texts))
    used = sum(map(view.name_counts.__contains__, named))
    referred = min(1.0, used / (ENOUGH * len(named))) if named else 0.0
    # Text by text where all are short: most of them have been looked at before. No alarm goes across a line end.
    edges = texts if len(text) <= _EDGE_CHARS else (text[:_EDGE_CHARS], text[-_EDGE_CHARS:])
    failed = failed or any(map(view.texts.alarms, edges))
    return (NOT_REFERRED + (REFERRED - NOT_REFERRED) * referred) * (FAILED if failed else 1.0)


def names_from(view: View, start: Seq) -> set[str]:
    """The names in what the view shows from an entry on. O(shown there) once: texts of earlier folds are remembered."""
    out: set[str] = set()
    for tile in view.tiles[view.index(start - 1) + 1 :]:
        for message in tile.fold.shown if tile.fold is not None else map(tile.form, tile.entries):
            texts = [call.arguments for call in message.calls] + [result.text for result in message.results]
            out.update(*map(view.texts.names, (message.text, *texts)))
    return out
