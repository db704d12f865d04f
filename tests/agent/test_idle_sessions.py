"""A session that was left alone: the provider's cache is cold when it goes on, so that a fold breaks nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from foldline.agent.session import AgentSession
from foldline.agent.session_context import RunSettings
from foldline.engine.presets import policy
from foldline.store.clock import now_utc
from foldline.store.folders import FileStore
from foldline.testing import session as turns

UNDER = RunSettings(
    dialect="anthropic",
    model="some-model",
    policy=policy("economical"),
    window=60_000,
    max_output_tokens=0,
    system=None,
    tools=None,
    endpoint="",
)


@pytest.mark.parametrize(("minutes", "cold"), [(60, True), (1, False), (-60, False)])
def test_the_time_on_the_disk_counts_when_a_session_is_opened_again(tmp_path: Path, minutes: int, cold: bool) -> None:
    then = FileStore(tmp_path, clock=lambda: now_utc() - timedelta(minutes=minutes), fsync=False)
    first = AgentSession(UNDER, stored=then.create(dialect="anthropic", model="some-model", policy="economical"))
    first.record(turns(40, result="word " * 400, dialect="anthropic"))
    name = first.stored.id if first.stored is not None else ""
    first.close()
    again = AgentSession(UNDER, stored=FileStore(tmp_path, fsync=False).open(name))
    again.record([{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}])
    assert bool(asyncio.run(again.prepare()).folds) is cold
    again.close()
