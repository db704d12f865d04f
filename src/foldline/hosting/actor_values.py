"""Values that go into a session actor, and values that come out."""

from __future__ import annotations

from dataclasses import dataclass

from foldline.engine.context import Context
from foldline.engine.window_usage import WindowUsage
from foldline.errors import InvalidInput
from foldline.store.recording import Header, Tally
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold

__all__ = ["ActorLimits", "CompactionResult", "KeyReused", "SessionDeleted", "SessionState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorLimits:
    """Bounds on concurrent work.

    At most `turns` run at a time over all sessions, and `queued` requests wait for one session. `warm` sessions stay in
    memory between turns, each for `idle_seconds`. A turn is stopped after `turn_seconds`. `acquire_seconds` bounds the
    wait for a session that another process is writing.
    """

    # 64 turns are 64 requests to one provider at a time; a context in memory takes some megabytes.
    turns: int = 64
    queued: int = 16
    warm: int = 64
    idle_seconds: float = 300.0
    turn_seconds: float = 3_600.0
    # Most turns end within it. Longer, and clients give up before their request does.
    acquire_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The result of a compaction: figures before and after, its folds, and the summary (or digest) that is shown."""

    before: WindowUsage
    after: WindowUsage
    folds: tuple[Fold, ...]
    summary: str


class KeyReused(InvalidInput):
    """The key belongs to another message of the session, so its turn is not the requested one."""

    def __init__(self) -> None:
        super().__init__("another message of this session had this key; use a new one", place="key")


class SessionDeleted(InvalidInput):
    """The session was deleted while a request waited for it. A retry does not help."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no session {name!r}", place="session")


@dataclass(frozen=True, slots=True)
class SessionState:
    """The current state of a session. Read it at once, and change nothing.

    `system` and `tools` go with every request of the session. They are None if it speaks another dialect than the
    model.
    """

    context: Context
    header: Header
    tally: Tally
    system: System = None
    tools: Tools = None
