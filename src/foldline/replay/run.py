"""Replaying a recorded session through a `Context`, one request for every reply that was recorded.

The context is given what was recorded before a reply and is asked for the request to send. Nothing is generated: what
the model said next is the recorded reply, which also tells what it needed (see facts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Protocol

from foldline.catalog.models import CacheRule
from foldline.codecs import Codec, codec
from foldline.context import Context
from foldline.errors import DoesNotFit, InvalidInput
from foldline.fitting import check
from foldline.messages import Json, Wire
from foldline.policy import POLICIES, Policy
from foldline.replay.cache import common_prefix_tokens, cost_tokens
from foldline.replay.facts import Lens, Reference, Seen, references
from foldline.replay.turns import NONE, Mark, Recall, Replay, Tally, Turn
from foldline.sessions import Session
from foldline.tokens import ESTIMATE, Counter, system_tokens, tools_tokens
from foldline.transcript import Fold

__all__ = ["Recording", "policy_named", "replay"]


def policy_named(name: str) -> str:
    """The name of a policy, or "none", when it is known. Raises InvalidInput, which names the known ones."""
    if name != NONE and name not in POLICIES:
        raise InvalidInput(f"unknown policy {name!r}; known are {', '.join((NONE, *POLICIES))}", place="policy")
    return name


class Recording:
    """A session read and measured once, to be replayed under several policies. O(size of the session).

    Every size is counted by `counter`, which no policy can choose: the same for all that are compared.
    """

    def __init__(self, session: Session, counter: Counter = ESTIMATE) -> None:
        self.session = session
        self.counter = counter
        self.codec = codec(session.dialect)
        self.lens = Lens(self.codec, counter)
        self.history = [self._look(index) for index in range(len(session.messages))]
        self.replies = tuple(_replies(self.codec, self.history))
        self.references = references(self.history, self.replies)
        self.tools_tokens = tools_tokens(session.tools, counter)
        sizes = [seen.tokens for seen in self.history]
        self.tokens = sum(sizes) + self.tools_tokens + system_tokens(session.system, counter)

    def _look(self, index: int) -> Seen:
        try:
            return self.lens.look(self.session.messages[index])
        except InvalidInput as error:
            inner = f": {error.place}" if error.place else ""
            raise InvalidInput(error.reason, place=f"message {index}{inner}") from error


def _replies(dialect: Codec, history: Sequence[Seen]) -> Iterator[range]:
    """Where the model spoke: each assistant message, or each run of its items; not what a session begins with."""
    start: int | None = None
    for index, seen in enumerate(history):
        if seen.role != "assistant":
            start = None
            continue
        if start is None or not dialect.itemised:
            start = index
            stop = index + 1
            while dialect.itemised and stop < len(history) and history[stop].role == "assistant":
                stop += 1
            if index:
                yield range(index, stop)


@dataclass(frozen=True, slots=True)
class _Sent:
    """One request as it was handed to the provider."""

    messages: Sequence[Wire]
    system: Json
    folds: tuple[Mark, ...] = ()
    repairs: int = 0


class _Sender(Protocol):
    """Takes messages as they are recorded and gives the request that is due."""

    def send(self, new: Sequence[Wire]) -> _Sent: ...


class _Unmanaged:
    """No management: everything, as it was recorded."""

    def __init__(self, session: Session) -> None:
        self._messages: list[Wire] = []
        self._system = session.system

    def send(self, new: Sequence[Wire]) -> _Sent:
        self._messages += new
        return _Sent(tuple(self._messages), self._system)


class _Managed:
    """A `Context` with a policy."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def send(self, new: Sequence[Wire]) -> _Sent:
        for wire in new:
            self._context.append(wire)
        request = self._context.prepare()
        marks = tuple(
            Mark(fold.start, fold.stop, fold.reducer, fold.reason, fold.before_tokens, fold.tokens)
            for fold in request.folds
            if isinstance(fold, Fold)
        )
        return _Sent(request.messages, request.system, marks, len(request.repairs))


def replay(
    session: Session | Recording,
    policy: str | Policy,
    *,
    window: int,
    max_output_tokens: int = 0,
    rule: CacheRule,
    counter: Counter | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> Replay:
    """Replay a session under a policy (or "none") and measure each request.

    `rule` prices the requests, and a policy that weighs prices is told it; `counter` sizes them, for the policy too
    (default: the estimate; a `Recording` has its own).
    `on_turn` is called after each request. CPU time is that of `append` and `prepare` alone. A request that does not
    fit is counted as refused and the session goes on. Raises InvalidInput for an unknown policy, a window without
    room, and messages that cannot be read.
    """
    recording = session if isinstance(session, Recording) else Recording(session, counter or ESTIMATE)
    if max_output_tokens < 0 or window - max_output_tokens <= 0:
        raise InvalidInput(f"{window:,} tokens leave no room beside {max_output_tokens:,} of output", place="window")
    sender: _Sender
    name = policy if isinstance(policy, str) else policy.name
    kept_tokens = None
    if name == NONE:
        sender = _Unmanaged(recording.session)
    else:
        context = _context(recording, policy, window, max_output_tokens, rule)
        sender, kept_tokens = _Managed(context), context.limits.input_tokens
    meter = _Meter(recording, window - max_output_tokens, rule)
    turns = []
    done = 0
    for index, reply in enumerate(recording.replies):
        turn = meter.turn(index, sender, done, reply.start)
        done = reply.start
        turns.append(turn)
        if on_turn is not None:
            on_turn(turn)
    return Replay(
        session=recording.session.name,
        policy=name,
        dialect=recording.session.dialect,
        window=window,
        limit_tokens=window - max_output_tokens,
        kept_tokens=kept_tokens,
        counter=recording.counter.name,
        recorded_tokens=recording.tokens,
        turns=tuple(turns),
    )


def _context(
    recording: Recording, policy: str | Policy, window: int, max_output_tokens: int, rule: CacheRule
) -> Context:
    session = recording.session
    return Context(
        dialect=session.dialect,
        policy=policy_named(policy) if isinstance(policy, str) else policy,
        window=window,
        max_output_tokens=max_output_tokens,
        system=session.system,
        tools=session.tools,
        counter=recording.counter,
        cache_rule=rule,
    )


class _Meter:
    """Measures the requests of one replay, each against the one before."""

    def __init__(self, recording: Recording, limit_tokens: int, rule: CacheRule) -> None:
        self._recording = recording
        self._limit_tokens = limit_tokens
        self._rule = rule
        self._lens = recording.lens.branch()
        self._before: tuple[Json, list[Seen]] | None = None
        self._recorded_tokens = recording.tokens - sum(seen.tokens for seen in recording.history)

    def turn(self, index: int, sender: _Sender, start: int, stop: int) -> Turn:
        """Let the sender have what was recorded in [start, stop) and measure the request it makes of it."""
        recording = self._recording
        new = recording.session.messages[start:stop]
        self._recorded_tokens += sum(seen.tokens for seen in recording.history[start:stop])
        asked = recording.references[index]
        began = process_time()
        try:
            sent = sender.send(new)
        except DoesNotFit as refusal:
            spent = process_time() - began
            return Turn(
                index=index,
                messages=stop,
                recorded_tokens=self._recorded_tokens,
                refused=refusal.parts,
                recall=_recall(asked, ()),
                cpu_seconds=spent,
            )
        spent = process_time() - began
        view = [self._lens.look(wire) for wire in sent.messages]
        tokens, cached, broken = self._sizes(sent.system, view)
        session = recording.session
        found = check(sent.messages, dialect=session.dialect, system=sent.system, tools=session.tools)
        return Turn(
            index=index,
            messages=stop,
            recorded_tokens=self._recorded_tokens,
            tokens=tokens,
            cached_tokens=cached,
            cost_tokens=cost_tokens(tokens, cached, self._rule),
            violations=tuple(map(str, found)),
            over_budget=tokens > self._limit_tokens,
            prefix_broken=broken,
            folds=sent.folds,
            repairs=sent.repairs,
            recall=_recall(asked, view),
            cpu_seconds=spent,
        )

    def _sizes(self, system: Json, view: list[Seen]) -> tuple[int, int, bool]:
        """Tokens of a request, how many of them began the request before, and whether that one is not its beginning."""
        counter, tools = self._recording.counter, self._recording.tools_tokens
        head = system_tokens(system, counter)
        tokens = tools + head + sum(seen.tokens for seen in view)
        before, self._before = self._before, (system, view)
        if before is None:
            return tokens, 0, False
        if before[0] != system:  # tools stand before the system text, in every dialect
            return tokens, tools, True
        cached, whole = common_prefix_tokens(before[1], view, counter)
        return tokens, tools + head + cached, not whole


def _recall(asked: Sequence[Reference], view: Sequence[Seen]) -> Recall:
    shown = {ref.fact for ref in asked if any(ref.fact in seen.facts for seen in view)}
    far = [ref for ref in asked if ref.far]
    whole = sum(any(ref.line in seen.lines for seen in view) for ref in far)
    results_only = [ref for ref in far if ref.results_only]
    return Recall(
        all=Tally(len(shown), len(asked)),
        far=Tally(sum(ref.fact in shown for ref in far), len(far)),
        line=Tally(whole, len(far)),
        far_tool=Tally(sum(ref.fact in shown for ref in results_only), len(results_only)),
    )
