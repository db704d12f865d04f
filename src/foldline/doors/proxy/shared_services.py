"""The services that all exchanges of a proxy share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldline.conversations.service import Conversations
from foldline.doors.proxy.ahead import SummariesAfterResponses
from foldline.doors.proxy.served_request import Listener, Mode
from foldline.doors.proxy.summaries import SummaryClient
from foldline.doors.proxy.upstream import Upstream
from foldline.doors.proxy.windows import ModelWindows

__all__ = ["ProxyServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyServices:
    """The services that all exchanges of a proxy share."""

    upstream: Upstream
    conversations: Conversations
    windows: ModelWindows
    summaries: SummaryClient | None
    mode: Mode
    emit: Listener
    notice: Callable[[str], None]
    ahead: SummariesAfterResponses | None = None
    short_tools: int | None = None
