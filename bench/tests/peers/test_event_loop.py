"""One event loop serves all calls of a system, and goes with it."""

from __future__ import annotations

import asyncio

import pytest

from foldline_bench.peers.event_loop import Loop


async def running() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def failing() -> None:
    raise LookupError("of the package")


def test_all_calls_run_on_one_loop() -> None:
    loop = Loop()
    assert loop.run(running()) is loop.run(running())


def test_what_a_call_raises_comes_out() -> None:
    with pytest.raises(LookupError, match="of the package"):
        Loop().run(failing())


def test_the_loop_is_closed_with_its_system() -> None:
    loop = Loop()
    inner = loop.run(running())
    del loop
    assert inner.is_closed()
