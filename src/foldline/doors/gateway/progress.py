"""What a person sees during a turn: that an answer is being written and, in a long turn, one line on what it does."""

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
from foldline.engine.window_usage import WindowUsage
from foldline.text.formatting import plain_line

__all__ = ["Pace", "Progress"]

_LINE_CHARS: Final = 200
_MOST_NOTICES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the display of a running turn may change, in seconds.

    Telegram shows "typing" for five seconds, and accepts about twenty messages and edits a minute in a group.
    """

    typing_seconds: float = 4.5
    first_line_seconds: float = 4.0
    line_seconds: float = 4.0


class Progress:
    """Shows a running turn in its chat until the block ends. `on_event` is the listener of the turn."""

    def __init__(self, gateway: Gateway, place: ChatPlace, pace: Pace) -> None:
        self._gateway, self._place, self._pace = gateway, place, pace
        self._changed, self._finished = asyncio.Event(), asyncio.Event()
        self._tools: Counter[str] = Counter()
        self._line, self._shown, self._sent = "", "", ""
        self._started_at = monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.figures: WindowUsage | None = None
        """Those after the last reply."""
        self.notices: list[str] = []
        """What the person is to be told below the answer."""

    async def __aenter__(self) -> Progress:
        self._tasks = [asyncio.create_task(self._show_typing()), asyncio.create_task(self._show_calls())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        self._changed.set()
        # Otherwise the tasks end by themselves, and the last line says what was done.
        if isinstance(error, asyncio.CancelledError):
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_event(self, event: AgentEvent) -> None:
        """Note an event of the turn."""
        if isinstance(event, ReplyFinished):
            self.figures = event.figures
        elif isinstance(event, ToolStarted):
            self._tools[plain_line(event.tool, 64)] += 1
            self._line = f"⏳ {escape_markdown(plain_line(call_text(event), _LINE_CHARS))}"
            self._changed.set()

    def notice(self, text: str) -> None:
        """Add a sentence for the person, once."""
        if text not in self.notices and len(self.notices) < _MOST_NOTICES:
            self.notices.append(text)

    async def _show_typing(self) -> None:
        while not self._finished.is_set():
            await self._gateway.typing(self._place)
            await self._wait(self._pace.typing_seconds)

    async def _show_calls(self) -> None:
        """Send one line once the turn has lasted, edit it as the turn goes on, and say what was done in the end."""
        # Most turns are shorter, and their answer says enough.
        await self._wait(self._pace.first_line_seconds)
        while not self._finished.is_set():
            await self._changed.wait()
            self._changed.clear()
            if self._line and not self._finished.is_set():
                await self._show(self._line)
                await self._wait(self._pace.line_seconds)
        if self._sent:
            done = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in self._tools.items())
            await self._show(
                f"✓ {escape_markdown(plain_line(done, _LINE_CHARS))} ({seconds_text(monotonic() - self._started_at)})"
            )

    async def _show(self, line: str) -> None:
        if line == self._shown:
            return
        try:
            if self._sent:
                await self._gateway.edit(self._place, self._sent, line)
            else:
                self._sent = await self._gateway.send(self._place, line)
        except NotDelivered:
            return  # the answer will say so
        self._shown = line

    async def _wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the turn is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        except TimeoutError:
            return
