"""Replaces repeated results: only the newest stays whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foldline.messages import Text, ToolResult
from foldline.reducers.base import form_fold, result_entries, with_results
from foldline.reducers.foresight import taken_by_digest
from foldline.reducers.mask import result_tokens
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = ["Dedupe"]

# The newer copy stays: it is nearer to where the agent works, and the next folds take the older one anyway.
SAME = "[the same result came again later]"


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Replaces a result by a line when a later result has the same text, or answers the same call of the same tool.

    Results below `least_tokens` stay. A repeated call is a newer view of the same thing (a file read again, a test run
    again), so that the older result is out of date, unless the newer call failed.
    """

    least_tokens: int = 32
    name: str = "dedupe"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per message with superseded results, oldest first."""
        found = result_entries(view)
        newest: dict[object, Seq] = {}
        answered: dict[object, Seq] = {}
        came: list[list[tuple[str, object, tuple[str, str] | None]]] = []
        unanswered: dict[int, set[str]] = {}
        for index, tile, entry in found:
            if index not in unanswered:
                unanswered[index] = {call.id for each in tile.entries for call in each.message.calls}
            # Compared as they came: an earlier mask or cut changes the form, and not what the result was.
            results = [(each.call_id, _content(each), _call_of(tile, each)) for each in entry.message.results]
            came.append(results)
            for result, (call_id, content, call) in zip(entry.message.results, results, strict=True):
                # A second result of a call is repaired away, as is one without its call: neither replaces anything.
                if call_id not in unanswered[index]:
                    continue
                unanswered[index].remove(call_id)
                newest[content] = entry.seq
                if not result.is_error:
                    answered[call] = entry.seq
        due: list[tuple[int, Tile, Entry, dict[str, str]]] = []
        for (index, tile, entry), results in zip(found, came, strict=True):
            notes: dict[str, str] = {}
            for call_id, content, call in results:
                # The same text decides first: it says more than that the same call was made again.
                if newest.get(content, entry.seq) > entry.seq:
                    notes[call_id] = SAME
                elif call is not None and answered.get(call, entry.seq) > entry.seq:
                    notes[call_id] = f"[out of date: {call[0]} was called again later with the same arguments]"
            if notes and tile.form_tokens(entry) >= self.least_tokens:
                due.append((index, tile, entry, notes))
        if not due:
            return
        taken = taken_by_digest(view, need, SAME, [(index, tile.form_tokens(entry)) for index, tile, entry, _ in due])
        for index, tile, entry, notes in due:
            if index not in taken and (fold := self._fold(view, tile, entry, notes)) is not None:
                yield fold

    def _fold(self, view: View, tile: Tile, entry: Entry, notes: Mapping[str, str]) -> Fold | None:
        def change(shown: ToolResult) -> str | None:
            new = notes.get(shown.call_id)
            return new if new is not None and view.counter.text(new) < result_tokens(view, shown) else None

        form = tile.form(entry)
        parts = with_results(form, change)
        if all(a is b for a, b in zip(parts, form.parts, strict=True)):
            return None
        return form_fold(view, tile, entry, parts, reducer=self.name, reason="a later result replaces it")


def _content(result: ToolResult) -> object:
    """What makes two results equal: their texts, and their other parts."""
    return tuple(part.text if isinstance(part, Text) else repr(part) for part in result.parts)


def _call_of(tile: Tile, result: ToolResult) -> tuple[str, str] | None:
    """Tool and arguments of the call that a result answers; None if it is not in the tile or has no arguments.

    A call without arguments ("next_page") may return something else each time: a later one does not replace it.
    """
    calls = (call for entry in tile.entries for call in entry.message.calls if call.id == result.call_id)
    return next(((call.name, call.arguments) for call in calls if call.arguments.strip() not in ("", "{}")), None)
