"""What a settings file may hold: the check of each field, and the blocks that fields stand in.

A check takes the parsed value and returns the value that counts, or raises InvalidInput with the reason alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from foldline.agent.settings import policy_names, variables_out
from foldline.codecs import DIALECTS
from foldline.errors import InvalidInput
from foldline.failures.redaction import redact
from foldline.messages import Json
from foldline.settings import (
    CheckpointSettings,
    ContextSettings,
    SessionSettings,
    compact_threshold,
    session_settings,
)

__all__ = ["AGENT", "NAME", "Block", "Check", "Named", "Spec", "looks_secret", "shown"]

Check: TypeAlias = Callable[[Json], Any]
"""Returns the value that counts. Raises InvalidInput with a reason and no place."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SERVER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")  # it stands before the names of its tools
MOST_TOKENS: Final = 100_000_000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    """A block whose fields have names of the user's choice, each of the same kind; `names` is what one looks like."""

    each: Spec
    names: re.Pattern[str] | None = None


Spec: TypeAlias = Check | Block | Named


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
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value):
        raise InvalidInput(f"must be the name of an environment variable, not {shown(value)}")
    return value


def anything(value: Json) -> Json:
    """Any value."""
    return value


def _context(name: str, *, is_flag: bool) -> Check:
    """A field of `session.context`, as the settings of a session check it."""

    def check(value: Json) -> Any:
        try:
            block = {"context": {name: flag(value) if is_flag else value}}
            return getattr(session_settings(block).context, name)
        except InvalidInput as error:
            raise InvalidInput(error.reason) from None

    return check


def _session(name: str) -> Check:
    def check(value: Json) -> Any:
        try:
            return getattr(session_settings({name: value}), name)
        except InvalidInput as error:
            raise InvalidInput(error.reason) from None

    return check


def _checkpoint(name: str, *, is_flag: bool) -> Check:
    def check(value: Json) -> Any:
        given: dict[str, Any] = {name: flag(value) if is_flag else value}
        try:
            return getattr(CheckpointSettings(**given), name)
        except InvalidInput as error:
            raise InvalidInput(error.reason) from None

    return check


def _threshold(value: Json) -> float:
    if value is None:
        raise InvalidInput("must be above 0 and at most 1, not nothing")
    try:
        given: Any = value
        return compact_threshold(given)
    except InvalidInput as error:
        raise InvalidInput(error.reason) from None


CONTEXT: Final = Block(
    {
        **{f.name: _context(f.name, is_flag=isinstance(f.default, bool)) for f in fields(ContextSettings)},
        "tool_result_limits": Named(whole(1), NAME),
    }
)
SESSION: Final = Block(
    {**{f.name: _session(f.name) for f in fields(SessionSettings) if f.name != "context"}, "context": CONTEXT}
)
MODEL: Final[Mapping[str, Spec]] = {
    "provider": word,
    "name": word,
    "base_url": url,
    "dialect": one_of(*DIALECTS),
    "api_key_env": variable,
    "max_input_tokens": whole(1),
    "max_output_tokens": whole(1),
    "tools": one_of("native", "schema"),
    "extra": Named(anything),
}
POLICY: Final = Block(
    {
        "name": one_of(*policy_names()),
        "auto": flag,
        "trigger": number(0, 1),
        "landing": number(0, 1),
        "keep_recent": whole(0),
        "max_context_bytes": whole(1),
        "describe": flag,
        "tokens": whole(2),
        "messages": whole(2),
        "turns": whole(2),
        "retention_messages": whole(0),
        **{
            f.name: _checkpoint(f.name, is_flag=isinstance(f.default, bool))
            for f in fields(CheckpointSettings)
            if f.name != "keep_recent"  # the autopilot has it too, with the same bounds
        },
        "large_output_chars": whole(1),
        "output_max_lines": whole(1),
        "output_max_bytes": whole(1),
        "output_max_chars": whole(1),
        "output_mode": one_of("head", "head_tail"),
    },
    short="name",
)
TOOLS: Final = Block(
    {
        "allow": tool_names,
        "off": tool_names,
        "max_result_tokens": Named(whole(1), NAME),
        "command_timeout_seconds": number(0, 86_400),
        "allow_private_urls": flag,
    }
)
SERVER: Final = Block(
    {
        "command": word,
        "args": texts,
        "env": Named(env_value, _ENV_NAME),
        "url": url,
        "headers": Named(word, re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")),  # a token of RFC 9110, section 5.6.2
        "allow": flag,
    }
)
AGENT: Final = Block(
    {
        "model": Block(MODEL, short="name"),
        "policy": POLICY,
        "compact_threshold": _threshold,
        "counter": one_of("estimate", "chars", "exact"),
        "summariser": Block(MODEL, short="name", off=True),
        "system": text,
        "system_file": word,
        "session": SESSION,
        "tools": TOOLS,
        "subagents": Block({"max_depth": whole(0, 8), "max_number": whole(0, 1_000)}),
        "mcp": Named(SERVER, _SERVER_NAME),
    }
)
"""What may be set for an agent: in `agents.NAME`, `defaults` and `profiles.NAME` alike."""
