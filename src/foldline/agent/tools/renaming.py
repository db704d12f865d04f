"""A tool under another name, where two would have the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from foldline.agent.tools.base import Outcome, Scope, Tool
from foldline.messages import Json

__all__ = ["renamed"]

NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class _Renamed:
    """The tool `inner` as `name`."""

    inner: Tool
    name: str

    @property
    def description(self) -> str:
        """The tool's own."""
        return self.inner.description

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The tool's own."""
        return self.inner.parameters

    async def run(self, arguments: Mapping[str, Json], scope: Scope) -> Outcome:
        """Run the tool."""
        return await self.inner.run(arguments, scope)


def renamed(tool: Tool, taken: Collection[str]) -> Tool:
    """The tool under a name that is not taken: its own, cut to its length, and six digits that follow from both."""
    mark, name = "", tool.name
    while name in taken:
        mark = hashlib.sha256(f"{tool.description}{mark}{name}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
        name = f"{tool.name[: NAME_CHARS - 7]}_{mark}"
    return _Renamed(tool, name)
