"""Who makes the requests of a replay: no management, a `Context`, or a system of other people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Protocol

from foldline.catalog.models import CacheRule
from foldline.engine.context import Context, SummarizeWith
from foldline.engine.policy import Policy
from foldline.messages import Json, Wire
from foldline.recorded.sessions import Session
from foldline.replay.recording import Recording
from foldline.replay.turns import Asked, Mark
from foldline.tokens import Counter
from foldline.view.transcript import Fold

__all__ = ["Managed", "Pauses", "Sender", "Sent", "Unmanaged", "context_for"]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it was handed to the provider.

    `asked` are the calls of a model that were made for it. `cpu_seconds` is what the sender took, where it leaves some
    of its work out; None: the replay's own measure of `send` holds. Without messages nothing was sent.
    """

    messages: Sequence[Wire]
    system: Json
    folds: tuple[Mark, ...] = ()
    repairs: int = 0
    asked: tuple[Asked, ...] = ()
    cpu_seconds: float | None = None


class Sender(Protocol):
    """Takes messages as they are recorded and gives the request that is due."""

    def send(self, new: Sequence[Wire]) -> Sent:
        """The request after these messages, which follow those given before. May raise DoesNotFit."""


class Unmanaged:
    """No management: everything, as it was recorded."""

    def __init__(self, session: Session) -> None:
        self._messages: list[Wire] = []
        self._system = session.system

    def send(self, new: Sequence[Wire]) -> Sent:
        """All messages so far. O(messages)."""
        self._messages += new
        return Sent(tuple(self._messages), self._system)


@dataclass(frozen=True, slots=True)
class Pauses:
    """Each request of such a number (20: the 20th, the 40th …) comes after so many seconds without one."""

    every: int
    seconds: float

    def before(self, request: int) -> float:
        """Seconds of the pause before a request, the first of which is 1."""
        return self.seconds if request % self.every == 0 else 0.0


class Managed:
    """A `Context` with a policy. `summarize` writes summaries, `take_asked` gives its calls since it was last asked.

    With `pauses` the context is told of them, as an agent tells it by the clock.
    """

    def __init__(
        self,
        context: Context,
        *,
        summarize: SummarizeWith | None = None,
        take_asked: Callable[[], tuple[Asked, ...]] = tuple,
        pauses: Pauses | None = None,
    ) -> None:
        self.context = context
        self._summarize = summarize
        self._take_asked = take_asked
        self._pauses = pauses
        self._requests = 0

    def send(self, new: Sequence[Wire]) -> Sent:
        """What `append` and `prepare` make of it; CPU time is that of the two alone. Raises DoesNotFit."""
        self._requests += 1
        idle_seconds = 0.0 if self._pauses is None else self._pauses.before(self._requests)
        began = process_time()
        for wire in new:
            self.context.append(wire)
        request = self.context.prepare(self._summarize, idle_seconds=idle_seconds)
        spent = process_time() - began
        marks = tuple(
            Mark(fold.start, fold.stop, fold.reducer, fold.reason, fold.before_tokens, fold.tokens)
            for fold in request.folds
            if isinstance(fold, Fold)
        )
        asked = self._take_asked()
        return Sent(request.messages, request.system, marks, len(request.repairs), asked, cpu_seconds=spent)


def context_for(
    recording: Recording,
    policy: str | Policy,
    *,
    window: int,
    max_output_tokens: int = 0,
    rule: CacheRule,
    counter: Counter | None = None,
    model: str | None = None,
) -> Context:
    """A context for a recorded session: its dialect, system text and tools, and its counter where no other is given."""
    session = recording.session
    return Context(
        dialect=session.dialect,
        model=model,
        policy=policy,
        window=window,
        max_output_tokens=max_output_tokens,
        system=session.system,
        tools=session.tools,
        counter=counter or recording.counter,
        cache_rule=rule,
    )
