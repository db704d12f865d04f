"""Old images give way to a line of text: they cost tokens by their area, and bytes by their encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foldline.budget import Need
from foldline.messages import Image, Part, Text, ToolResult
from foldline.reducers.base import form_fold
from foldline.transcript import Fold
from foldline.view import View

__all__ = ["OldImages"]


@dataclass(frozen=True, slots=True)
class OldImages:
    """Replaces images by a placeholder, oldest first, all but the newest `keep`; the newest user's images always stay.

    `bytes_only` leaves images alone whose payload is not in the request (URLs): for the byte budget.
    """

    keep: int = 1
    bytes_only: bool = False
    name: str = "images"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per entry that holds images."""
        del need
        found = [
            (unit, entry)
            for unit in view.units
            if unit.fold is None and not unit.pinned and not unit.system
            for entry in unit.entries
            if any(map(_shows_image, unit.form(entry).parts)) and entry.seq != view.newest_user
        ]
        for unit, entry in found[: len(found) - self.keep if self.keep else len(found)]:
            parts = _without(unit.form(entry).parts, self.bytes_only)
            fold = form_fold(view, unit, entry, parts, reducer=self.name, reason="an image older than the newest ones")
            if fold is not None:
                yield fold


def _shows_image(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, ToolResult) and any(map(_shows_image, part.parts)))


def _without(parts: Sequence[Part], bytes_only: bool) -> list[Part]:
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Image) and (part.size_bytes or not bytes_only):
            size = f" of {part.width}x{part.height}" if part.width else ""
            out.append(Text(f"[image{size} removed]"))
        elif isinstance(part, ToolResult):
            out.append(replace(part, parts=tuple(_without(part.parts, bytes_only))) if _shows_image(part) else part)
        else:
            out.append(part)
    return out
