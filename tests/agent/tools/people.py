"""A person who answers what tools ask, and a call with that person at hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from foldline.agent.tools.base import CallScope, History, PermissionRequest, Tool, ToolOutcome
from foldline.display import Room


@dataclass
class Person:
    """Answers every question with yes or no, and records the questions."""

    says: bool = True
    asked: list[PermissionRequest] = field(default_factory=list)

    async def __call__(self, ask: PermissionRequest) -> bool:
        self.asked.append(ask)
        return self.says


def scope(person: Person | None = None, history: History | None = None) -> CallScope:
    """A window of 10,000 tokens, 4,000 of them used."""
    return CallScope(room=lambda: Room(10_000, 4_000), history=history, allowed=person or Person())


def run(tool: Tool, person: Person | None = None, **arguments: Any) -> ToolOutcome:
    """The outcome of one call."""

    async def called() -> ToolOutcome:
        return await tool.run(arguments, scope(person))

    return asyncio.run(called())
