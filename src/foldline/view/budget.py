"""How much may be sent, how much is sent, and when to fold.

Numbers (design section 5): the input limit is 0.9 x (window - requested output), the trigger 0.85 of it and the landing
0.60. Landing well below the trigger keeps folds rare (a fold that lands on its trigger fires on every message,
openhermit#229); the 10 % margin covers an estimate's error until usage is reported.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from enum import IntEnum

from foldline.catalog.models import CACHE_RULES, CacheRule, Model, lookup
from foldline.codecs.dialect import caps_of, dialect_named
from foldline.codecs.limits import Caps
from foldline.errors import InvalidInput
from foldline.view.transcript import Limited, Seq
from foldline.view.view import View

__all__ = [
    "MARGIN",
    "Need",
    "Pressure",
    "Reserve",
    "TokenLimits",
    "Trigger",
    "assumed_window",
    "cache_rule_of",
    "cache_seconds",
    "caps_for",
    "consent_tokens",
    "limited",
    "limits_from",
    "limits_of",
    "output_tokens",
]

# For the error of our count until usage is reported (`tokens.estimate` has the measurements), and for what a provider
# adds by itself: templates and tools of its own are in no message.
MARGIN = 0.10


class Pressure(IntEnum):
    """How urgent it is to fold."""

    # In order, so that a reducer may compare: SOFT is a trigger that was reached, HARD a request that would not fit,
    # OVERFLOW one that the provider has refused.
    NONE = 0
    SOFT = 1
    HARD = 2
    OVERFLOW = 3


@dataclass(frozen=True, slots=True)
class Need:
    """What a reducer has to achieve, in the tokens of the view.

    `used_tokens` is the size of the view, `target_tokens` the size to reach, `limit_tokens` the most that may be sent,
    `window_tokens` the window for input, beside `max_output_tokens` for the reply. Entries from `fresh` on have not
    been sent yet. `requested` says that a user requested this compaction: then the newest user message may be folded
    too, once it is answered; a reducer passes it on to `View.spans` and `span_fold`. `cache_rule` has the prices of the
    provider's cache, None where nobody said. `requests` is how many requests the session has sent so far. `followers`
    are the reducers that run after this one where it is not enough; none where a model may write. `coming_tokens` are
    expected before the fold is made: a summary written ahead of it leaves so much less of a tail.
    """

    pressure: Pressure
    used_tokens: int
    target_tokens: int
    limit_tokens: int = 0
    window_tokens: int = 0
    fresh: Seq = 0
    max_output_tokens: int = 0
    requested: bool = False
    cache_rule: CacheRule | None = None
    requests: int = 0
    followers: tuple[object, ...] = ()
    coming_tokens: int = 0

    @property
    def whole_window_tokens(self) -> int:
        """The window for input and reply together: what documents call the context window."""
        return self.window_tokens + self.max_output_tokens

    @property
    def excess_tokens(self) -> int:
        """How many tokens must be removed; 0 when there is no need."""
        return max(0, self.used_tokens - self.target_tokens)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The limits of a request: at most `input_tokens`, out of `window_tokens` less `max_output_tokens`.

    `margin` is the share left free for the error of an estimate (0 for a one-shot `fit`, where our count is the
    measure).
    """

    window_tokens: int
    max_output_tokens: int
    max_input_tokens: int | None = None
    margin: float = MARGIN
    room_tokens: int = field(init=False, compare=False, repr=False)
    """The window for input, before the margin."""
    input_tokens: int = field(init=False, compare=False, repr=False)
    """The input limit."""

    def __post_init__(self) -> None:
        room = max(0, self.window_tokens - self.max_output_tokens)
        room = room if self.max_input_tokens is None else min(room, self.max_input_tokens)
        # Computed once: they are read dozens of times in each turn.
        object.__setattr__(self, "room_tokens", room)
        object.__setattr__(self, "input_tokens", int(room * (1 - self.margin)))


def limited(limits: TokenLimits) -> Limited:
    """The event that records these limits."""
    return Limited(
        window_tokens=limits.window_tokens,
        max_output_tokens=limits.max_output_tokens,
        max_input_tokens=limits.max_input_tokens,
    )


def limits_from(event: Limited, before: TokenLimits) -> TokenLimits:
    """The limits in an event, with the margin of those before."""
    return TokenLimits(event.window_tokens, event.max_output_tokens, event.max_input_tokens, before.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """The checkpoint system's limit: window less `reserve_tokens` where that is positive, else `max_tokens`, else none.

    Without a token limit `max_messages` decides. Defaults are that system's.
    """

    max_tokens: int = 8_000
    reserve_tokens: int = 16_384
    max_messages: int = 50

    def effective_tokens(self, window_tokens: int | None) -> int | None:
        """The effective token limit for a window (None or 0: it is not set); None when there is none."""
        # A reserve larger than the window would leave a limit below zero: the fixed number takes its place.
        if window_tokens and window_tokens - self.reserve_tokens > 0:
            return window_tokens - self.reserve_tokens
        return self.max_tokens if self.max_tokens > 0 else None

    def recent_tokens(self, keep_recent_tokens: int, window_tokens: int | None) -> int:
        """How much of the newest messages may stay whole: at most half of the effective limit."""
        effective = self.effective_tokens(window_tokens)
        return keep_recent_tokens if effective is None else min(keep_recent_tokens, effective // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When a policy folds: as soon as any threshold is reached. `fraction` is of the input limit.

    `turns` are user messages in their own words. `bytes`, of contents and calls, must be exceeded, not only reached.
    With a `reserve` the checkpoint system's order holds: its token limit if there is one, else its message count.
    `keep_free` is a share of the window beside the requested output (the three-layer system's budget of a tool loop).
    """

    fraction: float | None = None
    tokens: int | None = None
    bytes: int | None = None
    messages: int | None = None
    turns: int | None = None
    reserve: Reserve | None = None
    keep_free: float | None = None

    def limit_tokens(self, limits: TokenLimits) -> int:
        """The limit of which a policy's landing is a share."""
        # What the policy calls its limit may be over the model's: the smaller of the two is what can be sent.
        effective = self.tokens if self.reserve is None else self.reserve.effective_tokens(limits.window_tokens)
        if self.keep_free is not None:
            effective = limits.room_tokens - int(self.keep_free * (limits.room_tokens + limits.max_output_tokens))
        return min(effective, limits.input_tokens) if effective and effective > 0 else limits.input_tokens

    def mark_tokens(self, limit_tokens: int, fixed_tokens: int) -> float:
        """The size at which `fraction` is reached; at least half of what `fixed_tokens` leave.

        A mark at or below what no fold reaches would be passed by every request (opencode#48828).
        """
        # At least half of the room above the fixed part: folding at once after a fold is a loop that costs every turn.
        mark = (1.0 if self.fraction is None else self.fraction) * limit_tokens
        return max(mark, fixed_tokens + 0.5 * (limit_tokens - fixed_tokens))

    def due(self, view: View, used_tokens: int, limits: TokenLimits) -> bool:
        """Whether a threshold is reached. O(1), or O(tiles) where messages or turns are counted."""
        tokens = self.tokens if self.reserve is None else self.reserve.effective_tokens(limits.window_tokens)
        # In the order of their costs: counting turns looks at every tile, all others are running totals.
        return (
            (self.fraction is not None and used_tokens >= self.mark_tokens(limits.input_tokens, view.fixed_tokens))
            or (tokens is not None and used_tokens >= tokens)
            or (self.keep_free is not None and used_tokens > self.limit_tokens(limits))
            or (self.bytes is not None and view.content_bytes > self.bytes)
            or bool(self.over_counts(view, limits))
        )

    def nearness(self, view: View, used_tokens: int, limits: TokenLimits) -> float:
        """How near the nearest threshold is, as a share of it. O(1), O(tiles) where turns are counted."""
        shares = [0.0]
        if self.fraction is not None:
            shares.append(used_tokens / max(1.0, self.mark_tokens(limits.input_tokens, view.fixed_tokens)))
        tokens, messages = self.tokens, self.messages
        if self.reserve is not None:
            tokens = self.reserve.effective_tokens(limits.window_tokens)
            messages = self.reserve.max_messages if tokens is None else None
        if self.keep_free is not None:
            tokens = self.limit_tokens(limits)
        if tokens is not None:
            shares.append(used_tokens / max(1, tokens))
        if self.bytes is not None:
            shares.append(view.content_bytes / max(1, self.bytes))
        if messages is not None:
            shares.append(view.message_count / max(1, messages))
        if self.turns is not None:
            shares.append(view.turn_count / max(1, self.turns))
        return max(shares)

    def over_counts(self, view: View, limits: TokenLimits) -> str:
        """The thresholds of messages or turns that are reached, in words; "" for none. O(1), O(tiles) for turns."""
        messages = self.messages
        if self.reserve is not None:
            tokens = self.reserve.effective_tokens(limits.window_tokens)
            messages = self.reserve.max_messages if tokens is None else None
        counts = [(view.message_count, messages, "messages")]
        if self.turns is not None:
            counts.append((view.turn_count, self.turns, "turns"))
        return ", ".join(f"{n} {word} of {most}" for n, most, word in counts if most is not None and n >= most)

    def unmet(self, view: View, used_tokens: int, limits: TokenLimits) -> str:
        """The thresholds of tokens, messages or turns still reached, in words; "" for none (S1.05)."""
        # Thresholds that a policy names in numbers are promises to its user, so one that cannot be kept is reported. A
        # fraction is a wish: what fits is sent.
        over = self.tokens is not None and used_tokens >= self.tokens
        words = (f"{used_tokens:,} tokens of {self.tokens:,}" if over else "", self.over_counts(view, limits))
        return ", ".join(filter(None, words))


def output_tokens(model: Model, window_tokens: int) -> int:
    """Room for the reply by default: the catalogue's cap, else min(4,096, window / 8).

    A cap of more than half the window would leave no room for input (OpenHands#9937: cap = window, endless folding).
    """
    # An unknown model has no cap to trust: a small reply fits any window, and a user can ask for more. 4,096 is what
    # most APIs take as the default themselves.
    cap = model.max_output_tokens if model.known else None
    if cap is None or cap > window_tokens // 2:
        return min(4096, window_tokens // 8)
    return cap


def limits_of(window_tokens: int, model: str | None, max_output_tokens: int | None) -> TokenLimits:
    """The limits of a model with this window. Raises InvalidInput for an output that leaves no room."""
    found = lookup(model)
    if max_output_tokens is None:
        max_output_tokens = output_tokens(found, window_tokens)
    elif not 0 <= max_output_tokens < window_tokens:
        raise InvalidInput(
            f"must be from 0 to below the window of {window_tokens:,}, not {max_output_tokens:,}",
            place="max_output_tokens",
        )
    return TokenLimits(window_tokens, max_output_tokens, found.max_input_tokens if found.known else None)


def assumed_window(model: str | None) -> int:
    """The window of a model by the catalogue, for a `Context` without one. Warns where that is a guess."""
    found = lookup(model)
    if found.warning is not None:
        warnings.warn(found.warning, stacklevel=3)
    return found.window_tokens


def caps_for(model: str | None, dialect: str) -> Caps:
    """What else limits a request to a model (images, pages, messages), by its dialect and its window."""
    # Anthropic's cap on images depends on the window of the model: a guessed one says nothing about it.
    found = lookup(model)
    return caps_of(dialect, found.window_tokens if found.known else None)


def cache_rule_of(model: str | None, dialect: str, seconds: int = 0) -> CacheRule:
    """The cache rule of a model; of its dialect's maker when the catalogue does not know the model.

    With `seconds` the rule of the lifetime that a request asks for (`cache_seconds`), at the price of its writes.
    """
    found = lookup(model)
    # Compatible servers mostly cache as the API that they copy does.
    if not found.known:
        return CACHE_RULES[dialect_named(dialect).cache_rule]
    return found.cache_living(seconds) if seconds else found.cache


_UNITS = {"s": 1, "m": 60, "h": 3_600}
_LIFETIME = re.compile(r'"cache_control"\s*:\s*\{[^{}]*"ttl"\s*:\s*"(\d{1,6})([smh])"')


def cache_seconds(body: str) -> int:
    """The longest lifetime that cache points in the JSON of a request ask for ("1h"), in seconds; 0 for none. O(size).

    A pattern suffices, and saves parsing the body: inside a string, quotation marks are escaped and do not match.
    """
    # Most requests have none: a search for a substring is much faster than a pattern over megabytes.
    if '"ttl"' not in body:
        return 0
    return max((int(number) * _UNITS[unit] for number, unit in _LIFETIME.findall(body)), default=0)


def consent_tokens(share: float, limits: TokenLimits) -> int:
    """Size at which to ask for consent: `share` of the window, or shortly before folding is forced.

    A twentieth of the input limit stays for the turn in which the question is asked: together with the forced fold it
    would come too late.
    """
    return min(int(share * limits.window_tokens), int(0.95 * limits.input_tokens))
