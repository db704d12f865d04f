"""The entries of a schedule with their due times: which is next, and which was last in a span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from foldline.agent.settings.connections import NEW, ScheduleSettings
from foldline.agent.settings.file import BUILT_IN_AGENT
from foldline.agent.settings.model import AgentSettings
from foldline.errors import InvalidInput, MissingExtra
from foldline.store.recording import ID
from foldline.text.cron import Cron

try:
    from apscheduler.triggers.base import BaseTrigger
    from apscheduler.triggers.cron import CronTrigger
except ImportError as error:
    raise MissingExtra("schedule", "runs at set times") from error

__all__ = ["DueTimes", "ScheduleEntry", "entries_of", "timestamp"]

_SECOND: Final = timedelta(seconds=1)
_TICK: Final = timedelta(microseconds=1)
_WEEKDAYS: Final = "sun mon tue wed thu fri sat".split()


def timestamp(moment: datetime) -> str:
    """A moment as stored: "2026-11-28T07:00:00Z"."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class DueTimes(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Due times of an entry, in whole seconds of UTC. The next one depends on nothing but the moment.

    `triggers` are APScheduler's; the due times of any of them count. Without `every_hour`, times follow the local
    clock: the hour that comes twice when clocks go back is used once, as in cron.
    """

    def __init__(self, *triggers: CronTrigger, every_hour: bool) -> None:
        self._triggers: Final = triggers
        self._every_hour: Final = every_hour

    @classmethod
    def of(cls, cron: Cron, zone: tzinfo) -> DueTimes:
        """The due times of an entry, on the clock of a zone."""
        # Numbers are spelled out: to CronTrigger 0 is Monday, and a day and a weekday have to come together.
        fixed = {
            "minute": _comma_list(cron.minutes),
            "hour": _comma_list(cron.hours),
            "month": _comma_list(cron.months),
        }
        day = {"day": _comma_list(cron.days)}
        weekday = {"day_of_week": ",".join(_WEEKDAYS[number] for number in sorted(cron.weekdays))}
        # If both a day of the month and a weekday are restricted, cron means either (crontab(5)), and CronTrigger both.
        # So each becomes a trigger of its own.
        parts: list[Mapping[str, str]] = [day, weekday] if cron.either else [{**day, **weekday}]
        triggers = (CronTrigger(**fixed, **part, second="0", timezone=zone) for part in parts)
        return cls(*triggers, every_hour=cron.every_hour)

    def after(self, moment: datetime) -> datetime | None:
        """The first due time after a moment; None if there is none."""
        found = [due for trigger in self._triggers if (due := self._after(trigger, moment)) is not None]
        return min(found) if found else None

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """The last due time after `since` and not after `until`. O(log span)."""
        if not self._is_due(since, until):
            return None
        step = _SECOND
        while not self._is_due(max(since, until - step), until):
            step *= 2
        # Doubling the step back, then bisection: the number of due times in the span does not matter, and a schedule
        # of each minute may have been down for a year.
        low, high = max(since, until - step), until  # something is due after `low`, and nothing after `high`
        while high - low > _SECOND:
            middle = low + (high - low) / 2
            low, high = (middle, high) if self._is_due(middle, until) else (low, middle)
        # Several due times may lie within the last second before `high`; the newest one counts.
        due = self.after(low)
        while due is not None and (more := self.after(due)) is not None and more <= until:
            due = more
        return due

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The hook of APScheduler: the next due time from `now` on.

        `previous_fire_time` is ignored: `latest` makes up for missed times as one, and after a clock that went back the
        next one is near.
        """
        del previous_fire_time
        return self.after(now)

    def _is_due(self, since: datetime, until: datetime) -> bool:
        due = self.after(since)
        return due is not None and due <= until

    def _after(self, trigger: CronTrigger, moment: datetime) -> datetime | None:
        while True:
            due: datetime | None = trigger.get_next_fire_time(None, moment.astimezone(UTC) + _TICK)
            if due is None:
                return None
            moment = due.astimezone(UTC)  # a local time that the clocks skip becomes the one after the change
            if self._every_hour or not moment.astimezone(trigger.timezone).fold:
                return moment


def _comma_list(numbers: frozenset[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """One entry. `key` names it in the store. `mark` identifies its times: with others it counts as a new entry."""

    name: str
    key: str
    settings: ScheduleSettings
    times: DueTimes
    zone: tzinfo
    mark: str

    @property
    def session_id(self) -> str | None:
        """The id of the session that it continues, if it names one."""
        named = self.settings.session
        return named if named is not None and ID.fullmatch(named) else None

    @property
    def session_key(self) -> str | None:
        """The key of the lasting session that it continues, if it has one."""
        named = self.settings.session
        if named == NEW or self.session_id is not None:
            return None
        return self.key if named is None else f"schedule:{named}"

    def claim_key(self, due: datetime) -> str:
        """The claim on a due time: two servers, or one that restarts, run it once."""
        return f"{self.key}:{timestamp(due)}"

    def local(self, moment: datetime) -> str:
        """A moment on the entry's clock, for people."""
        return moment.astimezone(self.zone).strftime("%Y-%m-%d %H:%M %Z")


def entries_of(settings: AgentSettings) -> tuple[ScheduleEntry, ...]:
    """The entries of an agent, by name. Agents other than main have their name in the keys.

    Raises InvalidInput for a time zone that this machine does not know.
    """
    # The built-in agent has no prefix: its keys were stored before there were other agents.
    owner = "" if settings.name == BUILT_IN_AGENT else f"{settings.name}/"
    entries = []
    for name, entry in sorted(settings.schedule.items()):
        zone = _zone(name, entry)
        entries.append(
            ScheduleEntry(
                name=name,
                key=f"schedule:{owner}{name}",
                settings=entry,
                times=DueTimes.of(entry.cron, zone),
                zone=zone,
                mark=f"{entry.cron.text} {entry.timezone}",
            )
        )
    return tuple(entries)


def _zone(name: str, entry: ScheduleSettings) -> tzinfo:
    # UTC needs no time zone database, which Windows and slim images lack.
    found: Any = UTC if entry.timezone == "UTC" else None
    try:
        return found or ZoneInfo(entry.timezone)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"{entry.timezone} is not known to this machine", place=f"schedule.{name}.timezone"
        ) from None
