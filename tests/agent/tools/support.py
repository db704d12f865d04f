"""What calls of tools see in tests: a window, a person who answers, and the session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from foldline.agent.tools.base import CallScope, History, PermissionRequest, Tool, ToolOutcome
from foldline.display import Room


@dataclass
class Person:
    """Answers every question alike, and records the questions; `meanwhile` runs before the answer."""

    answer: bool = True
    asked: list[PermissionRequest] = field(default_factory=list)

    async def allowed(self, request: PermissionRequest) -> bool:
        self.asked.append(request)
        self.meanwhile()
        return self.answer

    def meanwhile(self) -> None:
        """Does nothing, unless a test replaces it."""


def scope(
    person: Person | None = None,
    history: History | None = None,
    *,
    window_tokens: int = 100_000,
    used_tokens: int = 0,
) -> CallScope:
    """The scope of a call; without a person nobody can be asked."""
    room = Room(window_tokens, used_tokens)
    if person is None:
        return CallScope(room=lambda: room, history=history)
    return CallScope(room=lambda: room, history=history, allowed=person.allowed)


def run(tool: Tool, scope: CallScope, **arguments: object) -> ToolOutcome:
    """Return the outcome of one call."""
    return asyncio.run(tool.run(arguments, scope))


def text(tool: Tool, window_tokens: int = 100_000, **arguments: object) -> str:
    """Return the result of a call that must succeed."""
    outcome = run(tool, scope(window_tokens=window_tokens), **arguments)
    assert not outcome.is_error
    assert outcome.compact is None
    return outcome.text
