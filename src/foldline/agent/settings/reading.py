"""What a settings file says, checked field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from foldline.agent.settings.checks import AGENT, NAME, Block, Listed, Named, Spec, looks_secret, shown
from foldline.agent.settings.tree import OFF, Given, Tree, flat, plain
from foldline.agent.settings.yaml_lines import Document, fault
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["FileSettings", "checked_file"]


SECTIONS: Final = ("defaults", "agents", "profiles")


_KEYS = re.compile(r"key|secret|password|token$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """What one file says: what holds for every agent, for some, and under which profile. `faults` in order of lines."""

    file: str
    defaults: Tree
    agents: Mapping[str, Tree]
    profiles: Mapping[str, Tree]
    faults: tuple[InvalidInput, ...] = ()


def checked_file(document: Document, *, file: str) -> FileSettings:
    """A document checked field by field; what is wrong is left out of the trees and named in `faults`.

    Beside its three sections a file may have an agent at top level, and fields of an agent, which then hold for all:
    the files of other systems are written so.
    """
    checker = _Checker(file, document.lines)
    faults = checker.faults
    faults += document.faults
    top = document.value if document.value is not None else {}
    if not isinstance(top, Mapping):
        faults.append(checker.wrong(f"must hold blocks of settings, not {shown(top)}", ""))
        top = {}
    defaults: Tree = checker.block(top.get("defaults"), AGENT, "defaults")
    agents = checker.named(top.get("agents"), "agents")
    for name, value in top.items():
        if name in SECTIONS:
            continue
        if name in AGENT.fields:
            if name in defaults:
                faults.append(checker.wrong(f"stands in defaults too ({_first(defaults[name])})", name))
                continue
            defaults |= checker.block({name: value}, AGENT, "")
            continue
        near = get_close_matches(name, (*SECTIONS, *AGENT.fields), 1, 0.75)
        if near or not isinstance(value, Mapping) or not NAME.fullmatch(name):
            hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(SECTIONS)}, or the name of an agent"
            faults.append(checker.wrong(f"is not a setting; {hint}", name))
        elif name in agents:
            faults.append(checker.wrong("is given in agents too", name))
        else:
            agents[name] = checker.block(value, AGENT, name)
    return FileSettings(
        file=file,
        defaults=defaults,
        agents=agents,
        profiles=checker.named(top.get("profiles"), "profiles"),
        faults=tuple(faults),
    )


def _first(found: Given | Tree) -> str:
    given = next((each for _, each in flat({"": found})), None)
    return given.source if given else "empty"


class _Checker:
    """Checks values of one file and gathers what is wrong."""

    def __init__(self, file: str, lines: Mapping[str, int]) -> None:
        self.faults: list[InvalidInput] = []
        self._file = file
        self._lines = lines

    def line(self, name: str) -> int | None:
        """The line of a field, or of the block around it."""
        around = name
        while around and around not in self._lines:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return self._lines.get(around)

    def wrong(self, reason: str, name: str) -> InvalidInput:
        """An error that names file, line and field."""
        return fault(reason, file=self._file, line=self.line(name), name=name)

    def named(self, value: Json, place: str) -> dict[str, Tree]:
        """The agents or profiles of a section."""
        found = self._field(value, Named(AGENT, NAME), place)
        return found if isinstance(found, dict) else {}

    def block(self, value: Json, spec: Block, place: str) -> Tree:
        """A block of known fields; one that is empty or wrong is {}."""
        found = self._field(value, spec, place)
        return found if isinstance(found, dict) else {}

    def _field(self, value: Json, spec: Spec, place: str) -> Given | Tree | None:
        if isinstance(spec, Block):
            return self._block(value, spec, place)
        if isinstance(spec, Named):
            return self._named(value, spec, place)
        if isinstance(spec, Listed):
            return self._listed(value, spec, place)
        try:
            # A system text is prose; elsewhere the value is not repeated, or it would stand in a log as well.
            if spec is not AGENT.fields["system"] and _holds_secret(value, place.rpartition(".")[2]):
                raise InvalidInput(
                    "holds what looks like a key: keys are not written here; "
                    "name their environment variable (api_key_env, secret_env, or ${NAME} in env, headers and webhook)"
                )
            return Given(spec(value), place, self._file, self.line(place))
        except InvalidInput as error:
            self.faults.append(self.wrong(error.reason, place))
            return None

    def _block(self, value: Json, spec: Block, place: str) -> Given | Tree | None:
        if spec.off and (value is False or value == OFF):
            return Given(OFF, place, self._file, self.line(place))
        if spec.short is not None and isinstance(value, str | int | float) and not isinstance(value, bool):
            found = self._field(value, spec.fields[spec.short], place)
            return None if found is None else {spec.short: found}
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.faults.append(self.wrong(f"must be a block of fields, not {_safe(value)}", place))
            return None
        tree: Tree = {}
        for name, inner in value.items():
            field = f"{place}.{name}" if place else name
            if name not in spec.fields:
                self.faults.append(self.wrong(_unknown(name, spec), field))
            elif (found := self._field(inner, spec.fields[name], field)) is not None:
                tree[name] = found
        self._together(tree)
        return tree

    def _named(self, value: Json, spec: Named, place: str) -> Tree | None:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.faults.append(self.wrong(f"must be a block of names, not {_safe(value)}", place))
            return None
        tree: Tree = {}
        for name, inner in value.items():
            field = f"{place}.{name}"
            if spec.names is not None and not spec.names.fullmatch(name):
                self.faults.append(
                    self.wrong("is no name: letters, digits, _ and -, at most 64 (a server: 32), no digit first", field)
                )
            elif (found := self._field(inner, spec.each, field)) is not None:
                tree[name] = found
                if spec.empty and not inner:
                    self.faults.append(self.wrong(spec.empty, field))
                    del tree[name]
        return tree

    def _listed(self, value: Json, spec: Listed, place: str) -> Given | None:
        """A list of blocks, as one value: of two files the stronger one's list counts whole."""
        if not isinstance(value, list):
            self.faults.append(self.wrong(f"must be a list of blocks, not {_safe(value)}", place))
            return None
        if len(value) > spec.most:
            self.faults.append(self.wrong(f"must have at most {spec.most}, not {len(value)}", place))
            return None
        made = []
        for index, item in enumerate(value):
            field, before = f"{place}[{index}]", len(self.faults)
            tree = self.block(item, spec.each, field)
            if len(self.faults) == before:  # what is wrong already is not also missing
                try:
                    made.append(spec.made(plain(tree)))
                except InvalidInput as error:
                    self.faults.append(self.wrong(error.reason, f"{field}.{error.place}" if error.place else field))
        return Given(tuple(made), place, self._file, self.line(place))

    def _together(self, tree: Tree) -> None:
        """What two fields of one block may not say."""
        if "system" in tree and "system_file" in tree:
            self.faults.append(tree["system_file"].wrong("system is set too: one of them"))
        allow, off = tree.get("allow"), tree.get("off")
        if isinstance(allow, Given) and isinstance(off, Given):
            both = [name for name in allow.value if name in off.value]
            self.faults += [off.wrong(f"{name} is in allow too") for name in both]


def _unknown(name: str, spec: Block) -> str:
    if "api_key_env" in spec.fields and _KEYS.search(name.lower()):
        return "is not a setting: keys are not written here; name their environment variable as api_key_env"
    near = get_close_matches(name, spec.fields, 1, 0.6)
    hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(spec.fields)}"
    return f"is not a setting; {hint}"


def _holds_secret(value: Json, name: str = "") -> bool:
    if isinstance(value, str):
        return looks_secret(name, value)
    if isinstance(value, Mapping):
        return any(_holds_secret(inner, str(key)) for key, inner in value.items())
    return isinstance(value, list) and any(map(_holds_secret, value))


def _safe(value: Json) -> str:
    return "this" if _holds_secret(value) else shown(value)
