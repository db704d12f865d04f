from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.schedule.schedules import entry_of
from tests.property.depth import costly

from foldline.agent.settings.connections import ScheduleSettings
from foldline.agent.settings.model import AgentSettings
from foldline.doors.schedule.entries import DueTimes, ScheduleEntry, entries_of
from foldline.errors import InvalidInput
from foldline.text.cron import Cron

BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(entry: ScheduleEntry, start: str, stop: str) -> list[str]:
    """All due times after `start` and not after `stop`, in UTC."""
    found, moment = [], utc(start)
    while (next_one := entry.times.after(moment)) is not None and next_one <= utc(stop):
        found.append(next_one.strftime("%d %H:%M"))
        moment = next_one
    return found


def test_weekdays_are_those_of_crontab() -> None:
    """APScheduler counts them from Monday: a schedule for 1-5 would run from Tuesday to Saturday."""
    expected = ["30 07:00", "01 07:00", "02 07:00", "03 07:00", "04 07:00"]
    for weekdays in ("1-5", "mon-fri", "MON,TUE,WED,THU,FRI"):
        assert due(entry_of(f"0 7 * * {weekdays}"), "2026-11-29", "2026-12-06T12:00") == expected
    assert due(entry_of("0 7 * * 0"), "2026-11-28", "2026-12-06T12:00") == ["29 07:00", "06 07:00"]
    assert due(entry_of("0 7 * * 7"), "2026-11-28", "2026-12-06T12:00") == ["29 07:00", "06 07:00"]


def test_a_day_and_a_weekday_are_each_enough() -> None:
    assert due(entry_of("0 7 1 * fri"), "2026-11-28", "2026-12-12") == ["01 07:00", "04 07:00", "11 07:00"]
    assert due(entry_of("0 7 */2 * fri"), "2026-11-28", "2026-12-12") == ["11 07:00"], "beside a * both must hold"


def test_a_time_of_day_is_that_of_its_zone_in_summer_and_winter() -> None:
    entry = entry_of("0 7 * * *", timezone=BERLIN)
    assert due(entry, "2026-10-24", "2026-10-26T12:00") == ["24 05:00", "25 06:00", "26 06:00"]
    assert due(entry, "2026-03-28", "2026-03-30T12:00") == ["28 06:00", "29 05:00", "30 05:00"]
    assert entry.local(utc("2026-10-25T06:00")) == "2026-10-25 07:00 CET"


def test_a_time_that_the_clocks_leave_out_is_run_once_all_the_same() -> None:
    """On 29 March 02:30 is no time in Berlin: what is due then runs at 03:30 of the clocks gone forward."""
    entry = entry_of("30 2 * * *", timezone=BERLIN)
    assert due(entry, "2026-03-27T12:00", "2026-03-30T12:00") == ["28 01:30", "29 01:30", "30 00:30"]


def test_a_time_that_comes_twice_is_run_once() -> None:
    """On 25 October 02:30 comes twice in Berlin: the first one counts."""
    entry = entry_of("30 2 * * *", timezone=BERLIN)
    assert due(entry, "2026-10-23T12:00", "2026-10-26T12:00") == ["24 00:30", "25 00:30", "26 01:30"]
    assert due(entry_of("*/30 2 * * *", timezone=BERLIN), "2026-10-25", "2026-10-25T12:00") == ["25 00:30"]


def test_what_is_due_each_hour_counts_hours_as_they_pass() -> None:
    entry = entry_of("0 * * * *", timezone=BERLIN)
    assert due(entry, "2026-10-24T23:30", "2026-10-25T03:00") == ["25 00:00", "25 01:00", "25 02:00", "25 03:00"]
    assert due(entry, "2026-03-28T23:30", "2026-03-29T03:00") == ["29 00:00", "29 01:00", "29 02:00", "29 03:00"]


@pytest.mark.parametrize(
    ("cron", "since", "until", "latest"),
    [
        ("0 7 * * *", "2026-11-28T06:59:59", "2026-11-28T07:00:00", "2026-11-28T07:00"),
        ("0 7 * * *", "2026-11-28T07:00:00", "2026-11-29T06:59:59", None),
        ("0 7 * * *", "2026-11-01", "2026-11-28T06:00", "2026-11-27T07:00"),
        ("* * * * *", "2020-01-01", "2026-11-28T06:00:30", "2026-11-28T06:00"),
        ("0 0 29 2 *", "2020-01-01", "2027-11-28", "2024-02-29"),
        ("0 0 29 2 *", "2024-03-01", "2027-11-28", None),
        ("* * 1 * *", "2026-01-01", "2026-11-28", "2026-11-01T23:59"),
    ],
)
def test_the_latest_due_time_of_a_span_is_found(cron: str, since: str, until: str, latest: str | None) -> None:
    found = entry_of(cron).times.latest(utc(since), utc(until))
    assert found == (None if latest is None else utc(latest))


MOMENTS = st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 31)) | st.datetimes(
    datetime(2026, 10, 23),
    datetime(2026, 10, 27),
)


@costly
@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0,59 1-3 * * *", "5 */5 * * sun", "0 3 28 * mon"]),
    MOMENTS,
    st.integers(0, 200_000),
)
def test_after_and_latest_agree_when_clocks_change(cron: str, start: datetime, seconds: int) -> None:
    times = entry_of(cron, timezone=BERLIN).times
    since = start.replace(tzinfo=UTC)
    until = since + timedelta(seconds=seconds)
    each, moment = [], since
    while (found := times.after(moment)) is not None and found <= until:
        assert found > moment
        each.append(found)
        moment = found
    assert times.latest(since, until) == (each[-1] if each else None)


def test_what_apscheduler_asks_is_answered_for_the_time_of_now() -> None:
    times = DueTimes(CronTrigger(second="*", timezone=UTC), every_hour=True)
    now = utc("2026-11-28T07:00:00")
    assert times.get_next_fire_time(None, now) == utc("2026-11-28T07:00:01")
    assert times.get_next_fire_time(utc("2031-01-01"), now) == utc("2026-11-28T07:00:01"), (
        "after a clock that went back"
    )


def test_the_keys_of_an_entry() -> None:
    entry = entry_of()
    assert entry.claim_key(utc("2026-11-28T07:00:00")) == "schedule:morning:2026-11-28T07:00:00Z"
    assert (entry.session_key, entry.session_id) == ("schedule:morning", None)
    assert entry_of(session="news").session_key == "schedule:news"
    assert entry_of(session="new").session_key is None
    named = entry_of(session="20261128-070000-0123abcd")
    assert (named.session_key, named.session_id) == (None, "20261128-070000-0123abcd")


def test_two_agents_on_one_store_do_not_take_each_others_runs() -> None:
    one = {"morning": ScheduleSettings(cron=Cron.read("0 7 * * *"), prompt="x")}
    [main] = entries_of(AgentSettings(schedule=one))
    [other] = entries_of(AgentSettings(name="helper", schedule=one))
    assert (main.key, other.key) == ("schedule:morning", "schedule:helper/morning")


def test_a_zone_that_this_machine_does_not_know_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"schedule\.morning\.timezone: Europe/Atlantis is not known"):
        entry_of(timezone="Europe/Atlantis")
