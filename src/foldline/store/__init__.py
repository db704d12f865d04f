"""What outlives the process: originals by their hash, and the log of events of a session."""

from __future__ import annotations

from foldline.store.events import EventLog, Torn, read_events
from foldline.store.files import FileArchive

__all__ = ["EventLog", "FileArchive", "Torn", "read_events"]
