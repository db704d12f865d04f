"""What a person sees while a turn runs: that an answer is being made, and for a long one in one line what it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final

from foldline.agent.events import AgentEvent, ReplyFinished, ToolStarted
from foldline.doors.chat.event_lines import call_text, seconds_text
from foldline.doors.gateway.base import ChatPlace, Gateway, NotDelivered
from foldline.doors.gateway.markdown import escape_markdown
from foldline.engine.window_usage import Figures
from foldline.text.formatting import plain_line

__all__ = ["Pace", "Progress"]

_LINE_CHARS: Final = 200
_MOST_NOTICES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often what is shown while a turn runs may change, in seconds.

    Telegram shows "typing" for five seconds, and takes about twenty messages and edits a minute in a group.
    """

    typing_seconds: float = 4.5
    first_line_seconds: float = 4.0
    line_seconds: float = 4.0


class Progress:
    """Shows that a turn runs, in its place, until the block ends; `hear` is the turn's listener."""

    def __init__(self, gateway: Gateway, where: ChatPlace, pace: Pace) -> None:
        self._gateway, self._where, self._pace = gateway, where, pace
        self._news, self._over = asyncio.Event(), asyncio.Event()
        self._tools: Counter[str] = Counter()
        self._line, self._shown, self._sent = "", "", ""
        self._began = monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.figures: Figures | None = None
        """Those after the last reply."""
        self.notices: list[str] = []
        """What the person is to be told below the answer."""

    async def __aenter__(self) -> Progress:
        self._tasks = [asyncio.create_task(self._type()), asyncio.create_task(self._tell())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._news.set()
        if isinstance(error, asyncio.CancelledError):
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hear(self, event: AgentEvent) -> None:
        """Take note of what happens."""
        if isinstance(event, ReplyFinished):
            self.figures = event.figures
        elif isinstance(event, ToolStarted):
            self._tools[plain_line(event.tool, 64)] += 1
            self._line = f"⏳ {escape_markdown(plain_line(call_text(event), _LINE_CHARS))}"
            self._news.set()

    def notice(self, text: str) -> None:
        """A sentence for the person, once."""
        if text not in self.notices and len(self.notices) < _MOST_NOTICES:
            self.notices.append(text)

    async def _type(self) -> None:
        while not self._over.is_set():
            await self._gateway.typing(self._where)
            await self._wait(self._pace.typing_seconds)

    async def _tell(self) -> None:
        """Send one line once the turn has lasted, change it as it goes on, and in the end say what was done."""
        await self._wait(self._pace.first_line_seconds)
        while not self._over.is_set():
            await self._news.wait()
            self._news.clear()
            if self._line and not self._over.is_set():
                await self._show(self._line)
                await self._wait(self._pace.line_seconds)
        if self._sent:
            done = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in self._tools.items())
            await self._show(
                f"✓ {escape_markdown(plain_line(done, _LINE_CHARS))} ({seconds_text(monotonic() - self._began)})"
            )

    async def _show(self, line: str) -> None:
        if line == self._shown:
            return
        try:
            if self._sent:
                await self._gateway.edit(self._where, self._sent, line)
            else:
                self._sent = await self._gateway.send(self._where, line)
        except NotDelivered:
            return  # the answer will say so
        self._shown = line

    async def _wait(self, seconds: float) -> None:
        """Until so many seconds have passed, or the turn is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
