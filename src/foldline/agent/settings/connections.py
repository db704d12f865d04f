"""The connections of an agent: MCP servers, its schedule and the destinations of results, and its bot on Telegram."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import Field, GetCoreSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, core_schema

from foldline.agent.settings.checks import (
    NAME,
    PARTIAL,
    Check,
    EnvValue,
    Flag,
    HeaderName,
    Text,
    Texts,
    Url,
    UserIds,
    VariableKey,
    VariableName,
    Word,
    one_of,
    quoted,
    settings_block,
    substitute_variables,
    url,
    variable_names,
    whole,
    word,
)
from foldline.engine.presets import policy_names
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.recording import ID
from foldline.text.cron import Cron

__all__ = [
    "NEW",
    "TELEGRAM_TOKEN",
    "Delivery",
    "McpSettings",
    "ScheduleSettings",
    "TelegramSettings",
    "ToFile",
    "ToTelegram",
    "ToWebhook",
    "delivery_variables",
]

NEW: Final = "new"
"""As the session of an entry: another one for each run."""

TELEGRAM_TOKEN: Final = "FOLDLINE_TELEGRAM_TOKEN"
"""The environment variable of the bot's token."""

_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_DELIVERIES: Final = 16


@settings_block
class McpSettings:
    """One MCP server: a `command` that is started, or the `url` of one that runs.

    Values of `env` and `headers` may hold `${NAME}`: only `resolved` inserts values of the environment, so that
    settings never hold secrets.
    """

    command: Word | None = Field(default=None, description="A program to start.")
    args: Texts = Field(default=(), description="Its arguments.")
    env: Mapping[VariableKey, EnvValue] = Field(
        default_factory=dict, description="Its environment, added to what every program gets."
    )
    url: Url | None = Field(default=None, description="Or the address of a server that runs.")
    headers: Mapping[HeaderName, Word] = Field(default_factory=dict, description="Headers of each request to it.")
    allow: Flag = Field(default=False, description="Its tools run without asking a person.")

    @model_validator(mode="after")
    def _is_one_server(self, info: ValidationInfo) -> McpSettings:
        # One layer may have the command and another its arguments: only all layers together can be judged.
        if info.context == PARTIAL:
            return self
        if (self.command is None) == (self.url is None):
            raise InvalidInput("must have a command to start, or the url of a server, and not both")
        # Refused, not ignored: a key in `env` of a remote server would look as if it were sent.
        for name in ("args", "env") if self.url is not None else ("headers",):
            if getattr(self, name):
                kind = "url" if self.url is not None else "command"
                raise InvalidInput(f"is of no use to a server with a {kind}", place=name)
        return self

    def missing(self, environ: Mapping[str, str]) -> list[tuple[str, str]]:
        """(field, variable) of each `${NAME}` that the environment does not have."""
        return [
            (f"{block}.{name}", variable)
            for block, values in (("env", self.env), ("headers", self.headers))
            for name, value in values.items()
            for variable in variable_names(value)
            if variable not in environ
        ]

    def resolved(self, environ: Mapping[str, str]) -> McpSettings:
        """With each `${NAME}` replaced. Raises InvalidInput that names the field and the variable that is missing."""
        for name, variable in self.missing(environ):
            raise InvalidInput(f"the environment has no {variable}", place=name)

        def filled(values: Mapping[str, str]) -> Mapping[str, str]:
            return {name: substitute_variables(value, environ) for name, value in values.items()}

        return replace(self, env=filled(self.env), headers=filled(self.headers))


@settings_block
class TelegramSettings:
    """Who may write to the agent on Telegram, by their ids; by default nobody."""

    users: UserIds = Field(default=(), description="Ids of those who get an answer.")


def _read_cron(value: Json) -> Cron:
    return value if isinstance(value, Cron) else Cron.read(word(value))


def _timezone(value: Json) -> str:
    found = word(value)
    try:
        ZoneInfo(found)
    except (KeyError, ValueError, OSError):  # no such zone; a path; a folder of zones
        raise InvalidInput(f"must be a time zone like Europe/Berlin, not {quoted(value)}") from None
    return found


def _session_name(value: Json) -> str:
    found = word(value)
    if not NAME.fullmatch(found) and not ID.fullmatch(found):
        raise InvalidInput(f"must be a name, new, or the id of a session, not {quoted(value)}")
    return found


class _FileCheck(Check):
    """A check of values from files alone. In code a duration is a number, and a zone may belong to another machine."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.with_info_plain_validator_function(
            lambda value, info: value if info.context is None else self.read(value)
        )


def _seconds(value: Json) -> float:
    """Parse seconds from a text like 90s, 30m, 12h or 2d: a number names no unit."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise InvalidInput(f"must be a time like 90s, 30m, 12h or 2d, not {quoted(value)}")
    return float(int(match[1]) * _SECONDS[match[2]])


def _file(value: Json) -> str:
    found = word(value)
    # Both kinds of paths on every system: a file of settings moves between machines.
    pure = PurePosixPath(found)
    if pure.is_absolute() or PureWindowsPath(found).anchor or ".." in pure.parts or not pure.name:
        raise InvalidInput(f"must be a path of a file within the workspace, not {quoted(value)}")
    # Other braces are refused now, so that a later version can give them a meaning.
    if "{" in (rest := found.replace("{date}", "")) or "}" in rest:
        raise InvalidInput(f"may have {{date}} in it and no other braces, not {quoted(value)}")
    return found


def _webhook(value: Json) -> str:
    found = url(value)
    host, scheme = urlsplit(found).hostname or "", urlsplit(found).scheme
    # A variable in the host would let the environment decide who gets the result.
    if "$" in urlsplit(found).netloc:
        raise InvalidInput("must name its host: ${NAME} may stand behind it only")
    if scheme != "https" and not _is_loopback(host):
        raise InvalidInput(f"must be an https address (http only to this machine), not {quoted(value)}")
    return found


def _is_loopback(host: str) -> bool:
    # By the text alone: a name that resolves to this machine today may lead elsewhere at the time of the run.
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _chat(value: Json) -> int | str:
    # Ids have up to 52 significant bits (Bot API, "Chat"), groups negative ones; a name has 5 to 32 characters.
    if isinstance(value, int) and not isinstance(value, bool) and 0 < abs(value) < 2**53:
        return value
    if isinstance(value, str) and re.fullmatch(r"@[A-Za-z][A-Za-z0-9_]{3,31}", value):
        return value
    raise InvalidInput(f"must be the number of a chat, or the @name of a channel, not {quoted(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFile:
    """A file in the workspace: its path from there, with `{date}` for the day of the run."""

    path: str
    mode: Literal["replace", "append"] = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToWebhook:
    """An address that gets JSON. `secret_env` names the environment variable of the signing secret.

    The address may hold `${NAME}` behind its host, which delivery replaces by the value of the environment.
    """

    url: str
    secret_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTelegram:
    """A chat of Telegram (a number, or the @name of a channel), and a thread in it."""

    chat: int | str
    thread: int | None = None


Delivery: TypeAlias = ToFile | ToWebhook | ToTelegram


def delivery_variables(block: Mapping[str, Json]) -> list[str]:
    """Return the environment variables that an item of `deliver` in a file names."""
    secret = block.get("secret_env")
    return [*variable_names(str(block.get("webhook", ""))), *([] if secret is None else [str(secret)])]


@settings_block
class DeliveryBlock:
    """A destination of a result as files write it: one of `file`, `webhook`, `telegram`, with its own fields."""

    file: Annotated[str, Check(_file, {"type": "string"})] | None = Field(
        default=None, description="A file in the workspace; {date} is the day on which the run was due."
    )
    mode: Literal["replace", "append"] | None = Field(default=None, description="For a file; by default replace.")
    webhook: Annotated[str, Check(_webhook, {"type": "string", "format": "uri"})] | None = Field(
        default=None, description="An address that JSON is sent to; http only to this machine."
    )
    secret_env: VariableName | None = Field(
        default=None, description="For a webhook: the environment variable of what signs it."
    )
    telegram: Annotated[int | str, Check(_chat, {"type": ["integer", "string"]})] | None = Field(
        default=None, description="A chat: its number, or the @name of a channel."
    )
    thread: Annotated[int, whole(1, 2**31 - 1)] | None = Field(default=None, description="For telegram: its thread.")

    def delivery(self) -> Delivery:
        """Convert to the value of its kind. Raises InvalidInput that names the field."""
        # Refused, not ignored: a `secret_env` beside a file would look as if something were signed.
        extras = {"file": ("mode",), "webhook": ("secret_env",), "telegram": ("thread",)}
        present = {each.name: found for each in fields(self) if (found := getattr(self, each.name)) is not None}
        kinds = [kind for kind in extras if kind in present]
        if len(kinds) != 1:
            raise InvalidInput(f"must have one of {', '.join(extras)}" + (", not more" if kinds else ""))
        [kind] = kinds
        for name in present:
            if name != kind and name not in extras[kind]:
                raise InvalidInput(f"is of no use to a {kind}", place=name)
        if self.file is not None:
            return ToFile(path=self.file, mode=self.mode or "replace")
        if self.webhook is not None:
            return ToWebhook(url=self.webhook, secret_env=self.secret_env)
        return ToTelegram(chat=present["telegram"], thread=self.thread)


# Three values and not one block: delivery branches on the kind, and a value of one kind cannot hold fields of another.
class _Deliveries:
    """The list `deliver` for pydantic: blocks in a file, values of their kinds in code."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        # The block is one of pydantic's, so that an error in it keeps its path: deliver[0].webhook.
        block = core_schema.no_info_after_validator_function(
            DeliveryBlock.delivery, handler.generate_schema(DeliveryBlock)
        )
        item = core_schema.no_info_wrap_validator_function(
            lambda value, inner: value if isinstance(value, ToFile | ToWebhook | ToTelegram) else inner(value), block
        )
        whole_list = core_schema.tuple_variable_schema(item)
        return core_schema.no_info_before_validator_function(self.read, whole_list)

    def read(self, value: Json) -> Json:
        """Check that the value is a list of bounded length."""
        if not isinstance(value, list | tuple):
            raise InvalidInput(f"must be a list of blocks, not {quoted(value)}")
        if len(value) > _MAX_DELIVERIES:
            raise InvalidInput(f"must have at most {_MAX_DELIVERIES}, not {len(value)}")
        return value


@settings_block
class ScheduleSettings:
    """One entry of a schedule."""

    cron: Annotated[Cron, Check(_read_cron, {"type": "string"})] = Field(
        description="When: minute, hour, day of the month, month, weekday, as crontab has them."
    )
    prompt: Text = Field(description="The prompt of each run.")
    timezone: Annotated[str, _FileCheck(_timezone, {"type": "string"})] = Field(
        default="UTC", description="The time zone of the cron, as Europe/Berlin."
    )
    session: Annotated[str, Check(_session_name, {"type": "string"})] | None = Field(
        default=None,
        description="A name: one lasting session of that name, by default the entry's; new: another one for each run; "
        "or the id of a session.",
    )
    deliver: Annotated[tuple[Delivery, ...], _Deliveries()] = Field(
        default=(), description="Destinations of the result."
    )
    enabled: Flag = Field(default=True, description="false: only `foldline schedule now` runs it.")
    max_late_seconds: Annotated[float, _FileCheck(_seconds, {"type": "string"})] | None = Field(
        default=None, validation_alias="max_late", description="A run that is later than this (12h) is skipped."
    )
    policy: Annotated[str, one_of(*policy_names())] | None = Field(
        default=None, description="The policy of its new session; by default the agent's."
    )
