"""The stages of a tool result, and the price at which it passes from whole to short.

A result is whole, then short, then a line in a digest or summary, then gone. To keep it whole costs its reading at
every request. To shorten it costs writing again what stands behind it, and another request if it is needed after all.
As with whole folds (`view.economics`), a result is due when its rent has reached that price: docs/design/011-stages.md
has the derivation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final

from foldline.messages import ToolResult
from foldline.reducers.base import form_fold, with_texts
from foldline.reducers.mask import source_of
from foldline.reducers.truncate import ShortForm, shorten
from foldline.text.identifiers import names
from foldline.view.budget import Need
from foldline.view.tiles import Tile, entries_of
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = [
    "AGES",
    "ResultStage",
    "ShortenByRent",
    "Stage",
    "ToolKind",
    "result_stages",
    "size_class",
    "tool_kind",
    "use",
]


class Stage(StrEnum):
    """How much of a result the next request shows."""

    WHOLE = "whole"
    SHORT = "short"
    LINE = "line"
    """Only in a digest, a summary or a placeholder."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ResultStage:
    """One result of a session: its stage, its size now and as it came, and what it still holds."""

    seq: Seq
    call_id: str
    tool: str
    stage: Stage
    tokens: int
    """Shown now; 0 in a digest, whose size is that of many."""
    whole_tokens: int
    held_share: float
    """Share of its names that are shown where it stands, or in what stands for it; 1 for a result without names."""


def result_stages(view: View) -> list[ResultStage]:
    """The stage of each result of the session, oldest first. O(log): reads each result once."""
    return [stage for tile in view.tiles for stage in _stages_of(view, tile)]


def _stages_of(view: View, tile: Tile) -> Iterator[ResultStage]:
    folded = frozenset[str]()
    if tile.fold is not None:
        folded = names("\n".join(message.text for message in tile.fold.shown))
    entries = entries_of(tile)
    tools = {call.id: call.name for entry in entries for call in entry.message.calls}
    for entry in entries:
        texts = {} if tile.fold is not None else {result.call_id: result.text for result in tile.form(entry).results}
        for result in entry.message.results:
            shown = texts.get(result.call_id)
            stage, held = _stage(result.text, shown, folded)
            yield ResultStage(
                seq=entry.seq,
                call_id=result.call_id,
                tool=tools.get(result.call_id, ""),
                stage=stage,
                tokens=view.counter.text(shown) if shown else 0,
                whole_tokens=view.counter.text(result.text),
                held_share=held,
            )


def _stage(text: str, shown: str | None, folded: frozenset[str]) -> tuple[Stage, float]:
    """The stage of a result that shows as `shown` (None: under a fold with these names), and what it holds."""
    if shown == text:
        return Stage.WHOLE, 1.0
    own = names(text)
    if shown is None:
        held = len(own & folded) / len(own) if own else 0.0
        return Stage.LINE if held else Stage.GONE, held
    held = len(own & names(shown)) / len(own) if own else 1.0
    # One line in brackets is the placeholder of a mask or of a duplicate: nothing of what the result said is there.
    return Stage.LINE if "\n" not in shown and shown.startswith("[") else Stage.SHORT, held


# --- expected use -----------------------------------------------------------------------------------------------------


class ToolKind(Enum):
    """What a tool does, as far as its name and its command say."""

    READ = "read"
    SEARCH = "search"
    EDIT = "edit"
    RUN = "run"
    OTHER = "other"


# Words in names of tools and at the start of commands, in the order in which they decide: a tool named "edit_file" or
# "search_files" is not one that reads.
_WORDS: Final = (
    (
        ToolKind.EDIT,
        r"edit|write|create|replace|patch|insert|update|append|delete|remove|add|push|move|rename|apply|submit",
    ),
    (ToolKind.SEARCH, r"search|grep|find|glob|list|ls|rg|query|select"),
    (ToolKind.READ, r"read|view|open|cat|goto|scroll|get|show|fetch|retrieve|head|tail|sed|less|browse|navigate"),
    (ToolKind.RUN, r"bash|run|exec|execute|python|test|shell|command|sql|terminal|make|pytest|npm"),
)
_KINDS: Final = tuple((kind, re.compile(rf"(?:^|[\W_])(?:{words})(?:$|[\W_]|s\b)")) for kind, words in _WORDS)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_COMMAND: Final = re.compile(r'"(?:command|cmd|action|script|code)"\s*:\s*"\s*([\w./-]{1,40})')


def tool_kind(name: str, arguments: str = "") -> ToolKind:
    """What a call does, by the name of its tool; a shell by the first word of its command."""
    kind = _kind_of(_HUMP.sub("_", name).lower())
    if kind in (ToolKind.RUN, ToolKind.OTHER) and (command := _COMMAND.search(arguments[:400])) is not None:
        inner = _kind_of(command[1].lower())
        return kind if inner is ToolKind.OTHER else inner
    return kind


def _kind_of(name: str) -> ToolKind:
    return next((kind for kind, words in _KINDS if words.search(name)), ToolKind.OTHER)


# Tokens from which a result counts as middling, and as large.
_SIZES: Final = (300, 1_500)

AGES: Final = (1, 2, 3, 5, 9)
"""Replies since a result came, from which a column of the table holds."""


def size_class(tokens: int) -> int:
    """0 for a small result, 1 for a middling one, 2 for a large one."""
    return sum(tokens >= bound for bound in _SIZES)


# Share of results that some later reply uses, by kind, size class and age. Derived by tools/derive_use.py from 94
# recorded sessions of 13 sources, each source with about the same weight.
_USE: Final[Mapping[ToolKind, tuple[tuple[float, ...], ...]]] = MappingProxyType(
    {
        ToolKind.READ: ((0.34, 0.25, 0.22, 0.20, 0.17), (0.47, 0.39, 0.35, 0.32, 0.24), (0.61, 0.58, 0.52, 0.47, 0.40)),
        ToolKind.SEARCH: (
            (0.22, 0.17, 0.16, 0.12, 0.10),
            (0.57, 0.40, 0.37, 0.36, 0.22),
            (0.60, 0.50, 0.36, 0.16, 0.11),
        ),
        ToolKind.EDIT: ((0.28, 0.16, 0.16, 0.09, 0.04), (0.38, 0.27, 0.25, 0.16, 0.15), (0.53, 0.47, 0.34, 0.28, 0.13)),
        ToolKind.RUN: ((0.15, 0.11, 0.11, 0.08, 0.06), (0.43, 0.30, 0.28, 0.23, 0.18), (0.53, 0.43, 0.36, 0.33, 0.29)),
        ToolKind.OTHER: (
            (0.19, 0.09, 0.07, 0.04, 0.04),
            (0.54, 0.51, 0.45, 0.26, 0.20),
            (0.66, 0.64, 0.55, 0.53, 0.35),
        ),
    }
)


def use(kind: ToolKind, tokens: int, age: int) -> float:
    """The share of such results that a reply of this age or later uses."""
    column = sum([age >= bound for bound in AGES[1:]])
    return _USE[kind][size_class(tokens)][column]


# --- from whole to short, by price ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShortenByRent:
    """Shortens results once reading them whole has cost as much as shortening them.

    The rent of a result is what reading it cost beyond its short form, at each request since it came. The price is what
    stands behind the first of them written again, and for each the request that it may take to read it once more: by
    its expected use, with the prefix from the cache and the result written anew. Results pay for what stands behind
    them together, so that the newest ones, which are cheap to change, are not changed one by one.

    A result that would shrink by less than `least_saved_tokens` stays. Reads only what came since the newest fold.
    O(that).
    """

    short: ShortForm = field(default_factory=ShortForm)
    least_saved_tokens: int = 64
    name: str = "shorten"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per message with results that are due, oldest first."""
        rule = need.cache_rule
        if rule is None or not rule.write_ratio:
            return
        room = need.limit_tokens - view.fixed_tokens
        read, dearer = rule.read_ratio, rule.write_ratio - rule.read_ratio
        # From the newest on: the rent of all results from one on is compared with the price of writing from there.
        paid = behind = again = 0.0
        found: list[tuple[Tile, Entry, int]] = []
        due = 0
        for tile, entry, replies in _newest_first(view):
            # Of a history that came as a whole, no request has been paid here.
            age = min(replies, need.requests)
            size = tile.form_tokens(entry)
            short = self.short.limit_tokens(entry.tokens, room)
            if not self._may_shorten(tile, entry, age, size - short):
                behind += size if age else 0  # what has not been sent is written either way
                continue
            paid += read * (size - short) * age
            behind += short
            reread = read * need.used_tokens + rule.write_ratio * min(entry.tokens, need.limit_tokens // 2)
            again += use(_kind(tile, entry), entry.tokens, age) * (1 - short / size) * reread
            found.append((tile, entry, short))
            if paid >= dearer * behind + again:
                due = len(found)
        for tile, entry, short in reversed(found[:due]):
            if (fold := self._fold(view, tile, entry, short)) is not None:
                yield fold

    def _may_shorten(self, tile: Tile, entry: Entry, age: int, saved_tokens: int) -> bool:
        if not age or not entry.message.results or saved_tokens < self.least_saved_tokens:
            return False
        form = tile.forms.get(entry.seq)
        return entry.message.agent_visible and not tile.pinned and (form is None or form.reducer != self.name)

    def _fold(self, view: View, tile: Tile, entry: Entry, short_tokens: int) -> Fold | None:
        limit = max(12, short_tokens // len(entry.message.results))

        def change(result: ToolResult) -> str | None:
            new = shorten(result.text, limit, view)
            return None if new == result.text else new

        parts = with_texts(source_of(tile, entry), change)
        return form_fold(view, tile, entry, parts, reducer=self.name, reason="reading it whole has cost more than this")


def _newest_first(view: View) -> Iterator[tuple[Tile, Entry, int]]:
    """The entries since the newest fold, newest first, each with the number of replies after it."""
    age = 0
    for tile in reversed(view.tiles):
        if tile.fold is not None:
            return
        for entry in reversed(tile.entries):
            yield tile, entry, age
            age += entry.message.role == "assistant"


def _kind(tile: Tile, entry: Entry) -> ToolKind:
    """The kind of the first call that a message answers."""
    call_id = entry.message.results[0].call_id
    calls = (call for other in tile.entries for call in other.message.calls if call.id == call_id)
    return next((tool_kind(call.name, call.arguments) for call in calls), ToolKind.OTHER)
