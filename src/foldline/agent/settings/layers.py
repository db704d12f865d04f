"""Layers of settings: trees whose values know their places, laid over each other, and checked when all is together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from foldline.agent.settings.checks import WHOLE, FieldPath, dotted, faults_of
from foldline.agent.settings.model import AgentBlock
from foldline.agent.settings.yaml_lines import fault
from foldline.errors import InvalidInput

__all__ = [
    "BLOCK",
    "LocatedValue",
    "Tree",
    "faults_together",
    "find",
    "flat",
    "merged",
    "plain",
    "validate",
    "validated",
]

# Blocks that a stronger layer replaces whole when it names one: half of one model and half of another is none.
_WHOLE: Final = ("model", "summariser", "policy")
BLOCK: Final = TypeAdapter(AgentBlock)


@dataclass(frozen=True, slots=True)
class LocatedValue:
    """A value that was set, as the file has it, and where: `name` is the field in the file."""

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
"""Fields by name: each a LocatedValue, or a Tree for a block."""


def flat(tree: Tree, place: str = "") -> Iterator[tuple[str, LocatedValue]]:
    """The leaves of a tree by their full names."""
    for name, found in tree.items():
        field = f"{place}.{name}" if place else name
        if isinstance(found, dict):
            yield from flat(found, field)
        else:
            yield field, found


def plain(tree: Any) -> Any:
    """The values alone, in blocks as they stand."""
    return {name: plain(found) for name, found in tree.items()} if isinstance(tree, dict) else tree.value


# --- one over the other -----------------------------------------------------------------------------------------------


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
        if not isinstance(old, dict) or not isinstance(new, dict) or (name in _WHOLE and "name" in new):
            out[name] = new
        elif name == "tools":
            out[name] = _merged_tools(old, new)
        elif name == "mcp":
            # Env and arguments of one program mean nothing to another.
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


def _merged_tools(weak: Tree, strong: Tree) -> Tree:
    out = _deep(weak, strong)
    for name, other in (("allow", "off"), ("off", "allow")):
        old, new, opposite = weak.get(name), strong.get(name), strong.get(other)
        if old is None:
            continue
        # What the strong layer names in the opposite list leaves this one: the stronger word about a tool counts.
        kept = [tool for tool in old.value if opposite is None or tool not in opposite.value]
        latest = old if new is None else new
        names = list(dict.fromkeys((*kept, *(() if new is None else new.value))))
        out[name] = LocatedValue(names, latest.name, latest.file, latest.line)
    return out


# --- all together -----------------------------------------------------------------------------------------------------


def validated(tree: Tree, *, file: str = "") -> AgentBlock:
    """The settings of a merged tree. Raises InvalidInput for the first thing that only shows when all is together."""
    try:
        return validate(plain(tree), WHOLE)
    except ValidationError as error:
        raise _located(tree, *faults_of(error)[0], file=file) from None


def faults_together(tree: Tree, *, file: str = "") -> list[InvalidInput]:
    """What is wrong with a merged tree although each field is right."""
    try:
        validate(plain(tree), WHOLE)
    except ValidationError as error:
        return [_located(tree, path, reason, file=file) for path, reason in faults_of(error)]
    return []


def validate(values: Tree, context: str) -> AgentBlock:
    """The settings of plain values. Raises pydantic's ValidationError."""
    # By aliases alone: a file says max_late, code max_late_seconds.
    return BLOCK.validate_python(values, context=context, by_alias=True, by_name=False)


def find(tree: Tree, path: FieldPath) -> tuple[LocatedValue | Tree, FieldPath]:
    """How far a path leads in a tree: the leaf or block at its end, and the rest, which is inside a list."""
    found: LocatedValue | Tree = tree
    for at, step in enumerate(path):
        if not isinstance(found, dict) or step not in found:
            return found, path[at:]
        found = found[step]
    return found, ()


def _located(tree: Tree, path: FieldPath, reason: str, *, file: str) -> InvalidInput:
    """A fault of a merged tree: with the place of its field, or of the first field of its block."""
    found, rest = find(tree, path)
    if isinstance(found, LocatedValue):
        return fault(reason, file=found.file, line=found.line, name=dotted(rest, found.name))
    inside = next(flat(found), None)
    if inside is None or found is tree:
        return fault(reason, file=file, name=dotted(path))
    below, leaf = inside
    block = leaf.name.removesuffix(f".{below}")
    return fault(reason, file=leaf.file, line=leaf.line, name=dotted(rest, block))
