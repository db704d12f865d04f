"""Limits, settings and plans of requests: how much may be sent, and what an upstream has taught about it.

A refusal names a limit, and an answer shows that there is room. Each client learns for itself: keys have limits of
their own, and a refusal may repeat what its client wrote, so one client's lesson is no evidence for another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol, TypeAlias, TypeVar

from foldline.catalog.models import lookup
from foldline.codecs.dialect import violations
from foldline.conversations.request_body import RequestBody
from foldline.engine.learned_caps import Lessons, lessons_in
from foldline.engine.policy import Policy
from foldline.failures.failure import believable, silent_truncation
from foldline.messages import Wire
from foldline.tokens import ESTIMATE, Counter
from foldline.view.budget import TokenLimits, Trigger, limits_of, output_tokens
from foldline.view.standing_rules import StandingRule
from foldline.view.tool_sizes import ToolSize
from foldline.view.transcript import Fold, Repair, Usage

__all__ = [
    "NO_FOLD_SHARE",
    "UNKNOWN_TOKENS",
    "ConversationSettings",
    "LimitStore",
    "LimitsByClient",
    "RequestPlan",
    "WarmReturns",
    "folds_by_share_only",
    "is_surely_refused",
    "limits_for",
    "mended_at_once",
    "with_repairs",
]

UNKNOWN_TOKENS: Final = 2**40
"""The window of a model with an unknown window: no request comes near it."""

NO_FOLD_SHARE: Final = 0.5
"""Share of the input limit below which no policy that looks at tokens folds: all triggers are well above it."""

# The share of warm returns at which a cache pays. Written, a prompt costs 1.25 and 0.1 when it is read; not written, 1
# and 1.25 when it is written then (Anthropic): equal at 0.25 / 1.15.
_LEAST_WARM: Final = 0.22

# Model names remembered over all clients. A client that invents names displaces the least recently used ones.
_MAX_NAMES: Final = 10_000

# A server may restart with a smaller window, so an older answer says nothing about its window now.
_ANSWER_SECONDS: Final = 3_600.0

# How far an answered size is believed, as shares of our own count. The lower share applies without a report, because
# the count is an estimate. The upper one caps a report, because some servers add up several requests.
_BELIEVED_SHARES: Final = 0.75, 1.25

# One provider serves the dialect and refuses what is repaired here (`codecs/gemini/rules.py`). The other dialects have
# many servers, some of which take what the documents forbid: these get the client's own bytes first.
_REFUSED_BY_ALL: Final = frozenset({"gemini"})

T = TypeVar("T")
_Key: TypeAlias = tuple[bytes, str]  # a client, and the name of a model or of a window


class LimitStore(Protocol):
    """Learned limits by base URL, the name under which a limit is learned, and a hash of the credential."""

    def get(self, key: tuple[str, str, bytes], /) -> int | None:
        """Return the limit in tokens, or None."""

    def __setitem__(self, key: tuple[str, str, bytes], tokens: int, /) -> None:
        """Store a limit that a refusal named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """Settings shared by all conversations of a proxy.

    `learned` holds the windows that refusals of `endpoint` named. `lessons` holds what refusals taught besides windows
    about the model of one conversation (`foldline.engine.learned_caps`).
    """

    policy: Policy
    endpoint: str = ""
    max_request_bytes: int | None = None
    learned: LimitStore
    counter: Counter = ESTIMATE
    lessons: Lessons = field(default_factory=dict)

    def lessons_for(self, learned_as: str, client: bytes) -> Lessons:
        """Return what refusals taught this client besides windows. O(1)."""
        return lessons_in(lambda name: self.learned.get((self.endpoint, name, client)), learned_as)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """The bytes to send for one request: `data`, which is the client's own body unless `changed`.

    `given_tokens` counts what the client sent and `tokens` what is sent, by our own count. `folds` is the number of
    folds in effect, `new_folds` those made since the previous request. `version` numbers the requests of the
    conversation. `prepared` is False for a request that was passed on without asking the context. `rules` stay word for
    word in folds, and `tool_sizes` are those of the client's tools.
    """

    body: RequestBody
    data: bytes
    changed: bool
    given_tokens: int
    tokens: int
    folds: int
    new_folds: tuple[Fold, ...]
    limits: TokenLimits
    version: int
    prepared: bool = True
    rules: tuple[StandingRule, ...] = ()
    tool_sizes: tuple[ToolSize, ...] = ()

    def truncated(self, usage: Usage, stop_reason: str = "") -> str:
        """Say why the upstream seems to have cut the prompt, judging by its report; "" if nothing points to it."""
        reason = silent_truncation(
            estimate_tokens=self.tokens,
            reported_tokens=usage.input_tokens,
            window=self.limits.window_tokens,
            stop_reason=stop_reason,
            output_tokens=usage.output_tokens,
        )
        return reason or ""


@dataclass(slots=True)
class WarmReturns:
    """How often a client has come back, and how often before its cache had gone cold.

    `refused` says that the upstream has refused a request with cache markers of ours.
    """

    total: int = 0
    warm: int = 0
    refused: bool = False

    def record(self, idle_seconds: float, model: str) -> None:
        """Record one more request of a client that has sent some before. O(1)."""
        self.total += 1
        self.warm += idle_seconds < lookup(model).cache.lifetime_seconds

    @property
    def cold(self) -> int:
        """How often the client has come back after its cache had gone cold."""
        return self.total - self.warm

    @property
    def pay(self) -> bool:
        """Whether writing to the cache has paid so far; False for a client that has not come back yet."""
        return self.warm > _LEAST_WARM * self.total and not self.refused


@dataclass(slots=True)
class LimitsByClient:
    """Limits learned in this process, by client and name. Bounded; all methods are O(1)."""

    clock: Callable[[], float] = monotonic
    max_names: int = _MAX_NAMES
    _windows: OrderedDict[_Key, int] = field(default_factory=OrderedDict)
    _outputs: OrderedDict[_Key, int] = field(default_factory=OrderedDict)
    _answered: OrderedDict[_Key, tuple[int, float]] = field(default_factory=OrderedDict)

    def window_tokens(self, client: bytes, name: str, default_tokens: int) -> int:
        """Return the smaller of a window known from elsewhere and the one that a refusal named."""
        # The smaller one: a refusal may only shrink a window, so no client can talk itself a larger one.
        return min(default_tokens, self._windows.get((client, name), default_tokens))

    def learn_window(self, client: bytes, name: str, tokens: int) -> None:
        """Store a window that a refusal named."""
        _store(self._windows, (client, name), tokens, self.max_names)

    def max_output_tokens(self, client: bytes, model: str) -> int | None:
        """Return the largest output cap of a model, if a refusal named it."""
        return self._outputs.get((client, model))

    def learn_output(self, client: bytes, model: str, tokens: int) -> None:
        """Store an output cap that a refusal named."""
        _store(self._outputs, (client, model), tokens, self.max_names)

    def record_answer(self, client: bytes, name: str, counted_tokens: int, reported_tokens: int | None) -> None:
        """Record that a request of this size was answered. `reported_tokens` is None without a report."""
        low, high = (int(share * counted_tokens) for share in _BELIEVED_SHARES)
        tokens = min(reported_tokens, high) if reported_tokens else low
        now = self.clock()
        # The largest size within the hour: a small request that is answered later proves nothing against it.
        before, at = self._answered.get((client, name), (0, now))
        if tokens >= before or now - at > _ANSWER_SECONDS:
            _store(self._answered, (client, name), (tokens, now), self.max_names)

    def doubts(self, client: bytes, name: str, limit_tokens: int) -> bool:
        """Whether a limit is far below what this client was answered within the last hour."""
        tokens, at = self._answered.get((client, name), (0, 0.0))
        return not believable(limit_tokens, tokens) and self.clock() - at <= _ANSWER_SECONDS


def limits_for(body: RequestBody, window_tokens: int, *, max_output_tokens: int | None = None) -> TokenLimits:
    """Return the limits of a request. The window keeps room for the client's output cap, or for a usual reply."""
    model = body.model or None
    reserve = body.cap_tokens or output_tokens(lookup(model), window_tokens)
    if max_output_tokens is not None:
        reserve = min(reserve, max_output_tokens)
    # At most a quarter of the window: clients set caps that no reply reaches (128,000 of 200,000 tokens), and room
    # kept for them is lost to the conversation. `Conversation` lowers such a cap once the window fills up.
    return limits_of(window_tokens, model, min(reserve, window_tokens // 4))


def folds_by_share_only(policy: Policy) -> bool:
    """Whether a policy folds by a share of the window alone. Any other policy may fold at any size."""
    by_share = Trigger(fraction=policy.trigger.fraction)
    return not (policy.always or policy.economical) and policy.trigger == by_share


def mended_at_once(dialect: str, repairs: Iterable[Repair]) -> tuple[str, ...]:
    """Return the rules of repairs that are made before the first refusal, each once. O(repairs).

    A refusal has taught before that roles must alternate; and what every server of a dialect refuses is not sent to it.
    """
    sure = dialect in _REFUSED_BY_ALL
    return tuple(dict.fromkeys(repair.rule for repair in repairs if sure or repair.rule == "alternation"))


def with_repairs(warning: str, dialect: str, repairs: Iterable[Repair]) -> str:
    """Return a warning that also names the rules of `mended_at_once`."""
    rules = ", ".join(mended_at_once(dialect, repairs))
    return "; ".join(filter(None, (warning, f"repaired before it was sent: {rules}")))


def is_surely_refused(dialect: str, messages: Sequence[Wire]) -> bool:
    """Whether a request has faults that `mended_at_once` may name, judged without recording it. O(messages)."""
    if dialect not in _REFUSED_BY_ALL:
        return False
    return messages[0].get("role") not in (None, "", "user") or bool(violations(messages, dialect))


def _store(table: OrderedDict[_Key, T], key: _Key, value: T, max_names: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > max_names:
        table.popitem(last=False)
