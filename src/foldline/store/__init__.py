"""What outlives the process: sessions, the log of each, and the originals of what was folded."""

from __future__ import annotations

from foldline.store.base import Listed, Store, StoredSession
from foldline.store.events import EventLog, Torn, read_events
from foldline.store.files import FileArchive
from foldline.store.folders import FileStore
from foldline.store.naming import LATEST
from foldline.store.opening import open_store
from foldline.store.recording import Header, Recording
from foldline.store.repair import Repaired
from foldline.store.session import FileSession
from foldline.store.snapshot import Snapshot

__all__ = [
    "LATEST",
    "EventLog",
    "FileArchive",
    "FileSession",
    "FileStore",
    "Header",
    "Listed",
    "Recording",
    "Repaired",
    "Snapshot",
    "Store",
    "StoredSession",
    "Torn",
    "open_store",
    "read_events",
]
