"""The events that `on_event` receives, as frozen values."""

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
    "SummaryWritten",
    "ThresholdReached",
    "UsageDoubted",
    "call_line",
    "guarded",
    "log_line",
]


# `name` is what logs, JSON and metrics call an event. It does not follow the class, which may be renamed.


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

    Every `FoldStarted` is followed by one. `error` is the last failure, if any: folding may have continued without that
    summary, or have stopped. `asked` is the usage of the model calls that it made.
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
class SummaryWritten:
    """A summary of entries [start, stop) was written ahead, and waits for its fold; `asked` is what its calls used."""

    start: Seq
    stop: Seq
    tokens: int
    asked: tuple[Usage, ...] = ()
    name: str = "summary_written"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A message was broken and is sent repaired."""

    repair: Repair
    name: str = "repaired"


@dataclass(frozen=True, slots=True)
class LimitLearned:
    """A provider's error named a limit: of "window", "output" or "rate"."""

    limit: int
    limit_of: str
    endpoint: str
    name: str = "limit_learned"


@dataclass(frozen=True, slots=True)
class SilentTruncation:
    """The provider answered without an error, but read only a part of the request."""

    reason: str
    estimated_tokens: int
    reported_tokens: int
    name: str = "silent_truncation"


@dataclass(frozen=True, slots=True)
class UsageDoubted:
    """A report of usage cannot be true of its request, and corrects nothing. Emitted for the first in a row only."""

    reason: str
    estimated_tokens: int
    reported_tokens: int
    name: str = "usage_doubted"


@dataclass(frozen=True, slots=True)
class ThresholdReached:
    """The window is filling up, and the policy folds only with the user's consent (S4.03)."""

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
    | SummaryWritten
)


def guarded(listener: Callable[[ContextEvent], None] | None) -> Callable[[ContextEvent], None]:
    """A listener whose exceptions break nothing. The first one is shown as a RuntimeWarning.

    An event reports what has already happened: a caller who saw the exception would retry, and do it twice. Interrupts
    and cancellations, which are no `Exception`, propagate.
    """
    warned = False

    def emit(event: ContextEvent) -> None:
        nonlocal warned
        if listener is None:
            return
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a user's listener may raise anything
            # Once: a listener that fails does so at every event, and one warning says all that there is to say.
            if not warned:
                warned = True
                warnings.warn(f"on_event raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    return emit


def call_line(messages: int, size_bytes: int) -> str:
    """The log line of one model call, at four bytes to a token (S0.04)."""
    return f"Calling AI with {messages} messages (~{size_bytes} bytes, ~{size_bytes // 4} tokens)"


def log_line(event: ContextEvent) -> str | None:
    """The log line of the beginning or the end of a compaction; None for other events (S0.04).

    Sizes are bytes of contents where those are what triggers, else tokens.
    """
    # Word for word as the documented system writes them: its users search their logs for these lines.
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
