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
    Not `scaled`, the estimate of what follows a report is added to it as it is, and the reply counts as it was reported
    (the checkpoint system's way, S2.09).
    """

    ratio: float = 1.0
    offset: float = 0.0
    scaled: bool = True
    changes: int = 0
    """How often the prefix has changed: a report for a request before a change tells no offset."""

    _counted: int | None = None
    _reported: int | None = None
    """The reply to the last request, as we count it and as it was reported; None until then."""

    LOW: ClassVar[float] = 0.8
    HIGH: ClassVar[float] = 1.4
    """Bounds of the ratio: every estimate measured was within a quarter; more is a report about something else."""
    ENOUGH_TOKENS: ClassVar[int] = 500
    """Requests below this are mostly fixed overhead and say nothing about the ratio."""

    def used(self, tokens: int) -> int:
        """The corrected size of a view of `tokens`."""
        return max(0, round(tokens * self.ratio + self.offset))

    def observe(self, estimated_tokens: int, reported_tokens: int, reply_tokens: int | None = None) -> None:
        """Take a report for a request that we estimated at `estimated_tokens`."""
        if self.scaled and estimated_tokens >= self.ENOUGH_TOKENS:
            self.ratio = min(self.HIGH, max(self.LOW, reported_tokens / estimated_tokens))
        self.offset = reported_tokens - estimated_tokens * self.ratio
        self._reported = reply_tokens
        self._settle()

    def sent(self) -> None:
        """Note that a request goes out: the next assistant message is the reply to it."""
        self._counted = self._reported = None

    def reply(self, tokens: int, *, item: bool = False) -> None:
        """Note an assistant message that we count at `tokens`; only the first after a request is its reply.

        Where a reply is several items, those up to the report are the reply.
        """
        if item:
            self._counted = (self._counted or 0) + tokens
        elif self._counted is None:
            self._counted = tokens
            self._settle()

    def _settle(self) -> None:
        if not self.scaled and self._counted is not None and self._reported is not None:
            self.offset += self._reported - self._counted
            self._counted = self._reported = None  # a replay sends no requests: the next reply begins anew

    def folded(self) -> None:
        """Forget what belongs to the prefix that has just changed."""
        self.offset = 0.0
        self.changes += 1

    def target(self, used_tokens: int, target_tokens: float) -> int:
        """`target_tokens` in the units of the view that is now `used_tokens` large (before correction)."""
        excess = self.used(used_tokens) - target_tokens
        return max(0, int(used_tokens - excess / self.ratio))
