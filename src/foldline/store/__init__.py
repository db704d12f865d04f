"""Sessions on disk or in a database: their logs, and the originals of folded messages."""

from __future__ import annotations

from foldline.store.addresses import open_store
from foldline.store.base import Store, StoredSession
from foldline.store.event_log import EventLog, Torn, read_events
from foldline.store.files import FileArchive
from foldline.store.folders import FileStore
from foldline.store.recording import Header, Recording
from foldline.store.repair import RepairReport
from foldline.store.session import FileSession
from foldline.store.snapshot import LATEST, ListedSession, Snapshot

__all__ = [
    "LATEST",
    "EventLog",
    "FileArchive",
    "FileSession",
    "FileStore",
    "Header",
    "ListedSession",
    "Recording",
    "RepairReport",
    "Snapshot",
    "Store",
    "StoredSession",
    "Torn",
    "open_store",
    "read_events",
]
