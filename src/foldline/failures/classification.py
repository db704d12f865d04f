"""The kind and the figures of a failure, from its status, codes and wording; and cuts that no error reports.

A rate limit calls for waiting, an overflow for shrinking, and each is useless for the other. So the vetoes come first:
fields of the error, then the rows of `wordings`, then whole sentences. What none of them knows is "other", never an
overflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite

from foldline.failures.error_fields import is_of_output, kind_of_codes, kinds_excluded
from foldline.failures.evidence import Evidence, read_body, read_error
from foldline.failures.figures import LimitOf, TokenFigures, rate_figures, retry_after_seconds, size_figures
from foldline.failures.parts import RefusedPart, read_part
from foldline.failures.sentences import Size, cap_in, overflow_in
from foldline.failures.wordings import WORDINGS, Kind, Wording
from foldline.text.redaction import redact

__all__ = [
    "NEAR_WINDOW",
    "Failure",
    "believable",
    "classify",
    "silent_truncation",
]


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


_MESSAGE_CHARS = 500


_NO_SIZE = frozenset((401, 402, 403, 404, 405, 407, 429))  # statuses that never mean a size


_SIZE_KINDS = frozenset(("bytes_overflow", "output_overflow", "prompt_overflow", "ambiguous"))


_DENIED = frozenset((401, 403))  # a gateway also sends these when a plan has a smaller window


_UNSAID = frozenset((400, 413, 422))  # with these an empty body may mean an overflow


_GENERIC_CODES = frozenset(
    "invalid_request_error bad_request bad_request_error badrequesterror invalid_argument validationexception".split()
)


_BY_STATUS: dict[int, Kind] = {401: "auth", 403: "auth", 402: "quota", 429: "rate", 529: "rate", 413: "bytes_overflow"}


_MAX_CHAIN = 10  # exceptions in one chain of causes


_CUT_OFF = frozenset(("length", "max_tokens", "max_output_tokens"))


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


def classify(
    status: int | None = None,
    body: object = None,
    *,
    error: object = None,
    estimate: int | None = None,
    window: int | None = None,
    request: object = None,
) -> Failure:
    """Classify a failure and read its figures. Pure; never raises.

    `body` is an object, JSON text, bytes, plain text, an event of a stream, or anything else. `error` is an exception
    of any client, whose causes are followed until one is conclusive; any other object is read as a body. A status that
    is no integer counts as none. `estimate` is our count of the request and `window` the model's window, both in
    tokens: they decide when the wording does not.

    `request` is the JSON value, text or bytes of the refused body. Pass it whenever a stranger wrote a part of it: text
    that it contains is no evidence, so that nobody changes a window by quoting an error. (An overflow without other
    words then counts only near the window.) `believable` is the rule for learning a limit.

    Cost: O(size of the body), with at most 16,384 characters of text searched, and O(size of the request).
    """
    facts = _Facts(status if isinstance(status, int) else None, _tokens(estimate), _tokens(window))
    found = _classified(body, error, facts, None)
    if request is None or found.kind == "other" or found.status in _NO_SIZE:
        return found
    own = _classified(body, error, facts, request)
    if own.kind != "other" or found.kind not in _SIZE_KINDS:
        return replace(own, message=found.message)
    doubted = replace(found, kind="ambiguous", limit=None, limit_of=None, requested=None, input_tokens=None)
    near = _resolved(replace(doubted, output_tokens=None, lower_bound=False, pattern="echo"), estimate, window)
    return near if near.kind == "prompt_overflow" else replace(own, message=found.message)


def believable(limit: int | None, taken_tokens: int | None) -> bool:
    """Whether a limit may hold beyond the request that was refused with it.

    `taken_tokens` is the last input that the same model accepted, as the provider counted it. A limit far below it is a
    misreading, or somebody's text: fold this one request, and learn nothing. Either may be None when unknown.
    """
    return limit is None or not taken_tokens or limit >= _FAR_BELOW * taken_tokens


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts from outside the error: the status, our count of the request, and the model's window in tokens."""

    status: int | None
    estimate: int | None
    window: int | None


def _tokens(count: object) -> int | None:
    return int(count) if isinstance(count, int | float) and isfinite(count) else None


def _classified(body: object, error: object, facts: _Facts, request: object) -> Failure:
    result: Failure | None = None
    for evidence in _evidences(body, error, request):
        found = _judge(evidence, facts)
        if result is None or (result.kind in ("other", "ambiguous") and found.kind != "other"):
            result = replace(found, status=found.status if found.status is not None else facts.status)
        if result.kind not in ("other", "ambiguous"):
            break
    return result or Failure("other", status=facts.status)


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


def _evidences(body: object, error: object, request: object) -> Iterator[Evidence]:
    """The body first, then the exceptions of the chain, outermost first: an inner one may have another subject."""
    if body is not None or error is None:
        yield read_body(body, request)
    if error is not None and not isinstance(error, BaseException):
        yield read_body(error, request)
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen and len(seen) < _MAX_CHAIN:
        seen.add(id(error))
        yield read_error(error, request)
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions[:_MAX_CHAIN]:
                yield read_error(inner, request)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _matches(row: Wording, evidence: Evidence, status: int | None) -> bool:
    if row.statuses and (status or 0) not in row.statuses:
        return False
    if row.kind in _SIZE_KINDS and status in _NO_SIZE:
        return False
    if row.where == "code":
        return any(_compiled(row.pattern).fullmatch(code) for code in evidence.codes)
    return bool(evidence.text) and _compiled(row.pattern).search(evidence.text) is not None


def _judge(evidence: Evidence, facts: _Facts) -> Failure:
    given, estimate, window = facts.status, facts.estimate, facts.window
    # In a stream with status 200 the body has the status of the failure; otherwise the response has.
    status = given if given is not None and given >= 400 else evidence.status or given
    kind, pattern, size = _kind_of(evidence, status, facts)
    failure = Failure(
        kind,
        message=_shown(evidence.message),
        status=status,
        code=evidence.code,
        retry_after_seconds=evidence.retry_after_seconds
        if evidence.retry_after_seconds is not None
        else retry_after_seconds(evidence.text),
        pattern=pattern,
        part=_part(pattern, evidence),
    )
    if kind in ("rate", "quota", "request_too_large_for_rate"):
        return _with_rate(failure, evidence, estimate)
    if kind in ("prompt_overflow", "output_overflow"):
        return _with_sizes(failure, _figures(evidence, kind, size), estimate, window)
    if kind == "ambiguous":
        return _resolved(failure, estimate, window, size)
    return failure


def _kind_of(evidence: Evidence, status: int | None, facts: _Facts) -> tuple[Kind, str | None, Size | None]:
    """The kind, the id of the evidence, and the size that a sentence gives.

    The order is fields of the error, rows of the table, sentences, status.
    """
    excluded = kinds_excluded(evidence)  # a refused parameter vetoes whatever the text quotes
    row = next((row for row in WORDINGS if row.kind not in excluded and _matches(row, evidence, status)), None)
    named = kind_of_codes(evidence)
    if row is not None and row.kind in _SIZE_KINDS and named is not None:
        return named, "code", None
    if row is not None and row.kind != "ambiguous":
        return row.kind, row.id, None
    size = None if excluded or named else overflow_in(evidence.text)
    if size is None and row is None and is_of_output(evidence) and not named:
        size = cap_in(evidence.text)
    told = size is not None and size.kind != "ambiguous" and (row is None or size.limit is not None)
    if size is not None and told and status not in _NO_SIZE:
        return size.kind, "sentence", size
    if size is not None and status in _DENIED and _is_near(facts.estimate, size.limit or facts.window):
        return "prompt_overflow", "sentence+near_window", size
    if row is not None:
        return row.kind, row.id, size
    if size is not None and status not in _NO_SIZE:
        return "ambiguous", "sentence", size
    if not evidence.text and status in _UNSAID and (evidence.code or "").lower() in {"", *_GENERIC_CODES}:
        return "ambiguous", "no_words", None
    if status in _BY_STATUS:
        return _BY_STATUS[status], f"status.{status}", None
    return "other", None, None


def _part(pattern: str | None, evidence: Evidence) -> RefusedPart | None:
    kind = next((row.part for row in WORDINGS if row.id == pattern), None)
    return read_part(kind, evidence.text, evidence.places) if kind is not None else None


def _figures(evidence: Evidence, kind: Kind, size: Size | None) -> TokenFigures:
    """The figures of the wording's patterns, completed by those of a sentence about sizes."""
    figures = size_figures(evidence.text, evidence.figures)
    if figures.limit is not None and figures.requested is not None:
        return figures
    size = size or overflow_in(evidence.text)
    if size is None or size.kind == "ambiguous" or (figures.limit or size.limit) is None:
        return figures
    limit_of: LimitOf = figures.limit_of or ("output" if size.kind == "output_overflow" else "window")
    if kind == "output_overflow" and limit_of == "output":
        return replace(figures, limit=figures.limit or size.limit, limit_of=limit_of)
    return replace(
        figures,
        limit=figures.limit or size.limit,
        limit_of=limit_of,
        requested=figures.requested or size.requested,
    )


def _is_near(estimate: int | None, window: int | None) -> bool:
    return estimate is not None and bool(window) and estimate >= NEAR_WINDOW * (window or 0)


def _with_rate(failure: Failure, evidence: Evidence, estimate: int | None) -> Failure:
    """Add the figures of a rate; a request above the whole allowance is of another kind."""
    # However long it waits, it never passes.
    figures = rate_figures(evidence.text)
    size = figures.requested if figures.requested is not None else estimate
    kind = failure.kind
    if kind != "request_too_large_for_rate" and figures.limit and size is not None and size > figures.limit:
        kind = "request_too_large_for_rate"
    return replace(failure, kind=kind, limit=figures.limit, limit_of=figures.limit_of, requested=figures.requested)


def _with_sizes(failure: Failure, figures: TokenFigures, estimate: int | None, window: int | None) -> Failure:
    """Add the figures of an overflow, and decide between prompt and output when both are given."""
    # The output is at fault if the input alone would fit.
    kind = failure.kind
    room = figures.limit if figures.limit_of == "window" else window
    given = figures.input_tokens
    if given is not None and figures.lower_bound and estimate is not None:
        given = max(given, estimate)  # "at least" is the window less the output plus one, not the size of the prompt
    if room is not None and given is not None and figures.output_tokens is not None:
        kind = "output_overflow" if given < room else "prompt_overflow"
    return replace(
        failure,
        kind=kind,
        limit=figures.limit,
        limit_of=figures.limit_of,
        requested=figures.requested,
        input_tokens=figures.input_tokens,
        output_tokens=figures.output_tokens,
        lower_bound=figures.lower_bound,
    )


def _resolved(failure: Failure, estimate: int | None, window: int | None, size: Size | None = None) -> Failure:
    """Decide an ambiguous failure by our estimate; without one it stays ambiguous."""
    limit = size.limit if size is not None else None
    if _is_near(estimate, limit or window):
        told = replace(failure, limit=limit, limit_of="window") if limit else failure
        return replace(told, kind="prompt_overflow", pattern=f"{failure.pattern}+near_window")
    if estimate is None or not window:
        return failure
    if failure.status == 413:  # far below the window in tokens, so what is too large is the bytes
        return replace(failure, kind="bytes_overflow", pattern=f"{failure.pattern}+far_from_window")
    return failure


def _shown(message: str) -> str:
    """The message, redacted and then cut: a secret cut in two would no longer be recognised."""
    text = redact(message[: 8 * _MESSAGE_CHARS])
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"
