"""What an agent does at set times, as checked values: when, with which words, in which session, and who is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from foldline.errors import InvalidInput

__all__ = [
    "NEW",
    "TELEGRAM_TOKEN",
    "Cron",
    "Delivery",
    "ScheduleSettings",
    "ToFile",
    "ToTelegram",
    "ToWebhook",
    "delivery",
    "schedule_settings",
]

NEW: Final = "new"
"""As a session: another one for each run."""

TELEGRAM_TOKEN: Final = "FOLDLINE_TELEGRAM_TOKEN"
"""The environment variable of the bot's token."""

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS: Final = "sun mon tue wed thu fri sat".split()
_LONGEST_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(\*|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Cron:
    """When something is due, by the five fields of crontab(5), each spelled out. Weekdays: 0 is Sunday.

    `either`: both the day of the month and the weekday were given, and one of them is enough. `every_hour`: the field
    of the hours begins with `*`, so that hours are counted as they pass, and not read from the clock on the wall.
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
        """From a text like "0 7 * * mon-fri". Raises InvalidInput that says which of its fields is wrong."""
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
            either=not day.startswith("*") and not weekday.startswith("*"),
            every_hour=hour.startswith("*"),
        )
        if not made.either and min(made.days) > max(_LONGEST_MONTH[month - 1] for month in made.months):
            raise InvalidInput("is never due: no month of these has such a day")
        return made


def _field(
    name: str, text: str, least: int, most: int, *, words: list[str] | None = None, first: int = 0
) -> frozenset[int]:
    """The numbers that a field stands for."""
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
        if words is _WEEKDAYS and one == "*":
            stop = 6
        found.update(range(start, stop + 1, int(step or 1)))
    return frozenset(found)


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

_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "file": frozenset({"mode"}),
    "webhook": frozenset({"secret_env"}),
    "telegram": frozenset({"thread"}),
}


def delivery(given: Mapping[str, Any]) -> Delivery:
    """Where a result goes, from checked fields. Raises InvalidInput whose place is the field."""
    kinds = [kind for kind in _FIELDS if kind in given]
    if len(kinds) != 1:
        raise InvalidInput(f"must have one of {', '.join(_FIELDS)}" + (", not more" if kinds else ""))
    [kind] = kinds
    for name in given:
        if name != kind and name not in _FIELDS[kind]:
            raise InvalidInput(f"is of no use to a {kind}", place=name)
    if kind == "file":
        return ToFile(path=given["file"], mode=given.get("mode", "replace"))
    if kind == "webhook":
        return ToWebhook(url=given["webhook"], secret_env=given.get("secret_env"))
    return ToTelegram(chat=given["telegram"], thread=given.get("thread"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """One entry of a schedule.

    `session`: None for a lasting one of its own; a name for a lasting one of that name; `new`; or the id of one that is
    there. A run that could not begin within `max_late_seconds` (None: any time) is left out. `policy` is that of a
    session that is made for it.
    """

    cron: Cron
    prompt: str
    timezone: str = "UTC"
    session: str | None = None
    deliver: tuple[Delivery, ...] = ()
    enabled: bool = True
    max_late_seconds: float | None = None
    policy: str | None = None


def schedule_settings(**given: Any) -> ScheduleSettings:
    """An entry from checked fields as a file has them. Raises InvalidInput for one that is missing."""
    for name in ("cron", "prompt"):
        if name not in given:
            raise InvalidInput(f"must have a {name}")
    if "max_late" in given:
        given["max_late_seconds"] = given.pop("max_late")
    return ScheduleSettings(**given)
