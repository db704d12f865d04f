"""What `on_event` is told, as frozen values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from foldline.view.transcript import Fold, Repair, Seq, Usage

__all__ = [
    "ContextEvent",
    "FoldFailed",
    "FoldFinished",
    "FoldStarted",
    "LimitLearned",
    "Repaired",
    "SilentTruncation",
    "ThresholdReached",
    "UsageDoubted",
    "call_line",
    "contained",
    "log_line",
]


@dataclass(frozen=True, slots=True)
class FoldStarted:
    """Folding begins: why, the size of the request then (counts before, S2.08), and the limits it is measured by.

    `size_bytes` are the bytes of its contents; `limit_bytes` is set where these are what triggers.
    """

    reason: str
    tokens: int
    messages: int
    size_bytes: int = 0
    limit_tokens: int | None = None
    limit_bytes: int | None = None
    name: str = "fold_started"


@dataclass(frozen=True, slots=True)
class FoldFinished:
    """Folding ended: the folds that were committed and the size of the request, now and before.

    It is told for every `FoldStarted`. `error` says what went wrong, if anything did: folding may have gone on without
    it (a summary that was rejected), or have been given up. `asked` is what the calls of a model for it reported.
    """

    folds: tuple[Fold, ...]
    tokens: int
    messages: int
    size_bytes: int = 0
    tokens_before: int = 0
    messages_before: int = 0
    bytes_before: int = 0
    in_bytes: bool = False
    error: str | None = None
    asked: tuple[Usage, ...] = ()
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
class UsageDoubted:
    """A report of usage cannot be true of its request, and changes nothing. Told of the first of several in a row."""

    reason: str
    estimated_tokens: int
    reported_tokens: int
    name: str = "usage_doubted"


@dataclass(frozen=True, slots=True)
class ThresholdReached:
    """The window is filling up and the policy wants to be asked before it folds (S4.03)."""

    used_tokens: int
    window_tokens: int
    utilization: float
    name: str = "threshold_reached"


ContextEvent: TypeAlias = (
    FoldStarted
    | FoldFinished
    | FoldFailed
    | Repaired
    | LimitLearned
    | SilentTruncation
    | ThresholdReached
    | UsageDoubted
)


def contained(listener: Callable[[ContextEvent], None] | None) -> Callable[[ContextEvent], None]:
    """Tell a listener whose exceptions break nothing: what it is told of has happened, and would happen twice.

    The first is shown as a RuntimeWarning; what is no `Exception` (an interrupt, a cancellation) goes on.
    """
    warned = False

    def tell(event: ContextEvent) -> None:
        nonlocal warned
        if listener is None:
            return
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a user's listener may raise anything
            if not warned:
                warned = True
                warnings.warn(f"on_event raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    return tell


def call_line(messages: int, size_bytes: int) -> str:
    """The log line of one model call; four bytes are taken for a token (S0.04)."""
    return f"Calling AI with {messages} messages (~{size_bytes} bytes, ~{size_bytes // 4} tokens)"


def log_line(event: ContextEvent) -> str | None:
    """The log line of the beginning or the end of a compaction; None for other events (S0.04).

    Sizes are bytes of contents where those are what triggers, else tokens.
    """
    if isinstance(event, FoldStarted):
        if event.limit_bytes is not None:
            limit = f"Context size {event.size_bytes} bytes exceeds limit {event.limit_bytes}"
            return f"{limit}, compacting old tool results..."
        limit = "" if event.limit_tokens is None else f" (limit {event.limit_tokens})"
        return f"Context size {event.tokens} tokens{limit}, compacting: {event.reason}..."
    if isinstance(event, FoldFinished):
        unit = "bytes" if event.in_bytes else "tokens"
        before, after = (
            (event.bytes_before, event.size_bytes) if event.in_bytes else (event.tokens_before, event.tokens)
        )
        line = f"Context compacted: {before} {unit} -> {after} {unit} (saved {before - after} {unit})"
        return line if event.error is None else f"{line}; {event.error}"
    return None
