"""The account of a kept session, from its log: what was sent as it was reported, and the folds as they were made.

What no management would have sent at each request is the sum of all messages until then, by our own count, times what
the provider counted for each token of ours in this session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from foldline.catalog.models import HOUR_SECONDS, CacheRule, lookup
from foldline.messages import Json
from foldline.replay import Mark, Replay, Turn
from foldline.report.account import AGAIN, BACK, Account, ReportedFold, hidden_by, refused_from, title_of
from foldline.report.spend import BilledCall, ExpectedRequest, billed, expected
from foldline.store.calls import REPLY, RecordedCall
from foldline.store.recording import Header
from foldline.text.formatting import plural
from foldline.text.redaction import redact
from foldline.view.budget import Limits, cache_rule_of, limits_from, limits_of
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Unfold, Usage

__all__ = ["account_of_log"]

_LOG_COUNTER: Final = "the provider"


@dataclass(slots=True)
class _Asked:
    """One request as the log tells of it. Sizes without system text and tools, as we count them."""

    usage: Usage
    model: str | None
    at: str
    messages: int
    whole_tokens: int
    begun_tokens: int
    """How much of `whole_tokens` the request before had already, without management."""
    base_tokens: int | None
    limits: Limits
    folds: tuple[Fold, ...]


@dataclass(slots=True)
class _Walk:
    """Reads a log once, in order."""

    limits: Limits
    model: str | None
    asked: list[_Asked] = field(default_factory=list)
    active: list[Entry] = field(default_factory=list)
    made: list[tuple[Fold, int | None]] = field(default_factory=list)
    held: dict[int, Fold] = field(default_factory=dict)
    new: list[Fold] = field(default_factory=list)
    tokens: int = 0
    """Messages of the branch that the session is on, those aside that the model was never to see."""
    spared_tokens: int = 0
    """What the folds in effect have taken off."""
    begun_tokens: int = 0
    forked: bool = False

    def take(self, event: Event, at: str) -> None:
        """Go on by one event. O(1), and O(messages) for a branch."""
        match event:
            case Entry():
                self.active.append(event)
                self.tokens += self._size(event)
            case Fold():
                self.new.append(event)
                self.held[event.id] = event
                self.spared_tokens += event.before_tokens - event.tokens
            case Unfold(fold):
                self._take_back([fold])
            case Branch(start):
                self._leave(start)
            case Limited():
                self.limits = limits_from(event, self.limits)
            case Usage():
                self._ask(event, at)
            case _:
                pass  # pins change nothing that was sent

    def end(self) -> None:
        """Take the folds that no request followed."""
        self.made += [(fold, None) for fold in self.new]

    @staticmethod
    def _size(entry: Entry) -> int:
        return 0 if entry.hidden else entry.tokens

    def _leave(self, start: int) -> None:
        while self.active and self.active[-1].seq >= start:
            self.tokens -= self._size(self.active.pop())
        self._take_back([key for key, fold in self.held.items() if fold.stop > start])
        self.begun_tokens, self.forked = min(self.begun_tokens, self.tokens), True

    def _take_back(self, folds: Iterable[int]) -> None:
        for key in folds:
            if (fold := self.held.pop(key, None)) is not None:
                self.spared_tokens -= fold.before_tokens - fold.tokens

    def _ask(self, usage: Usage, at: str) -> None:
        whole, count = self.tokens, len(self.active)
        while count and self.active[count - 1].message.role == "assistant":  # the reply, where it is recorded before
            count -= 1
            whole -= self._size(self.active[count])
        ours = usage.estimated_tokens if usage.reported else usage.input_tokens
        base = max(0, ours - whole + self.spared_tokens) if ours and not self.forked else None
        folds = tuple(self.new)
        self.made += [(fold, len(self.asked) + 1) for fold in folds]
        self.asked.append(
            _Asked(usage, self.model, at, count, whole, min(self.begun_tokens, whole), base, self.limits, folds)
        )
        self.new, self.begun_tokens = [], whole


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
    """Tell of a session by its log (as `store.recording.followed` gives it) and its recorded calls, which may be none.

    None for a session with no report of usage, which can only be replayed. `name` is what commands call it, with
    `options` that say where it is; `model` prices it as another one; `archived` says whether the archive has a key;
    without `listing` what is hidden is only counted. O(log).
    """
    walk: _Walk | None = None
    header: Header | None = None
    updated = ""
    for header, record, event in log:
        if walk is None:
            walk = _Walk(_limits(header), header.model)
        updated = str(record.get("at", updated))
        walk.model = header.model
        if event is not None:
            walk.take(event, str(record.get("at", "")))
    if walk is None or header is None or not walk.asked:
        return None
    walk.end()
    base = next((one.base_tokens for one in walk.asked if one.base_tokens is not None), 0)
    scale = _scale(walk.asked)
    named = model or header.model
    bills = _bills(walk.asked, calls, model)
    rule = _cache_rule(walk.asked, named, header.dialect)
    dues = list(_dues(walk.asked, base, scale, rule.lifetime_seconds))
    caching = any(one.usage.cached_tokens or one.usage.written_tokens for one in walk.asked)
    hidden = hidden_by(
        [(_mark(fold), fold.form, _key(fold, archived)) for fold in walk.held.values()],
        [entry.seq for entry in walk.active],
        {entry.seq: entry.message for entry in walk.active},
        {entry.seq: entry.tokens for entry in walk.active},
        lambda start, stop: f"foldline sessions show {name} --from {start} --limit {stop - start} --whole{options}",
        listing=listing,
    )
    sent = _sent(walk, dues, name, header)
    return Account(
        name=name,
        title=redact(header.title) or title_of(entry.message for entry in walk.active),
        model=named or "",
        updated=updated,
        origin="reported" if any(one.usage.reported for one in walk.asked) else "counted",
        sent=sent,
        folds=_made(walk, {one.mark for one in hidden}),
        hidden=tuple(hidden),
        managed=billed(bills, dialect=header.dialect),
        unmanaged=expected(dues, model=named, rule=rule, caching=caching),
        refused_from=refused_from(sent),
        read_one=f"foldline sessions why {name} N{options}",
        more=tuple(_more(walk, calls, caching)),
    )


def _limits(header: Header) -> Limits:
    return limits_of(header.window or lookup(header.model).window_tokens, header.model, None)


def _scale(asked: Sequence[_Asked]) -> float:
    """What the provider counted for each token of ours, over all requests of which both counts are known."""
    both = [one.usage for one in asked if one.usage.reported and one.usage.estimated_tokens]
    ours = sum(usage.estimated_tokens for usage in both)
    return sum(usage.input_tokens for usage in both) / ours if ours else 1.0


def _cache_rule(asked: Sequence[_Asked], model: str | None, dialect: str) -> CacheRule:
    """The prices of the cache that the client asked for: writes that live an hour are reported as such."""
    return cache_rule_of(model, dialect, HOUR_SECONDS if any(one.usage.written_long_tokens for one in asked) else 0)


def _dues(asked: Sequence[_Asked], base_tokens: int, scale: float, lifetime_seconds: int) -> Iterator[ExpectedRequest]:
    """The same requests without management. A cache is of one model, and gone after its lifetime.

    What was read from it after a longer time shows that it was kept longer.
    """
    before: _Asked | None = None
    for one in asked:
        late = before is not None and _gap_seconds(before.at, one.at) > lifetime_seconds and not one.usage.cached_tokens
        warm = before is not None and before.model == one.model and not late
        tokens = round((base_tokens + one.whole_tokens) * scale)
        cached = round((base_tokens + one.begun_tokens) * scale) if warm else 0
        yield ExpectedRequest(tokens, cached, one.usage.output_tokens)
        before = one


def _gap_seconds(before: str, now: str) -> float:
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()
    except (ValueError, TypeError):  # no time was recorded: taken as soon
        return 0.0


def _bills(asked: Sequence[_Asked], calls: Sequence[RecordedCall], model: str | None) -> list[BilledCall]:
    """What is to be paid: the requests as the log has them, and what else was asked, which the record of calls has.

    That record may have been pruned, or begun later, while the log is whole: it is believed about replies only where it
    has more of them. Calls that failed are not billed. How much was written to the cache stands in the log alone.
    """
    answered = [call for call in calls if not call.error]
    if sum(call.purpose == REPLY for call in answered) > len(asked):
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
        for one in asked
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


def _made(walk: _Walk, standing: set[Mark]) -> tuple[ReportedFold, ...]:
    out = []
    for fold, request in walk.made:
        mark = _mark(fold)
        since = "" if mark in standing else AGAIN if fold.id in walk.held else BACK
        out.append(ReportedFold(mark, request, since))
    return tuple(out)


def _sent(walk: _Walk, dues: Sequence[ExpectedRequest], name: str, header: Header) -> Replay:
    """The requests in the form of a replay, which the chart draws."""
    last = walk.asked[-1].limits
    turns = []
    for index, (one, due) in enumerate(zip(walk.asked, dues, strict=True)):
        usage = one.usage
        turns.append(
            Turn(
                index=index,
                messages=one.messages,
                recorded_tokens=due.tokens,
                tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
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
        recorded_tokens=dues[-1].tokens,
        turns=tuple(turns),
    )


def _more(walk: _Walk, calls: Sequence[RecordedCall], caching: bool) -> Iterator[str]:
    """Sentences that say what the figures hold and what they take for granted."""
    summaries = sum(not call.error and call.purpose != REPLY for call in calls)
    if summaries:
        yield f"{plural(summaries, 'call')} for summaries and the like are in the bill."
    failed = sum(bool(call.error) for call in calls)
    if failed:
        yield f"{plural(failed, 'call')} failed; they are taken as not billed."
    if not caching:
        yield "No request read from a prompt cache, so none is assumed without Foldline either."
    limits = {one.limits.room_tokens for one in walk.asked}
    if len(limits) > 1:
        yield f"The limit changed: it was between {min(limits):,} and {max(limits):,} tokens; the newest is drawn."
