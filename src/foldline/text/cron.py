"""Due times as crontab(5) writes them: five fields, each a set of numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["Cron"]

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS: Final = "sun mon tue wed thu fri sat".split()
_LONGEST_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
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
        words = text.lower().split()
        if len(words) != 5:
            raise InvalidInput(
                f"must have five fields (minute, hour, day of the month, month, weekday), not {len(words)}"
            )
        minute, hour, day, month, weekday = words
        weekdays = _field("weekday", weekday, 0, 7, words=_WEEKDAYS)
        cron = cls(
            " ".join(words),
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
        if not cron.either and min(cron.days) > max(_LONGEST_MONTH[month - 1] for month in cron.months):
            raise InvalidInput("is never due: no month of these has such a day")
        return cron


def _field(
    name: str, text: str, least: int, most: int, *, words: list[str] | None = None, first: int = 0
) -> frozenset[int]:
    """Parse one field to its numbers. `words` are names for them, the first one for `first`."""
    numbers: set[int] = set()
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
        # Sunday ends a range as 7, though its word stands for 0: fri-sun.
        if words is _WEEKDAYS and stop == 0 < start:
            stop = 7
        if stop < start:
            raise InvalidInput(f"the {name}: {part[:40]!r} ends before it begins")
        # 0 and 7 are both Sunday; a step over * must not count it twice.
        if words is _WEEKDAYS and one == "*":
            stop = 6
        numbers.update(range(start, stop + 1, int(step or 1)))
    return frozenset(numbers)
