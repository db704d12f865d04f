"""Asking a person for one call: what it would do, with no mark in it that could hide a part."""

from __future__ import annotations

from foldline.agent.tools.base import Ask, Scope

__all__ = ["consented", "one_line"]


async def consented(scope: Scope, tool: str, what: str) -> bool:
    """Whether the person allows this call; `what` says in the text of a program or a model what it would do."""
    return await scope.allowed(Ask(tool, one_line(what)))


def one_line(text: str) -> str:
    """A text as one line: line ends, control and direction marks are written as escapes, and nothing is cut off.

    A terminal obeys such marks, and a command could show as another one than it is.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
