"""What an actor is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from foldline.engine.context import Context
from foldline.engine.window_usage import Figures
from foldline.errors import InvalidInput
from foldline.store.recording import Header, Tally
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold

__all__ = ["ActorLimits", "CompactionResult", "KeyReused", "SessionDeleted", "SessionState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorLimits:
    """How much is done at once.

    `turns` run at the same time over all sessions, `queued` wait for one session, `warm` sessions stay in memory
    between turns, each for `idle_seconds`. A turn is stopped after `turn_seconds`. `take_seconds` is how long one waits
    for a session that another process writes.
    """

    turns: int = 64
    queued: int = 16
    warm: int = 64
    idle_seconds: float = 300.0
    turn_seconds: float = 3_600.0
    take_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction did: figures before and after it, its folds, and the summary (or the digest) that is shown."""

    before: Figures
    after: Figures
    folds: tuple[Fold, ...]
    summary: str


class KeyReused(InvalidInput):
    """A key stands for another message of the session already, so its turn is not the one that is asked for."""

    def __init__(self) -> None:
        super().__init__("another message of this session had this key: take a new one", place="key")


class SessionDeleted(InvalidInput):
    """The session was deleted while something waited for it: asking again does not help."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no session {name!r}", place="session")


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it stands: read it at once, and change nothing.

    `system` and `tools` are what goes with every request of it; None where it speaks another dialect than the model.
    """

    context: Context
    header: Header
    tally: Tally
    system: System = None
    tools: Tools = None
