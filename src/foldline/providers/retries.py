"""Retry rules: which failures are retried, how often, and after what pause. Pure: randomness and time are arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from foldline.failures.failure import Failure

__all__ = [
    "CONNECT_RETRIES",
    "FAULT_RETRIES",
    "LONGEST_PAUSE_SECONDS",
    "RATE_RETRIES",
    "pause",
    "requested_pause",
    "retries",
]

RATE_RETRIES: Final = 7
"""Retries of a rate limit: without advice the pauses add up to over a minute, the window of most limits."""

FAULT_RETRIES: Final = 5
"""Retries of a fault: 15 s in all, the time of a restart behind a gateway or of loading a model."""

CONNECT_RETRIES: Final = 2
"""Retries of an address that does not answer. A wrong address never will, so the error comes soon."""

LONGEST_PAUSE_SECONDS: Final = 60.0
"""The longest pause that is waited. If a server asks for more, the user decides whether to wait."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LARGEST_STEP_SECONDS: Final = 32.0
_JITTER: Final = 0.25  # of the pause, so that sessions refused together do not retry together

_TRANSIENT: Final = frozenset({408, 409, 425})  # time-out, lock, too early: as the providers' own clients have it
_LASTING: Final = frozenset({501, 505})
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def retries(failure: Failure, *, advice: str | None = None) -> int:
    """Return how often a request with this failure may be retried; 0 if a retry cannot help.

    `advice` is the header `x-should-retry` of Anthropic and OpenAI, which takes precedence.
    """
    if advice == "false":
        return 0
    if failure.kind == "rate":
        return RATE_RETRIES
    if failure.kind != "other":
        return 0
    status = failure.status
    # An error inside a stream has a success status or none. If its code blames the request, a retry cannot help.
    streamed = status is None or status < 300
    fault = streamed and not (failure.code or "").lower().startswith("invalid")
    busy = status is not None and (status in _TRANSIENT or (status >= 500 and status not in _LASTING))
    return FAULT_RETRIES if fault or busy or advice == "true" else 0


def pause(attempt: int, failure: Failure, chance: Callable[[], float]) -> float | None:
    """Return the seconds before retry number `attempt` (1, 2, …); None if the server asks for too long a pause."""
    step = min(_FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1), _LARGEST_STEP_SECONDS)
    requested = failure.retry_after_seconds
    if requested is None:
        return step * (1 - _JITTER * chance())
    if requested > LONGEST_PAUSE_SECONDS:
        return None
    return requested + _FIRST_PAUSE_SECONDS * chance()  # never earlier than requested


def requested_pause(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the pause in the headers: `retry-after-ms`, or `retry-after` as seconds or as a date; else None."""
    in_milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(in_milliseconds):
        return float(in_milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    if then.tzinfo is None:  # RFC 9110, 5.6.7: an HTTP date is in GMT
        then = then.replace(tzinfo=UTC)
    seconds: float = (then - now).total_seconds()
    return max(0.0, seconds)
