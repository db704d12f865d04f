"""Ctrl-C stops the running work, twice it leaves; a signal ends the chat in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from foldline.doors.chat.interrupts import Interrupts, LeaveError


def ticking(*moments: float) -> Callable[[], float]:
    left = iter(moments)
    return lambda: next(left)


def test_two_presses_within_a_second_leave_and_a_third_begins_anew() -> None:
    interrupts = Interrupts(clock=ticking(10.0, 10.8, 11.0, 14.0, 14.5))
    assert [interrupts.pressed() for _ in range(5)] == [False, True, False, False, True]


def test_a_press_stops_what_runs_and_only_that() -> None:
    async def chat() -> tuple[object, str]:
        interrupts = Interrupts()
        with interrupts.installed():
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            stopped = await interrupts.run(asyncio.Event().wait())
        return stopped, await interrupts.run(asyncio.sleep(0, "went on")) or ""

    assert asyncio.run(chat()) == (None, "went on")


def test_a_second_press_while_it_stops_leaves() -> None:
    async def slow_to_stop(interrupts: Interrupts) -> None:
        asyncio.get_running_loop().call_soon(interrupts.stop)
        try:
            await asyncio.Event().wait()
        finally:
            interrupts.stop()

    async def chat() -> int:
        interrupts = Interrupts()
        with pytest.raises(LeaveError) as left:
            await interrupts.run(slow_to_stop(interrupts))
        return left.value.code

    assert asyncio.run(chat()) == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_stops_what_runs_and_leaves(ending: signal.Signals) -> None:
    async def chat() -> tuple[int, list[BaseException]]:
        interrupts = Interrupts()
        idle: list[BaseException] = []
        interrupts.on_idle = idle.append
        with interrupts.installed():
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), ending)
            with pytest.raises(LeaveError) as left:
                await interrupts.run(asyncio.Event().wait())
            interrupts.leave(128 + ending)
        return left.value.code, idle

    code, idle = asyncio.run(chat())
    assert code == 128 + ending
    assert [type(error) for error in idle] == [LeaveError]


def test_who_cancels_from_outside_is_obeyed() -> None:
    async def chat() -> None:
        task = asyncio.create_task(Interrupts().run(asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(chat())
