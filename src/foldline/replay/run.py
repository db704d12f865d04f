"""Replay a recorded session: one request for every reply that was recorded, made by a `Sender` and measured.

A sender receives what was recorded before a reply and returns the request to send. Nothing is generated: the recorded
reply is what the model said next, and it also shows what the model needed (see `recall`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Final, Protocol

from foldline.catalog.models import CacheRule
from foldline.engine.context import Context, SummarizeWith
from foldline.engine.one_shot import check
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES
from foldline.errors import DoesNotFit, InvalidInput
from foldline.messages import Json, Wire
from foldline.recorded.sessions import Session
from foldline.replay.recall import MeasuredMessage, MeasuredSession, met_references
from foldline.replay.results import (
    NONE,
    Mark,
    RecallCounts,
    Replay,
    Rereads,
    SummaryCall,
    Turn,
    bill_tokens,
    reread_tokens,
)
from foldline.tokens import ESTIMATE, Counter, system_tokens
from foldline.view.transcript import Fold

__all__ = [
    "Managed",
    "Pauses",
    "Sender",
    "Sent",
    "Unmanaged",
    "common_prefix",
    "common_prefix_tokens",
    "context_for",
    "policy_named",
    "replay",
]

# A shorter common beginning is the role and the ids of a message: it does not count as cached.
_MIN_SHARED_CHARS: Final = 40


# --- senders ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it was handed to the provider; without messages nothing was sent.

    `summary_calls` are the model calls made for it. `cpu_seconds` is the sender's own figure, for one that excludes
    part of its work; None means that the replay measures `send`.
    """

    messages: Sequence[Wire]
    system: Json
    folds: tuple[Mark, ...] = ()
    repairs: int = 0
    summary_calls: tuple[SummaryCall, ...] = ()
    cpu_seconds: float | None = None


class Sender(Protocol):
    """Takes messages as they were recorded and returns the next request."""

    def send(self, new: Sequence[Wire]) -> Sent:
        """The request after these messages, which follow those of earlier calls. May raise DoesNotFit."""


class Unmanaged:
    """No management: everything, as it was recorded."""

    def __init__(self, session: Session) -> None:
        self._messages: list[Wire] = []
        self._system = session.system

    def send(self, new: Sequence[Wire]) -> Sent:
        """All messages so far. O(messages)."""
        # A copy: the request must not grow while the one after it is compared with it.
        self._messages += new
        return Sent(tuple(self._messages), self._system)


@dataclass(frozen=True, slots=True)
class Pauses:
    """A pause of `seconds` before every `every`-th request (20: the 20th, the 40th …), and those of `at` by request."""

    every: int = 0
    seconds: float = 0.0
    at: Mapping[int, float] = field(default_factory=dict)

    def before(self, request: int) -> float:
        """Seconds of the pause before a request, counted from 1."""
        regular = self.seconds if self.every and request % self.every == 0 else 0.0
        return max(regular, self.at.get(request, 0.0))


class Managed:
    """A `Context` with a policy. `summarize` writes summaries; `pop_summary_calls` returns its calls since last time.

    With `pauses` the context is told how long it was idle, as an agent tells it by the clock.
    """

    def __init__(
        self,
        context: Context,
        *,
        summarize: SummarizeWith | None = None,
        pop_summary_calls: Callable[[], tuple[SummaryCall, ...]] = tuple,
        pauses: Pauses | None = None,
    ) -> None:
        self.context = context
        self._summarize = summarize
        self._pop_summary_calls = pop_summary_calls
        self._pauses = pauses
        self._requests = 0

    def send(self, new: Sequence[Wire]) -> Sent:
        """The request after `append` and `prepare`; CPU time is that of these two alone. Raises DoesNotFit."""
        self._requests += 1
        idle_seconds = 0.0 if self._pauses is None else self._pauses.before(self._requests)
        # CPU time and not the time of day: replays run side by side, and a wait for another one is no cost of a policy.
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
        return Sent(
            request.messages,
            request.system,
            marks,
            len(request.repairs),
            self._pop_summary_calls(),
            cpu_seconds=spent,
        )


def context_for(
    recording: MeasuredSession,
    policy: str | Policy,
    *,
    window: int,
    max_output_tokens: int = 0,
    rule: CacheRule,
    counter: Counter | None = None,
    model: str | None = None,
) -> Context:
    """A context for a recorded session: its dialect, system text and tools, and by default its counter."""
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


# --- the replay -------------------------------------------------------------------------------------------------------


def policy_named(name: str) -> str:
    """The name of a policy, or "none". Raises InvalidInput with the known names for any other."""
    if name != NONE and name not in POLICIES:
        raise InvalidInput(f"unknown policy {name!r}; known are {', '.join((NONE, *POLICIES))}", place="policy")
    return name


def replay(
    session: Session | MeasuredSession,
    policy: str | Policy,
    *,
    window: int,
    max_output_tokens: int = 0,
    rule: CacheRule,
    counter: Counter | None = None,
    sender: Sender | None = None,
    cold_every: int | None = None,
    pauses: Pauses | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> Replay:
    """Replay a session under a policy (or "none") and measure each request.

    `rule` prices the requests; a policy that weighs prices gets it too. `counter` sizes them, also for the policy
    (default: the estimate; a `MeasuredSession` has its own). A `sender` replaces the policy, and `policy` is then only
    its name. With `cold_every` the policy is told before every such request (20: the 20th, the 40th …) that the cache
    has expired; `bill_tokens` prices that. `pauses` are those of the recording: the policy is told of them, and each
    turn has its own. `on_turn` is called after each request. CPU time covers `append` and `prepare` (or `send`) only. A
    request that does not fit counts as refused and the session continues. Raises InvalidInput for an unknown policy, a
    window without room, and messages that cannot be read.
    """
    recording = session if isinstance(session, MeasuredSession) else MeasuredSession(session, counter or ESTIMATE)
    if max_output_tokens < 0 or window - max_output_tokens <= 0:
        raise InvalidInput(f"{window:,} tokens leave no room for {max_output_tokens:,} of output", place="window")
    name = policy if isinstance(policy, str) else policy.name
    if sender is None and name == NONE:
        sender = Unmanaged(recording.session)
    elif sender is None:
        checked = policy_named(policy) if isinstance(policy, str) else policy
        context = context_for(recording, checked, window=window, max_output_tokens=max_output_tokens, rule=rule)
        told = replace(pauses or Pauses(), every=cold_every, seconds=rule.lifetime_seconds) if cold_every else pauses
        sender = Managed(context, pauses=told)
    # The limit is read before the first request: a context may lower it while it runs.
    kept_tokens = sender.context.limits.input_tokens if isinstance(sender, Managed) else None
    meter = _Meter(recording, window - max_output_tokens, rule, pauses or Pauses())
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


class _Meter:
    """Measures the requests of one replay, each against the one before."""

    def __init__(self, recording: MeasuredSession, limit_tokens: int, rule: CacheRule, pauses: Pauses) -> None:
        self._recording = recording
        self._limit_tokens = limit_tokens
        self._rule = rule
        self._pauses = pauses
        # A copy, which shares the measured messages of the session but grows on its own.
        self._reader = recording.reader.copy()  # dropped with the replay: nobody else needs its messages
        self._before: tuple[Json, list[MeasuredMessage]] | None = None
        self._recorded_tokens = recording.tokens - sum(message.tokens for message in recording.history)

    def turn(self, index: int, sender: Sender, start: int, stop: int) -> Turn:
        """Send what was recorded in [start, stop) to the sender and measure the request it returns."""
        recording = self._recording
        new = recording.session.messages[start:stop]
        self._recorded_tokens += sum(message.tokens for message in recording.history[start:stop])
        began = process_time()
        try:
            sent = sender.send(new)
        except DoesNotFit as refusal:  # the session continues: the next request may fit
            spent = process_time() - began
            recall, rereads = self._met(index, ())
            turn = Turn(
                index=index,
                messages=stop,
                recorded_tokens=self._recorded_tokens,
                refused=refusal.parts,
                recall=recall,
                rereads=rereads,
                cpu_seconds=spent,
                idle_seconds=self._pauses.before(index + 1),
            )
            return replace(turn, reread_tokens=reread_tokens((turn,), self._rule))
        spent = process_time() - began if sent.cpu_seconds is None else sent.cpu_seconds
        # Outside of the timed part: measuring is no work of a policy.
        view = [self._reader.read(wire) for wire in sent.messages]
        tokens, cached, broken = self._sizes(sent.system, view)
        session = recording.session
        recall, rereads = self._met(index, view)
        found = check(sent.messages, dialect=session.dialect, system=sent.system, tools=session.tools)
        turn = Turn(
            index=index,
            messages=stop,
            recorded_tokens=self._recorded_tokens,
            tokens=tokens,
            cached_tokens=cached,
            violations=tuple(map(str, found)),
            rules=frozenset(violation.rule for violation in found),
            over_budget=tokens > self._limit_tokens,
            prefix_broken=broken,
            folds=sent.folds,
            repairs=sent.repairs,
            recall=recall,
            rereads=rereads,
            cpu_seconds=spent,
            summary_calls=sent.summary_calls,
            idle_seconds=self._pauses.before(index + 1),
        )
        again = reread_tokens((turn,), self._rule)
        return replace(turn, cost_tokens=bill_tokens((turn,), self._rule), reread_tokens=again)

    def _met(self, index: int, view: Sequence[MeasuredMessage]) -> tuple[RecallCounts, Rereads]:
        """What a request shows of the references of its reply, and what has to be read again."""
        recording, half = self._recording, self._limit_tokens // 2
        return met_references(
            recording.references[index],
            view,
            feasible=recording.feasible_near_lines(self._limit_tokens)[index],
            sizes_tokens=lambda place: min(recording.history[place].tokens, half),
        )

    def _sizes(self, system: Json, view: list[MeasuredMessage]) -> tuple[int, int, bool]:
        """Tokens of a request, those shared with the start of the last one, and whether that prefix was broken."""
        if not view:  # nothing was sent, so the cache is unchanged
            return 0, 0, False
        counter, tools = self._recording.counter, self._recording.tools_tokens
        # Counted by the recording's own counter, whatever the policy counts with.
        head = system_tokens(system, counter)
        tokens = tools + head + sum(message.tokens for message in view)
        before, self._before = self._before, (system, view)
        if before is None:
            return tokens, 0, False
        if before[0] != system:  # tools precede the system text in every dialect, so they alone stay cached
            return tokens, tools, True
        cached, whole = common_prefix_tokens(before[1], view, counter)
        return tokens, tools + head + cached, not whole


# --- the prompt cache -------------------------------------------------------------------------------------------------
# A provider charges less for the beginning of a request that it has seen as the beginning of an earlier one. Assumed
# here: that earlier one is the request before, and it is still in the cache.


def common_prefix(one: str, other: str) -> str:
    """The longest beginning that two texts share. O(length).

    Halves the range and compares slices: a loop over characters takes far longer in Python.
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]


def common_prefix_tokens(
    before: Sequence[MeasuredMessage], now: Sequence[MeasuredMessage], counter: Counter
) -> tuple[int, bool]:
    """Tokens at the start of `now` that equal the start of `before`, into the first message that differs.

    Also whether `now` begins with all of `before`. O(messages), and O(size) of one message.
    """
    # Providers cache by tokens, so a cached part may end inside a message. Identity is tried first: most messages of a
    # request are the objects of the last one.
    tokens = 0
    for one, other in zip(before, now, strict=False):
        if one is other or one.wire == other.wire:
            tokens += other.tokens
            continue
        if one.role == other.role:
            shared = common_prefix(one.text, other.text)
            tokens += counter.text(shared) if len(shared) > _MIN_SHARED_CHARS else 0
        return tokens, False
    return tokens, len(before) <= len(now)
