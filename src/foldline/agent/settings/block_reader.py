"""One settings file: its blocks read by the shape of the schema, checked field by field, and what is wrong by lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final

from pydantic import ValidationError

from foldline.agent.settings.checks import (
    NAME,
    NO_NAME,
    NOTHING,
    PARTIAL,
    SECRET,
    UNKNOWN,
    FieldPath,
    dotted,
    faults_of,
    holds_secret,
    shown,
)
from foldline.agent.settings.layers import BLOCK, LocatedValue, Tree, find, flat, plain, validate
from foldline.agent.settings.model import OFF
from foldline.agent.settings.yaml_lines import YamlDocument, fault, line_of
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["FileSettings", "checked_file", "settings_schema"]

SECTIONS: Final = ("defaults", "agents", "profiles")
_KEYS = re.compile(r"key|secret|password|token$")
_EMPTY: Final = {
    "mcp": "must have a command to start, or the url of a server",
    "schedule": "must have a cron and a prompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """What one file says: what holds for every agent, for some, and under which profile. `faults` in order of lines."""

    file: str
    defaults: Tree
    agents: Mapping[str, Tree]
    profiles: Mapping[str, Tree]
    faults: tuple[InvalidInput, ...] = ()


@cache
def settings_schema() -> dict[str, Json]:
    """The JSON schema of a settings file, for editors and for other checkers."""
    block = BLOCK.json_schema(ref_template="#/$defs/{model}")
    definitions = {**block.pop("$defs"), "Agent": block}
    properties = block["properties"]
    for name in ("model", "summariser", "policy"):  # a word stands for the block's name
        described = {"description": properties[name]["description"]}
        properties[name] = described | {"anyOf": [*_forms(properties[name]), {"type": "string"}]}
    agent: Json = {"$ref": "#/$defs/Agent"}
    named: Json = {"type": "object", "additionalProperties": agent, "propertyNames": {"pattern": f"^{NAME.pattern}$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of agents",
        "type": "object",
        "properties": {"defaults": agent, "agents": named, "profiles": named} | properties,
        "additionalProperties": agent,
        "$defs": definitions,
    }


def _forms(schema: Json) -> list[Json]:
    found: list[Json] = schema.get("anyOf", [schema])
    return found


def _definition(name: str) -> Mapping[str, Json]:
    found: Mapping[str, Json] = settings_schema()["$defs"][name]
    return found


def _block_schema(schema: Json) -> Mapping[str, Json] | None:
    """The schema of a block of fields, found behind references and alternatives; None for a single value."""
    for form in _forms(schema):
        target = _definition(form["$ref"].rpartition("/")[2]) if "$ref" in form else form
        if target.get("type") == "object":
            return target
    return None


def _field_schema(block: Mapping[str, Json], name: str) -> Json:
    """The schema of one field of a block; {} for one that may be anything. None where there is no such field."""
    if "properties" in block:
        return block["properties"].get(name)
    for named in block.get("patternProperties", {}).values():  # pydantic checks the names themselves
        return named
    others = block.get("additionalProperties", {})
    return others if isinstance(others, Mapping) else {}


def checked_file(document: YamlDocument, *, file: str) -> FileSettings:
    """A document checked field by field; what is wrong is left out of the trees and named in `faults`.

    Beside its three sections a file may have an agent at top level, and fields of an agent, which then hold for all:
    the files of other systems are written so.
    """
    reader = _LayerReader(file, document.lines)
    faults = reader.faults
    faults += document.faults
    top = document.value if document.value is not None else {}
    if not isinstance(top, Mapping):
        faults.append(reader.fault(f"must hold blocks of settings, not {shown(top)}", ""))
        top = {}
    defaults = reader.layer(top.get("defaults"), "defaults")
    agents = reader.layers(top.get("agents"), "agents")
    fields = _definition("Agent")["properties"]
    for name, value in top.items():
        if name in SECTIONS:
            continue
        if name in fields:
            if name in defaults:
                faults.append(reader.fault(f"stands in defaults too ({_first_source(defaults[name])})", name))
                continue
            defaults |= reader.layer({name: value}, "")
            continue
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
    given = next((each for _, each in flat({"": found})), None)
    return given.source if given else "empty"


class _LayerReader:
    """Reads blocks of one file into trees, and gathers what is wrong.

    The shape of a block (its fields, its blocks within) is that of the JSON schema; its values are checked by pydantic.
    """

    def __init__(self, file: str, lines: Mapping[str, int]) -> None:
        self.faults: list[InvalidInput] = []
        self._file = file
        self._lines = lines

    def fault(self, reason: str, name: str) -> InvalidInput:
        """An error that names file, line and field."""
        return fault(reason, file=self._file, line=self._line(name), name=name)

    def _line(self, name: str) -> int | None:
        """The line of a field, or of the block around it."""
        around = name
        while around and around not in self._lines:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return self._lines.get(around)

    def layers(self, value: Json, place: str) -> dict[str, Tree]:
        """The agents or profiles of a section."""
        if value is not None and not isinstance(value, Mapping):
            self._add(_safe(value, f"must be a block of names, not {shown(value)}"), place)
            return {}
        found = {}
        for name, inner in (value or {}).items():
            if NAME.fullmatch(name):
                found[name] = self.layer(inner, f"{place}.{name}")
            else:
                self._add(NO_NAME, f"{place}.{name}")
        return found

    def layer(self, value: Json, place: str) -> Tree:
        """The fields of an agent; those that are wrong are left out."""
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
        block = _block_schema(schema)
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
            self._add(_safe(value, f"must be a block of {kind}, not {shown(value)}"), place)
            return None
        tree: Tree = {}
        for name, inner in value.items():
            field = f"{place}.{name}" if place else name
            if (inside := _field_schema(block, name)) is None:
                self._add(_unknown(name, block), field)
            elif (found := self._read(inner, inside, field)) is not None:
                tree[name] = found
        return tree

    def _leaf(self, value: Json, place: str) -> LocatedValue:
        return LocatedValue(value, place, self._file, self._line(place))

    def _drop_empty(self, tree: Tree, value: Mapping[str, Json], place: str) -> None:
        """A server or an entry with nothing in it is a mistake; with nothing right in it, it has its fault already."""
        for block, reason in _EMPTY.items():
            for name, inner in (value.get(block) or {}).items() if block in tree else ():
                if not inner and name in tree[block]:
                    self._add(reason, dotted((block, name), place))
                    del tree[block][name]

    def _drop_invalid(self, tree: Tree, place: str) -> None:
        """Leave out what pydantic refuses, until nothing is: it looks at a block once all fields in it are right."""
        while True:
            try:
                validate(plain(tree), PARTIAL)
                return
            except ValidationError as error:
                found = faults_of(error, partial=True)
            for path, reason in found:
                leaf, rest = find(tree, path)
                # In a list; blocks elsewhere were read by their schema.
                hint = _unknown(str(path[-1]), _definition("DeliveryBlock")) if reason == UNKNOWN else reason
                self._add(hint, dotted(rest, leaf.name) if isinstance(leaf, LocatedValue) else dotted(path, place))
                _drop(tree, path)
            if not found:
                return

    def _drop_secrets(self, tree: Tree) -> None:
        """A system text is prose; elsewhere a key is refused, and not repeated, or it would stand in a log as well."""
        for name, leaf in list(flat(tree)):
            if name != "system" and (inside := _secret_path(leaf.value, name.rpartition(".")[2])) is not None:
                self._add(SECRET, dotted(inside, leaf.name))
                _drop(tree, tuple(name.split(".")))

    def _check_pairs(self, tree: Tree) -> None:
        """What two fields may not say together."""
        if "system" in tree and "system_file" in tree:
            self.faults.append(tree["system_file"].wrong("system is set too: one of them"))
        allow, off = tree.get("tools", {}).get("allow"), tree.get("tools", {}).get("off")
        if allow is not None and off is not None:
            self.faults += [off.wrong(f"{name} is in allow too") for name in allow.value if name in off.value]


def _drop(tree: Tree, path: FieldPath) -> None:
    """Leave out the field at a path; of a list the whole."""
    *blocks, last = map(str, path)  # an index stands behind a list alone, where nothing is looked up
    for step in blocks:
        if not isinstance(tree.get(step), dict):
            tree.pop(step, None)
            return
        tree = tree[step]
    tree.pop(last, None)


def _secret_path(value: Json, name: str) -> FieldPath | None:
    """Where within a value something looks like a key: () for the value itself."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Mapping) and (inside := _secret_path(item, name)) is not None:
                return (index, *inside)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if (inside := _secret_path(item, str(key))) is not None:
                return (str(key), *inside)
        return None
    return () if holds_secret(value, name) else None


def _unknown(name: str, block: Mapping[str, Json]) -> str:
    fields = block["properties"]
    if "api_key_env" in fields and _KEYS.search(name.lower()):
        return "is not a setting: keys are not written here; name their environment variable as api_key_env"
    near = get_close_matches(name, fields, 1, 0.6)
    hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(fields)}"
    return f"is not a setting; {hint}"


def _safe(value: Json, reason: str) -> str:
    """The reason, unless it would repeat a key."""
    return SECRET if holds_secret(value) else reason
