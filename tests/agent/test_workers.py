"""Work in threads: shared fairly, bounded, let go of when nobody waits, and in nobody's way at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from foldline.agent import workers
from foldline.agent.workers import StopSignal, WorkCancelled, Workers, owned_by
from foldline.errors import InvalidInput


class Gate:
    """Work that says that it runs, and goes on until it is let go of or stopped."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.opened = threading.Event()
        self.stopped = threading.Semaphore(0)

    def __call__(self, stop: StopSignal) -> str:
        self.running.release()
        try:
            while not self.opened.wait(0.001):
                stop.check()
        except WorkCancelled:
            self.stopped.release()
            raise
        return "done"


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.running.acquire, timeout=120)


async def owned(owner: str, pool: Workers, work: Callable[[StopSignal], str]) -> str:
    with owned_by(owner):
        return await pool.run(work)


def test_what_work_returns_and_raises_comes_back() -> None:
    async def main() -> None:
        pool = Workers("test", 2)
        assert await pool.run(lambda _: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda _: 1 // 0)

    asyncio.run(main())


def test_calls_that_hold_all_that_one_session_may_have_leave_a_thread_to_the_others() -> None:
    async def main() -> None:
        pool, gate = Workers("test", 3), Gate()
        held = [asyncio.create_task(owned("hostile", pool, gate)) for _ in range(20)]
        await begun(gate)
        await begun(gate)
        assert await asyncio.wait_for(owned("another", pool, lambda _: "at once"), 120) == "at once"
        assert not gate.running.acquire(blocking=False)  # it had no third thread
        gate.opened.set()
        assert await asyncio.gather(*held) == ["done"] * 20

    asyncio.run(main())


def test_sessions_take_turns_whoever_asked_for_more() -> None:
    async def main() -> None:
        pool, gate, order = Workers("test", 1), Gate(), list[str]()
        first = asyncio.create_task(owned("a", pool, gate))
        await begun(gate)

        def noted(owner: str) -> Callable[[StopSignal], str]:
            def work(_: StopSignal) -> str:
                order.append(owner)
                return owner

            return work

        rest = [asyncio.create_task(owned(owner, pool, noted(owner))) for owner in "aaabbc"]
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(first, *rest)
        assert "".join(order) == "abcaba"

    asyncio.run(main())


def test_a_cancelled_call_ends_at_its_next_look_and_gives_its_thread_back() -> None:
    async def main() -> None:
        pool, gate = Workers("test", 2), Gate()
        tasks = [asyncio.create_task(owned("hostile", pool, gate)) for _ in range(20)]
        await begun(gate)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*tasks, return_exceptions=True)
        )
        assert await asyncio.to_thread(gate.stopped.acquire, timeout=120)
        assert await asyncio.wait_for(pool.run(lambda _: "free"), 120) == "free"
        assert not gate.running.acquire(blocking=False)  # those that waited never begin

    asyncio.run(main())


def test_work_to_its_end_is_waited_for_though_it_was_cancelled() -> None:
    async def main() -> None:
        pool, gate, written = Workers("test", 2), Gate(), list[str]()

        def write(_: StopSignal) -> None:
            gate.running.release()
            gate.opened.wait(120)
            written.append("whole")

        task = asyncio.create_task(pool.run(write, run_to_end=True))
        await begun(gate)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == ["whole"]

    asyncio.run(main())


def test_what_one_session_has_waiting_is_bounded() -> None:
    async def main() -> None:
        pool, gate = Workers("test", 2, max_waiting=5), Gate()
        held = [asyncio.create_task(owned("a", pool, gate))]
        await begun(gate)
        held += [asyncio.create_task(owned("a", pool, gate)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(InvalidInput, match="5 calls of this session wait already"):
            await owned("a", pool, gate)
        gate.opened.set()
        await asyncio.gather(*held, owned("b", pool, lambda _: "taken"))

    asyncio.run(main())


def test_the_work_of_a_sub_agent_belongs_to_the_session_that_began_it() -> None:
    async def main() -> None:
        pool, gate = Workers("test", 2), Gate()

        async def sub_agents() -> None:
            with owned_by("parent"):
                await asyncio.gather(*(owned(f"child {n}", pool, gate) for n in range(3)))

        held = asyncio.create_task(sub_agents())
        await begun(gate)
        assert await asyncio.wait_for(owned("another", pool, lambda _: "at once"), 120) == "at once"
        gate.opened.set()
        await held

    asyncio.run(main())


def test_no_process_waits_at_its_end_for_work_that_does_not_look() -> None:
    script = (
        "import asyncio, threading\n"
        "from foldline.agent.workers import TOOLS\n"
        "async def main():\n"
        "    begun = threading.Event()\n"
        "    task = asyncio.ensure_future(TOOLS.run(lambda _: begun.set() or threading.Event().wait()))\n"
        "    await asyncio.to_thread(begun.wait)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.01)
    pool = Workers("test-idle", 2)
    thread = asyncio.run(pool.run(lambda _: threading.current_thread()))
    thread.join(120)
    assert not thread.is_alive()
    assert asyncio.run(pool.run(lambda _: "again")) == "again"


def test_long_work_stands_aside_for_short_work_and_goes_on_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_SECONDS", 0.0)

    async def main() -> None:
        pool, gate = Workers("test", 1), Gate()
        long = [asyncio.create_task(owned(f"long {n}", pool, gate)) for n in range(3)]
        await begun(gate)
        for _ in range(3):
            assert await asyncio.wait_for(owned("short", pool, lambda _: "at once"), 120) == "at once"
        assert not any(task.done() for task in long)
        gate.opened.set()
        assert await asyncio.gather(*long) == ["done"] * 3

    asyncio.run(main())


def test_what_stands_aside_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_SECONDS", 0.0)

    async def main() -> None:
        pool, gate = Workers("test", 1), Gate()
        tasks = [asyncio.create_task(owned(f"long {n}", pool, gate)) for n in range(4)]
        for _ in tasks:
            await begun(gate)  # one runs, three stand aside
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in tasks:
            assert await asyncio.to_thread(gate.stopped.acquire, timeout=120)
        assert await asyncio.wait_for(pool.run(lambda _: "free"), 120) == "free"

    asyncio.run(main())


def test_work_that_goes_to_its_end_stands_aside_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a lock that the others wait for."""
    monkeypatch.setattr(workers, "SLICE_SECONDS", 0.0)

    async def main() -> None:
        pool, gate, order = Workers("test", 1), Gate(), list[str]()

        def write(stop: StopSignal) -> None:
            gate.running.release()
            gate.opened.wait(120)
            for _ in range(100):
                stop.check()
            order.append("written")

        def read(_: StopSignal) -> str:
            order.append("read")
            return ""

        writing = asyncio.create_task(pool.run(write, run_to_end=True))
        await begun(gate)
        reading = asyncio.create_task(owned("another", pool, read))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(writing, reading)
        assert order == ["written", "read"]

    asyncio.run(main())
