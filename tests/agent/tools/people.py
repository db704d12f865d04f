"""A person who answers what tools ask, and a call with that person at hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from foldline.agent.tools.base import Ask, History, Outcome, Scope, Tool
from foldline.display import Room


@dataclass
class Person:
    """Says yes or no to everything, and remembers what was asked."""

    says: bool = True
    asked: list[Ask] = field(default_factory=list)

    async def __call__(self, ask: Ask) -> bool:
        self.asked.append(ask)
        return self.says


def scope(person: Person | None = None, history: History | None = None) -> Scope:
    """A window of 10,000 tokens, 4,000 of them used."""
    return Scope(room=lambda: Room(10_000, 4_000), history=history, allowed=person or Person())


def run(tool: Tool, person: Person | None = None, **arguments: Any) -> Outcome:
    """The outcome of one call."""

    async def called() -> Outcome:
        return await tool.run(arguments, scope(person))

    return asyncio.run(called())
