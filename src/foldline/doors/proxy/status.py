"""The state that the page of the proxy shows: totals, conversations and newest requests, all of bounded size."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from foldline.catalog.models import lookup
from foldline.display.resuming import resume_price
from foldline.doors.http.streams import EventStream, Outbox, encode_event
from foldline.doors.proxy.served_request import Mode, ServedRequest, is_answered, saved_usd, spent_usd
from foldline.messages import Json
from foldline.text.redaction import redact
from foldline.view.standing_rules import StandingRule
from foldline.view.tool_sizes import ToolSize, by_server

__all__ = ["ProxyStatus"]

# Together some megabytes of memory, and a first state of a page that is sent in a second.
MAX_REQUESTS: Final = 200
MAX_CONVERSATIONS: Final = 1_000
MAX_FOLDS: Final = 20
"""Folds listed for each conversation, the newest."""

MAX_LISTED: Final = 40
"""Rules, tools and servers listed for each conversation."""

MAX_FOLLOWERS: Final = 64
"""Pages that may follow at one time."""

# Changes within this time are sent as one event, so that encoding costs the same at any rate of requests.
_PACE_SECONDS: Final = 0.25

_TEXT_CHARS: Final = 300
_TEXTS: Final = ("method", "path", "model", "title", "session", "failure", "truncated", "warning")
_FIGURES: Final = (
    "number status streamed dialect mode outcome folds given_tokens sent_tokens saved_tokens window_tokens input_tokens"
    " cached_tokens output_tokens recoveries"
).split()


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

    def add(self, served: ServedRequest, usd: float | None) -> None:
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
class _ConversationStatus:
    """Totals and newest folds of one conversation."""

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
    lines: deque[dict[str, Json]] = field(default_factory=lambda: deque(maxlen=MAX_FOLDS))
    rules: tuple[StandingRule, ...] = ()
    rules_count: int = 0
    rules_tokens: int = 0
    tool_sizes: tuple[ToolSize, ...] = ()

    def add(self, served: ServedRequest, usd: float | None) -> None:
        # Requests of one conversation may end out of order, so the times keep the latest.
        self.totals.add(served, usd)
        self.title = _text(served.title) or self.title
        self.dialect, self.model = served.dialect, _text(served.model)
        self.at = served.at if self.at is None else max(self.at, served.at)
        self.window_tokens = served.window_tokens or self.window_tokens
        if is_answered(served):
            self.tokens, self.folds = served.sent_tokens, served.folds
        self.warning = _text(served.warning)
        self.truncated = _text(served.truncated) or self.truncated
        if served.rules:
            # Cut here: a file of instructions has kilobytes, and a thousand conversations are listed.
            newest = served.rules[-MAX_LISTED:]
            self.rules = tuple(replace(rule, text=_text(redact(rule.text[: 2 * _TEXT_CHARS]))) for rule in newest)
            self.rules_count, self.rules_tokens = len(served.rules), sum(rule.tokens for rule in served.rules)
        self.tool_sizes = served.tool_sizes or self.tool_sizes
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
        more: dict[str, Json] = {
            "rules": self.rules_count,
            "rules_tokens": self.rules_tokens,
            "tools": len(self.tool_sizes),
            "tools_tokens": sum(size.tokens for size in self.tool_sizes),
        }
        model = lookup(self.model)
        price = resume_price(model, self.tokens)
        more |= {
            "resume_usd": price and price.cold_usd,
            "resume_warm_usd": price and price.warm_usd,
            "cache_seconds": model.cache.lifetime_seconds,
        }
        return {**self.totals.plain(), **own, **more, "folds_made": self.totals.folds, "at": _when(self.at)}

    def rule_lines(self) -> list[Json]:
        """The newest rules that stay, newest first; texts are redacted and cut."""
        return [
            {"source": _text(rule.source), "text": rule.text, "tokens": rule.tokens} for rule in reversed(self.rules)
        ]

    def tool_lines(self) -> list[Json]:
        """The largest tools, largest first, and each server's number of tools and tokens."""
        largest = sorted(self.tool_sizes, key=lambda size: -size.tokens)[:MAX_LISTED]
        return [{"name": _text(size.name), "server": _text(size.server), "tokens": size.tokens} for size in largest]

    def server_lines(self) -> list[Json]:
        """Each MCP server with the number of its tools and their tokens, largest first; "" for tools without one."""
        rows = by_server(self.tool_sizes)[:MAX_LISTED]
        return [{"server": _text(server), "tools": count, "tokens": tokens} for server, count, tokens in rows]


class ProxyStatus:
    """A listener that keeps what the page shows. `upstream` and `mode` appear in its heading.

    Costs a few microseconds a request, and one event every quarter of a second while pages follow.
    """

    def __init__(self, *, upstream: str = "", mode: Mode = "normal", pace_seconds: float = _PACE_SECONDS) -> None:
        self.upstream, self.mode = upstream, mode
        self._since = datetime.now(UTC)
        self._totals = _Totals()
        self._conversations: OrderedDict[str, _ConversationStatus] = OrderedDict()
        self._requests: deque[_EndedRequest] = deque(maxlen=MAX_REQUESTS)
        self._followers = _Followers(self._change_event, pace_seconds)

    def __call__(self, served: ServedRequest) -> None:
        """Count a request that has ended."""
        conversation = self._conversations.get(served.session)
        # One report of cached tokens shows that the upstream caches; a fold may empty the cache for a request or two.
        caches = bool(served.cached_tokens) or (conversation is not None and conversation.totals.cached_tokens > 0)
        usd = saved_usd(served, cached=caches) if is_answered(served) else None
        if usd is None and served.summaries and (spent := spent_usd(served)) is not None:
            usd = -spent  # summaries are paid for even if the request itself failed
        self._totals.add(served, usd)
        ended = _without_bulk(served)
        self._requests.appendleft(ended)
        if served.session:
            if conversation is None:
                conversation = self._conversations[served.session] = _ConversationStatus(served.session)
            conversation.add(served, usd)
            self._conversations.move_to_end(served.session)
            if len(self._conversations) > MAX_CONVERSATIONS:
                self._conversations.popitem(last=False)
        self._followers.add_change(served.session, ended)

    @property
    def conversations(self) -> int:
        """The number of conversations that are listed."""
        return len(self._conversations)

    @property
    def following(self) -> int:
        """The number of pages that follow."""
        return len(self._followers)

    def state(self) -> dict[str, Json]:
        """The first state of a page, newest first."""
        return {
            "upstream": self.upstream,
            "mode": self.mode,
            "since": _when(self._since),
            "totals": self._totals.plain(),
            "conversations": [one.plain() for one in reversed(self._conversations.values())],
            "requests": [_request(one) for one in self._requests],
        }

    def details(self, session: str) -> dict[str, Json] | None:
        """Folds, rules and tools of a conversation, newest or largest first; None for an unknown or dropped one."""
        conversation = self._conversations.get(session)
        if conversation is None:
            return None
        return {
            "folds": list(reversed(conversation.lines)),
            "rules": conversation.rule_lines(),
            "tools": conversation.tool_lines(),
            "servers": conversation.server_lines(),
        }

    def follow(self) -> EventStream | None:
        """A stream of one event `state` and then `change` events; None when too many pages follow already.

        A slow reader gets the event `behind`, and should fetch the state again.
        """
        # The state is the first event of the stream itself: fetched before it, changes in between would be lost.
        return self._followers.add(encode_event("state", self.state()))

    def stop(self) -> None:
        """End all streams, as the server stops."""
        self._followers.stop()

    def _change_event(self, sessions: Iterable[str], requests: Iterable[_EndedRequest]) -> bytes:
        # A conversation may have been dropped since its change was noted.
        listed = [one for session in sessions if (one := self._conversations.get(session)) is not None]
        change: dict[str, Json] = {
            "totals": self._totals.plain(),
            "conversations": [one.plain() for one in listed],
            "requests": [_request(one) for one in requests],
        }
        return encode_event("change", change)


class _Followers:
    """The pages that follow, and the changes that were not sent to them yet."""

    def __init__(
        self, change_event: Callable[[Iterable[str], Iterable[_EndedRequest]], bytes], pace_seconds: float
    ) -> None:
        self._change_event, self._pace_seconds = change_event, pace_seconds
        self._outboxes: set[Outbox] = set()
        self._sessions: dict[str, None] = {}
        self._requests: deque[_EndedRequest] = deque(maxlen=MAX_REQUESTS)
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._stopped = False

    def __len__(self) -> int:
        return len(self._outboxes)

    def add(self, first: bytes) -> EventStream | None:
        if len(self._outboxes) >= MAX_FOLLOWERS:
            return None
        outbox = Outbox()
        outbox.append(first)
        if self._stopped:
            outbox.end()
        self._outboxes.add(outbox)
        return EventStream(outbox, lambda: self._outboxes.discard(outbox))

    def add_change(self, session: str, request: _EndedRequest) -> None:
        """Schedule a change for sending. Without followers nothing is kept."""
        if not self._outboxes:
            return
        self._requests.appendleft(request)
        if session:
            self._sessions[session] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            # The first change after a pause is sent at once, further ones together after the pace.
            wait_seconds = max(0.0, self._sent_at + self._pace_seconds - loop.time())
            self._timer = loop.call_later(wait_seconds, self._send, loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._sent_at = None, loop.time()
        # Encoded once for all followers.
        piece = self._change_event(self._sessions, self._requests)
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


class _EndedRequest(NamedTuple):
    """An ended request with its texts shortened. It becomes JSON only when a page asks: most are never looked at."""

    served: ServedRequest
    new_folds: int


def _without_bulk(served: ServedRequest) -> _EndedRequest:
    texts = {name: getattr(served, name) for name in _TEXTS}
    bulky = served.new_folds or served.rules or served.tool_sizes
    if bulky or any(len(text) > _TEXT_CHARS for text in texts.values()):
        cut: dict[str, Any] = {name: _text(text) for name, text in texts.items()}
        return _EndedRequest(replace(served, new_folds=(), rules=(), tool_sizes=(), **cut), len(served.new_folds))
    return _EndedRequest(served, 0)


def _request(ended: _EndedRequest) -> dict[str, Json]:
    """A request as the page shows it: figures and names, never its content."""
    served = ended.served
    first = served.first_byte_seconds
    return {
        **{name: getattr(served, name) for name in (*_FIGURES, *_TEXTS)},
        "at": _when(served.at),
        "new_folds": ended.new_folds,
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
