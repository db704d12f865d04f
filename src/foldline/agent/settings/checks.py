"""What a settings file may hold: the blocks that fields stand in, with the check of each field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from foldline.agent.settings.entry import ENTRY
from foldline.agent.settings.specs import (
    ENV_NAME,
    NAME,
    Block,
    Check,
    Listed,
    Named,
    Spec,
    anything,
    env_value,
    flag,
    looks_secret,
    number,
    one_of,
    shown,
    text,
    texts,
    tool_names,
    url,
    user_ids,
    variable,
    whole,
    word,
)
from foldline.agent.settings.values import policy_names
from foldline.codecs import DIALECTS
from foldline.engine.settings import (
    CheckpointSettings,
    ContextSettings,
    SessionSettings,
    compact_threshold,
    session_settings,
)
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["AGENT", "NAME", "Block", "Check", "Listed", "Named", "Spec", "looks_secret", "shown"]

_SERVER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")  # it stands before the names of its tools


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
        "keep": number(0, 1),
        "arrival_share": number(0, 1),
        "arrival_of_result": number(0, 1),
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
        "env": Named(env_value, ENV_NAME),
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
        "keep_calls": whole(1),
        "system": text,
        "system_file": word,
        "session": SESSION,
        "tools": TOOLS,
        "subagents": Block({"max_depth": whole(0, 8), "max_number": whole(0, 1_000)}),
        "mcp": Named(SERVER, _SERVER_NAME, "must have a command to start, or the url of a server"),
        "telegram": Block({"users": user_ids}),
        "schedule": Named(ENTRY, NAME, "must have a cron and a prompt"),
    }
)
"""What may be set for an agent: in `agents.NAME`, `defaults` and `profiles.NAME` alike."""
