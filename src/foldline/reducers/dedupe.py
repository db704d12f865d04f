"""Results that came again: only the newest stays whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foldline.messages import Text, ToolResult
from foldline.reducers.base import form_fold, result_entries, with_results
from foldline.reducers.mask import result_tokens
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.transcript import Fold, Seq
from foldline.view.view import View

__all__ = ["Dedupe"]

SAME = "[the same result came again later]"


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Replaces a result by a line when a later result has the same text, or answers the same call of the same tool.

    `least_tokens`: smaller results are left alone. A repeated call is a newer view of the same thing (a file read
    again, a test run again), so the older one is out of date; one that failed is not.
    """

    least_tokens: int = 32
    name: str = "dedupe"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per message with superseded results, oldest first."""
        del need
        found = result_entries(view)
        newest: dict[object, Seq] = {}
        answered: dict[object, Seq] = {}
        for _, tile, entry in found:
            for result in entry.message.results:
                newest[_content(result)] = entry.seq
                if not result.is_error:
                    answered[_asked(tile, result)] = entry.seq
        for _, tile, entry in found:
            form = tile.form(entry)
            came = {result.call_id: result for result in entry.message.results}
            if tile.form_tokens(entry) < self.least_tokens:
                continue

            def change(
                shown: ToolResult, came: Mapping[str, ToolResult] = came, seq: Seq = entry.seq, tile: Tile = tile
            ) -> str | None:
                original = came.get(shown.call_id, shown)
                asked = _asked(tile, original)
                if newest[_content(original)] > seq:
                    new = SAME
                elif asked is not None and answered.get(asked, seq) > seq:
                    new = f"[out of date: {asked[0]} was called again later with the same arguments]"
                else:
                    return None
                return new if view.counter.text(new) < result_tokens(view, shown) else None

            parts = with_results(form, change)
            if any(a is not b for a, b in zip(parts, form.parts, strict=True)):
                fold = form_fold(view, tile, entry, parts, reducer=self.name, reason="a later result replaces it")
                if fold is not None:
                    yield fold


def _content(result: ToolResult) -> object:
    """What two results must share to be the same: their text, and images and the like where they hold any."""
    return tuple(part.text if isinstance(part, Text) else repr(part) for part in result.parts)


def _asked(tile: Tile, result: ToolResult) -> tuple[str, str] | None:
    """Tool and arguments of the call that a result answers; None if it is not in the tile, or says nothing by itself.

    A call without arguments ("next_page") asks for something else each time: no later one puts it out of date.
    """
    calls = (call for entry in tile.entries for call in entry.message.calls if call.id == result.call_id)
    return next(((call.name, call.arguments) for call in calls if call.arguments.strip() not in ("", "{}")), None)
