"""The context of a session: its settings, and the archive, the counter and the limit that a session adds to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from foldline.catalog.prices import CacheRule
from foldline.engine.context import Context
from foldline.engine.events import ContextEvent
from foldline.engine.policy import Policy
from foldline.engine.settings import memory_limit
from foldline.reducers.base import span_fold
from foldline.reducers.digest import digest_message
from foldline.reducers.drop import drop_fold
from foldline.tokens import ESTIMATE, Counter
from foldline.view.archive import Archive, ManyAtOnce, key_of
from foldline.view.budget import Need
from foldline.view.standing_rules import RULES_SHARE
from foldline.view.tiles import Span
from foldline.view.transcript import Event, Fold
from foldline.view.view import View

__all__ = ["BackgroundCounter", "GatedListener", "MessageLimit", "RecallableArchive", "RunSettings", "ranges_about"]

# Texts up to this size take a millisecond or two: less than switching to a thread costs.
_INLINE_CHARS: Final = 65_536


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """Folds the oldest messages when those that are shown come near `memory_limit` of the window.

    Folded messages can leave memory (`Context.release`); shown ones cannot, since each request carries them. It acts at
    `trigger` of the limit, which leaves room for what arrives before the next request, and folds down to `landing`, so
    that the prefix changes once in many turns. A digest replaces what leaves, or a notice where a digest would be no
    shorter. Only many short messages reach this limit before their tokens fill the window: both meet at 100 tokens
    each.
    """

    trigger: float = 0.9
    landing: float = 0.7
    share: float = 0.5
    name: str = "held_messages"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span before the newest messages that stay."""
        limit = memory_limit(need.whole_window_tokens)
        shown = sum(len(tile.entries) for tile in view.tiles)
        if shown <= self.trigger * limit:
            return
        reason = f"{shown:,} messages shown, {limit:,} may be held in memory"
        for span in view.spans(self._first_kept(view, int(self.landing * limit))):
            # A single fold is as short as it gets; folding it again would only add a layer.
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            fold = self._digest(view, span, reason) or drop_fold(view, span, reducer=self.name, reason=reason)
            if fold is not None:
                yield fold

    def _digest(self, view: View, span: Span, reason: str) -> Fold | None:
        shown = digest_message(view, span.start, span.stop, int(self.share * span.tokens))
        return span_fold(view, span.start, span.stop, (shown,), reducer=self.name, reason=reason)

    def _first_kept(self, view: View, most: int) -> int:
        """First tile of the longest tail that holds at most so many entries; of the newest tile at least."""
        first = len(view.tiles)
        for tile in reversed(view.tiles):
            most -= len(tile.entries)
            # The newest tile stays whatever its size: a request without it would have nothing to answer.
            if most < 0 and first < len(view.tiles):
                break
            first -= 1
        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Everything that a context needs but its history."""

    dialect: str
    model: str
    policy: Policy
    window: int | None
    max_output_tokens: int | None
    system: str | None
    tools: Sequence[Mapping[str, Any]] | None
    endpoint: str = ""
    counter: Counter = ESTIMATE
    # Prices and lifetime of the provider's cache, if requests ask for other ones than the model's usual.
    cache_rule: CacheRule | None = None
    rules_share: float = RULES_SHARE

    def context(self, events: Sequence[Event], **more: Any) -> Context:
        """Replay events into a context with a bound on its messages in memory (S3.02). O(log)."""
        settings = {name: getattr(self, name) for name in self.__slots__}
        policy = self.policy
        # Only with `auto`: the limit folds too, and must not where the user has switched folding off.
        if policy.auto:
            settings["policy"] = replace(policy, always=(*policy.always, MessageLimit()))
        return Context.replay(events, **{**settings, **more})


class BackgroundCounter:
    """Counts as `inner` does, and remembers the one text that it counted in the background."""

    def __init__(self, inner: Counter) -> None:
        self._inner = inner
        self._counted: tuple[str, int] = "", 0

    @property
    def name(self) -> str:
        """The tokenizer."""
        return self._inner.name

    def text(self, text: str, /) -> int:
        """Return the tokens of `text`."""
        counted, tokens = self._counted
        # By identity: comparing two long texts would cost what the thread saved.
        return tokens if text is counted else self._inner.text(text)

    async def count_in_background(self, text: str) -> None:
        """Count a long text in a thread. `text` then returns the count for the same object. O(its size)."""
        if len(text) > _INLINE_CHARS:
            self._counted = text, await asyncio.to_thread(self._inner.text, text)

    def clear(self) -> None:
        """Drop the remembered text, once it is recorded."""
        self._counted = "", 0


class RecallableArchive:
    """An archive whose places name the tool that reads them, since file tools do not see outside the workspace.

    While `buffering`, `put` keeps the data in memory until `write`, which may run in a thread: folds are made on the
    event loop, which must not wait for a disk.
    """

    def __init__(self, inner: Archive) -> None:
        self._inner = inner
        self._buffered: dict[str, bytes] = {}
        self.buffering = False

    def put(self, data: bytes, /) -> str:
        """Store the bytes. Returns their key."""
        if not self.buffering:
            return self._inner.put(data)
        key = key_of(data)
        self._buffered[key] = data
        return key

    def get(self, key: str, /) -> bytes:
        """Return the bytes under a key. Raises KeyError."""
        buffered = self._buffered.get(key)
        return self._inner.get(key) if buffered is None else buffered

    def where(self, key: str, /) -> str:
        """Return the place of a key, and the tool that reads it."""
        return f"{self._inner.where(key)} (the tool recall reads it)"

    def __contains__(self, key: object, /) -> bool:
        return key in self._buffered or key in self._inner

    def write(self) -> None:
        """Write the buffer. Raises OSError; the next call then writes the rest."""
        # A copy: the event loop may add more while a thread writes.
        buffered = dict(self._buffered)
        if buffered and isinstance(self._inner, ManyAtOnce):
            self._inner.put_all(buffered.values())
        # Removed one by one after their write, so that a full disk leaves only unwritten ones for the next attempt.
        for key, data in buffered.items():
            if not isinstance(self._inner, ManyAtOnce):
                self._inner.put(data)
            del self._buffered[key]


class GatedListener:
    """A listener that drops events until it is open."""

    def __init__(self, emit: Callable[[ContextEvent], None]) -> None:
        self._emit = emit
        self.open = False

    def __call__(self, event: ContextEvent) -> None:
        """Pass an event on, if it is open."""
        if self.open:
            self._emit(event)


def ranges_about(context: Context, topic: str) -> list[tuple[int, int]]:
    """The entries that mention some words, as ranges, before the newest group: their own mention stands there.

    O(entries in memory).
    """
    view = context.view
    stop = view.tiles[view.last_block].start if view.tiles else 0
    found = {seq for seq, _, _ in context.grep(f"(?i){re.escape(topic)}") if seq < stop}
    return [(seq, seq + 1) for seq in sorted(found)]
