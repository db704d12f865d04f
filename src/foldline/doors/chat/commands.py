"""The slash commands: names, arguments, and the lookup of a typed one."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from foldline.doors.chat.interrupts import LeaveError
from foldline.errors import InvalidInput

if TYPE_CHECKING:
    from foldline.doors.chat.chat_loop import ChatLoop

__all__ = ["COMMANDS", "SlashCommand", "run_command", "whole_number"]

RunCommand = Callable[["ChatLoop", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command: its name with the slash, its arguments, and a description.

    `module` is the one that runs it, "" for this one.
    """

    name: str
    arguments: str
    description: str
    module: str = ""

    @property
    def usage(self) -> str:
        """The name and the arguments."""
        return f"{self.name} {self.arguments}".strip()


COMMANDS: Final = (
    SlashCommand("/compact", "[instructions]", "sum up the conversation and go on from the summary"),
    SlashCommand("/context", "", "show what fills the window", "inspect_commands"),
    SlashCommand("/rules", "", "list the rules that stay, whatever is folded", "inspect_commands"),
    SlashCommand(
        "/why", "N", "say why message N is not shown as it was; fold N: what a fold stands for", "inspect_commands"
    ),
    SlashCommand("/undo", "", "take back the last folds", "session_commands"),
    SlashCommand("/fold", "N[-M] [instructions]", "sum up messages N to M alone", "session_commands"),
    SlashCommand(
        "/branches",
        "[N]",
        "the branches that were left; back to that up to N",
        "session_commands",
    ),
    SlashCommand("/rewind", "N", "go back to before message N; the log keeps what was said since", "session_commands"),
    SlashCommand("/pin", "N [off]", "keep message N whole", "session_commands"),
    SlashCommand("/history", "[N|all]", "list what was said, folded parts marked", "inspect_commands"),
    SlashCommand("/model", "[NAME]", "say which model answers, or go on with another", "session_commands"),
    SlashCommand("/policy", "[NAME]", "say how the context is folded, or fold otherwise", "session_commands"),
    SlashCommand("/cost", "", "tokens and money so far", "inspect_commands"),
    SlashCommand("/resume", "[ID]", "list sessions, or go on with one", "session_commands"),
    SlashCommand("/export", "FILE", "write the conversation (.md, else JSON)", "session_commands"),
    SlashCommand("/clear", "", "begin a new session", "session_commands"),
    SlashCommand("/help", "", "list the commands"),
    SlashCommand("/quit", "", "leave; the session can be resumed"),
)


async def _compact(chat: ChatLoop, argument: str) -> None:
    """Compact after showing the figures and asking (S4.05)."""
    from foldline.display import compact_question

    session = (await (await chat.conversation()).agent()).session
    # A compaction may cost a call of the model, and replaces what the model sees.
    if await chat.confirm(compact_question(session.figures)):
        await chat.compact(argument or None)


async def _help(chat: ChatLoop, argument: str) -> None:
    chat.screen.pairs([(command.usage, command.description) for command in COMMANDS])
    chat.screen.line("//… says a text that begins with a slash. Ctrl-C stops the turn, twice it leaves.", "dim")


async def _quit(chat: ChatLoop, argument: str) -> None:
    raise LeaveError(0)


# Commands without a module of their own: they need nothing that takes long to load.
_HERE: Final[dict[str, RunCommand]] = {"/compact": _compact, "/help": _help, "/quit": _quit}


async def run_command(chat: ChatLoop, typed: str) -> None:
    """Run a typed command. Raises InvalidInput for an unknown one or bad arguments."""
    # Arguments are not split further: instructions and file names may contain spaces.
    name, _, argument = typed.strip().partition(" ")
    command = next((each for each in COMMANDS if each.name == name), None)
    if command is None:
        # The same hint as for settings: a typo is the usual reason for an unknown name.
        near = difflib.get_close_matches(name, [each.name for each in COMMANDS], n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "/help lists them"
        raise InvalidInput(f"there is no command {name}; {hint} (/{name} says it to the model)")
    # Imported on use: the modules behind most commands take longer to load than the prompt may.
    # The name of a function is the name of its command.
    run: RunCommand = _HERE.get(name) or getattr(import_module(f"foldline.doors.chat.{command.module}"), name[1:])
    await run(chat, argument.strip())


# More digits than any number here has. `int` refuses a text of some thousands of them.
_MOST_DIGITS: Final = 12


def whole_number(typed: str) -> int | None:
    """Parse a whole number from 0 on, digits only; None for any other text.

    ASCII only: "²" and digits of other scripts pass `str.isdigit`, and not all of them pass `int`.
    """
    if len(typed) > _MOST_DIGITS or not (typed.isascii() and typed.isdigit()):
        return None
    return int(typed)
