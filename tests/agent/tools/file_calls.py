"""What calls of the file tools see in tests: a window, and a person who answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from foldline.agent.tools.base import CallScope, PermissionRequest, Tool, ToolOutcome
from foldline.display import Room


@dataclass
class Person:
    """Answers every question alike, and remembers them; `meanwhile` happens before the answer."""

    answer: bool = True
    asked: list[PermissionRequest] = field(default_factory=list)

    async def allowed(self, ask: PermissionRequest) -> bool:
        self.asked.append(ask)
        self.meanwhile()
        return self.answer

    def meanwhile(self) -> None:
        """Nothing, unless a test replaces it."""


def scope(*, window_tokens: int = 100_000, used_tokens: int = 0, person: Person | None = None) -> CallScope:
    room = Room(window_tokens, used_tokens)
    if person is None:
        return CallScope(room=lambda: room)
    return CallScope(room=lambda: room, allowed=person.allowed)


def ran(tool: Tool, scope: CallScope, **arguments: object) -> ToolOutcome:
    return asyncio.run(tool.run(arguments, scope))


def text(tool: Tool, window_tokens: int = 100_000, **arguments: object) -> str:
    """What a call that must go well answers."""
    outcome = ran(tool, scope(window_tokens=window_tokens), **arguments)
    assert not outcome.is_error
    assert outcome.compact is None
    return outcome.text
