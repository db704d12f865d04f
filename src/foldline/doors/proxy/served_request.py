"""The record of a request: for listeners once it has ended, and as headers of its response."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Final, Literal, TypeAlias

from foldline.catalog.models import lookup
from foldline.conversations.conversation_cache import PlannedRequest
from foldline.display.resuming import resume_price
from foldline.doors.proxy.request_head import dialect_of
from foldline.view.standing_rules import StandingRule
from foldline.view.tool_sizes import ToolSize
from foldline.view.transcript import Fold, Usage

__all__ = [
    "ExchangeRecord",
    "Listener",
    "Mode",
    "Outcome",
    "ServedRequest",
    "counts_tokens",
    "is_answered",
    "report_headers",
    "saved_usd",
    "spent_usd",
]

_MAX_HEADER_CHARS: Final = 400  # servers often bound all headers to 8 KiB, and the upstream's come on top
# Line breaks, control characters and other scripts have no place in a header; runs of white space become one space.
_NOT_PRINTABLE: Final = re.compile("[^!-~]+")

# A model's name is the client's text, and it is searched for by prefixes.
_MODEL_CHARS: Final = 300

Mode: TypeAlias = Literal["normal", "dry-run", "strict"]
"""Fold what does not fit; only report what would be done; refuse what does not fit."""

Outcome: TypeAlias = Literal["passed", "folded", "refused", "open", "left", "cut", "compacted"]
"""Sent unchanged; sent folded; refused by the proxy; sent unchanged after a fault of the proxy; the client
disconnected; the upstream broke off; answered by the proxy with a compaction that the client asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request that has ended.

    `dialect` is "" on a path that only passes through, `session` "" without a conversation. `status` is what the client
    received, 0 for nothing; `faulty` marks a fault of the proxy. `given_tokens` is the size of what the client sent and
    `sent_tokens` of what was sent on, by the proxy's own count; `folds` is the number in effect. `input_tokens`,
    `cached_tokens` and `output_tokens` are the upstream's figures; `summaries` are its figures for each call of
    `summary_model`. `failure` is the kind of an error by the upstream; `truncated` says why the upstream is thought to
    have cut the prompt. `traceparent` is the client's own trace (W3C, Trace Context). `own_seconds` is the proxy's part
    before the request went on; `first_byte_seconds` and `seconds` count from its arrival.
    """

    number: int
    at: datetime
    method: str
    path: str
    dialect: str = ""
    model: str = ""
    session: str = ""
    title: str = ""
    mode: Mode = "normal"
    outcome: Outcome = "passed"
    faulty: bool = False
    status: int = 0
    streamed: bool = False
    given_tokens: int = 0
    sent_tokens: int = 0
    window_tokens: int = 0
    folds: int = 0
    new_folds: tuple[Fold, ...] = ()
    rules: tuple[StandingRule, ...] = ()
    tool_sizes: tuple[ToolSize, ...] = ()
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    summaries: tuple[Usage, ...] = ()
    summary_model: str = ""
    recoveries: int = 0
    failure: str = ""
    truncated: str = ""
    warning: str = ""
    own_seconds: float = 0.0
    first_byte_seconds: float | None = None
    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    traceparent: str = ""

    @property
    def saved_tokens(self) -> int:
        """Tokens that were not sent."""
        return max(0, self.given_tokens - self.sent_tokens)

    @property
    def summary_tokens(self) -> int:
        """Tokens that models read and wrote for summaries of this request."""
        return sum(usage.input_tokens + usage.output_tokens for usage in self.summaries)


@dataclass(slots=True, kw_only=True)
class ExchangeRecord:
    """The state of a request in progress; `served` turns it into a `ServedRequest`."""

    number: int
    method: str
    path: str
    dialect: str = ""
    traceparent: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=perf_counter)
    outcome: Outcome | None = None  # None: passed or folded, by the plan
    status: int = 0
    faulty: bool = False
    streamed: bool = False
    failure: str = ""
    truncated: str = ""
    warning: str = ""
    recoveries: int = 0
    window_tokens: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    own_seconds: float = 0.0
    first_byte_seconds: float | None = None

    def mark_first_byte(self) -> None:
        """Note the time of the first byte to the client; later calls change nothing."""
        if self.first_byte_seconds is None:
            self.first_byte_seconds = perf_counter() - self.began

    def served(
        self,
        mode: Mode,
        *,
        model: str,
        planned: PlannedRequest | None = None,
        usage: Usage | None = None,
        summaries: tuple[Usage, ...] = (),
        summary_model: str = "",
    ) -> ServedRequest:
        """The record of the request, which has ended now."""
        # In a dry run the plan says what would have been sent; the request itself went out unchanged.
        plan = None if planned is None else planned.plan
        folded = plan is not None and plan.changed and mode == "normal"
        return ServedRequest(
            number=self.number,
            at=self.at,
            method=self.method,
            path=self.path,
            dialect=self.dialect,
            model=model,
            session="" if planned is None else planned.session,
            title="" if planned is None else planned.title,
            mode=mode,
            outcome=self.outcome or ("folded" if folded else "passed"),
            faulty=self.faulty,
            status=self.status,
            streamed=self.streamed,
            given_tokens=0 if plan is None else plan.given_tokens,
            sent_tokens=0 if plan is None else plan.tokens,
            window_tokens=self.window_tokens,
            folds=0 if plan is None else plan.folds,
            new_folds=() if plan is None else plan.new_folds,
            rules=() if plan is None else plan.rules,
            tool_sizes=() if plan is None else plan.tool_sizes,
            input_tokens=None if usage is None else usage.input_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            summaries=summaries if planned is None else (*summaries, *planned.take_asked()),
            summary_model=summary_model,
            recoveries=self.recoveries,
            failure=self.failure,
            truncated=self.truncated,
            warning=self.warning_of(planned),
            own_seconds=self.own_seconds,
            first_byte_seconds=self.first_byte_seconds,
            seconds=perf_counter() - self.began,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            traceparent=self.traceparent,
        )

    def warning_of(self, planned: PlannedRequest | None) -> str:
        """The warning of the exchange; without one, that of its plan."""
        return self.warning or (planned.warning if planned is not None else "")


Listener: TypeAlias = Callable[[ServedRequest], None]
"""Called on the event loop for each request that has ended. Must be quick, and must not raise."""


def report_headers(planned: PlannedRequest | None, record: ExchangeRecord, mode: Mode) -> list[tuple[bytes, bytes]]:
    """The headers x-foldline-…. A truncation is reported once, by the first response after it was noticed."""
    found: dict[str, str] = {}
    # Without a plan there are no figures: a header with 0 would read as a measurement.
    if planned is not None:
        plan = planned.plan
        found |= {
            "tokens": str(plan.tokens),
            "folds": str(plan.folds),
            "saved": str(max(0, plan.given_tokens - plan.tokens)),
            "window": str(record.window_tokens),
            "session": planned.session,
        }
        # What the next request costs once the cache has expired: the price of leaving the conversation for a while.
        resuming = resume_price(lookup(plan.body.model[:_MODEL_CHARS]), plan.tokens)
        if resuming is not None:
            found["resume-usd"] = f"{resuming.cold_usd:.4f}"
        # Emptied as it is read: the client is warned once, not with each response from then on.
        if planned.cached.truncated:
            found["truncated"], planned.cached.truncated = planned.cached.truncated, ""
    if mode != "normal":
        found["mode"] = mode
    if record.recoveries:
        found["recoveries"] = str(record.recoveries)
    if warning := record.warning_of(planned):
        found["warning"] = warning
    return [(f"x-foldline-{name}".encode(), _header_value(value)) for name, value in found.items()]


def _header_value(text: str) -> bytes:
    """A text as a header value: one line of ASCII."""
    return _NOT_PRINTABLE.sub(" ", text).strip().encode("ascii")[:_MAX_HEADER_CHARS]


# --- what it cost -----------------------------------------------------------------------------------------------------


def counts_tokens(served: ServedRequest) -> bool:
    """Whether the request only asked for a count of tokens, which no model read."""
    return dialect_of(served.method, served.path)[1]


def is_answered(served: ServedRequest) -> bool:
    """Whether a model read the request, so that its tokens count. Clients send a refused one again."""
    return (
        served.dialect != "" and 0 < served.status < 400 and served.outcome != "refused" and not counts_tokens(served)
    )


def saved_usd(served: ServedRequest, *, cached: bool) -> float | None:
    """The input price that folding saved, less the cost of summaries, in US dollars; None without a known price.

    It covers the tokens that were not sent, and the surcharge on long requests that all tokens escaped. With `cached`
    the upstream caches the prompts of this conversation, so the tokens would have been read from the cache.
    """
    found = lookup(served.model[:_MODEL_CHARS])
    if not found.known or found.input_usd_per_million is None:
        return None
    rule, full, sent = found.cache, served.given_tokens, served.sent_tokens
    saved = full * rule.step(full).input_ratio - sent * rule.step(sent).input_ratio
    saved_usd = max(0.0, saved) * (rule.read_ratio if cached else 1.0) * found.input_usd_per_million / 1_000_000
    return saved_usd - (spent_usd(served) or 0.0)


def spent_usd(served: ServedRequest) -> float | None:
    """The cost of a request's summaries in US dollars; None without a known price.

    If their model has no known price, that of the conversation's model is taken.
    """
    # By each call's own tokens: price steps of long requests depend on the single call.
    total = 0.0
    writers = [lookup(name[:_MODEL_CHARS]) for name in (served.summary_model, served.model)]
    for usage in served.summaries:
        written = (usage.written_tokens, usage.written_long_tokens)
        tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, *written)
        usd = next((price for writer in writers if (price := writer.usd(*tokens)) is not None), None)
        if usd is None:
            return None
        total += usd
    return total
