"""The size of a request as its provider counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Meter"]


@dataclass(slots=True)
class Meter:
    """The size of a request as the provider counts it: our estimate, corrected by what was reported.

    `ratio` (provider's count per estimated token) lives on across folds, within bounds; `offset` belongs to the exact
    prefix that was reported and dies with the next fold (pi#1860: usage from before a compaction started the next one).
    """

    ratio: float = 1.0
    offset: float = 0.0
    changes: int = 0
    """How often the prefix has changed: a report for a request before a change tells no offset."""

    LOW: ClassVar[float] = 0.8
    HIGH: ClassVar[float] = 1.4
    """Bounds of the ratio: every estimate measured was within a quarter; more is a report about something else."""
    ENOUGH_TOKENS: ClassVar[int] = 500
    """Requests below this are mostly fixed overhead and say nothing about the ratio."""

    def used(self, tokens: int) -> int:
        """The corrected size of a view of `tokens`."""
        return max(0, round(tokens * self.ratio + self.offset))

    def observe(self, estimated_tokens: int, reported_tokens: int) -> None:
        """Take a report for a request that we estimated at `estimated_tokens`."""
        if estimated_tokens >= self.ENOUGH_TOKENS:
            self.ratio = min(self.HIGH, max(self.LOW, reported_tokens / estimated_tokens))
        self.offset = reported_tokens - estimated_tokens * self.ratio

    def folded(self) -> None:
        """Forget what belongs to the prefix that has just changed."""
        self.offset = 0.0
        self.changes += 1

    def target(self, used_tokens: int, target_tokens: float) -> int:
        """`target_tokens` in the units of the view that is now `used_tokens` large (before correction)."""
        excess = self.used(used_tokens) - target_tokens
        return max(0, int(used_tokens - excess / self.ratio))
