"""One prompt and its answer, for scripts: the answer on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import IO, Final, TextIO

from foldline.agent.events import AgentEvent, as_json
from foldline.doors.chat.interrupts import Interrupts, LeaveError
from foldline.doors.chat.startup import Chat, open_conversation, refresh_screen
from foldline.errors import InvalidInput
from foldline.text.formatting import plain

__all__ = ["answer_once", "prompt_text", "read_piped"]

STOPPED: Final = 130  # 128 and SIGINT, as shells report it
_FAILED: Final = 1
# More than any window holds, and little enough for memory.
_MOST_BYTES: Final = 64 * 1024 * 1024


def read_piped(stdin: TextIO) -> str | None:
    """Read text piped or redirected into this process; None if there is none (a terminal, a socket, /dev/null)."""
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return None
    # Under cron or a service manager stdin is /dev/null or a socket: nobody meant that as a prompt.
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    # One byte more than allowed tells a full input from one that is too large.
    data = stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InvalidInput(f"has more than {_MOST_BYTES:,} bytes", place="standard input")
    return data.decode("utf-8", "replace")


def prompt_text(once: str | None, piped: str | None) -> str:
    """The prompt: the given text, then the piped one. Raises InvalidInput if both are empty."""
    # The instruction before the data, as in `foldline chat --once "review this" < file`.
    text = "\n\n".join(part.strip("\n") for part in (once, piped) if part is not None and part.strip())
    if not text:
        raise InvalidInput("there is nothing in it", place="--once" if once is not None else "standard input")
    return text


async def answer_once(chat: Chat, text: str, *, as_events: bool = False, out: IO[str] | None = None) -> int:
    """Run one turn; return the exit code. Raises FoldlineError and OSError if it cannot begin."""
    out = sys.stdout if out is None else out

    def write_event(event: AgentEvent) -> None:
        # ASCII with escapes, so that no control character in a model's text reaches a terminal.
        out.write(json.dumps(as_json(event)) + "\n")
        out.flush()

    if as_events:
        chat.listeners.append(write_event)
    for withheld in chat.loaded.withheld:
        chat.screen.line(f"not before it is trusted (foldline config trust): {withheld}", "yellow")
    interrupts = Interrupts()

    async def turn() -> int:
        async with open_conversation(chat) as conversation:
            chat.screen.model = conversation.runtime.provider.model
            chat.screen.line(f"model {conversation.runtime.picked.line}", "dim")
            with chat.screen.working("starting"):
                ended = await conversation.run_turn(text)
            if not as_events and ended.text:
                out.write(plain(ended.text).rstrip("\n") + "\n")
                out.flush()
            if conversation.id is not None:
                chat.screen.line(f"session {conversation.id}", "dim")
            # A script must notice an answer that was cut off.
            return 0 if ended.reason == "done" else _FAILED

    with interrupts.installed():
        async with refresh_screen(chat.screen):
            try:
                code = await interrupts.run(turn())
            except LeaveError as leave:
                return leave.code or STOPPED
    # No code without a LeaveError: Ctrl-C has cancelled the turn.
    return STOPPED if code is None else code
