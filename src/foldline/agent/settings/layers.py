"""The layers of settings: blocks of a file checked field by field, laid over each other, and checked as a whole.

A layer is a tree whose leaves know their places, so that a fault names file, line and field in whichever layer it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from foldline.agent.settings.checks import (
    NAME,
    NO_NAME,
    NOTHING,
    PARTIAL,
    SECRET,
    UNKNOWN,
    WHOLE,
    FieldPath,
    dotted,
    faults_of,
    holds_secret,
    quoted,
    secret_path,
)
from foldline.agent.settings.model import (
    BLOCK,
    OFF,
    AgentBlock,
    block_schema,
    field_schema,
    schema_definition,
)
from foldline.agent.settings.yaml_lines import YamlDocument, fault, line_of
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = [
    "FileSettings",
    "LocatedValue",
    "Tree",
    "check_document",
    "cross_field_faults",
    "leaves",
    "merge",
    "validate_merged",
    "values_of",
]

# Blocks that a stronger layer replaces whole when it names one: half of one model and half of another is none.
_WHOLE: Final = ("model", "summariser", "policy")
SECTIONS: Final = ("defaults", "agents", "profiles")
_KEYS = re.compile(r"key|secret|password|token$")
_EMPTY: Final = {
    "mcp": "must have a command to start, or the url of a server",
    "schedule": "must have a cron and a prompt",
}


@dataclass(frozen=True, slots=True)
class LocatedValue:
    """A value as a file has it, and its place; `name` is the field in the file."""

    value: Any
    name: str
    file: str
    line: int | None = None

    @property
    def source(self) -> str:
        """The place for people: "agents.yaml:12"."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def wrong(self, reason: str) -> InvalidInput:
        """Return an error at this place."""
        return fault(reason, file=self.file, line=self.line, name=self.name)


Tree: TypeAlias = dict[str, Any]
"""Fields by name: each a LocatedValue, or a Tree for a block."""


def leaves(tree: Tree, place: str = "") -> Iterator[tuple[str, LocatedValue]]:
    """Iterate over the leaves of a tree with their full names."""
    for name, found in tree.items():
        field = f"{place}.{name}" if place else name
        if isinstance(found, dict):
            yield from leaves(found, field)
        else:
            yield field, found


def values_of(tree: Any) -> Any:
    """Return the values of a tree without their places."""
    return {name: values_of(found) for name, found in tree.items()} if isinstance(tree, dict) else tree.value


# --- one over the other -----------------------------------------------------------------------------------------------


def merge(weak: Tree, strong: Tree) -> Tree:
    """Merge two layers field by field; the strong one wins.

    A model, summariser, policy or MCP server that the strong layer names replaces the whole weak one. `tools.allow` and
    `tools.off` add up; for each tool the strongest layer that names it decides.
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


def validate_merged(tree: Tree, *, file: str = "") -> AgentBlock:
    """Validate a merged tree. Raises InvalidInput for the first fault across fields."""
    try:
        return _validate(values_of(tree), WHOLE)
    except ValidationError as error:
        raise _located(tree, *faults_of(error)[0], file=file) from None


def cross_field_faults(tree: Tree, *, file: str = "") -> list[InvalidInput]:
    """Return the faults of a merged tree whose single fields are valid."""
    try:
        _validate(values_of(tree), WHOLE)
    except ValidationError as error:
        return [_located(tree, path, reason, file=file) for path, reason in faults_of(error)]
    return []


def _validate(values: Tree, context: str) -> AgentBlock:
    # By aliases alone: a file says max_late, code max_late_seconds.
    return BLOCK.validate_python(values, context=context, by_alias=True, by_name=False)


def _find(tree: Tree, path: FieldPath) -> tuple[LocatedValue | Tree, FieldPath]:
    """Follow a path in a tree. Returns the last leaf or block, and the rest of the path, which is inside a list."""
    found: LocatedValue | Tree = tree
    for at, step in enumerate(path):
        if not isinstance(found, dict) or step not in found:
            return found, path[at:]
        found = found[step]
    return found, ()


def _located(tree: Tree, path: FieldPath, reason: str, *, file: str) -> InvalidInput:
    """Return a fault of a merged tree at its field, or at the first field of its block."""
    found, rest = _find(tree, path)
    if isinstance(found, LocatedValue):
        return fault(reason, file=found.file, line=found.line, name=dotted(rest, found.name))
    inside = next(leaves(found), None)
    if inside is None or found is tree:
        return fault(reason, file=file, name=dotted(path))
    below, leaf = inside
    # The field of the file, which may stand in a profile or at top level, not the path in the merged tree.
    block = leaf.name.removesuffix(f".{below}")
    return fault(reason, file=leaf.file, line=leaf.line, name=dotted(rest, block))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """The layers of one file: defaults, agents, profiles. `faults` are ordered by line."""

    file: str
    defaults: Tree
    agents: Mapping[str, Tree]
    profiles: Mapping[str, Tree]
    faults: tuple[InvalidInput, ...] = ()


def check_document(document: YamlDocument, *, file: str) -> FileSettings:
    """Check a document field by field. Faulty fields are left out of the trees and named in `faults`.

    Besides the three sections, a file may have agents at top level, and fields that hold for all agents: files of other
    systems are written this way.
    """
    reader = _LayerReader(file, document.lines)
    faults = reader.faults
    faults += document.faults
    top = document.value if document.value is not None else {}
    if not isinstance(top, Mapping):
        faults.append(reader.fault(f"must hold blocks of settings, not {quoted(top)}", ""))
        top = {}
    defaults = reader.layer(top.get("defaults"), "defaults")
    agents = reader.layers(top.get("agents"), "agents")
    fields = schema_definition("Agent")["properties"]
    for name, value in top.items():
        if name in SECTIONS:
            continue
        if name in fields:
            if name in defaults:
                faults.append(reader.fault(f"stands in defaults too ({_first_source(defaults[name])})", name))
                continue
            defaults |= reader.layer({name: value}, "")
            continue
        # At top level a wrong field could also be an agent's name: only a near miss counts as a typing error.
        near = get_close_matches(name, (*SECTIONS, *fields), 1, 0.75)
        if near or not isinstance(value, Mapping) or not NAME.fullmatch(name):
            hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(SECTIONS)}, or the name of an agent"
            faults.append(reader.fault(f"is not a setting; {hint}", name))
        elif name in agents:
            faults.append(reader.fault("is given in agents too", name))
        else:
            agents[name] = reader.layer(value, name)
    profiles = reader.layers(top.get("profiles"), "profiles")
    return FileSettings(
        file=file, defaults=defaults, agents=agents, profiles=profiles, faults=tuple(sorted(faults, key=line_of))
    )


def _first_source(found: LocatedValue | Tree) -> str:
    given = next((each for _, each in leaves({"": found})), None)
    return given.source if given else "empty"


class _LayerReader:
    """Reads the blocks of one file into trees, and collects their faults.

    The JSON schema gives the shape of a block, so that unknown fields are found with their lines before pydantic, which
    knows no lines, checks the values.
    """

    def __init__(self, file: str, lines: Mapping[str, int]) -> None:
        self.faults: list[InvalidInput] = []
        self._file = file
        self._lines = lines

    def fault(self, reason: str, name: str) -> InvalidInput:
        """Return an error with file, line and field."""
        return fault(reason, file=self._file, line=self._line(name), name=name)

    def _line(self, name: str) -> int | None:
        """Return the line of a field, or of the block around it."""
        around = name
        while around and around not in self._lines:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return self._lines.get(around)

    def layers(self, value: Json, place: str) -> dict[str, Tree]:
        """Read the agents or profiles of a section."""
        if value is not None and not isinstance(value, Mapping):
            self._add(_safe(value, f"must be a block of names, not {quoted(value)}"), place)
            return {}
        found = {}
        for name, inner in (value or {}).items():
            if NAME.fullmatch(name):
                found[name] = self.layer(inner, f"{place}.{name}")
            else:
                self._add(NO_NAME, f"{place}.{name}")
        return found

    def layer(self, value: Json, place: str) -> Tree:
        """Read the fields of an agent without faulty ones."""
        tree = self._read(value, {"$ref": "#/$defs/Agent"}, place)
        if not isinstance(tree, dict):
            return {}
        self._drop_empty(tree, value or {}, place)
        self._drop_invalid(tree, place)
        self._drop_secrets(tree)
        self._check_pairs(tree)
        return tree

    def _add(self, reason: str, name: str) -> None:
        self.faults.append(self.fault(reason, name))

    def _read(self, value: Json, schema: Json, place: str) -> LocatedValue | Tree | None:
        block = block_schema(schema)
        if block is None:
            return self._leaf(NOTHING if value is None and schema else value, place)
        if value is None:
            return {}
        properties = block.get("properties")
        if not isinstance(value, Mapping):
            if place.rpartition(".")[2] == "summariser" and (value is False or value == OFF):
                return self._leaf(OFF, place)
            if "name" in (properties or ()) and isinstance(value, str | int | float) and not isinstance(value, bool):
                return {"name": self._leaf(value, place)}
            kind = "fields" if properties else "names"
            self._add(_safe(value, f"must be a block of {kind}, not {quoted(value)}"), place)
            return None
        tree: Tree = {}
        for name, inner in value.items():
            field = f"{place}.{name}" if place else name
            if (inside := field_schema(block, name)) is None:
                self._add(_unknown(name, block), field)
            elif (found := self._read(inner, inside, field)) is not None:
                tree[name] = found
        return tree

    def _leaf(self, value: Json, place: str) -> LocatedValue:
        return LocatedValue(value, place, self._file, self._line(place))

    def _drop_empty(self, tree: Tree, value: Mapping[str, Json], place: str) -> None:
        """Report empty servers and schedule entries. One whose fields are all faulty has its faults already."""
        for block, reason in _EMPTY.items():
            for name, inner in (value.get(block) or {}).items() if block in tree else ():
                if not inner and name in tree[block]:
                    self._add(reason, dotted((block, name), place))
                    del tree[block][name]

    def _drop_invalid(self, tree: Tree, place: str) -> None:
        """Drop what pydantic refuses, repeatedly: it checks a block as a whole only once its fields are valid."""
        while True:
            try:
                _validate(values_of(tree), PARTIAL)
                return
            except ValidationError as error:
                found = faults_of(error, partial=True)
            for path, reason in found:
                leaf, rest = _find(tree, path)
                # In a list; blocks elsewhere were read by their schema.
                hint = _unknown(str(path[-1]), schema_definition("DeliveryBlock")) if reason == UNKNOWN else reason
                self._add(hint, dotted(rest, leaf.name) if isinstance(leaf, LocatedValue) else dotted(path, place))
                _drop(tree, path)
            if not found:
                return

    def _drop_secrets(self, tree: Tree) -> None:
        """Refuse keys, without repeating them: errors end up in logs. A system text is prose, and exempt."""
        for name, leaf in list(leaves(tree)):
            if name != "system" and (inside := secret_path(leaf.value, name.rpartition(".")[2])) is not None:
                self._add(SECRET, dotted(inside, leaf.name))
                _drop(tree, tuple(name.split(".")))

    def _check_pairs(self, tree: Tree) -> None:
        """Report fields that exclude each other."""
        if "system" in tree and "system_file" in tree:
            self.faults.append(tree["system_file"].wrong("system is set too: one of them"))
        allow, off = tree.get("tools", {}).get("allow"), tree.get("tools", {}).get("off")
        if allow is not None and off is not None:
            self.faults += [off.wrong(f"{name} is in allow too") for name in allow.value if name in off.value]


def _drop(tree: Tree, path: FieldPath) -> None:
    """Drop the field at a path; a list as a whole."""
    *blocks, last = map(str, path)  # an index stands behind a list alone, where nothing is looked up
    for step in blocks:
        if not isinstance(tree.get(step), dict):
            tree.pop(step, None)
            return
        tree = tree[step]
    tree.pop(last, None)


def _unknown(name: str, block: Mapping[str, Json]) -> str:
    fields = block["properties"]
    if "api_key_env" in fields and _KEYS.search(name.lower()):
        return "is not a setting: keys are not written here; name their environment variable as api_key_env"
    near = get_close_matches(name, fields, 1, 0.6)
    hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(fields)}"
    return f"is not a setting; {hint}"


def _safe(value: Json, reason: str) -> str:
    """Return the reason, unless it would repeat a key."""
    return SECRET if holds_secret(value) else reason
