"""Old tool results give way to placeholders; the calls and their arguments stay."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from foldline.budget import Need
from foldline.cutting import first_line
from foldline.messages import ToolResult
from foldline.reducers.base import form_fold, result_entries, with_results
from foldline.reducers.truncate import shorten, tool_names
from foldline.tiles import Unit
from foldline.transcript import Entry, Fold
from foldline.view import View

__all__ = ["IMPORTANT_FILES", "Mask", "ShortenOld", "masked", "viewed"]

IMPORTANT_FILES = (
    "*README*",
    "*readme*",
    "*.toml",
    "*.yaml",
    "*.yml",
    "*.ini",
    "*.cfg",
    "*Makefile*",
    "*package.json*",
    "*.env*",
)
"""Files whose views stay longer: what a project says about itself is needed again and again."""


def masked(text: str, tokens: int) -> str:
    """Placeholder of the three-layer system."""
    del text
    return f"[result masked — ~{tokens} tokens removed]"


def viewed(text: str, tokens: int) -> str:
    """Placeholder of the autopilot system: the first line of the result."""
    del tokens
    return f"[Previously viewed: {first_line(text)}]"


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks every result but the first `keep_first` and the last `keep_last`.

    With both 0 nothing is masked unless `keep_none`. Results of calls whose arguments name a file in `important` count
    as recent for twice as long. A result that is masked already is not masked again, and a placeholder that would not be
    shorter than the result is refused.
    """

    keep_first: int = 2
    keep_last: int = 5
    placeholder: Callable[[str, int], str] = masked
    important: tuple[str, ...] = ()
    protected_tools: frozenset[str] = frozenset()
    keep_none: bool = False
    name: str = "mask"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per result between the first and the last ones, oldest first."""
        del need
        if not self.keep_first and not self.keep_last and not self.keep_none:
            return
        found = result_entries(view)
        results = [(entry, result) for _, _, entry in found for result in entry.message.results]
        last = len(results) - self.keep_last
        hidden = {id(result) for _, result in results[self.keep_first : max(last, self.keep_first)]}
        longer = (
            {id(result) for _, result in results[max(0, len(results) - 2 * self.keep_last) :]}
            if self.important
            else set()
        )
        for _, unit, entry in found:
            form = unit.forms.get(entry.seq)
            if form is not None and form.reducer == self.name:
                continue
            fold = self._fold(view, unit, entry, hidden, longer)
            if fold is not None:
                yield fold

    def _fold(self, view: View, unit: Unit, entry: Entry, hidden: set[int], longer: set[int]) -> Fold | None:
        if not any(id(result) in hidden for result in entry.message.results):
            return None
        tools = tool_names(view, unit.start, entry.seq)
        shown = {result.call_id: result.text for result in unit.form(entry).results}
        keep = {
            result.call_id
            for result in entry.message.results
            if id(result) not in hidden
            or tools.get(result.call_id) in self.protected_tools
            or (id(result) in longer and _important(unit, result.call_id, self.important))
        }

        def change(result: ToolResult) -> str | None:
            if result.call_id in keep:
                return None
            text = shown.get(result.call_id, result.text)
            tokens = view.counter.text(text)
            new = self.placeholder(text, tokens)
            return new if view.counter.text(new) < tokens else None

        parts = with_results(unit.form(entry), change)
        if all(a is b for a, b in zip(parts, unit.form(entry).parts, strict=True)):
            return None
        reason = f"older than the last {self.keep_last} results"
        return form_fold(view, unit, entry, parts, reducer=self.name, reason=reason)


def _important(unit: Unit, call_id: str, patterns: tuple[str, ...]) -> bool:
    for entry in unit.entries:
        for call in entry.message.calls:
            if call.id == call_id:
                return any(
                    fnmatch.fnmatchcase(word.strip("\"'{},: "), p) for word in call.arguments.split() for p in patterns
                )
    return False


@dataclass(frozen=True, slots=True)
class ShortenOld:
    """Results outside the newest `keep` share of the target shrink to the lines that bring names, oldest first.

    `share` of a result stays, at least `least_tokens`, at most `most_tokens`. What the user or the agent has named since
    weighs four times, so what turned out to matter stays.
    """

    keep: float = 0.35
    share: float = 0.3
    least_tokens: int = 48
    most_tokens: int = 400
    protected_tools: frozenset[str] = frozenset()
    name: str = "mask"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per old result that is larger than what may stay of it."""
        last = view.tail(int(self.keep * need.target_tokens))
        for _, unit, entry in result_entries(view, 0, last):
            size = unit.form_tokens(entry)
            limit = min(self.most_tokens, max(self.least_tokens, int(self.share * entry.tokens)))
            form = unit.forms.get(entry.seq)
            if size <= limit + 24 or (form is not None and form.reducer == self.name):
                continue
            tools = tool_names(view, unit.start, entry.seq)

            def change(
                result: ToolResult,
                many: int = len(entry.message.results),
                limit: int = limit,
                tools: dict[str, str] = tools,
            ) -> str | None:
                if tools.get(result.call_id) in self.protected_tools:
                    return None
                text = result.text
                new = shorten(text, max(12, limit // many), view)
                return None if new == text else new

            parts = with_results(entry.message, change)
            reason = f"an old result of {size:,} tokens; the lines that bring names stay"
            fold = form_fold(view, unit, entry, parts, reducer=self.name, reason=reason)
            if fold is not None:
                yield fold
