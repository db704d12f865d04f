"""A failure as a value: its kind, its figures, the part that was refused; and what may be learned from it.

Nothing is parsed here, so that a session loads this module and not the tables of wordings: those are needed once a
request has failed (`foldline.failures.classification`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "NEAR_WINDOW",
    "Failure",
    "Kind",
    "LimitOf",
    "PartKind",
    "RefusedPart",
    "Why",
    "believable",
    "silent_truncation",
]

Kind = Literal[
    "prompt_overflow",
    "output_overflow",
    "bytes_overflow",
    "image",
    "document",
    "malformed",
    "request_too_large_for_rate",
    "rate",
    "quota",
    "auth",
    "ambiguous",
    "other",
]

LimitOf = Literal["window", "output", "rate"]

PartKind = Literal[
    "image",
    "document",
    "result_media",
    "reasoning",
    "item",
    "name",
    "call_id",
    "roles",
    "system",
    "empty",
    "pairs",
    "history",
]
"""Kinds of parts. `result_media` is anything but text in a tool result, `item` one with an id, `pairs` calls without
results or results without calls, `history` any other fault of the messages."""

Why = Literal["", "unreadable", "protected", "pages", "size", "count", "unsupported", "signature"]


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A part that a provider refused.

    `place` are the indices in the error: of the message (or item), of the block in it, of the block in that. `item_id`
    is the id in the error. `most` is the number of such parts that the error allows.
    """

    kind: PartKind
    why: Why = ""
    place: tuple[int, ...] = ()
    item_id: str | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One classified failure. Counts are tokens, None when the wording gives none.

    `status` is the HTTP status, or the one in the body when the response was a success (an error in a stream). `limit`
    is what was exceeded, `limit_of` its kind: window, output or rate. `requested` is the whole request as the provider
    counts it; with `lower_bound` it is at least that large, so cutting the difference is not enough. `pattern` is the
    id of the wording that matched (`status.413`, `no_words` when none did), with `+near_window` or `+far_from_window`
    when our estimate decided. `message` is at most 500 characters, with secrets redacted. `part` is the part of the
    request that was refused, when it is a single one.
    """

    kind: Kind
    message: str = ""
    status: int | None = None
    code: str | None = None
    limit: int | None = None
    limit_of: LimitOf | None = None
    requested: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    lower_bound: bool = False
    retry_after_seconds: float | None = None
    pattern: str | None = None
    part: RefusedPart | None = None


# --- judging it -------------------------------------------------------------------------------------------------------

NEAR_WINDOW = 0.8
"""An ambiguous refusal is an overflow when our estimate is at least this share of the window.

Requests are kept below 0.77 of it (trigger 0.85 of a limit of 0.9), and an estimate may be a fifth too low: below 0.8
neither explains an overflow.
"""

# Reported input below this share of our estimate was cut. A server that cuts keeps about half of its window
# (ollama/ollama#17427: num_ctx / 2 + 2), so an oversized prompt is reported as about half or less. An estimate is off
# by a fifth, not by a half.
_TRUNCATED_RATIO = 0.5

# Smaller estimates are not judged: no server in use has a window below 2,048 tokens, and fixed costs blur small counts.
_TRUNCATED_MIN_TOKENS = 2_000

# A limit below this share of an input that the same model has just accepted contradicts it: a count may be a fifth too
# high.
_FAR_BELOW = 0.8

_CUT_OFF = frozenset(("length", "max_tokens", "max_output_tokens"))


# A wrong limit costs more than a missing one: it is stored by endpoint and model, and every session there folds to it.


def believable(limit: int | None, taken_tokens: int | None) -> bool:
    """Whether a limit may hold beyond the request that was refused with it.

    `taken_tokens` is the last input that the same model accepted, as the provider counted it. A limit far below it is a
    misreading, or somebody's text: fold this one request, and learn nothing. Either may be None when unknown.
    """
    return limit is None or not taken_tokens or limit >= _FAR_BELOW * taken_tokens


def silent_truncation(
    *,
    estimate_tokens: int,
    reported_tokens: int | None,
    window: int | None,
    stop_reason: str | None,
    output_tokens: int | None,
) -> str | None:
    """The sign, as a sentence, that the server cut the request of a reply without an error; None without one.

    `reported_tokens` is the whole input as the provider counted it, cached tokens included; None or 0 when it reported
    none. The signs: the stop reason names the window; the input counted exceeds the window; it is below half of an
    estimate of at least 2,000 tokens; nothing was generated, and the output ended for length or the request filled the
    window.
    """
    stop = (stop_reason or "").lower()
    if stop == "model_context_window_exceeded":
        return "the model stopped because the context window is full"
    if reported_tokens and window and reported_tokens > window:
        return (
            f"the provider counted {reported_tokens:,} input tokens, more than the window of {window:,}: "
            "it cuts without a word, or its window is larger than known"
        )
    judged = estimate_tokens >= _TRUNCATED_MIN_TOKENS
    if reported_tokens and judged and reported_tokens < estimate_tokens * _TRUNCATED_RATIO:
        return (
            f"the provider counted {reported_tokens:,} input tokens where about {estimate_tokens:,} were sent: "
            "the prompt was cut before the model read it"
        )
    if output_tokens == 0 and stop in _CUT_OFF:
        return f"the reply ended for length ({stop_reason}) with nothing generated: the prompt fills the window"
    if output_tokens == 0 and window and estimate_tokens >= window:
        return f"nothing was generated, and about {estimate_tokens:,} tokens were sent to a window of {window:,}"
    return None
