"""What a proxy is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldline.conversations.service import Conversations
from foldline.doors.proxy.summaries import Summaries
from foldline.doors.proxy.upstream import Upstream
from foldline.doors.proxy.values import Listener, Mode
from foldline.doors.proxy.windows import Windows

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all exchanges of a proxy share."""

    upstream: Upstream
    conversations: Conversations
    windows: Windows
    summaries: Summaries | None
    mode: Mode
    tell: Listener
    notice: Callable[[str], None]
