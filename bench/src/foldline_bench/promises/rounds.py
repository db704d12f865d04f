"""One history through one target: a request after each step, with all that judges want to know of it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType

from foldline.messages import Message, ToolResult
from foldline_bench.promises.histories import ShapedHistory, read_messages
from foldline_bench.promises.targets.base import DeclinedError, Opening, SentRequest, SessionUnderTest, Target

__all__ = ["MadeRequest", "OutOfTimeError", "Round", "limited", "opening_of", "run_history"]


class OutOfTimeError(BaseException):
    """The tool did not come back. (No `Exception`: one that the tool itself catches would not end it.)"""


@dataclass(frozen=True)
class MadeRequest:
    """A request, or why there is none. `stop` is how many messages there were, `number` counts requests from 1."""

    history: ShapedHistory
    step: int
    stop: int
    sent: SentRequest | None = None
    declined: str = ""
    broken: str = ""

    @property
    def number(self) -> int:
        """The number of the request."""
        return self.step + 1

    @cached_property
    def read(self) -> tuple[Message, ...]:
        """The messages of the request as the codec reads them, without those that it cannot read."""
        found = read_messages(self.sent.messages, self.history.dialect) if self.sent else ()
        return tuple(message for message in found if message is not None)

    @cached_property
    def dumped(self) -> tuple[str, ...]:
        """Each message of the request as the bytes that a cache compares."""
        return tuple(json.dumps(wire) for wire in self.sent.messages) if self.sent else ()

    @cached_property
    def results(self) -> dict[str, ToolResult]:
        """The results that the request shows, by the id of their call."""
        return {part.call_id: part for one in self.read for part in one.parts if isinstance(part, ToolResult)}

    @cached_property
    def calls(self) -> frozenset[str]:
        """The ids of the calls that the request shows."""
        return frozenset(call.id for one in self.read for call in one.calls)


@dataclass
class Round:
    """A history that went through a target, until its end or the first request that was not made."""

    history: ShapedHistory
    target: Target
    most_tokens: int
    exchanges: list[MadeRequest] = field(default_factory=list)
    changed: int | None = None
    """The index of a message of the caller's that the tool changed."""
    lost: str = ""
    """Which original could not be read back."""
    stalled: bool = False


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block after so many seconds, where the system has such a clock (not Windows)."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def opening_of(history: ShapedHistory) -> Opening:
    """What a session of the history begins with."""
    return Opening(history.dialect, history.window_tokens, history.system, history.pinned)


def run_history(target: Target, history: ShapedHistory, *, slack: float, seconds: float) -> Round:
    """Send a history step by step. O(requests times what the tool takes for one)."""
    share = 0.0 if target.counts_alike else slack
    found = Round(history, target, int(history.window_tokens * (1 + share)))
    step = stop = 0
    target.ready()
    try:
        with limited(seconds):
            session = target.open(opening_of(history))
            for step, new in enumerate(history.steps):
                stop += len(new)
                found.exchanges.append(MadeRequest(history, step, stop, session.send(new)))
            _look_back(found, session)
            session.close()
    except DeclinedError as error:
        found.exchanges.append(MadeRequest(history, step, stop, declined=str(error), broken=error.broken))
    except OutOfTimeError:
        found.stalled = True
        words = f"it did not come back within {seconds:g} s"
        found.exchanges.append(MadeRequest(history, step, stop, declined=words))
    return found


def _look_back(found: Round, session: SessionUnderTest) -> None:
    """Whether everything that was given is still there."""
    abilities = found.target.abilities
    if "given" in abilities:
        found.changed = session.changed()
    if "original" not in abilities:
        return
    for index, wire in enumerate(found.history.messages):
        try:
            original = session.original(index)
        except DeclinedError as error:
            found.lost = f"message {index} cannot be read back: {error}"
            return
        if original != wire:
            found.lost = f"message {index} is not read back as it was"
            return
