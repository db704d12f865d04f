"""What was done with a request, in headers of the answer."""

from __future__ import annotations

import re
from typing import Final

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.doors.proxy.values import Mode

__all__ = ["report"]

_MOST_CHARS: Final = 400
_UNPRINTED: Final = re.compile("[^!-~]+")
"""What no header should carry: line breaks, control characters, other scripts; and white space, which becomes one."""


def report(
    hold: PlannedRequest | None, window_tokens: int, mode: Mode, recoveries: int, warning: str
) -> list[tuple[bytes, bytes]]:
    """The headers x-foldline-…; that a prompt was cut is told once."""
    found: dict[str, str] = {}
    if hold is not None:
        plan = hold.plan
        found |= {
            "tokens": str(plan.tokens),
            "folds": str(plan.folds),
            "saved": str(max(0, plan.given_tokens - plan.tokens)),
            "window": str(window_tokens),
            "session": hold.session,
        }
        if hold.cached.truncated:
            found["truncated"], hold.cached.truncated = hold.cached.truncated, ""
    if mode != "normal":
        found["mode"] = mode
    if recoveries:
        found["recoveries"] = str(recoveries)
    if warning:
        found["warning"] = warning
    return [(f"x-foldline-{name}".encode(), _plain(value)) for name, value in found.items()]


def _plain(text: str) -> bytes:
    """A text as the value of a header: one line of ASCII."""
    return _UNPRINTED.sub(" ", text).strip().encode("ascii")[:_MOST_CHARS]
