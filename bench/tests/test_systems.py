from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldline.messages import Wire
from foldline.replay import SummaryCall
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import HostedSystem

USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}


def spin(rounds: int) -> int:
    """Take some CPU time."""
    return sum(number * number for number in range(rounds))


class Newest:
    """Sends the last message; slow where it is not timed, and asks for a summary in each second request."""

    def __init__(self, summariser: FixedSummariser) -> None:
        self.summariser = summariser
        self.seen: list[int] = []

    def prepare(self, history: Sequence[Wire]) -> None:
        self.seen.append(len(history))
        spin(1_000_000)

    def view(self, history: Sequence[Wire]) -> Any:
        if len(self.seen) % 2 == 0:
            self.summariser.answer("Human: hi")
        return history[-1:]

    def finish(self, out: Any) -> Sequence[Wire]:
        spin(1_000_000)
        return list(out)


def test_a_system_is_given_the_whole_history_and_only_its_view_is_timed() -> None:
    summariser = FixedSummariser()
    system = Newest(summariser)
    hosted = HostedSystem(system, summariser)
    sent = [hosted.send((USER,)), hosted.send((REPLY, USER))]
    assert system.seen == [1, 3]
    assert all(each.messages == (USER,) and each.messages[0] is USER for each in sent)
    assert [each.summary_calls for each in sent] == [(), (SummaryCall(3, 0, 3),)]
    spun = Newest(FixedSummariser())
    slow = HostedSystem(Slow(spun), FixedSummariser()).send((USER,))
    assert all(each.cpu_seconds is not None and slow.cpu_seconds is not None for each in sent)
    assert (sent[0].cpu_seconds or 0) < (slow.cpu_seconds or 0)
    assert hosted.errors == []


class Slow:
    """Takes its time inside its view."""

    def __init__(self, inner: Newest) -> None:
        self.prepare, self.finish = inner.prepare, inner.finish

    def view(self, history: Sequence[Wire]) -> Any:
        spin(1_000_000)
        return history


class Failing:
    """Fails in one of its parts."""

    def __init__(self, part: str) -> None:
        self._part = part

    def _at(self, part: str) -> None:
        if part == self._part:
            raise ZeroDivisionError(f"in {part}")

    def prepare(self, history: Sequence[Wire]) -> None:
        self._at("prepare")

    def view(self, history: Sequence[Wire]) -> Any:
        self._at("view")
        return history

    def finish(self, out: Any) -> Sequence[Wire]:
        self._at("finish")
        return list(out)


def test_an_error_inside_a_system_is_noted_and_nothing_is_sent() -> None:
    for part in ("prepare", "view", "finish"):
        hosted = HostedSystem(Failing(part), FixedSummariser())
        assert hosted.send((USER,)).messages == ()
        assert hosted.errors == [f"ZeroDivisionError: in {part}"]
