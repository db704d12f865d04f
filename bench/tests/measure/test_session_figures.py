from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.replay import Sent
from foldline_bench.measure.session_figures import HARD, SOFT, Allowance, AllowanceSpentError, CheckedSender, refusals

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


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "yes"}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "42"}


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([SYSTEM, USER], set()),
        ([SYSTEM, USER, calling("c"), RESULT], set()),
        ([SYSTEM, USER, calling("c", "d"), RESULT, {**RESULT, "tool_call_id": "d"}, REPLY, USER], set()),
        ([], {"empty"}),
        ([SYSTEM], {"empty"}),
        ([SYSTEM, RESULT, USER], {"orphan-result", "first-not-user"}),
        ([USER, calling("c"), RESULT, RESULT], {"orphan-result"}),
        ([USER, calling("c", "d"), RESULT], {"unanswered-call"}),
        ([USER, calling("c"), USER], {"unanswered-call"}),
        ([USER, calling("c")], {"unanswered-call", "ends-with-assistant"}),
        ([{"role": "user", "content": ""}], {"empty-content"}),
        ([USER, {"role": "assistant", "content": None}, USER], {"empty-content"}),
        ([USER, REPLY], {"ends-with-assistant"}),
        ([REPLY, USER], {"first-not-user"}),
        ([USER, SYSTEM, REPLY, USER], {"late-system"}),
        ([USER, calling("c"), SYSTEM, RESULT], {"late-system"}),
    ],
)
def test_what_providers_refuse_is_named(messages: list[dict[str, Any]], broken: set[str]) -> None:
    assert refusals(messages) == broken


def test_each_rule_is_hard_or_soft() -> None:
    assert not HARD & SOFT
