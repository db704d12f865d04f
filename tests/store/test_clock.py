"""Idle time: it includes sleep of the machine, and is never negative."""

from __future__ import annotations

import time

import pytest

from foldline.store.clock import IdleTimer, seconds_since_boot


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux alone has a clock that counts its own sleep")
def test_the_clock_counts_the_sleep_of_the_machine() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = seconds_since_boot()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_without_such_a_clock_the_time_of_day_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    before = time.time()
    assert before <= seconds_since_boot() <= time.time()


def test_an_hour_in_which_nothing_ran_counts() -> None:
    now = [100.0]
    idle = IdleTimer(20.0, clock=lambda: now[0])
    assert idle.seconds == 20.0
    now[0] += 3_600.0
    assert idle.seconds == 3_620.0
    idle.reset()
    assert idle.seconds == 0.0


def test_a_clock_that_is_set_back_makes_nobody_idle_for_less_than_nothing() -> None:
    now = [100.0]
    idle = IdleTimer(clock=lambda: now[0])
    now[0] = 40.0
    assert idle.seconds == 0.0
