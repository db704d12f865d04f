"""A system under test: anything that makes the messages of a request from a history.

Systems of other people are modules of `foldline_bench.peers`, or files `peer.py` in a folder of peers. Each has

    SYSTEMS       the name of each setting, and what makes a system of a budget in tokens, a counter of messages and a
                  summariser
    OWN_COUNTER   the same for settings that count by the system's own counter; may be left out
    PACKAGES      the distributions whose versions are reported

and is loaded only in a worker process, by the interpreter of the peer's own environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import process_time
from typing import Any, Protocol, TypeAlias

from foldline.messages import Wire
from foldline.replay import Sent
from foldline_bench.summariser import FixedSummariser

__all__ = ["Count", "HostedSystem", "MakeSystem", "PeerModule", "Summarise", "System"]

Count: TypeAlias = Callable[[Wire], int]
"""Tokens of one message of Chat Completions by the neutral counter; cached, so that a second call takes no time."""


class System(Protocol):
    """One system for one session. Its own work is timed; conversion to and from its types is not."""

    def prepare(self, history: Sequence[Wire]) -> None:
        """Untimed: convert new messages into the system's types. `history` grows by appending; do not change it."""

    def view(self, history: Sequence[Wire]) -> Any:
        """Timed: the system's own work for one request."""

    def finish(self, out: Any) -> Sequence[Wire]:
        """Untimed: convert the result to Chat Completions; unchanged messages are the history's own objects."""


Summarise: TypeAlias = FixedSummariser
"""What a system calls instead of a model: `answer` takes one text, `summarize` messages; both record the call."""

MakeSystem: TypeAlias = Callable[[int, Count, Summarise], System]
"""Makes a fresh system for one session: the budget in tokens, the neutral counter, the summariser."""


class PeerModule(Protocol):
    """The interface of a peer's module."""

    SYSTEMS: Mapping[str, MakeSystem]
    PACKAGES: tuple[str, ...]


class HostedSystem:
    """A system of a peer as the sender of a replay. An error inside it is recorded, and nothing is sent."""

    def __init__(self, system: System, summariser: FixedSummariser) -> None:
        self.errors: list[str] = []
        self._system = system
        self._summariser = summariser
        self._history: list[Wire] = []

    def send(self, new: Sequence[Wire]) -> Sent:
        """Return the request of the system; its CPU time is that of `view` alone, without the summariser's."""
        self._history += new
        seconds = 0.0
        messages: tuple[Wire, ...] = ()
        try:
            self._system.prepare(self._history)
            began = process_time()
            try:
                out = self._system.view(self._history)
            finally:
                # Also after an error: a system that fails slowly has spent the time.
                seconds = process_time() - began
            messages = tuple(self._system.finish(out))
        except Exception as error:  # noqa: BLE001 - what other people's code raises is a figure of theirs
            self.errors.append(f"{type(error).__name__}: {error}")
        calls, inside = self._summariser.pop_calls(), self._summariser.pop_seconds()
        return Sent(messages, None, summary_calls=calls, cpu_seconds=max(0.0, seconds - inside))
