"""What the proxy tells of each request, once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.view.transcript import Fold, Usage

__all__ = ["Listener", "Mode", "Outcome", "Served", "of_hold", "of_usage"]

Mode: TypeAlias = Literal["normal", "dry-run", "strict"]
"""Fold what does not fit; only say what would be done; refuse what does not fit."""

Outcome: TypeAlias = Literal["passed", "folded", "refused", "open", "left", "cut"]
"""As it came; changed; refused by us; our fault, so sent as it came; the client went away; the upstream broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request that has ended, whatever became of it.

    `dialect` is "" on a path that only passes through, `session` "" where there is no conversation. `status` is what
    the client got, 0 if nothing; `faulty` says that there was a fault of ours. `given_tokens` is what the client sent
    and `sent_tokens` what was sent on, by our count; `folds` are those in effect. `input_tokens`, `cached_tokens` and
    `output_tokens` are what the upstream reported; `summaries` what it reported for each call for a summary, of
    `summary_model`. `failure` is the kind of a refusal by the upstream, `truncated` why it is thought to have cut the
    prompt. `traceparent` is the client's own trace (W3C, Trace Context). `own_seconds`
    is our part before the request went on; `first_byte_seconds` and `seconds` count from its arrival.
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
        """How many tokens were not sent."""
        return max(0, self.given_tokens - self.sent_tokens)

    @property
    def summary_tokens(self) -> int:
        """What the models that wrote summaries have read and written for this request."""
        return sum(usage.input_tokens + usage.output_tokens for usage in self.summaries)


def of_hold(hold: PlannedRequest | None) -> dict[str, Any]:
    """What is told of a conversation and of what was planned, as fields of `Served`; nothing where there is none."""
    if hold is None:
        return {}
    plan = hold.plan
    return {
        "session": hold.session,
        "title": hold.title,
        "given_tokens": plan.given_tokens,
        "sent_tokens": plan.tokens,
        "folds": plan.folds,
        "new_folds": plan.new_folds,
    }


def of_usage(usage: Usage | None) -> dict[str, Any]:
    """What the upstream reported, as fields of `Served`; nothing where it reported nothing."""
    if usage is None:
        return {}
    return {name: getattr(usage, name) for name in ("input_tokens", "cached_tokens", "output_tokens")}


Listener: TypeAlias = Callable[[Served], None]
"""Hears of each request on the event loop; must be quick, and must not raise."""
