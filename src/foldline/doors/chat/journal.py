"""The log of a chat: one line for each model call and each compaction, in the folder of the session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from foldline.agent.events import AgentEvent, Calling, Notice, ReplyFinished, ToolFinished, TurnEnded
from foldline.doors.chat.event_lines import reply_text
from foldline.engine.events import FoldFinished, FoldStarted, call_line, log_line
from foldline.failures import redact
from foldline.text.formatting import plain_line

__all__ = ["FILE", "Journal"]

FILE: Final = "chat.log"


class Journal:
    """Writes the log lines of S0.04 and others, with secrets of known shapes removed.

    `folder` returns the session's folder once it is on disk; the file is created there (0600). A line that cannot be
    written stops nothing. With `verbose`, lines go to standard error too.
    """

    def __init__(self, folder: Callable[[], Path | None], *, verbose: IO[str] | None = None) -> None:
        self._folder, self._loud = folder, verbose

    def on_event(self, event: AgentEvent) -> None:
        """Log an event, if it belongs in the log."""
        line = _line(event)
        if line is not None:
            self._write(redact(plain_line(line, 2_000)))

    def _write(self, line: str) -> None:
        if self._loud is not None:
            self._loud.write(f"{line}\n")
            self._loud.flush()
        folder = self._folder()
        if folder is None:
            return
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # O_NOFOLLOW: a link planted in the folder must not redirect the log.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            handle = os.open(folder / FILE, flags, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"{stamp} {line}\n")
        except OSError as error:
            if self._loud is None:
                self._loud = sys.stderr
                self._write(f"the log cannot be written: {error}")


def _line(event: AgentEvent) -> str | None:
    match event:
        case Calling():
            return call_line(event.messages, event.size_bytes)
        case FoldStarted() | FoldFinished():
            return log_line(event)
        case ReplyFinished():
            return reply_text(event)
        case ToolFinished():
            how = "failed" if event.is_error else "done"
            return f"Tool {event.tool} {how}: {event.tokens} tokens, {event.seconds:.1f} s"
        case Notice():
            return f"Notice: {event.text}"
        case TurnEnded():
            return f"Turn ended: {event.reason} {event.message}".strip()
        case _:
            return None
