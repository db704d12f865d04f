"""Everything below a folder of the workspace, in order, links shown and not followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.threads import Stop
from foldline.agent.tools.workspace import IGNORED_FOLDERS, Item, Workspace
from foldline.errors import InvalidInput

__all__ = ["MOST_DEPTH", "Walk"]

MOST_DEPTH: Final = 64
MOST_LOOKED_AT: Final = 100_000
"""Names that one walk looks at; a walk of a whole disk ends."""


@dataclass(slots=True)
class Walk:
    """One walk; what was not shown is counted. Hidden and ignored names are left out unless `hidden`."""

    workspace: Workspace
    stop: Stop
    hidden: bool = False
    most_depth: int = MOST_DEPTH
    looked_at: int = 0
    left_out: int = 0
    unreadable: list[str] = field(default_factory=list)

    def below(self, path: str, depth: int = 1) -> Iterator[tuple[int, Item]]:
        """Depth (1: in the folder itself) and item, a folder before what is in it.

        Raises InvalidInput when the folder cannot be read; further down such folders are only counted. And Cancelled.
        """
        for item in self.workspace.scan(path):
            self.stop.check()
            if self.ended:
                return
            self.looked_at += 1
            if not self.hidden and (item.name.startswith(".") or item.name in IGNORED_FOLDERS):
                self.left_out += 1
                continue
            yield depth, item
            if item.kind == "folder" and depth < self.most_depth:
                yield from self._further(item.path, depth + 1)

    def _further(self, path: str, depth: int) -> Iterator[tuple[int, Item]]:
        try:
            yield from self.below(path, depth)
        except InvalidInput:
            self.unreadable.append(path)

    @property
    def ended(self) -> bool:
        """Whether it was ended for its length."""
        return self.looked_at >= MOST_LOOKED_AT

    def notes(self) -> list[str]:
        """What a reader must know of what is not there, each in brackets."""
        out = []
        if self.left_out:
            out.append(f"[{self.left_out:,} hidden or ignored left out; hidden=true shows them]")
        if self.unreadable:
            shown = ", ".join(self.unreadable[:5])
            out.append(f"[{len(self.unreadable):,} could not be read: {shown}{', …' * (len(self.unreadable) > 5)}]")
        if self.ended:
            out.append(f"[ended after {self.looked_at:,} names; name a folder further down]")
        return out
