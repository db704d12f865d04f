"""A settings file as a text: YAML with the line of each field, and its blocks checked field by field.

Plain words follow YAML 1.2: only `true` and `false` are truth values, so that a key `off` stays a word and a model
named 2024-11-20 is no date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

from foldline.agent.settings.checks import (
    NAME,
    NO_NAME,
    NOTHING,
    PARTIAL,
    SECRET,
    UNKNOWN,
    LocatedValue,
    Tree,
    dotted,
    fault,
    faults_of,
    holds_secret,
    leaves,
    line_of,
    quoted,
    secret_path,
    values_of,
)
from foldline.agent.settings.layers import (
    SECTIONS,
    FileSettings,
    block_schema,
    drop_field,
    field_schema,
    find_field,
    schema_definition,
    validate,
)
from foldline.agent.settings.model import OFF
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json

try:
    import yaml
except ImportError as error:
    raise MissingExtra("chat", "reading a settings file") from error

__all__ = ["MAX_BYTES", "YamlDocument", "check_document", "read_yaml"]

MAX_BYTES: Final = 256 * 1024
"""A settings file is written by hand; one this long is something else."""
MAX_DEPTH: Final = 32
# Values with aliases expanded: a few hundred bytes of nested aliases expand to billions of values.
MAX_VALUES: Final = 20_000

_LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C where it was built: 10 x
_NULL = re.compile(r"|~|null|Null|NULL")
_TRUTH: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = re.compile(r"[-+]?(?:0|[1-9](?:_?[0-9])*)")  # 0600 is 600 to one reader and 384 to another: it stays a text
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in "str int float bool null timestamp map seq merge value".split()
)
_QUOTED: Final = ("'", '"', "|", ">")
_MERGE: Final = "tag:yaml.org,2002:merge"

_KEYS = re.compile(r"key|secret|password|token$")
# What a block without fields lacks: the checks across fields would report less of it.
_EMPTY: Final = {
    "mcp": "must have a command to start, or the url of a server",
    "schedule": "must have a cron and a prompt",
}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed YAML text. `lines` maps the full name of a field, as "agents.main.policy", to its line (from 1).

    An item of a list has a name like "allow[0]". `faults` are those that do not stop the reader: duplicate keys (the
    first one counts), and keys that are no words.
    """

    value: Json
    lines: Mapping[str, int]
    faults: tuple[InvalidInput, ...] = ()


def read_yaml(data: bytes, *, file: str) -> YamlDocument:
    """Parse the single document of a YAML text. O(size). `file` is its name in errors; nothing is opened.

    Raises InvalidInput with file, line and column for invalid YAML or UTF-8, and for too long, deep or large a text.
    """
    if len(data) > MAX_BYTES:
        raise fault(f"has {len(data):,} bytes, more than {MAX_BYTES:,}: no settings file", file=file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fault("is not UTF-8 text", file=file, line=line) from None
    try:
        _check_depth(text, file)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(piece for piece in (error.context, error.problem) if piece)
        where = f"column {mark.column + 1}: " if mark else ""
        raise fault(f"{where}is not YAML: {words}", file=file, line=mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:  # an illegal character: this error has no mark
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise fault(f"is not YAML: {str(error).splitlines()[0]}", file=file, line=line) from None
    reader = _NodeReader(file)
    value = None if root is None else reader.value(root, "", ())
    return YamlDocument(value, reader.lines, tuple(reader.faults))


def _check_depth(text: str, file: str) -> None:
    """Check the nesting on events, before nodes are composed: composing recurses."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, event.start_mark.index) + 1 if event.start_mark else None
                raise fault(f"is nested more than {MAX_DEPTH} levels deep", file=file, line=line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _NodeReader:
    """Converts nodes to values, and records their lines."""

    def __init__(self, file: str) -> None:
        self.lines: dict[str, int] = {}
        self.faults: list[InvalidInput] = []
        self._file = file
        self._values = 0

    def value(self, node: yaml.Node, name: str, around: tuple[yaml.Node, ...]) -> Json:
        """Return the value of a node; `around` are its ancestors."""
        line = node.start_mark.line + 1
        # Counted with aliases expanded, since expanding is what takes time and memory.
        self._values += 1
        if self._values > MAX_VALUES:
            raise fault(f"has more than {MAX_VALUES:,} values, aliases written out", file=self._file, line=line)
        # An alias to its own ancestor would be read for ever.
        if node in around:
            raise fault("an alias stands for what it is in", file=self._file, line=line, name=name)
        if node.tag not in _TAGS:
            raise fault(f"the tag {node.tag!r} is not for settings", file=self._file, line=line, name=name)
        around = (*around, node)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[f"{name}[{index}]"] = item.start_mark.line + 1
                items.append(self.value(item, f"{name}[{index}]", around))
            return items
        return self._mapping(node, name, around) if isinstance(node, yaml.MappingNode) else None

    def _mapping(self, node: yaml.MappingNode, name: str, around: tuple[yaml.Node, ...]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        own: set[str] = set()
        for key, value, merged in self._pairs(node, around):
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                self.faults.append(fault("a key must be a word", file=self._file, line=line, name=name))
                continue
            field = f"{name}.{key.value}" if name else str(key.value)
            if key.value in found:
                if not merged and key.value in own:
                    first = self.lines[field]
                    self.faults.append(
                        fault(f"stands twice; first in line {first}", file=self._file, line=line, name=field)
                    )
                continue
            self.lines[field] = line
            found[key.value] = self.value(value, field, around)
            own.update(() if merged else (key.value,))
        return found

    def _pairs(
        self, node: yaml.MappingNode, around: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """Yield keys and values: own ones, then those of merge keys (`<<`), which own ones override."""
        merges = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merges.append(value)
            else:
                yield key, value, False
        for value in merges:
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                line = source.start_mark.line + 1
                if not isinstance(source, yaml.MappingNode) or source in around:
                    raise fault("<<: must stand for a block of fields", file=self._file, line=line)
                for key, inner, _ in self._pairs(source, (*around, source)):
                    yield key, inner, True


def _scalar(node: yaml.ScalarNode) -> Json:
    text = str(node.value)
    if node.style in _QUOTED:  # quoted, or a block of text
        return text
    if _NULL.fullmatch(text):
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if len(text) <= 40:  # a longer row of digits is no number that a setting takes
        if _WHOLE.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
    return text


def check_document(document: YamlDocument, *, file: str) -> FileSettings:
    """Check a document field by field. Faulty fields are left out of the trees and named in `faults`.

    Besides the three sections, a file may have agents at top level, and fields that hold for all agents: files of other
    systems are written this way.
    """
    reader = _LayerReader(file, document.lines)
    reader.faults += document.faults
    top = document.value if document.value is not None else {}
    if not isinstance(top, Mapping):
        reader.add(f"must hold blocks of settings, not {quoted(top)}", "")
        top = {}
    defaults = reader.layer(top.get("defaults"), "defaults")
    agents = reader.layers(top.get("agents"), "agents")
    fields = schema_definition("Agent")["properties"]
    for name, value in top.items():
        if name in SECTIONS:
            continue
        if name in fields:
            if name in defaults:
                reader.add(f"stands in defaults too ({_first_source(defaults[name])})", name)
                continue
            defaults |= reader.layer({name: value}, "")
            continue
        # At top level a wrong field could also be an agent's name: only a near miss counts as a typing error.
        near = get_close_matches(name, (*SECTIONS, *fields), 1, 0.75)
        if near or not isinstance(value, Mapping) or not NAME.fullmatch(name):
            hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(SECTIONS)}, or the name of an agent"
            reader.add(f"is not a setting; {hint}", name)
        elif name in agents:
            reader.add("is given in agents too", name)
        else:
            agents[name] = reader.layer(value, name)
    profiles = reader.layers(top.get("profiles"), "profiles")
    return FileSettings(
        file=file, defaults=defaults, agents=agents, profiles=profiles, faults=tuple(sorted(reader.faults, key=line_of))
    )


def _first_source(found: LocatedValue | Tree) -> str:
    first = next((each for _, each in leaves({"": found})), None)
    return first.source if first else "empty"


class _LayerReader:
    """Reads the blocks of one file into trees, and collects their faults.

    The JSON schema gives the shape of a block, so that unknown fields are found with their lines before pydantic, which
    knows no lines, checks the values.
    """

    def __init__(self, file: str, lines: Mapping[str, int]) -> None:
        self.faults: list[InvalidInput] = []
        self._file = file
        self._lines = lines

    def add(self, reason: str, name: str) -> None:
        """Add a fault with file, line and field."""
        self.faults.append(fault(reason, file=self._file, line=self._line(name), name=name))

    def _line(self, name: str) -> int | None:
        """Return the line of a field, or of the block around it."""
        around = name
        while around and around not in self._lines:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return self._lines.get(around)

    def layers(self, value: Json, place: str) -> dict[str, Tree]:
        """Read the agents or profiles of a section."""
        if value is not None and not isinstance(value, Mapping):
            self.add(_safe(value, f"must be a block of names, not {quoted(value)}"), place)
            return {}
        found = {}
        for name, inner in (value or {}).items():
            if NAME.fullmatch(name):
                found[name] = self.layer(inner, f"{place}.{name}")
            else:
                self.add(NO_NAME, f"{place}.{name}")
        return found

    def layer(self, value: Json, place: str) -> Tree:
        """Read the fields of an agent without faulty ones."""
        tree = self._read(value, {"$ref": "#/$defs/Agent"}, place)
        if not isinstance(tree, dict):
            return {}
        self._drop_empty(tree, value or {}, place)
        self._drop_invalid(tree, place)
        # After the values: what is dropped by then has its own fault, which does not repeat a key either.
        self._drop_secrets(tree)
        self._check_pairs(tree)
        return tree

    def _read(self, value: Json, schema: Json, place: str) -> LocatedValue | Tree | None:
        block = block_schema(schema)
        # A field without a value is a mistake, but a block is then empty, and `extra` may hold null.
        if block is None:
            return self._leaf(NOTHING if value is None and schema else value, place)
        if value is None:
            return {}
        properties = block.get("properties")
        if not isinstance(value, Mapping):
            if place.rpartition(".")[2] == "summariser" and (value is False or value == OFF):
                return self._leaf(OFF, place)
            # `model: gpt-4.1` is short for {name: gpt-4.1}; a number, since YAML reads some names as one.
            if "name" in (properties or ()) and isinstance(value, str | int | float) and not isinstance(value, bool):
                return {"name": self._leaf(value, place)}
            kind = "fields" if properties else "names"
            self.add(_safe(value, f"must be a block of {kind}, not {quoted(value)}"), place)
            return None
        tree: Tree = {}
        for name, inner in value.items():
            field = f"{place}.{name}" if place else name
            if (inside := field_schema(block, name)) is None:
                self.add(_unknown(name, block), field)
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
                    self.add(reason, dotted((block, name), place))
                    del tree[block][name]

    def _drop_invalid(self, tree: Tree, place: str) -> None:
        """Drop what pydantic refuses, repeatedly: it checks a block as a whole only once its fields are valid."""
        while True:
            try:
                validate(values_of(tree), PARTIAL)
                return
            except ValidationError as error:
                found = faults_of(error, partial=True)
            for path, reason in found:
                leaf, rest = find_field(tree, path)
                # In a list; blocks elsewhere were read by their schema.
                hint = _unknown(str(path[-1]), schema_definition("DeliveryBlock")) if reason == UNKNOWN else reason
                self.add(hint, dotted(rest, leaf.name) if isinstance(leaf, LocatedValue) else dotted(path, place))
                drop_field(tree, path)
            if not found:
                return

    def _drop_secrets(self, tree: Tree) -> None:
        """Refuse keys, without repeating them: errors end up in logs. A system text is prose, and exempt."""
        for name, leaf in list(leaves(tree)):
            if name != "system" and (inside := secret_path(leaf.value, name.rpartition(".")[2])) is not None:
                self.add(SECRET, dotted(inside, leaf.name))
                drop_field(tree, tuple(name.split(".")))

    def _check_pairs(self, tree: Tree) -> None:
        """Report fields that exclude each other."""
        if "system" in tree and "system_file" in tree:
            self.faults.append(tree["system_file"].wrong("system is set too: one of them"))
        allow, off = tree.get("tools", {}).get("allow"), tree.get("tools", {}).get("off")
        if allow is not None and off is not None:
            self.faults += [off.wrong(f"{name} is in allow too") for name in allow.value if name in off.value]


def _unknown(name: str, block: Mapping[str, Json]) -> str:
    fields = block["properties"]
    if "api_key_env" in fields and _KEYS.search(name.lower()):
        return "is not a setting: keys are not written here; name their environment variable as api_key_env"
    # 0.6 is difflib's own cutoff: among fields of one block a hint that misses does less harm than none.
    near = get_close_matches(name, fields, 1, 0.6)
    hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(fields)}"
    return f"is not a setting; {hint}"


def _safe(value: Json, reason: str) -> str:
    """Return the reason, unless it would repeat a key."""
    return SECRET if holds_secret(value) else reason
