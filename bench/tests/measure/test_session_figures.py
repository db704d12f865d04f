from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import pytest

from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.replay import Sent
from foldline_bench.measure.session_figures import Allowance, AllowanceSpentError, CheckedSender

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
    watched = CheckedSender(Waiting(0.01), Allowance(60))
    sent = watched.send((USER,))
    assert sent.cpu_seconds is not None
    assert 0 < sent.cpu_seconds < 5
    with pytest.raises(DoesNotFit):
        watched.send((USER,))
    assert watched.send(()).cpu_seconds == 7.0
    assert watched.refusals == [frozenset(), {"empty"}, {"empty"}]


def test_only_the_system_spends_its_time() -> None:
    allowance = Allowance(0.2)
    watched = CheckedSender(Waiting(0.0), allowance)
    watched.send((USER,))
    wait(0.3)
    with pytest.raises(DoesNotFit):
        watched.send((USER,))
    assert 0 < allowance.left_seconds <= 0.2


class Swallowing(Waiting):
    """Lets no error out."""

    def send(self, new: Sequence[Wire]) -> Sent:
        self.requests += 1
        with suppress(Exception):
            wait(60)
        return Sent(tuple(new), None)


def test_a_request_that_takes_too_long_is_broken_off_and_no_other_is_made() -> None:
    system = Swallowing(0.0)
    watched = CheckedSender(system, Allowance(0.05))
    began = monotonic()
    with pytest.raises(AllowanceSpentError):
        watched.send((USER,))
    assert monotonic() - began < 50
    with pytest.raises(AllowanceSpentError):
        watched.send((USER,))
    assert system.requests == 1


def test_the_signal_is_given_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    CheckedSender(Waiting(0.0), Allowance(60)).send((USER,))
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
