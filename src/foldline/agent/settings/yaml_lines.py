"""YAML with the line of every field, for errors of settings.

Plain words follow YAML 1.2: only `true` and `false` are truth values, so that a key `off` stays a word and a model
named 2024-11-20 is no date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json

try:
    import yaml
except ImportError as error:
    raise MissingExtra("chat", "reading a settings file") from error

__all__ = ["MAX_BYTES", "YamlDocument", "fault", "line_of", "read_yaml", "visible"]

MAX_BYTES: Final = 256 * 1024
"""A settings file is written by hand; one this long is something else."""
MAX_DEPTH: Final = 32
# Values with aliases written out: a few hundred bytes of nested aliases stand for billions of them.
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


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed YAML text. `lines` maps the full name of a field, as "agents.main.policy", to its line (from 1).

    An item of a list has a name like "allow[0]". `faults` are those that do not stop the reader: duplicate keys (the
    first one counts), and keys that are no words.
    """

    value: Json
    lines: Mapping[str, int]
    faults: tuple[InvalidInput, ...] = ()


def fault(reason: str, *, file: str, line: int | None = None, name: str = "") -> InvalidInput:
    """An InvalidInput whose place is "agents.yaml: line 12: agents.main.policy".

    Text of the file in it is made safe for a terminal: the file may be a stranger's.
    """
    place = ": ".join(piece for piece in (file, f"line {line}" if line else "", visible(name)) if piece)
    return InvalidInput(visible(reason, 600), place=place or None)


def line_of(error: InvalidInput) -> int:
    """The line that an error of `fault` names; 0 for none."""
    digits = (error.place or "").partition(": line ")[2].partition(":")[0]
    return int(digits) if len(digits) <= 12 and digits.isascii() and digits.isdigit() else 0  # a path may have any


def visible(text: str, most: int = 160) -> str:
    """Return a text as one line of bounded length without control characters."""
    shown = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


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
