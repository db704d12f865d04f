"""The types of settings for pydantic: checks of single values, frozen blocks of fields, and its errors as ours.

A check takes a parsed value and returns the converted one, or raises InvalidInput with only a reason: pydantic adds the
field. Its own messages would name Python types, and repeat a value that may be a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar, dataclass_transform
from urllib.parse import urlsplit

import pydantic.dataclasses
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.redaction import redact

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
MAX_TOKENS: Final = 100_000_000
_SERVER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")  # it stands before the names of its tools
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a token of RFC 9110, section 5.6.2
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# YAML 1.1 has these for truth values; 1.2, which we read, has words.
_TRUTH_WORDS: Final = {"yes": True, "on": True, "no": False, "off": False}


UNKNOWN: Final = "is not a setting"
SECRET: Final = (
    "holds what looks like a key: keys are not written here; "
    "name their environment variable (api_key_env, secret_env, or ${NAME} in env, headers and webhook)"
)
NO_NAME: Final = "is no name: letters, digits, _ and -, at most 64 (a server: 32), no digit first"
PARTIAL: Final = "partial"
"""The context of validating one layer, without the checks across fields: other layers may complete it."""
WHOLE: Final = "whole"
"""The context of validating all layers together. Without a context the values come from code."""

T = TypeVar("T")
FieldPath: TypeAlias = tuple[str | int, ...]


class _Nothing:
    """A field of a file without a value. None would pass for "not set", which only code may say."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()
"""The value of a field that a file names without one."""


@dataclass(frozen=True, slots=True, eq=False)  # by identity: typing hashes what stands in Annotated
class Check:
    """The type of a field for pydantic: `read` checks and converts a value, `schema` is its JSON schema.

    `read` is idempotent: copies of settings with changes are checked again.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Json]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's own validation, which would take "3" and true for numbers."""
        del source, handler
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Json]:
        """Return the JSON schema of the field."""
        del schema, handler
        return dict(self.schema)


def variable_names(value: str) -> list[str]:
    """Return the names in the `${NAME}` of a value."""
    return _VARIABLE.findall(value)


def substitute_variables(value: str, environ: Mapping[str, str]) -> str:
    """Replace each `${NAME}` in one pass: substituted values are not expanded again."""
    return _VARIABLE.sub(lambda found: environ[found[1]], value)


def looks_secret(name: str, value: str) -> bool:
    """Return whether a value looks like a key or token, by its shape or its field, `${NAME}` aside."""
    plain = _VARIABLE.sub("", value)
    return redact(plain) != plain or redact(f"{name}: {plain}") != f"{name}: {plain}"


def holds_secret(value: Json, name: str = "") -> bool:
    """Return whether a value, or any value inside it, looks like a key. O(size)."""
    if isinstance(value, str):
        return looks_secret(name, value)
    if isinstance(value, Mapping):
        return any(holds_secret(inner, str(key)) for key, inner in value.items())
    return isinstance(value, list) and any(map(holds_secret, value))


def secret_path(value: Json, name: str) -> FieldPath | None:
    """Return where inside a value something looks like a key, () for the value itself. None if nothing does."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Mapping) and (inside := secret_path(item, name)) is not None:
                return (index, *inside)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if (inside := secret_path(item, str(key))) is not None:
                return (str(key), *inside)
        return None
    return () if holds_secret(value, name) else None


def quoted(value: Json) -> str:
    """Return a value for an error: short, on one line."""
    # Cut: an error is one line, and a pasted value may be a whole document.
    return "nothing" if value is None else repr(value)[:80]


def whole(least: int, most: int | None = MAX_TOKENS) -> Check:
    """A check for a whole number in a range."""

    def read(value: Json) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"must be a whole number, not {quoted(value)}")
        if most is not None and not least <= value <= most:
            raise InvalidInput(f"must be from {least:,} to {most:,}, not {value}")
        if value < least:
            raise InvalidInput(f"must be {'greater than 0' if least == 1 else f'{least} or more'}, not {value}")
        return value

    return Check(read, {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most}))


def number(above: float, most: float) -> Check:
    """A check for a number above one bound and at most another."""
    return _between(f"above {above:g}", lambda value: above < value, {"exclusiveMinimum": above}, most)


def number_from(least: float, most: float) -> Check:
    """A check for a number from one bound to another."""
    return _between(f"{least:g} or more", lambda value: least <= value, {"minimum": least}, most)


def _between(words: str, is_enough: Callable[[float], bool], schema: Mapping[str, Json], most: float) -> Check:
    def read(value: Json) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"must be a number, not {quoted(value)}")
        if not (is_enough(value) and value <= most):
            raise InvalidInput(f"must be {words} and at most {most:,g}, not {value:g}")
        return float(value)

    return Check(read, {"type": "number", **schema, "maximum": most})


def one_of(*words: str) -> Check:
    """A check for one of some words. Literal does the same for words that the type checker knows."""

    def read(value: Json) -> str:
        if not isinstance(value, str) or value not in words:
            raise InvalidInput(f"must be one of {', '.join(words)}, not {quoted(value)}")
        return value

    return Check(read, {"type": "string", "enum": list(words)})


def _flag(value: Json) -> bool:
    if isinstance(value, str) and value.lower() in _TRUTH_WORDS:
        return _TRUTH_WORDS[value.lower()]
    if not isinstance(value, bool):
        raise InvalidInput(f"must be true or false, not {quoted(value)}")
    return value


def _text(value: Json) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # a model named 4.1 is read as a number
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"must be a text, not {quoted(value)}")
    return value


def word(value: Json) -> str:
    """A text of one line."""
    found = _text(value).strip()
    if not found.isprintable() or len(found) > 4_096:
        raise InvalidInput("must be a text of one line, without control characters")
    return found


def _env_value(value: Json) -> str:
    return value if isinstance(value, str) else _text(value)


def _texts(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"must be a list of texts, not {quoted(value)}")
    return tuple("" if item == "" else word(item) for item in value)


def _tool_names(value: Json) -> frozenset[str]:
    if not isinstance(value, list | tuple | frozenset):
        raise InvalidInput(f"must be a list of names of tools, not {quoted(value)}")
    for item in value:
        if not isinstance(item, str) or not NAME.fullmatch(item):
            raise InvalidInput(f"must be a list of names of tools; {quoted(item)} is none")
    return frozenset(value)


def _user_ids(value: Json) -> tuple[int, ...]:
    """Whole numbers of at most 52 bits, as Telegram's Bot API says; no names."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"must be a list of ids of users, not {quoted(value)}")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 < item < 2**52:
            raise InvalidInput(f"must be a list of ids of users, which are numbers; {quoted(item)} is none")
    return tuple(dict.fromkeys(value))


def url(value: Json) -> str:
    """An http or https address without a password in it."""
    found = word(value)
    try:
        parts = urlsplit(found)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in found):
        raise InvalidInput(f"must be an http or https address, not {quoted(value)}")
    if parts.username or parts.password:
        raise InvalidInput("must hold no user or password")
    return found


def _variable_name(value: Json) -> str:
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value):
        raise InvalidInput(f"must be the name of an environment variable, not {quoted(value)}")
    return value


def _key(pattern: re.Pattern[str]) -> Check:
    def read(value: Json) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidInput(NO_NAME)
        return value

    return Check(read, {"type": "string", "pattern": f"^{pattern.pattern}$"})


_STRING: Final[Mapping[str, Json]] = {"type": "string"}
_STRINGS: Final[Mapping[str, Json]] = {"type": "array", "items": _STRING}

Flag: TypeAlias = Annotated[bool, Check(_flag, {"type": "boolean"})]
Share: TypeAlias = Annotated[float, number(0, 1)]
Count: TypeAlias = Annotated[int, whole(1)]
Amount: TypeAlias = Annotated[int, whole(0, None)]
Text: TypeAlias = Annotated[str, Check(_text, _STRING)]
Word: TypeAlias = Annotated[str, Check(word, _STRING)]
Url: TypeAlias = Annotated[str, Check(url, {"type": "string", "format": "uri"})]
VariableName: TypeAlias = Annotated[str, Check(_variable_name, {"type": "string", "pattern": _ENV_NAME.pattern})]
EnvValue: TypeAlias = Annotated[str, Check(_env_value, _STRING)]
Texts: TypeAlias = Annotated[tuple[str, ...], Check(_texts, _STRINGS)]
ToolNames: TypeAlias = Annotated[frozenset[str], Check(_tool_names, {**_STRINGS, "uniqueItems": True})]
UserIds: TypeAlias = Annotated[
    tuple[int, ...], Check(_user_ids, {"type": "array", "items": {"type": "integer", "minimum": 1}})
]
Name: TypeAlias = Annotated[str, _key(NAME)]
ServerName: TypeAlias = Annotated[str, _key(_SERVER_NAME)]
HeaderName: TypeAlias = Annotated[str, _key(_HEADER_NAME)]
VariableKey: TypeAlias = Annotated[str, _key(_ENV_NAME)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def settings_block(cls: type[T]) -> type[T]:
    """A frozen dataclass whose fields pydantic checks. Made in code, a bad value raises InvalidInput naming the field.

    A dataclass and not a BaseModel: settings are copied by `dataclasses.replace`, and compared by their values alone.
    """
    # By both names: a file says max_late, code max_late_seconds.
    config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)
    block = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, slots=True, config=config)(cls)
    init = block.__init__

    # Pydantic validates nested blocks without calling their __init__, so that an inner error keeps its whole path.
    def __init__(self: T, **values: Any) -> None:  # noqa: N807 - takes the place of a method
        try:
            init(self, **values)
        except ValidationError as error:
            path, reason = faults_of(error)[0]
            raise InvalidInput(reason, place=dotted(path) or None) from None

    block.__init__ = __init__  # type: ignore[assignment]
    return block  # type: ignore[return-value]


def dotted(path: FieldPath, start: str = "") -> str:
    """Return a path for an error: "schedule.a.deliver[0].file"."""
    for step in path:
        start = f"{start}[{step}]" if isinstance(step, int) else f"{start}.{step}" if start else step
    return start


def faults_of(error: ValidationError, *, partial: bool = False) -> list[tuple[FieldPath, str]]:
    """Return (path, reason) of each error. With `partial`, missing fields are none: another layer may have them."""
    # Without the links to pydantic's own pages, which explain Python types and not settings.
    found = error.errors(include_url=False)
    return [_fault(each) for each in found if not (partial and each["type"] == "missing")]


def _fault(error: ErrorDetails) -> tuple[FieldPath, str]:
    path, value = error["loc"], error["input"]
    if path and path[-1] == "[key]":  # pydantic's mark for the name of a field, not its value
        path = path[:-1]
    if error["type"] == "missing":
        return path[:-1], f"must have a {path[-1]}"
    if error["type"] == "unexpected_keyword_argument":
        return path, UNKNOWN
    # Before any message that would quote the value: errors end up in logs and in screenshots.
    if holds_secret(value, str(path[-1]) if path else ""):
        return path, SECRET
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, InvalidInput):  # a block names the field that does not go with the others
        return (*path, *(inner.place.split(".") if inner.place else ())), inner.reason
    if error["type"] == "literal_error":
        words = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return path, f"must be one of {', '.join(words)}, not {quoted(value)}"
    kind = "a block of fields" if error["type"] in ("dataclass_type", "mapping_type", "dict_type") else error["msg"]
    return path, f"must be {kind}, not {quoted(value)}"


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
