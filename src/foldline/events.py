"""What `on_event` is told, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from foldline.transcript import Fold, Repair, Seq

__all__ = [
    "ContextEvent",
    "FoldFailed",
    "FoldFinished",
    "FoldStarted",
    "LimitLearned",
    "Repaired",
    "SilentTruncation",
    "ThresholdReached",
]


@dataclass(frozen=True, slots=True)
class FoldStarted:
    """Folding begins: why, and the size of the request then (counts before, S2.08)."""

    reason: str
    tokens: int
    messages: int
    name: str = "fold_started"


@dataclass(frozen=True, slots=True)
class FoldFinished:
    """Folding ended: the folds that were committed and the size of the request now."""

    folds: tuple[Fold, ...]
    tokens: int
    messages: int
    name: str = "fold_finished"


@dataclass(frozen=True, slots=True)
class FoldFailed:
    """One fold was not made; the view is as it was."""

    reducer: str
    reason: str
    start: Seq
    stop: Seq
    name: str = "fold_failed"


@dataclass(frozen=True, slots=True)
class Repaired:
    """Something came in broken and is sent repaired."""

    repair: Repair
    name: str = "repaired"


@dataclass(frozen=True, slots=True)
class LimitLearned:
    """A provider's error told a limit: of "window", "output" or "rate"."""

    limit: int
    limit_of: str
    endpoint: str
    name: str = "limit_learned"


@dataclass(frozen=True, slots=True)
class SilentTruncation:
    """The provider answered without an error, but did not see the whole request."""

    reason: str
    estimated_tokens: int
    reported_tokens: int
    name: str = "silent_truncation"


@dataclass(frozen=True, slots=True)
class ThresholdReached:
    """The window is filling up and the policy wants to be asked before it folds (S4.03)."""

    used_tokens: int
    window_tokens: int
    utilization: float
    name: str = "threshold_reached"


ContextEvent: TypeAlias = (
    FoldStarted | FoldFinished | FoldFailed | Repaired | LimitLearned | SilentTruncation | ThresholdReached
)
