"""Results that came again: only the newest stays whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.budget import Need
from foldline.messages import ToolResult
from foldline.reducers.base import form_fold, result_entries, with_results
from foldline.transcript import Fold
from foldline.view import View

__all__ = ["Dedupe"]


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Replaces a result by a line when a later result has the same text, or answers the same call of the same tool.

    `least_tokens`: smaller results are left alone. A repeated call is a newer view of the same thing (a file read
    again, a test run again), so the older one is out of date.
    """

    least_tokens: int = 32
    name: str = "dedupe"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per superseded result, oldest first."""
        del need
        found = result_entries(view)
        asked: dict[tuple[int, str], tuple[str, str]] = {}
        newest: dict[object, int] = {}
        for _, unit, entry in found:
            for message in unit.entries:
                for call in message.message.calls:
                    asked[unit.start, call.id] = (call.name, call.arguments)
            for result in entry.message.results:
                newest[asked.get((unit.start, result.call_id))] = entry.seq
                newest[result.text] = entry.seq
        for _, unit, entry in found:
            if unit.form_tokens(entry) < self.least_tokens or (
                entry.seq in unit.forms and unit.forms[entry.seq].reducer == self.name
            ):
                continue

            def change(result: ToolResult, seq: int = entry.seq, start: int = unit.start) -> str | None:
                call = asked.get((start, result.call_id))
                if newest[result.text] > seq:
                    return "[the same result came again later]"
                if call is not None and newest[call] > seq:
                    return f"[out of date: {call[0]} was called again later with the same arguments]"
                return None

            parts = with_results(unit.form(entry) if entry.seq not in unit.forms else entry.message, change)
            if any(a is not b for a, b in zip(parts, entry.message.parts, strict=True)):
                fold = form_fold(view, unit, entry, parts, reducer=self.name, reason="a later result replaces it")
                if fold is not None:
                    yield fold
