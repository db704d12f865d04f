"""Moves a huge output to the archive: its beginning stays, with the place where the rest can be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.reducers.truncate import each_fresh
from foldline.text.shorten import clip_bytes
from foldline.view.archive import key_of
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["Spill", "spill_notice"]


# With an archive of files the location is a path, so that the agent can read on with the tools that it has.


def spill_notice(text: str, where: str, *, head_bytes: int = 2_000) -> str:
    """The beginning of a spilled output, the place of the whole and its SHA-256."""
    data = text.encode("utf-8", "surrogatepass")
    head = clip_bytes(text, head_bytes)
    return (
        f"{head}\n[output of {len(text):,} characters saved to {where}, SHA-256 {key_of(data)}; "
        f"shown are the first {len(head):,} characters. Read the rest in parts from there.]"
    )


@dataclass(frozen=True, slots=True)
class Spill:
    """Spills each fresh result over `threshold_chars` (200 Ki in the checkpoint system).

    `view.where` maps an archive key to a location for people.
    """

    threshold_chars: int = 200 * 1024
    name: str = "spill"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over the threshold."""
        # The key is computed here and not taken from the archive: reducers do no I/O, and the commit stores the text.

        def cut(text: str, tool: str) -> str:
            del tool
            if len(text) <= self.threshold_chars:
                return text
            # `surrogatepass`: a lone surrogate from a broken output must have a key as any other text.
            return spill_notice(text, view.where(key_of(text.encode("utf-8", "surrogatepass"))))

        return each_fresh(view, need, self.name, cut)
