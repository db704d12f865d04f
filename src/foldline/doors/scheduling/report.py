"""How a run ended, as it is told to files, webhooks and chats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from foldline.doors.scheduling.entries import Entry, stamp_of
from foldline.messages import Json

__all__ = ["Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a run, whose name is `id`: `text` is the answer, `message` says why where `reason` is not "done"."""

    id: str
    entry: Entry
    due: datetime
    session: str
    reason: str
    text: str
    message: str = ""
    figures: Mapping[str, Json]

    @property
    def good(self) -> bool:
        """Whether the turn came to its end."""
        return self.reason == "done"

    @property
    def day(self) -> str:
        """The day on which it was due, by the entry's clocks."""
        return self.due.astimezone(self.entry.zone).strftime("%Y-%m-%d")

    @property
    def words(self) -> str:
        """It as a person reads it: the answer, or what went wrong, with the part of an answer that there is."""
        if self.good:
            return self.text.strip() or "(no text)"
        why = f"{self.entry.name}: {self.reason}" + (f": {self.message}" if self.message else "")
        return f"{why}\n\n{self.text.strip()}".strip()

    @property
    def heading(self) -> str:
        """The line above it in a file that grows."""
        return f"## {self.entry.local(self.due)} · {self.entry.name}"

    def as_json(self) -> dict[str, Json]:
        """The body of a webhook."""
        return {
            "schedule": self.entry.name,
            "due": stamp_of(self.due),
            "session": self.session,
            "reason": self.reason,
            "text": self.text,
            "message": self.message,
            "figures": dict(self.figures),
        }
