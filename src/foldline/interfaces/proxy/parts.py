"""What a proxy is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldline.conversations.planning import Conversations
from foldline.interfaces.proxy.summaries import Summaries
from foldline.interfaces.proxy.upstream import Upstream
from foldline.interfaces.proxy.values import Listener, Mode
from foldline.interfaces.proxy.windows import Windows

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
