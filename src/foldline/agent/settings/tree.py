"""A tree of settings whose leaves know where they stand, and how a stronger layer is laid over a weaker one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from foldline.agent.settings.yaml_lines import fault
from foldline.errors import InvalidInput

__all__ = ["OFF", "Given", "Tree", "flat", "merged", "plain"]


OFF: Final = "off"


WHOLE: Final = ("model", "summariser", "policy")
"""Blocks that a stronger layer replaces whole when it names one: half of one model and half of another is none."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was set, and where: `name` is the field as the file has it."""

    value: Any
    name: str
    file: str
    line: int | None = None

    @property
    def source(self) -> str:
        """Where it comes from, for people: "agents.yaml:12"."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def wrong(self, reason: str) -> InvalidInput:
        """An error that names this place."""
        return fault(reason, file=self.file, line=self.line, name=self.name)


Tree: TypeAlias = dict[str, Any]
"""Fields by name: each a Given, or a Tree for a block."""


def flat(tree: Tree, place: str = "") -> Iterator[tuple[str, Given]]:
    """The leaves of a tree by their full names."""
    for name, found in tree.items():
        field = f"{place}.{name}" if place else name
        if isinstance(found, dict):
            yield from flat(found, field)
        else:
            yield field, found


def merged(weak: Tree, strong: Tree) -> Tree:
    """The agent's fields of two layers; the strong one wins, field by field.

    A model, summariser, policy or MCP server that the strong layer names replaces the weak one whole. What is allowed
    or off adds up; a tool is what the strongest layer that names it says.
    """
    out = dict(weak)
    for name, new in strong.items():
        old = out.get(name)
        if name == "system":
            out.pop("system_file", None)
        elif name == "system_file":
            out.pop("system", None)
        if not isinstance(old, dict) or not isinstance(new, dict) or (name in WHOLE and "name" in new):
            out[name] = new
        elif name == "tools":
            out[name] = _tools(old, new)
        elif name == "mcp":
            servers = {key: s if "command" in s or "url" in s else _deep(old.get(key, {}), s) for key, s in new.items()}
            out[name] = {**old, **servers}
        else:
            out[name] = _deep(old, new)
    return out


def _deep(weak: Tree, strong: Tree) -> Tree:
    out = dict(weak)
    for name, new in strong.items():
        old = out.get(name)
        out[name] = _deep(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
    return out


def _tools(weak: Tree, strong: Tree) -> Tree:
    out = _deep(weak, strong)
    for name, other in (("allow", "off"), ("off", "allow")):
        old, new, opposite = weak.get(name), strong.get(name), strong.get(other)
        if old is None:
            continue
        kept = [tool for tool in old.value if opposite is None or tool not in opposite.value]
        latest = old if new is None else new
        names = tuple(dict.fromkeys((*kept, *(() if new is None else new.value))))
        out[name] = Given(names, latest.name, latest.file, latest.line)
    return out


def plain(tree: Any) -> Any:
    """The values alone, in blocks as they stand."""
    return {name: plain(found) for name, found in tree.items()} if isinstance(tree, dict) else tree.value
