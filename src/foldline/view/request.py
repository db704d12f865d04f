"""A request, and the last adjustments to it as a whole: the number of cache markers, and roles that alternate.

Markers are the client's and say nothing to the model. Where a request has more than its provider takes, those of the
newest messages are kept. The others are removed in batches: removing one at each request would change the prefix, and
so lose the cache, every time. Tools and system text lose theirs only where these alone have too many
(`foldline.codecs.anthropic.cache_markers.within`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.codecs.anthropic.cache_markers import (
    count_markers,
    keep_last_markers,
    limit_markers,
    markers,
    order_lifetimes,
    order_markers,
    out_of_order,
)
from foldline.codecs.dialect import dialect_named
from foldline.codecs.limits import MARKERS
from foldline.codecs.openai_chat.roles import alternation
from foldline.messages import Wire
from foldline.view.origins import OURS, Origin
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold, Repair, Unfold, Usage
from foldline.view.view import View

__all__ = ["PrefixForecast", "Request", "RequestAdjuster"]


@dataclass(slots=True)
class RequestAdjuster:
    """Adjusts each request to its provider. Costs one reference comparison per message, and O(size) of new ones."""

    dialect: str
    alternating: bool = False
    """Whether the server wants roles that alternate: it said so when it refused a request."""
    takes_system: bool = True
    """Whether the server's template has a system role; without one, system text is sent as the user's."""
    # The messages of the last request, as the view had them. Kept here because `View.wires` may have been read since.
    _seen: list[Wire] = field(default_factory=list)
    # Number of markers in each of them.
    _marked: list[int] = field(default_factory=list)
    # The first `_bare` messages lose their markers, except for the last `_spared` ones of the last such message.
    _bare: int = 0
    _spared: int = 0
    _sent: list[Wire] = field(default_factory=list)
    # The most markers of tools and system text when these alone have too many: one less once a message has one.
    _preamble_most: int = MARKERS
    # The changed system text and tools of the last request; None when they were sent as given.
    _preamble: tuple[System, Tools] | None = None
    # The place of each message of the last request among those of the view, where that is not its own.
    _places: list[int | None] | None = None

    def adjust(
        self, wires: list[Wire], stable: int, system: System, tools: Tools
    ) -> tuple[list[Wire], System, Tools, int, tuple[Repair, ...]]:
        """The messages, system text and tools to send, the number of unchanged leading messages, and the repairs.

        `wires` are the messages of the view, the first `stable` of them unchanged.
        """
        # Markers first, while each message is still the view's own object: their state is kept by message. Alternation
        # may then merge messages, and signatures come last, since they are of the messages as they are sent.
        repairs: list[Repair] = []
        self._places = None
        out, preamble = wires, self._preamble
        row = dialect_named(self.dialect)
        if row.cache_markers:
            out, system, tools = self._marks(wires, system, tools, repairs)
        if self.alternating and row.alternates:
            if system and not self.takes_system:
                out, system = [{"role": "user", "content": system}, *out], None
            added = len(out) - len(wires)
            turns = alternation(out, system=self.takes_system)
            out = [wire for wire, _ in turns]
            self._places = [None if at is None or at < added else at - added for _, at in turns]
            if len(out) != len(wires) or any(a is not b for a, b in zip(out, wires, strict=True)):
                repairs.append(Repair(0, "alternation", "put in turn: the server wants roles that alternate"))
        if row.signed is not None:
            signed = row.signed(out)
            if any(a is not b for a, b in zip(signed, out, strict=True)):
                out = signed
                repairs.append(Repair(0, "signature", "a call without its signature is sent with what stands for one"))
        if preamble != self._preamble:
            stable = 0  # system text and tools precede the messages in every cache
        if out is wires and not self._sent:
            return wires, system, tools, stable, tuple(repairs)
        same = _same(self._sent, out) if self._sent else min(stable, _same(wires, out))
        self._sent = [] if out is wires else out
        return out, system, tools, same if preamble == self._preamble else 0, tuple(repairs)

    def origins(self, of_view: tuple[Origin, ...]) -> tuple[Origin, ...]:
        """Where each message of the last request comes from, by the origins of the view's messages. O(messages)."""
        if self._places is None:
            return of_view
        return tuple(OURS if at is None else of_view[at] for at in self._places)

    def _marks(
        self, wires: list[Wire], system: System, tools: Tools, repairs: list[Repair]
    ) -> tuple[list[Wire], System, Tools]:
        """Everything with no more cache markers than the provider takes, in an order that it takes."""
        seen = len(self._seen)
        stable = seen if wires[:seen] == self._seen else _same(self._seen, wires)
        self._seen = list(wires)
        self._marked[stable:] = [count_markers(wire) for wire in wires[stable:]]
        if self._bare > stable:
            self._bare, self._spared = stable, 0
        before = system, tools
        if len(list(markers(tools, system, ()))) > MARKERS:
            self._preamble_most = min(self._preamble_most, MARKERS - any(self._marked))
            tools, system = limit_markers(tools, system, self._preamble_most)
            repairs.append(Repair(0, "cache-count", f"more than {MARKERS} cache markers beside the messages"))
        preamble_markers = list(markers(tools, system, ()))
        room = max(0, MARKERS - len(preamble_markers))
        left = sum(self._marked[self._bare :]) + (min(self._spared, self._marked[self._bare - 1]) if self._bare else 0)
        if left > room:
            # Down to half of the room, so that the next few requests with a new marker change nothing before it.
            self._keep((room + 1) // 2)
        out = wires
        if self._bare and any(self._marked[: self._bare]):
            last = self._bare - 1
            bare = [
                keep_last_markers(wire, self._spared if at == last else 0)
                for at, wire in enumerate(wires[: self._bare])
            ]
            out = [*bare, *wires[self._bare :]]
            repairs.append(Repair(0, "cache-count", f"more than {MARKERS} cache markers; the newest are sent"))
        if any(out_of_order(preamble_markers)):
            tools, short = order_markers(tools, False)
            system, _ = order_markers(system, short)
            preamble_markers = list(markers(tools, system, ()))
            repairs.append(Repair(0, "cache-order", "a marker for an hour beside the messages stood behind another"))
        same = system is before[0] and tools is before[1]
        self._preamble = None if same else (system, tools)
        return self._in_order(out, preamble_markers, repairs), system, tools

    def _keep(self, number: int) -> None:
        """Drop all markers but the newest `number`."""
        at = len(self._marked)
        while at and self._marked[at - 1] <= number:
            number -= self._marked[at - 1]
            at -= 1
        self._bare, self._spared = at, number

    def _in_order(self, wires: list[Wire], preamble_markers: Sequence[str], repairs: list[Repair]) -> list[Wire]:
        # Anthropic, "Prompt caching": entries of an hour must come before those of five minutes, in the order of tools,
        # system text and messages. So one short marker shortens all behind it.
        short = any(lifetime != "1h" for lifetime in preamble_markers)
        found = [at for at, number in enumerate(self._marked) if number]
        settled: dict[int, Mapping[str, Any]] = {}
        for at in found:
            wire, short = order_lifetimes(wires[at], short)
            if wire is not wires[at]:
                settled[at] = wire
        if not settled:
            return wires
        repairs.append(Repair(0, "cache-order", "a cache marker for an hour stood behind one for five minutes"))
        return [settled.get(at, wire) for at, wire in enumerate(wires)]


def _same(before: Sequence[Wire], after: Sequence[Wire]) -> int:
    """How many leading messages are equal in both. O(messages)."""
    same = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old != new:
            break
        same += 1
    return same


# --- what comes next --------------------------------------------------------------------------------------------------

# The share of a stretch that must stay the same for a cache write to pay. Written, it costs 1.25 now and 0.1 for what
# stays; not written, 1 now and 1.25 for what stays (Anthropic): equal at 0.25 / 1.15.
_LEAST_STAYING: Final = 0.2

# Weight of what was learned before each request: the last ten or so count.
_REMEMBERED: Final = 0.9

# Weight of what was learned before each break: of the two places the one that was right lately goes first.
_REMEMBERED_BREAKS: Final = 0.7

# The newest call and result, and the result before them: what reducers spare until something newer has come.
_NEWEST_MESSAGES: Final = 3


@dataclass(slots=True)
class PrefixForecast:
    """Where the next request may begin to differ from this one, and what of it will hardly be sent again.

    It is learned from the requests of the session, so it holds for any policy. A prefix breaks at one of two places:
    the next fold begins where the last one ended, or it shortens what was among the newest messages at the last one.
    """

    # The messages of the last request.
    _last: list[Wire] = field(default_factory=list)
    _tokens: int = 0
    # At the last break: the end of what had changed, and the beginning of the newest messages.
    _changed: int = 0
    _newest: int = 0
    # Over 0 where the former has been nearer to the breaks so far.
    _favour: float = 0.5
    # All behind this many messages was lost again and again, or was not: how often, of how many requests. It begins
    # with one request that kept all: only experience says that a prefix is lost.
    _place: int = 0
    _stayed: float = 1.0
    _seen: float = 1.0
    _answer: tuple[tuple[int, ...], int | None] = ((), None)

    def next(self, messages: Sequence[Wire], stable: int, view: View) -> tuple[tuple[int, ...], int | None]:
        """`Request.breaks_at` and `Request.lasts_until` of the request with these messages of a view.

        The first `stable` of them equal those of the last request. O(1) and a copy of the list; O(messages) where the
        prefix broke.
        """
        last, broke = self._last, stable < len(self._last)
        if last and stable == len(last) == len(messages):
            return self._answer  # prepared once more: that teaches nothing
        if last:
            self._learn(self._share_kept(stable, view) if broke else 1.0)
        if broke:
            changed, newest = (place if place <= stable else 0 for place in (self._changed, self._newest))
            self._favour = _REMEMBERED_BREAKS * self._favour + (changed > newest) - (newest > changed)
            self._changed = _changed_until(last, messages, stable) or self._changed
        if broke or not last:
            self._newest = max(0, len(messages) - _NEWEST_MESSAGES)
        # A copy: the list belongs to the caller of `Context.prepare`.
        self._last, self._tokens = list(messages), view.between(0, len(view.tiles))
        self._place = max(stable, self._changed) if stable else 0
        is_lost = self._stayed < _LEAST_STAYING * self._seen and self._place < len(messages)
        places = (self._changed, self._newest) if self._favour > 0 else (self._newest, self._changed)
        self._answer = tuple(place for place in places if place), self._place if is_lost else None
        return self._answer

    def _learn(self, share: float) -> None:
        self._stayed = _REMEMBERED * self._stayed + share
        self._seen = _REMEMBERED * self._seen + 1

    def _share_kept(self, stable: int, view: View) -> float:
        """The share of the last request's tokens behind `_place` that is in this one too. O(tiles)."""
        if stable <= self._place:
            return 0.0
        before = _leading_tokens(view, self._place)
        return min(1.0, (_leading_tokens(view, stable) - before) / max(1, self._tokens - before))


def _leading_tokens(view: View, messages: int) -> int:
    """Tokens of the tiles that hold so many leading messages. O(tiles)."""
    left = messages - view.has_lead
    for number, tile in enumerate(view.tiles):
        if left <= 0:
            return view.between(0, number)
        left -= len(tile.messages)
    return view.between(0, len(view.tiles))


def _changed_until(last: Sequence[Wire], messages: Sequence[Wire], stable: int) -> int:
    """Where the messages end that are not those of the last request: all behind them were kept, or are new.

    `stable` where the end of the last request is not there any more. O(messages).
    """
    for end in range(len(messages), stable, -1):
        if messages[end - 1] is last[-1] or messages[end - 1] == last[-1]:
            break
    else:
        return stable
    kept = 0
    for old, new in zip(reversed(last[stable:]), reversed(messages[stable:end]), strict=False):
        if old is not new and old != new:
            break
        kept += 1
    return end - kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, ready to be sent.

    `tokens` is its size as the provider would count it, system text and tools included. The first `stable_until`
    messages equal those of the last request (0 when its system text or tools differed). `folds` are the folds and
    unfolds since then, `repairs` all that are in effect, `asked` the usage of the summary calls since then.

    For the cache points of a provider: when the next request is not this one and more, it will probably begin to differ
    behind one of the numbers of messages in `breaks_at`, likeliest first. What stands behind the first `lasts_until`
    messages hardly ever returned in the last requests, so that a cache of it is written in vain (None: it returns).

    The newest `once` messages are sent this one time (a question for a summary), so that a cache written after them is
    never read. Of the messages before the question the newest `kept` stay in view, whatever the answer.

    `origins` says of each message which entries it shows or stands for; empty where no session is behind the request.

    `origins` say of each message which entries it shows or stands for (none where the request has no session).
    """

    messages: list[Wire]
    system: System
    tools: Tools
    tokens: int
    max_output_tokens: int
    stable_until: int
    folds: tuple[Fold | Unfold, ...]
    repairs: tuple[Repair, ...]
    asked: tuple[Usage, ...] = ()
    once: int = 0
    kept: int = 0
    breaks_at: tuple[int, ...] = ()
    lasts_until: int | None = None
    origins: tuple[Origin, ...] = ()
