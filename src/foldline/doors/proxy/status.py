"""How the proxy stands, for its page: totals, conversations and the newest requests, all of bounded size."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from foldline.catalog.models import lookup
from foldline.doors.http.streams import EventStream, Outbox, encode_event
from foldline.doors.proxy.dialects import dialect_of
from foldline.doors.proxy.values import Mode, Served
from foldline.messages import Json

__all__ = ["Standing", "counts_tokens", "is_answered", "saved_usd", "spent_usd"]

MOST_REQUESTS: Final = 200
MOST_CONVERSATIONS: Final = 1_000
MOST_FOLDS: Final = 20
"""Fold lines kept of each conversation, the newest."""

MOST_FOLLOWERS: Final = 64
"""Pages that may follow at one time."""

PACE_SECONDS: Final = 0.25
"""Followers hear at most this often, of all that has changed since: their number is no burden to the requests."""

_TEXT_CHARS: Final = 300
_TEXTS: Final = ("method", "path", "model", "title", "session", "failure", "truncated", "warning")
_FIGURES: Final = (
    "number status streamed dialect mode outcome folds given_tokens sent_tokens saved_tokens window_tokens input_tokens"
    " cached_tokens output_tokens recoveries"
).split()


def counts_tokens(served: Served) -> bool:
    """Whether it only asked how many tokens a request has, which no model read."""
    return dialect_of(served.method, served.path)[1]


def is_answered(served: Served) -> bool:
    """Whether a model took the request: its tokens count. What was refused, here or upstream, is sent once more."""
    return (
        served.dialect != "" and 0 < served.status < 400 and served.outcome != "refused" and not counts_tokens(served)
    )


def saved_usd(served: Served, *, cached: bool) -> float | None:
    """What folding has saved of the input's price, less what summaries cost, in US dollars; None without a known price.

    That is the price of the tokens that were not sent, and of all of them what a long request's price step would have
    added. `cached`: the upstream caches the prompts of this conversation, so they would have been read from its cache.
    """
    found = lookup(served.model[:_TEXT_CHARS])
    if not found.known or found.input_usd_per_million is None:
        return None
    rule, given, sent = found.cache, served.given_tokens, served.sent_tokens
    saved = given * rule.step(given).input_ratio - sent * rule.step(sent).input_ratio
    saved_usd = max(0.0, saved) * (rule.read_ratio if cached else 1.0) * found.input_usd_per_million / 1_000_000
    return saved_usd - (spent_usd(served) or 0.0)


def spent_usd(served: Served) -> float | None:
    """What the summaries for a request cost, in US dollars; None without a known price.

    Where the model that wrote them has none, they are taken to cost what the model of the conversation would have.
    """
    total = 0.0
    writers = [lookup(name[:_TEXT_CHARS]) for name in (served.summary_model, served.model)]
    for usage in served.summaries:
        written = (usage.written_tokens, usage.written_long_tokens)
        tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, *written)
        usd = next((price for writer in writers if (price := writer.usd(*tokens)) is not None), None)
        if usd is None:
            return None
        total += usd
    return total


@dataclass(slots=True)
class _Totals:
    requests: int = 0
    given_tokens: int = 0
    sent_tokens: int = 0
    saved_tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    summary_tokens: int = 0
    folds: int = 0
    recoveries: int = 0
    truncations: int = 0
    refused: int = 0
    faults: int = 0
    cut: int = 0
    failed: int = 0
    saved_usd: float | None = None

    def add(self, served: Served, usd: float | None) -> None:
        self.requests += 1
        self.folds += len(served.new_folds)
        self.recoveries += served.recoveries
        self.truncations += bool(served.truncated)
        self.refused += served.outcome == "refused"
        self.faults += served.faulty
        self.cut += served.outcome == "cut"
        self.failed += served.status >= 400 and served.outcome in {"passed", "folded", "open"}
        self.input_tokens += served.input_tokens or 0
        self.cached_tokens += served.cached_tokens or 0
        self.output_tokens += served.output_tokens or 0
        self.summary_tokens += served.summary_tokens
        if is_answered(served):
            self.given_tokens += served.given_tokens
            self.sent_tokens += served.sent_tokens
            self.saved_tokens += served.saved_tokens
        if usd is not None:
            self.saved_usd = (self.saved_usd or 0.0) + usd

    def plain(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Conversation:
    """What is kept of one conversation."""

    id: str
    totals: _Totals = field(default_factory=_Totals)
    title: str = ""
    dialect: str = ""
    model: str = ""
    at: datetime | None = None
    window_tokens: int = 0
    tokens: int = 0
    folds: int = 0
    warning: str = ""
    truncated: str = ""
    lines: deque[dict[str, Json]] = field(default_factory=lambda: deque(maxlen=MOST_FOLDS))

    def add(self, served: Served, usd: float | None) -> None:
        self.totals.add(served, usd)
        self.title = _text(served.title) or self.title
        self.dialect, self.model = served.dialect, _text(served.model)
        self.at = served.at if self.at is None else max(self.at, served.at)
        self.window_tokens = served.window_tokens or self.window_tokens
        if is_answered(served):
            self.tokens, self.folds = served.sent_tokens, served.folds
        self.warning = _text(served.warning)
        self.truncated = _text(served.truncated) or self.truncated
        for fold in served.new_folds:
            self.lines.append(
                {
                    "at": _when(served.at),
                    "reducer": fold.reducer,
                    "reason": _text(fold.reason),
                    "start": fold.start,
                    "stop": fold.stop,
                    "before_tokens": fold.before_tokens,
                    "tokens": fold.tokens,
                }
            )

    def plain(self) -> dict[str, Json]:
        names = ("id", "title", "dialect", "model", "window_tokens", "tokens", "folds", "warning", "truncated")
        own = {name: getattr(self, name) for name in names}
        return {**self.totals.plain(), **own, "folds_made": self.totals.folds, "at": _when(self.at)}


class Standing:
    """A listener that keeps what the page shows. `upstream` and `mode` are shown at its head.

    Costs a few microseconds for each request; where pages follow, a piece of JSON every quarter of a second.
    """

    def __init__(self, *, upstream: str = "", mode: Mode = "normal", pace_seconds: float = PACE_SECONDS) -> None:
        self.upstream, self.mode = upstream, mode
        self._since = datetime.now(UTC)
        self._totals = _Totals()
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._requests: deque[_Kept] = deque(maxlen=MOST_REQUESTS)
        self._followers = _Followers(self._news, pace_seconds)

    def __call__(self, served: Served) -> None:
        """Take in a request that has ended."""
        known = self._conversations.get(served.session)
        caches = bool(served.cached_tokens) or (known is not None and known.totals.cached_tokens > 0)
        usd = saved_usd(served, cached=caches) if is_answered(served) else None
        if usd is None and served.summaries and (spent := spent_usd(served)) is not None:
            usd = -spent  # they were written, whatever became of the request
        self._totals.add(served, usd)
        kept = _kept(served)
        self._requests.appendleft(kept)
        if served.session:
            if known is None:
                known = self._conversations[served.session] = _Conversation(served.session)
            known.add(served, usd)
            self._conversations.move_to_end(served.session)
            if len(self._conversations) > MOST_CONVERSATIONS:
                self._conversations.popitem(last=False)
        self._followers.changed(served.session, kept)

    @property
    def conversations(self) -> int:
        """How many conversations are kept here."""
        return len(self._conversations)

    @property
    def following(self) -> int:
        """How many pages follow."""
        return len(self._followers)

    def state(self) -> dict[str, Json]:
        """All that the page shows at its beginning: the newest first."""
        return {
            "upstream": self.upstream,
            "mode": self.mode,
            "since": _when(self._since),
            "totals": self._totals.plain(),
            "conversations": [one.plain() for one in reversed(self._conversations.values())],
            "requests": [_request(one) for one in self._requests],
        }

    def folds(self, session: str) -> list[dict[str, Json]] | None:
        """The newest fold lines of a conversation, the newest first; None where it is not known (any more)."""
        known = self._conversations.get(session)
        return None if known is None else list(reversed(known.lines))

    def follow(self) -> EventStream | None:
        """A stream that begins with the event `state` and goes on with `change`; None when too many follow already.

        A reader that is too slow gets the event `behind`, and should ask for the state again.
        """
        return self._followers.add(encode_event("state", self.state()))

    def stop(self) -> None:
        """End all streams: the server stops."""
        self._followers.stop()

    def _news(self, sessions: Iterable[str], requests: Iterable[_Kept]) -> bytes:
        known = [one for session in sessions if (one := self._conversations.get(session)) is not None]
        change: dict[str, Json] = {
            "totals": self._totals.plain(),
            "conversations": [one.plain() for one in known],
            "requests": [_request(one) for one in requests],
        }
        return encode_event("change", change)


class _Followers:
    """Those who follow, and what they have not heard of yet."""

    def __init__(self, news: Callable[[Iterable[str], Iterable[_Kept]], bytes], pace_seconds: float) -> None:
        self._news, self._pace_seconds = news, pace_seconds
        self._outboxes: set[Outbox] = set()
        self._sessions: dict[str, None] = {}
        self._requests: deque[_Kept] = deque(maxlen=MOST_REQUESTS)
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = 0.0
        self._stopped = False

    def __len__(self) -> int:
        return len(self._outboxes)

    def add(self, first: bytes) -> EventStream | None:
        if len(self._outboxes) >= MOST_FOLLOWERS:
            return None
        outbox = Outbox()
        outbox.append(first)
        if self._stopped:
            outbox.end()
        self._outboxes.add(outbox)
        return EventStream(outbox, lambda: self._outboxes.discard(outbox))

    def changed(self, session: str, request: _Kept) -> None:
        """Remember a change, and see to it that it is told. Nothing where nobody follows."""
        if not self._outboxes:
            return
        self._requests.appendleft(request)
        if session:
            self._sessions[session] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait_seconds = max(0.0, self._told_at + self._pace_seconds - loop.time())
            self._timer = loop.call_later(wait_seconds, self._tell, loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._told_at = None, loop.time()
        piece = self._news(self._sessions, self._requests)
        self._sessions.clear()
        self._requests.clear()
        for outbox in self._outboxes:
            outbox.append(piece)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for outbox in self._outboxes:
            outbox.append(encode_event("stopping", {}), last=True)


class _Kept(NamedTuple):
    """A request that has ended, without what would make it large; it is put into words only when it is looked at."""

    served: Served
    new_folds: int


def _kept(served: Served) -> _Kept:
    texts = {name: getattr(served, name) for name in _TEXTS}
    if served.new_folds or any(len(text) > _TEXT_CHARS for text in texts.values()):
        cut: dict[str, Any] = {name: _text(text) for name, text in texts.items()}
        return _Kept(replace(served, new_folds=(), **cut), len(served.new_folds))
    return _Kept(served, 0)


def _request(kept: _Kept) -> dict[str, Json]:
    """A request as the page shows it: what it did, never what it said."""
    served = kept.served
    first = served.first_byte_seconds
    return {
        **{name: getattr(served, name) for name in (*_FIGURES, *_TEXTS)},
        "at": _when(served.at),
        "new_folds": kept.new_folds,
        "own_ms": _ms(served.own_seconds),
        "first_byte_ms": None if first is None else _ms(first),
        "ms": _ms(served.seconds),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _when(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds")


def _text(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else f"{text[: _TEXT_CHARS - 1]}…"
