"""Seconds are the price of a local server: measured from its answers, and what follows from them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.support import Answers, agent_over
from tests.agent.test_ahead_writer import Model, look

from foldline.agent.server_speed import ASSUMED, ServerSpeed
from foldline.engine.context import Context
from foldline.engine.presets import policy
from foldline.testing import FakeProvider, session
from foldline.view.transcript import Fold, Usage


def read(speed: ServerSpeed, tokens: int, cached: int, first: float, **more: Any) -> None:
    usage = Usage(input_tokens=tokens, cached_tokens=cached, output_tokens=50)
    speed.observe(usage, **{"first_seconds": first, "seconds": first + 2.0, "timings": {}, **more})


def test_speeds_are_measured_by_the_clock_at_the_edge() -> None:
    speed = ServerSpeed()
    assert speed.rule == ASSUMED
    read(speed, 8_000, 0, 16.0)
    assert speed.read_seconds == pytest.approx(0.002)
    assert speed.write_seconds == pytest.approx(0.04)
    read(speed, 8_100, 8_000, 0.3)
    assert speed.held_seconds == pytest.approx((0.3 - 100 * 0.002) / 8_000)
    assert speed.rule.read_ratio == pytest.approx(speed.held_seconds / speed.read_seconds, abs=0.001)
    assert (speed.rule.write_ratio, speed.rule.lifetime_seconds) == (1.0, 0)


def test_what_the_server_reports_of_itself_is_believed_before_the_clock() -> None:
    speed = ServerSpeed()
    timings = {"prompt_n": 4_000, "prompt_ms": 8_000.0, "predicted_n": 100, "predicted_ms": 5_000.0}
    read(speed, 4_000, 0, 60.0, timings=timings)
    assert speed.read_seconds == pytest.approx(0.002)
    assert speed.write_seconds == pytest.approx(0.05)
    read(speed, 4_050, 0, 60.0, timings={"prompt_n": 50, "prompt_ms": 140.0})
    assert speed.held_seconds == pytest.approx((0.14 - 0.1) / 4_000)


def test_small_prompts_and_noise_say_nothing() -> None:
    speed = ServerSpeed()
    read(speed, 50, 0, 3.0)
    assert speed.rule == ASSUMED
    read(speed, 9_000, 0, 9.0)
    for _ in range(9):
        read(speed, 9_000, 8_990, 90.0)
    assert speed.rule.read_ratio == 0.5
    read(speed, 9_000, 0, 0.0, timings={"prompt_n": "x", "prompt_ms": None})
    assert speed.read_seconds == pytest.approx(0.001)


def test_economical_keeps_the_slot_of_a_server_that_holds_the_prompt() -> None:
    """By the catalogue a local server has no cache, so that a fold costs nothing: it came again and again."""

    def folds(rule: Any) -> int:
        ctx = Context(policy="economical", window=60_000, max_output_tokens=500, cache_rule=rule)
        wires = session(60, result="This line is in order. " * 90)
        for at in range(1, len(wires), 2):
            ctx.extend(wires[at - 1 : at + 1])
            ctx.prepare()
        return len({event.batch for event in ctx.events if isinstance(event, Fold)})

    kept, broken = folds(ASSUMED), folds(replace(ASSUMED, read_ratio=1.0, minimum_tokens=10**12))
    assert kept < broken


def test_the_agent_reckons_with_what_it_measured() -> None:
    async def run() -> None:
        speed = ServerSpeed()
        async with agent_over(
            FakeProvider(Model(12), window_tokens=60_000, keep=200),
            Answers(look),
            chosen=policy("economical"),
            window=60_000,
            speed=speed,
        ) as agent:
            await agent.run("On.")
            assert speed.read_seconds > 0
            assert agent.session.context._engine.cached_summary.rule == speed.rule

    asyncio.run(run())
