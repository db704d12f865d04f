"""The schedule of an agent: when it runs, with which prompt, in which session, and who gets the result."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from foldline.agent.settings.checks import (
    NAME,
    Check,
    Flag,
    Text,
    VariableName,
    one_of,
    quoted,
    settings_block,
    url,
    variable_names,
    whole,
    word,
)
from foldline.agent.settings.policies import policy_names
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.recording import ID

__all__ = [
    "NEW",
    "TELEGRAM_TOKEN",
    "Cron",
    "Delivery",
    "ScheduleSettings",
    "ToFile",
    "ToTelegram",
    "ToWebhook",
    "delivery_variables",
]

NEW: Final = "new"
"""As a session: another one for each run."""

TELEGRAM_TOKEN: Final = "FOLDLINE_TELEGRAM_TOKEN"
"""The environment variable of the bot's token."""

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS: Final = "sun mon tue wed thu fri sat".split()
_LONGEST_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_DELIVERIES: Final = 16
_PART = re.compile(r"(\*|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Cron:
    """Due times by the five fields of crontab(5), each as a set of numbers. Weekdays: 0 is Sunday.

    `either`: day of month and weekday are both restricted, and one match is enough. `every_hour`: the hours begin with
    `*`, and count as they pass instead of by the wall clock, so that a clock change neither skips nor repeats a run.
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool = False
    every_hour: bool = False

    @classmethod
    def read(cls, text: str) -> Cron:
        """Parse a text like "0 7 * * mon-fri". Raises InvalidInput that names the wrong field."""
        given = text.lower().split()
        if len(given) != 5:
            raise InvalidInput(
                f"must have five fields (minute, hour, day of the month, month, weekday), not {len(given)}"
            )
        minute, hour, day, month, weekday = given
        weekdays = _field("weekday", weekday, 0, 7, words=_WEEKDAYS)
        made = cls(
            " ".join(given),
            minutes=_field("minute", minute, 0, 59),
            hours=_field("hour", hour, 0, 23),
            days=_field("day of the month", day, 1, 31),
            months=_field("month", month, 1, 12, words=_MONTHS, first=1),
            weekdays=frozenset(number % 7 for number in weekdays),  # 7 is Sunday too
            # As in cron(8): a field that begins with * is unrestricted, even */2.
            either=not day.startswith("*") and not weekday.startswith("*"),
            every_hour=hour.startswith("*"),
        )
        # Found when the file is read; at run time it would be silence.
        if not made.either and min(made.days) > max(_LONGEST_MONTH[month - 1] for month in made.months):
            raise InvalidInput("is never due: no month of these has such a day")
        return made


def _field(
    name: str, text: str, least: int, most: int, *, words: list[str] | None = None, first: int = 0
) -> frozenset[int]:
    """Return the numbers of a field."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[1] == "*" and match[2] is not None):
            raise InvalidInput(f"the {name} must be like *, 5, 1-5, */10 or 1,3, not {part[:40]!r}")
        one, last, step = match.groups()

        def number(word: str) -> int:
            value = first + words.index(word) if words and word in words else int(word) if word.isdigit() else -1
            if not least <= value <= most:
                raise InvalidInput(f"the {name} must be from {least} to {most}, not {word[:40]!r}")
            return value

        if step is not None and (int(step) < 1 or (one != "*" and last is None)):
            raise InvalidInput(f"the {name}: a step goes with * or a range (*/10, 8-18/2), not {part[:40]!r}")
        start, stop = (least, most) if one == "*" else (number(one), number(last or one))
        if words is _WEEKDAYS and stop == 0 < start:  # fri-sun
            stop = 7
        if stop < start:
            raise InvalidInput(f"the {name}: {part[:40]!r} ends before it begins")
        # 0 and 7 are both Sunday; a step over * must not count it twice.
        if words is _WEEKDAYS and one == "*":
            stop = 6
        found.update(range(start, stop + 1, int(step or 1)))
    return frozenset(found)


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
    """A check that only files undergo. In code a duration is a number, and a zone may belong to another machine."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.with_info_plain_validator_function(
            lambda value, info: value if info.context is None else self.read(value)
        )


def _seconds(value: Json) -> float:
    """Seconds, from a text like 90s, 30m, 12h or 2d: a number names no unit."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise InvalidInput(f"must be a time like 90s, 30m, 12h or 2d, not {quoted(value)}")
    return float(int(match[1]) * _SECONDS[match[2]])


def _file(value: Json) -> str:
    found = word(value)
    pure = PurePosixPath(found)
    if pure.is_absolute() or PureWindowsPath(found).anchor or ".." in pure.parts or not pure.name:
        raise InvalidInput(f"must be a path of a file within the workspace, not {quoted(value)}")
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
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _chat(value: Json) -> int | str:
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
    """An address that gets JSON. `secret_env` names the environment variable of what signs it.

    The address may hold `${NAME}` behind its host: only then is the environment's value put in.
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
    """One place that a result goes to, as a file has it: one of `file`, `webhook`, `telegram`, with its own fields."""

    file: Annotated[str, Check(_file, {"type": "string"})] | None = Field(
        default=None, description="A file in the workspace; {date} is the day on which the run was due."
    )
    mode: Literal["replace", "append"] | None = Field(default=None, description="For a file; replace if not given.")
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
        extras = {"file": ("mode",), "webhook": ("secret_env",), "telegram": ("thread",)}
        given = {each.name: found for each in fields(self) if (found := getattr(self, each.name)) is not None}
        kinds = [kind for kind in extras if kind in given]
        if len(kinds) != 1:
            raise InvalidInput(f"must have one of {', '.join(extras)}" + (", not more" if kinds else ""))
        [kind] = kinds
        for name in given:
            if name != kind and name not in extras[kind]:
                raise InvalidInput(f"is of no use to a {kind}", place=name)
        if self.file is not None:
            return ToFile(path=self.file, mode=self.mode or "replace")
        if self.webhook is not None:
            return ToWebhook(url=self.webhook, secret_env=self.secret_env)
        return ToTelegram(chat=given["telegram"], thread=self.thread)


class _Deliveries:
    """The list `deliver` for pydantic: blocks in a file, values of their kinds in code."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
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
    prompt: Text = Field(description="What the agent is told.")
    timezone: Annotated[str, _FileCheck(_timezone, {"type": "string"})] = Field(
        default="UTC", description="Whose clock: the name of a zone, as Europe/Berlin."
    )
    session: Annotated[str, Check(_session_name, {"type": "string"})] | None = Field(
        default=None,
        description="A name: one lasting session of that name, by default the entry's; new: another one for each run; "
        "or the id of a session.",
    )
    deliver: Annotated[tuple[Delivery, ...], _Deliveries()] = Field(
        default=(), description="Places that are told how it ended."
    )
    enabled: Flag = Field(default=True, description="false: only `foldline schedule now` runs it.")
    max_late_seconds: Annotated[float, _FileCheck(_seconds, {"type": "string"})] | None = Field(
        default=None, validation_alias="max_late", description="A run that is later than this (12h) is left out."
    )
    policy: Annotated[str, one_of(*policy_names())] | None = Field(
        default=None, description="The policy of a session that is made for it; the agent's if not given."
    )
