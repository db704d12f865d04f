"""The account of a stored session, from its log: the requests as reported, and the folds as made.

A request without management is the sum of all messages so far by our own count, scaled by the ratio of the provider's
counts to ours in this session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from foldline.catalog.models import HOUR_SECONDS, CacheRule, lookup
from foldline.messages import Json
from foldline.replay import Mark, Replay, Turn
from foldline.report.account import (
    AGAIN,
    BACK,
    Account,
    BilledCall,
    ExpectedRequest,
    Hidden,
    ReportedFold,
    billed,
    expected,
    hidden_by,
    refused_from,
    title_of,
)
from foldline.store.calls import REPLY, RecordedCall
from foldline.store.recording import Header
from foldline.text.formatting import plural
from foldline.text.redaction import redact
from foldline.view.budget import TokenLimits, cache_rule_of, limits_from, limits_of
from foldline.view.transcript import Branch, BranchTree, Entry, Event, Fold, Limited, Unfold, Usage

__all__ = ["account_of_log"]

_LOG_COUNTER: Final = "the provider"


@dataclass(slots=True)
class _LoggedRequest:
    """One request in the log. Sizes exclude system text and tools, by our count.

    `prefix_tokens` is the part of `history_tokens` that the last request would have contained without management.
    """

    usage: Usage
    model: str | None
    at: str
    messages: int
    history_tokens: int
    prefix_tokens: int
    base_tokens: int | None
    limits: TokenLimits
    folds: tuple[Fold, ...]


@dataclass(slots=True)
class _LogState:
    """The state while a log is read once, in order.

    `tokens` is the size of the messages on the session's branch, hidden ones excluded; `saved_tokens` is what the
    folds in effect save of it.
    """

    limits: TokenLimits
    model: str | None
    requests: list[_LoggedRequest] = field(default_factory=list)
    active: list[Entry] = field(default_factory=list)
    tree: BranchTree = field(default_factory=BranchTree)
    folds_made: list[tuple[Fold, int | None]] = field(default_factory=list)
    in_effect: dict[int, Fold] = field(default_factory=dict)
    new: list[Fold] = field(default_factory=list)
    tokens: int = 0
    saved_tokens: int = 0
    prefix_tokens: int = 0
    forked: bool = False

    def read(self, event: Event, at: str) -> None:
        """Apply one event. O(1), and O(messages) for a branch."""
        self.tree.add(event)
        match event:
            # Sums are kept up to date by each event: adding up all messages at each request would take quadratic time.
            case Entry():
                self.active.append(event)
                self.tokens += self._size(event)
            case Fold():
                self.new.append(event)
                self.in_effect[event.id] = event
                self.saved_tokens += event.before_tokens - event.tokens
            case Unfold(fold):
                self._undo([fold])
            case Branch(start):
                self._branch(start)
                for seq in self.tree.path[len(self.active) :]:  # of a branch that the session went back to
                    self.active.append(self.tree.entries[seq])
                    self.tokens += self._size(self.tree.entries[seq])
            case Limited():
                self.limits = limits_from(event, self.limits)
            case Usage():
                self._add_request(event, at)
            case _:
                pass  # pins change no request

    def end(self) -> None:
        """Add the folds that no request followed."""
        self.folds_made += [(fold, None) for fold in self.new]

    @staticmethod
    def _size(entry: Entry) -> int:
        return 0 if entry.hidden else entry.tokens

    def _branch(self, start: int) -> None:
        while self.active and self.active[-1].seq >= start:
            self.tokens -= self._size(self.active.pop())
        # A fold that reaches over the fork is gone on the new branch; one before it is part of both.
        self._undo([key for key, fold in self.in_effect.items() if fold.stop > start])
        # The new branch shares the messages before the fork with the last request, and those were in the cache.
        self.prefix_tokens, self.forked = min(self.prefix_tokens, self.tokens), True

    def _undo(self, folds: Iterable[int]) -> None:
        for key in folds:
            if (fold := self.in_effect.pop(key, None)) is not None:
                self.saved_tokens -= fold.before_tokens - fold.tokens

    def _add_request(self, usage: Usage, at: str) -> None:
        whole, count = self.tokens, len(self.active)
        # The log may hold the reply before its usage. It was no part of the request that the usage is about.
        while count and self.active[count - 1].message.role == "assistant":
            count -= 1
            whole -= self._size(self.active[count])
        # Request minus messages is the system text and the tools. A fork hides what was sent, so it gives no base.
        ours = usage.estimated_tokens if usage.reported else usage.input_tokens
        base = max(0, ours - whole + self.saved_tokens) if ours and not self.forked else None
        folds = tuple(self.new)
        self.folds_made += [(fold, len(self.requests) + 1) for fold in folds]
        self.requests.append(
            _LoggedRequest(
                usage, self.model, at, count, whole, min(self.prefix_tokens, whole), base, self.limits, folds
            )
        )
        self.new, self.prefix_tokens = [], whole


def account_of_log(
    log: Iterable[tuple[Header, Mapping[str, Json], Event | None]],
    calls: Sequence[RecordedCall],
    *,
    name: str,
    options: str = "",
    model: str | None = None,
    archived: Callable[[str], bool] = lambda key: True,
    listing: bool = True,
) -> Account | None:
    """Report on a session from its decoded log (`store.recording.decode_log`) and its recorded calls, if any. O(log).

    None for a session without reported usage, which can only be replayed. `name` and `options` are what commands need
    to find it. `model` replaces its model for prices, `archived` tells whether the archive has a key, and without
    `listing` hidden messages are only counted.
    """
    # One pass over a log of any length: only requests, folds and the entries of the current branch are kept.
    state: _LogState | None = None
    header: Header | None = None
    updated = ""
    for header, record, event in log:
        if state is None:
            state = _LogState(_limits(header), header.model)
        updated = str(record.get("at", updated))
        state.model = header.model
        if event is not None:
            state.read(event, str(record.get("at", "")))
    if state is None or header is None or not state.requests:
        return None
    state.end()
    # The first request that shows it, for all of them: a later change of tools is small, and a mean would mix in folds.
    base = next((one.base_tokens for one in state.requests if one.base_tokens is not None), 0)
    priced_model = model or header.model  # a user asks by `model` what the session would have cost with another one
    bills = _bills(state.requests, calls, model)
    rule = _cache_rule(state.requests, priced_model, header.dialect)
    expected_requests = list(_without_management(state.requests, base, _scale(state.requests), rule.lifetime_seconds))
    # A provider without a prompt cache would not have one without Foldline either.
    caching = any(one.usage.cached_tokens or one.usage.written_tokens for one in state.requests)
    hidden = _hidden(state, archived, f"foldline sessions show {name}", options, listing=listing)
    sent = _as_replay(state, expected_requests, name, header)
    return Account(
        name=name,
        title=redact(header.title) or title_of(entry.message for entry in state.active),
        model=priced_model or "",
        updated=updated,
        origin="reported" if any(one.usage.reported for one in state.requests) else "counted",
        sent=sent,
        folds=_reported_folds(state, {one.mark for one in hidden}),
        hidden=tuple(hidden),
        managed=billed(bills, dialect=header.dialect),
        unmanaged=expected(expected_requests, model=priced_model, rule=rule, caching=caching),
        refused_from=refused_from(sent),
        read_one=f"foldline sessions why {name} N{options}",
        more=tuple(_more(state, calls, caching)),
    )


def _hidden(
    state: _LogState, archived: Callable[[str], bool], command: str, options: str, *, listing: bool
) -> list[Hidden]:
    """What the folds in effect hide, with the command that reads each span."""
    return hidden_by(
        [(_mark(fold), fold.form, _key(fold, archived)) for fold in state.in_effect.values()],
        [entry.seq for entry in state.active],
        {entry.seq: entry.message for entry in state.active},
        {entry.seq: entry.tokens for entry in state.active},
        lambda start, stop: f"{command} --from {start} --limit {stop - start} --whole{options}",
        listing=listing,
    )


def _limits(header: Header) -> TokenLimits:
    return limits_of(header.window or lookup(header.model).window_tokens, header.model, None)


def _scale(requests: Sequence[_LoggedRequest]) -> float:
    """The provider's tokens per token of ours, over all requests with both counts."""
    # A ratio of sums: the long requests, which decide the bill, weigh most. A mean of ratios would let a short first
    # request with its fixed overhead count as much.
    both = [one.usage for one in requests if one.usage.reported and one.usage.estimated_tokens]
    ours = sum(usage.estimated_tokens for usage in both)
    return sum(usage.input_tokens for usage in both) / ours if ours else 1.0


def _cache_rule(requests: Sequence[_LoggedRequest], model: str | None, dialect: str) -> CacheRule:
    """The price rule of the cache in use: reports mark writes that live an hour."""
    return cache_rule_of(model, dialect, HOUR_SECONDS if any(one.usage.written_long_tokens for one in requests) else 0)


def _without_management(
    requests: Sequence[_LoggedRequest], base_tokens: int, scale: float, lifetime_seconds: int
) -> Iterator[ExpectedRequest]:
    """The same requests without management."""
    # A cache belongs to one model and expires after its lifetime, unless a later read proves that it lived longer.
    before: _LoggedRequest | None = None
    for one in requests:
        # One lifetime after the last request, not after the last write: each read extends it.
        late = before is not None and _gap_seconds(before.at, one.at) > lifetime_seconds and not one.usage.cached_tokens
        warm = before is not None and before.model == one.model and not late
        tokens = round((base_tokens + one.history_tokens) * scale)
        cached = round((base_tokens + one.prefix_tokens) * scale) if warm else 0
        yield ExpectedRequest(tokens, cached, one.usage.output_tokens)
        before = one


def _gap_seconds(before: str, now: str) -> float:
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()
    except (ValueError, TypeError):  # without a time the requests count as close together
        return 0.0


def _bills(requests: Sequence[_LoggedRequest], calls: Sequence[RecordedCall], model: str | None) -> list[BilledCall]:
    """The calls to pay: the requests of the log, and other calls (summaries) from the record of calls."""
    # The record may have been pruned or begun later, while the log is complete: for replies it counts only when it has
    # more of them. Failed calls are not billed. Only the log knows how much was written to the cache.
    answered = [call for call in calls if not call.error]
    if sum(call.purpose == REPLY for call in answered) > len(requests):
        return [_recorded(call, model) for call in answered]
    return [
        BilledCall(
            model=model or one.model or "",
            input_tokens=one.usage.input_tokens,
            cached_tokens=one.usage.cached_tokens,
            written_tokens=one.usage.written_tokens,
            written_long_tokens=one.usage.written_long_tokens,
            output_tokens=one.usage.output_tokens,
            estimated=not one.usage.reported,
        )
        for one in requests
    ] + [_recorded(call, model) for call in answered if call.purpose != REPLY]


def _recorded(call: RecordedCall, model: str | None) -> BilledCall:
    return BilledCall(
        model=model or call.model,
        input_tokens=call.prompt_tokens,
        cached_tokens=call.cached_tokens,
        output_tokens=call.completion_tokens,
        estimated=call.estimated,
    )


def _mark(fold: Fold) -> Mark:
    return Mark(fold.start, fold.stop, fold.reducer, fold.reason, fold.before_tokens, fold.tokens)


def _key(fold: Fold, archived: Callable[[str], bool]) -> str:
    return fold.archive if fold.archive is not None and archived(fold.archive) else ""


def _reported_folds(state: _LogState, visible: set[Mark]) -> tuple[ReportedFold, ...]:
    out = []
    for fold, request in state.folds_made:
        mark = _mark(fold)
        # A fold in effect that hides nothing lies under a later fold.
        since = "" if mark in visible else AGAIN if fold.id in state.in_effect else BACK
        out.append(ReportedFold(mark, request, since))
    return tuple(out)


def _as_replay(state: _LogState, expected_requests: Sequence[ExpectedRequest], name: str, header: Header) -> Replay:
    """The requests in the form of a replay, for the chart."""
    # The newest limit: a chart has one line for it, and `_more` names the range when it changed.
    last = state.requests[-1].limits
    turns = []
    for index, (one, request) in enumerate(zip(state.requests, expected_requests, strict=True)):
        usage = one.usage
        turns.append(
            Turn(
                index=index,
                messages=one.messages,
                recorded_tokens=request.tokens,
                tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                # By the limit of its own time: a limit may have been learned later, from an error.
                over_budget=usage.input_tokens > one.limits.room_tokens,
                folds=tuple(map(_mark, one.folds)),
            )
        )
    return Replay(
        session=name,
        policy=header.policy,
        dialect=header.dialect,
        window=last.window_tokens,
        limit_tokens=last.room_tokens,
        counter=_LOG_COUNTER,
        recorded_tokens=expected_requests[-1].tokens,
        turns=tuple(turns),
    )


def _more(state: _LogState, calls: Sequence[RecordedCall], caching: bool) -> Iterator[str]:
    """Sentences about the scope of the figures and their assumptions."""
    # Assumptions that move the figures are said on the page: whoever doubts a number finds here what went into it.
    summaries = sum(not call.error and call.purpose != REPLY for call in calls)
    if summaries:
        yield f"{plural(summaries, 'call')} for summaries and the like are in the bill."
    failed = sum(bool(call.error) for call in calls)
    if failed:
        yield f"{plural(failed, 'call')} failed; they are taken as not billed."
    if not caching:
        yield "No request read from a prompt cache, so none is assumed without Foldline either."
    limits = {one.limits.room_tokens for one in state.requests}
    if len(limits) > 1:
        yield f"The limit changed: it was between {min(limits):,} and {max(limits):,} tokens; the newest is drawn."
