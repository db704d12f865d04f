from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import pytest

from foldline.bench.measuring import Allowance, AllowanceSpentError, Watched
from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.replay import Sent

USER = {"role": "user", "content": "hi"}


def wait(seconds: float) -> None:
    """Pass the time by the clock."""
    end = monotonic() + seconds
    while monotonic() < end:
        pass


class Waiting:
    """Takes some time for each request; the second does not fit, the third says itself what it took."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.requests = 0

    def send(self, new: Sequence[Wire]) -> Sent:
        self.requests += 1
        wait(self.seconds)
        if self.requests == 2:
            raise DoesNotFit(2, 1, ())
        return Sent(tuple(new), None, cpu_seconds=7.0 if self.requests == 3 else None)


def test_each_request_is_timed_and_looked_at() -> None:
    watched = Watched(Waiting(0.01), Allowance(60))
    sent = watched.send((USER,))
    assert sent.cpu_seconds is not None
    assert 0 < sent.cpu_seconds < 5
    with pytest.raises(DoesNotFit):
        watched.send((USER,))
    assert watched.send(()).cpu_seconds == 7.0
    assert watched.refusals == [frozenset(), {"empty"}, {"empty"}]


def test_only_the_system_spends_its_time() -> None:
    allowance = Allowance(0.2)
    watched = Watched(Waiting(0.0), allowance)
    watched.send((USER,))
    wait(0.3)
    with pytest.raises(DoesNotFit):
        watched.send((USER,))
    assert 0 < allowance.left_seconds <= 0.2


def test_without_time_left_nothing_is_sent() -> None:
    system = Waiting(0.05)
    watched = Watched(system, Allowance(0.01))
    watched.send((USER,))
    with pytest.raises(AllowanceSpentError):
        watched.send((USER,))
    assert system.requests == 1
