"""Asks the person to allow one tool call. The call is shown with nothing hidden in it, and silence is no.

Tools shorten what is long (an edit of a file), and say how much more there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from foldline.agent.tools.base import PermissionRequest
from foldline.doors.chat.prompt import PromptInput
from foldline.doors.chat.screen import Screen
from foldline.text.formatting import plain

__all__ = ["Consent"]


class Consent:
    """Decides whether calls may run. With `everything` all of them may; without a prompt none.

    "always" holds for the tool in this session, until `forget`. Parallel calls are asked for one after another. `stop`
    is called for Ctrl-C at a question.
    """

    def __init__(self, screen: Screen, prompt: PromptInput | None, *, everything: bool = False) -> None:
        self._screen, self.prompt, self.everything = screen, prompt, everything
        self.stop: Callable[[], object] = lambda: None
        self._always: set[str] = set()
        # Parallel tool calls share one terminal, so their questions must not interleave.
        self._lock = asyncio.Lock()
        self._reported = False

    def forget(self) -> None:
        """Ask for every tool again."""
        self._always.clear()

    async def allowed(self, ask: PermissionRequest) -> bool:
        """Ask whether this call may run."""
        if self.everything:
            return True
        if self.prompt is None:
            # Once is enough: a turn may try dozens of calls.
            if not self._reported:
                self._reported = True
                self._screen.line(f"{ask.tool} was not run: nobody can be asked here (--yes allows it)", "yellow")
            return False
        async with self._lock:
            if ask.tool in self._always:
                return True
            with self._screen.paused():
                return await self._ask(ask, self.prompt)

    async def _ask(self, ask: PermissionRequest, prompt: PromptInput) -> bool:
        self._screen.line(f"{ask.tool} wants to run:", "bold yellow")
        for line in plain(ask.what).split("\n"):
            self._screen.line(f"  {line}", _style(line))
        try:
            answer = await prompt.ask("Allow? [y]es / [n]o / [a]lways in this session:")
        except EOFError:
            answer = ""
        # Ctrl-C at a question refuses the call and stops the turn that asked.
        except KeyboardInterrupt:
            self.stop()
            answer = ""
        word = answer.strip().lower()
        if word in ("a", "always"):
            self._always.add(ask.tool)
        return word in ("y", "yes", "a", "always")


def _style(line: str) -> str:
    """The colour of a line of a diff."""
    return "green" if line.startswith("+") else "red" if line.startswith("-") else ""
