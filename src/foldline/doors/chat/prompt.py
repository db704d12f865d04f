"""Input of the person: typed lines, and permission for tool calls.

prompt-toolkit reads lines on a capable terminal, plain reads on any other.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from foldline.agent.tools.base import PermissionRequest
from foldline.doors.chat.screen import Screen
from foldline.text.formatting import plain

if sys.platform == "win32":
    import msvcrt
else:
    import termios

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import OneStyleAndTextTuple

__all__ = ["Consent", "LinePrompt", "PromptInput", "ToolkitPrompt", "prompt_for"]

# A pasted file is a few hundred kilobytes at most; more than this fits no window.
_LONGEST_LINE_BYTES = 1024 * 1024


class PromptInput(Protocol):
    """The input of the person. `redraws` says whether `print_above` can print while a line is being typed."""

    redraws: bool

    async def line(self) -> str:
        """The next line (or pasted lines). Raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""

    async def ask(self, question: str) -> str:
        """The answer to a question; text typed before the question does not count. Raises as `line` does."""

    def print_above(self, show: Callable[[], None]) -> None:
        """Print something; if the prompt `redraws`, above the line being typed."""

    def abort(self, error: BaseException) -> None:
        """End a waiting `line` or `ask` with this error."""

    def silent(self) -> AbstractContextManager[None]:
        """Keep text typed during the block from mixing with the output."""


def prompt_for(
    environ: Mapping[str, str], *, commands: Sequence[tuple[str, str]], history: Path | None, tty: bool
) -> PromptInput:
    """The best prompt for this terminal; `tty` says whether both ends of it are one."""
    # prompt-toolkit draws by escape sequences, which these terminals would print as text.
    if not tty or environ.get("TERM", "") in ("", "dumb", "unknown") or sys.platform == "win32":
        return LinePrompt(sys.stdin.fileno(), sys.stdout.write)
    return ToolkitPrompt(commands=commands, history=history, colours="NO_COLOR" not in environ)


class LinePrompt:
    """Plain lines from a file descriptor: for dumb terminals, and if the output is no terminal."""

    redraws = False

    def __init__(self, handle: int, write: Callable[[str], Any]) -> None:
        self._handle, self._write = handle, write
        self._buffer = b""
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None

    async def line(self) -> str:
        """The next line."""
        return await self._read_line("> ")

    async def ask(self, question: str) -> str:
        """The answer to a question."""
        # Text typed before the question was not meant as its answer: "yes" in it must not allow anything.
        self._buffer = b""
        drop_typeahead(self._handle)
        return await self._read_line(f"{question} ")

    def print_above(self, show: Callable[[], None]) -> None:
        """Print something."""
        show()

    def abort(self, error: BaseException) -> None:
        """End the wait for a line."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def silent(self) -> AbstractContextManager[None]:
        """Do nothing: a terminal that cannot redraw is left alone."""
        return nullcontext()

    async def _read_line(self, words: str) -> str:
        self._write(words)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffer and not self._ended:
            # A reader on the loop, not a thread: a thread blocked in `read` would outlive the chat.
            self._waiting = loop.create_future()
            loop.add_reader(self._handle, self._read)
            try:
                await self._waiting
            except BaseException:  # aborted or cancelled: the cursor stands behind the prompt
                self._end()
                raise
            finally:
                loop.remove_reader(self._handle)
                self._waiting = None
        # The last line of a pipe may lack its line end; only nothing at all is the end.
        if b"\n" not in self._buffer and not self._buffer:
            self._end()
            raise EOFError
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _end(self) -> None:
        """End the line on screen: nobody pressed Enter."""
        self._write("\n")
        sys.stdout.flush()

    def _read(self) -> None:
        data = os.read(self._handle, 65_536)
        self._buffer += data
        # An endless line (a device, a binary file) must not fill memory.
        self._ended = not data or len(self._buffer) > _LONGEST_LINE_BYTES
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ToolkitPrompt:
    """prompt-toolkit: editing, history, completion of commands. Escape, then Enter starts another line."""

    redraws = True

    def __init__(self, *, commands: Sequence[tuple[str, str]], history: Path | None, colours: bool) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.output import ColorDepth

        depth = None if colours else ColorDepth.DEPTH_1_BIT
        keys = KeyBindings()

        @keys.add("escape", "enter")
        def another_line(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        # Without a file that can be written, the history lasts as long as the chat.
        file = None if history is None else private_file(history)
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if file is None else FileHistory(file),
            completer=completer(commands),
            complete_while_typing=True,
            key_bindings=keys,
            color_depth=depth,
            reserve_space_for_menu=6,
        )
        # A session of its own: answers to questions belong neither into the history nor into completion.
        self._questions: PromptSession[str] = PromptSession(color_depth=depth)
        self._active: PromptSession[str] | None = None

    async def line(self) -> str:
        """The next line, or several that were pasted or started with Escape and Enter."""
        return await self._prompt(self._session, [("bold", "› ")])

    async def ask(self, question: str) -> str:
        """The answer to a question."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._questions.app.input)
        drop_typeahead(sys.stdin.fileno())
        return await self._prompt(self._questions, [("", f"{question} ")])

    def print_above(self, show: Callable[[], None]) -> None:
        """Print something above the line being typed."""
        if self._active is None or not self._active.app.is_running:
            show()
            return
        # Not run_in_terminal: it leaves raw mode for a moment, and a Ctrl-D at that moment is lost.
        app = self._active.app
        app.renderer.erase()
        show()
        app.renderer.reset()
        app.renderer.request_absolute_cursor_position()
        app.invalidate()

    def abort(self, error: BaseException) -> None:
        """End the wait for a line."""
        if self._active is not None and self._active.app.is_running:
            self._active.app.exit(exception=error)

    def silent(self) -> AbstractContextManager[None]:
        """Turn echo off."""
        return without_echo(sys.stdin.fileno())

    async def _prompt(self, session: PromptSession[str], words: list[OneStyleAndTextTuple]) -> str:
        self._active = session
        try:
            # SIGINT is handled by `Interrupts`: the prompt of a running turn must not swallow it.
            return await session.prompt_async(words, handle_sigint=False)
        finally:
            self._active = None


def completer(commands: Sequence[tuple[str, str]]) -> Any:
    """A completer for command names, with their descriptions."""
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Any, event: object) -> Iterator[Completion]:
            typed = document.text_before_cursor
            if not typed.startswith("/") or " " in typed or "\n" in typed:
                return
            for name, description in commands:
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed), display_meta=description)

    return Commands()


def private_file(path: Path) -> str | None:
    """Create the file for its user alone if needed; None if it cannot be written."""
    from foldline.store.files import make_private_folder

    try:
        # Created here, because prompt-toolkit would create it readable for everybody: prompts may hold secrets.
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return None
    return str(path)


def drop_typeahead(handle: int) -> None:
    """Drop unread input: an answer must come after its question."""
    if not os.isatty(handle):
        return
    if sys.platform == "win32":
        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        with suppress(termios.error):
            termios.tcflush(handle, termios.TCIFLUSH)


@contextmanager
def without_echo(handle: int) -> Iterator[None]:
    """Keep text typed during the block off the screen; restore the terminal however the block ends."""
    if sys.platform == "win32":
        yield
    else:
        try:
            before = termios.tcgetattr(handle)
        except termios.error:  # no terminal
            yield
            return
        quiet = [*before]
        # Echo alone: with raw mode, Ctrl-C would no longer be a signal.
        quiet[3] &= ~termios.ECHO
        try:
            termios.tcsetattr(handle, termios.TCSANOW, quiet)
            yield
        finally:
            termios.tcsetattr(handle, termios.TCSANOW, before)


# --- permission for one tool call -------------------------------------------------------------------------------------


class Consent:
    """Decides whether calls may run. With `everything` all of them may; without a prompt none.

    "always" holds for the tool in this session, until `forget`. Questions about parallel calls come one after another.
    `stop` is called for Ctrl-C at a question.
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
            # Reported once: a turn may try dozens of calls.
            if not self._reported:
                self._reported = True
                self._screen.line(f"{ask.tool} was not run: nobody can be asked here (--yes allows it)", "yellow")
            return False
        async with self._lock:
            # Inside the lock: the answer to the question before may have been "always".
            if ask.tool in self._always:
                return True
            with self._screen.paused():
                return await self._ask(ask, self.prompt)

    async def _ask(self, ask: PermissionRequest, prompt: PromptInput) -> bool:
        self._screen.line(f"{ask.tool} wants to run:", "bold yellow")
        # Control characters made visible: a model could move the cursor and hide a part of its call.
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
