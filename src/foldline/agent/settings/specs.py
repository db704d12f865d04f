"""Of what the blocks of a settings file are made: checks of single values, and how blocks hold them.

A check takes the parsed value and returns the value that counts, or raises InvalidInput with the reason alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from foldline.agent.settings.values import variables_out
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.redaction import redact

__all__ = [
    "ENV_NAME",
    "NAME",
    "Block",
    "Check",
    "Listed",
    "Named",
    "Spec",
    "anything",
    "env_value",
    "flag",
    "looks_secret",
    "number",
    "one_of",
    "shown",
    "text",
    "texts",
    "tool_names",
    "url",
    "user_ids",
    "variable",
    "whole",
    "word",
]

Check: TypeAlias = Callable[[Json], Any]
"""Returns the value that counts. Raises InvalidInput with a reason and no place."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
MOST_TOKENS: Final = 100_000_000
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: Final = {"yes": True, "on": True, "no": False, "off": False}


def looks_secret(name: str, value: str) -> bool:
    """Whether a value has the shape of a key or token, or the name of one and is no `${NAME}`."""
    plain = variables_out(value)
    return redact(plain) != plain or redact(f"{name}: {plain}") != f"{name}: {plain}"


def shown(value: Json) -> str:
    """A value in an error: short, and on one line."""
    return "nothing" if value is None else repr(value)[:80]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of known fields. A word in its place stands for its field `short`; with `off`, `off` is allowed too."""

    fields: Mapping[str, Spec]
    short: str | None = None
    off: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A block whose fields have names of the user's choice, each of the same kind; `names` is what one looks like.

    `empty` is what is wrong with one that has nothing in it; "" where that is allowed.
    """

    each: Spec
    names: re.Pattern[str] | None = None
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of blocks, at most `most`; `made` makes a value of the fields of one, or raises InvalidInput."""

    each: Block
    made: Callable[[Mapping[str, Any]], Any]
    most: int = 16


Spec: TypeAlias = Check | Block | Named | Listed


def whole(least: int, most: int = MOST_TOKENS) -> Check:
    """A whole number in a range."""

    def check(value: Json) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"must be a whole number, not {shown(value)}")
        if not least <= value <= most:
            raise InvalidInput(f"must be from {least:,} to {most:,}, not {value}")
        return value

    return check


def _number(value: Json, above: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"must be a number, not {shown(value)}")
    if not above < value <= most:
        raise InvalidInput(f"must be above {above:g} and at most {most:,g}, not {value:g}")
    return float(value)


def number(above: float, most: float) -> Check:
    """A number above one bound, at most the other."""
    return lambda value: _number(value, above, most)


def flag(value: Json) -> bool:
    """True or false; yes, no, on and off are understood."""
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if not isinstance(value, bool):
        raise InvalidInput(f"must be true or false, not {shown(value)}")
    return value


def text(value: Json) -> str:
    """A text that is not empty; a number in its place is taken for its digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"must be a text, not {shown(value)}")
    return value


def word(value: Json) -> str:
    """A text of one line."""
    found = text(value).strip()
    if not found.isprintable() or len(found) > 4_096:
        raise InvalidInput("must be a text of one line, without control characters")
    return found


def env_value(value: Json) -> str:
    """The value of an environment variable; it may be empty."""
    return "" if value == "" else text(value)


def texts(value: Json) -> tuple[str, ...]:
    """A list of texts of one line; empty ones may be among them."""
    if not isinstance(value, list):
        raise InvalidInput(f"must be a list of texts, not {shown(value)}")
    return tuple("" if item == "" else word(item) for item in value)


def tool_names(value: Json) -> tuple[str, ...]:
    """A list of names of tools."""
    if not isinstance(value, list):
        raise InvalidInput(f"must be a list of names of tools, not {shown(value)}")
    for item in value:
        if not isinstance(item, str) or not NAME.fullmatch(item):
            raise InvalidInput(f"must be a list of names of tools; {shown(item)} is none")
    return tuple(dict.fromkeys(value))


def user_ids(value: Json) -> tuple[int, ...]:
    """A list of ids of users on Telegram: whole numbers of at most 52 bits, as its Bot API says; no names."""
    if not isinstance(value, list):
        raise InvalidInput(f"must be a list of ids of users, not {shown(value)}")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 < item < 2**52:
            raise InvalidInput(f"must be a list of ids of users, which are numbers; {shown(item)} is none")
    return tuple(dict.fromkeys(value))


def one_of(*known: str) -> Check:
    """One of some words."""

    def check(value: Json) -> str:
        if not isinstance(value, str) or value not in known:
            raise InvalidInput(f"must be one of {', '.join(known)}, not {shown(value)}")
        return value

    return check


def url(value: Json) -> str:
    """An http or https address without a password in it."""
    found = word(value)
    try:
        parts = urlsplit(found)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in found):
        raise InvalidInput(f"must be an http or https address, not {shown(value)}")
    if parts.username or parts.password:
        raise InvalidInput("must hold no user or password")
    return found


def variable(value: Json) -> str:
    """The name of an environment variable."""
    if not isinstance(value, str) or not ENV_NAME.fullmatch(value):
        raise InvalidInput(f"must be the name of an environment variable, not {shown(value)}")
    return value


def anything(value: Json) -> Json:
    """Any value."""
    return value
