"""The slash commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from foldline.display import compact_question
from foldline.errors import InvalidInput
from foldline.interfaces.chat.interrupts import LeaveError

if TYPE_CHECKING:
    from foldline.interfaces.chat.conversation import Conversation

__all__ = ["COMMANDS", "Command", "run_command"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name with the slash, what it takes, what it does, and how."""

    name: str
    takes: str
    does: str
    run: Callable[[Conversation, str], Awaitable[None]]


async def _quit(chat: Conversation, given: str) -> None:
    raise LeaveError(0)


async def _compact(chat: Conversation, given: str) -> None:
    agent = await (await chat.talk()).agent()
    if await chat.confirmed(compact_question(agent.session.figures)):
        await chat.compact(given or None)


COMMANDS: Final = (
    Command("/compact", "[instructions]", "sum up the conversation, and go on from the summary", _compact),
    Command("/quit", "", "leave; the session can be resumed", _quit),
)


async def run_command(chat: Conversation, typed: str) -> None:
    """Run what was typed. Raises InvalidInput for what is no command, or not given as it must be."""
    name, _, given = typed.strip().partition(" ")
    found = [command for command in COMMANDS if command.name == name]
    if not found:
        raise InvalidInput(f"there is no command {name}; /help lists them, //{name[1:]} says it to the model")
    await found[0].run(chat, given.strip())
