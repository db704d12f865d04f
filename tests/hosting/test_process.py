"""A server process switches threads quickly, and collects garbage among new objects only."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foldline.hosting.process import (
    SWITCH_SECONDS,
    ShutdownRequest,
    is_running_process,
    run_until_signal,
    set_pace,
    signal_handlers,
    stop_with_grace,
)


def test_a_process_is_running_until_it_was_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert is_running_process(process.pid)
    assert not is_running_process(process.pid)
    assert not is_running_process(2**40)  # no system has such a number


@pytest.fixture
def pace() -> Iterator[None]:
    switch_seconds, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(switch_seconds)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("pace")
def test_threads_that_work_give_the_interpreter_back_soon_and_what_is_loaded_is_looked_through_no_more() -> None:
    set_pace()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert SWITCH_SECONDS <= 0.001
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > 10_000


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there os.kill ends a process and sends no signal")


class Plain(asyncio.SelectorEventLoop):
    """A loop as Windows has it: it takes no signals."""

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


LOOPS = pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, Plain])


def run(loop: Callable[[], asyncio.AbstractEventLoop], door: Callable[[ShutdownRequest], Any]) -> list[str]:
    notices: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run_until_signal(door, notices.append))
    assert signal.getsignal(signal.SIGTERM) is before
    return notices


def press() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@LOOPS
def test_the_first_lets_it_end_in_order(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ended: list[str] = []

    async def door(shutdown: ShutdownRequest) -> None:
        shutdown.is_open = True
        press()
        await shutdown.requested.wait()
        ended.append("in order")

    assert run(loop, door) == ["Stopping (again: at once)"]
    assert ended == ["in order"]


@LOOPS
def test_the_second_cuts_it_off(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ended: list[str] = []

    async def door(shutdown: ShutdownRequest) -> None:
        shutdown.is_open = True
        press()
        await shutdown.requested.wait()
        press()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cut off")

    run(loop, door)
    assert ended == ["cut off"]


@LOOPS
def test_a_third_does_not_cut_off_how_the_end_is_written_down(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ended: list[str] = []

    async def door(shutdown: ShutdownRequest) -> None:
        shutdown.is_open = True
        press()
        await shutdown.requested.wait()
        press()
        try:
            await asyncio.Event().wait()
        finally:
            told = asyncio.Event()
            press()
            asyncio.get_running_loop().call_later(0.05, told.set)
            await told.wait()
            ended.append("written down")

    run(loop, door)
    assert ended == ["written down"]


@LOOPS
def test_one_that_comes_before_it_is_open_ends_it_at_once(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def door(shutdown: ShutdownRequest) -> None:
        press()
        await asyncio.Event().wait()

    assert run(loop, door) == []


def test_what_a_door_raises_and_what_cancels_it_from_outside_is_raised() -> None:
    async def broken(shutdown: ShutdownRequest) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(run_until_signal(broken, print))

    async def outside() -> None:
        cut: list[str] = []

        async def door(shutdown: ShutdownRequest) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cut.append("off")

        task = asyncio.create_task(run_until_signal(door, print))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cut == ["off"]

    asyncio.run(outside())


def test_handlers_are_given_back() -> None:
    async def inside() -> None:
        with signal_handlers({signal.SIGTERM: lambda: None}):
            pass

    before = signal.getsignal(signal.SIGTERM)
    asyncio.run(inside())
    assert signal.getsignal(signal.SIGTERM) is before


# --- what is under way ------------------------------------------------------------------------------------------------


class Work:
    """Something that takes all of its grace to stop. `graces` are those that it was given."""

    def __init__(self) -> None:
        self.graces: list[float] = []
        self.under_way = asyncio.Event()

    async def stop(self, grace_seconds: float) -> None:
        self.graces.append(grace_seconds)
        self.under_way.set()
        if grace_seconds:
            await asyncio.Event().wait()


async def graces_of(*, cancelled_at: str, spared: int = 0, times: int = 1) -> list[float]:
    """The graces that work is given in a block that is cancelled while it is open, while it is left, or at its stop."""
    work, left = Work(), asyncio.Event()

    async def block() -> None:
        try:
            try:
                await left.wait()
            finally:
                if cancelled_at == "leaving":
                    await asyncio.sleep(3_600)
        finally:
            await stop_with_grace(work.stop, 600.0, spared=spared)

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    if cancelled_at != "open":
        left.set()
        await asyncio.sleep(0)
    if cancelled_at == "stop":
        await work.under_way.wait()
    for _ in range(times):
        task.cancel()
    await work.under_way.wait()
    if work.graces == [600.0]:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return work.graces


def test_what_is_under_way_has_no_grace_once_its_block_was_cancelled_wherever_that_was() -> None:
    assert asyncio.run(graces_of(cancelled_at="open")) == [0.0]
    assert asyncio.run(graces_of(cancelled_at="leaving")) == [0.0]
    assert asyncio.run(graces_of(cancelled_at="stop")) == [600.0, 0.0]


def test_a_cancellation_that_is_spared_leaves_the_grace_and_the_next_one_ends_it() -> None:
    assert asyncio.run(graces_of(cancelled_at="open", spared=1)) == [600.0, 0.0]
    assert asyncio.run(graces_of(cancelled_at="open", spared=1, times=2)) == [0.0]


def test_what_is_not_cancelled_has_its_grace() -> None:
    async def ended() -> list[float]:
        graces: list[float] = []

        async def stop(grace_seconds: float) -> None:
            graces.append(grace_seconds)

        await stop_with_grace(stop, 600.0)
        return graces

    assert asyncio.run(ended()) == [600.0]
