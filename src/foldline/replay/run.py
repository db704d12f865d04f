"""Replaying a recorded session through a `Context`, one request for every reply that was recorded.

The context is given what was recorded before a reply and is asked for the request to send. Nothing is generated: what
the model said next is the recorded reply, which also tells what it needed (see facts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import process_time

from foldline.catalog.models import CacheRule
from foldline.engine.fitting import check
from foldline.engine.policy import POLICIES, Policy
from foldline.errors import DoesNotFit, InvalidInput
from foldline.messages import Json
from foldline.recorded.sessions import Session
from foldline.replay.cache import bill_tokens, common_prefix_tokens
from foldline.replay.facts import Reference, Seen
from foldline.replay.recording import Recording
from foldline.replay.senders import Managed, Pauses, Sender, Unmanaged, context_for
from foldline.replay.turns import DISTANCES, NONE, Recall, Replay, Tally, Turn
from foldline.tokens import ESTIMATE, Counter, system_tokens

__all__ = ["policy_named", "replay"]


def policy_named(name: str) -> str:
    """The name of a policy, or "none", when it is known. Raises InvalidInput, which names the known ones."""
    if name != NONE and name not in POLICIES:
        raise InvalidInput(f"unknown policy {name!r}; known are {', '.join((NONE, *POLICIES))}", place="policy")
    return name


def replay(
    session: Session | Recording,
    policy: str | Policy,
    *,
    window: int,
    max_output_tokens: int = 0,
    rule: CacheRule,
    counter: Counter | None = None,
    sender: Sender | None = None,
    cold_every: int | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> Replay:
    """Replay a session under a policy (or "none") and measure each request.

    `rule` prices the requests, and a policy that weighs prices is told it; `counter` sizes them, for the policy too
    (default: the estimate; a `Recording` has its own). `sender` makes the requests in their place: `policy` is then but
    its name. With `cold_every` a policy is told before each request of such a number (20: the 20th, the 40th …) that
    the cache has gone cold; `bill_tokens` prices that. `on_turn` is called after each request. CPU time is that of
    `append` and `prepare` (or of `send`) alone. A request that does not fit is counted as refused and the session goes
    on. Raises InvalidInput for an unknown policy, a window without room, and messages that cannot be read.
    """
    recording = session if isinstance(session, Recording) else Recording(session, counter or ESTIMATE)
    if max_output_tokens < 0 or window - max_output_tokens <= 0:
        raise InvalidInput(f"{window:,} tokens leave no room beside {max_output_tokens:,} of output", place="window")
    name = policy if isinstance(policy, str) else policy.name
    if sender is None and name == NONE:
        sender = Unmanaged(recording.session)
    elif sender is None:
        known = policy_named(policy) if isinstance(policy, str) else policy
        context = context_for(recording, known, window=window, max_output_tokens=max_output_tokens, rule=rule)
        sender = Managed(context, pauses=Pauses(cold_every, rule.lifetime_seconds) if cold_every else None)
    kept_tokens = sender.context.limits.input_tokens if isinstance(sender, Managed) else None
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


class _Meter:
    """Measures the requests of one replay, each against the one before."""

    def __init__(self, recording: Recording, limit_tokens: int, rule: CacheRule) -> None:
        self._recording = recording
        self._limit_tokens = limit_tokens
        self._rule = rule
        self._lens = recording.lens.branch()
        self._before: tuple[Json, list[Seen]] | None = None
        self._recorded_tokens = recording.tokens - sum(seen.tokens for seen in recording.history)

    def turn(self, index: int, sender: Sender, start: int, stop: int) -> Turn:
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
        spent = process_time() - began if sent.cpu_seconds is None else sent.cpu_seconds
        view = [self._lens.look(wire) for wire in sent.messages]
        tokens, cached, broken = self._sizes(sent.system, view)
        session = recording.session
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
            recall=_recall(asked, view),
            cpu_seconds=spent,
            asked=sent.asked,
        )
        return replace(turn, cost_tokens=bill_tokens((turn,), self._rule))

    def _sizes(self, system: Json, view: list[Seen]) -> tuple[int, int, bool]:
        """Tokens of a request, how many of them began the request before, and whether that one is not its beginning."""
        if not view:  # nothing was sent, and the cache is what it was
            return 0, 0, False
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
        beyond=tuple(_beyond(asked, shown, tokens) for tokens in DISTANCES),
    )


def _beyond(asked: Sequence[Reference], shown: set[str], back_tokens: int) -> Tally:
    reaching = [ref.fact in shown for ref in asked if ref.back_tokens >= back_tokens]
    return Tally(sum(reaching), len(reaching))
