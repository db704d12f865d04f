"""TO WRITE."""

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
"""An ambiguous refusal is an overflow when our estimate is at least this part of the window. Requests are kept below
0.77 of it (trigger 0.85 of a limit of 0.9), and an estimate may be a fifth too low: below 0.8 neither explains an
overflow."""


TRUNCATED_RATIO = 0.5
"""Reported input below this part of our estimate was cut. A server that cuts keeps about half of its window
(ollama/ollama#17427: num_ctx / 2 + 2), so whatever did not fit comes back as about half or less; an estimate is off
by a fifth, not by a half."""


TRUNCATED_MIN_TOKENS = 2_000
"""Smaller estimates are not judged: no server in use has a window below 2,048 tokens, and fixed costs blur small
counts."""


FAR_BELOW = 0.8
"""A limit below this part of what the same model has just taken contradicts it: a count may be a fifth too high."""


MESSAGE_CHARS = 500


_NO_SIZE = frozenset((401, 402, 403, 404, 405, 407, 429))  # statuses that say by themselves that it is not about size


_SIZE_KINDS = frozenset(("bytes_overflow", "output_overflow", "prompt_overflow", "ambiguous"))


_DENIED = frozenset((401, 403))  # with which a gateway also says that a plan has a smaller window


_UNSAID = frozenset((400, 413, 422))  # statuses with which a body without a word may be an overflow


_GENERIC_CODES = frozenset(
    "invalid_request_error bad_request bad_request_error badrequesterror invalid_argument validationexception".split()
)


_BY_STATUS: dict[int, Kind] = {401: "auth", 403: "auth", 402: "quota", 429: "rate", 529: "rate", 413: "bytes_overflow"}


_MAX_CHAIN = 10  # exceptions in one chain of causes


_CUT_OFF = frozenset(("length", "max_tokens", "max_output_tokens"))


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, classified. All counts are tokens and None where the wording gives none.

    `status` is the HTTP status, or the one in the body when the response itself was a success (an error in a stream).
    `limit` is what was exceeded, `limit_of` whose limit it is: of the window, of the output, or of a rate.
    `requested` is the whole request as the provider counts it; with `lower_bound` it is at least that large, so
    cutting by the difference would not do. `pattern` is the id of the table's row that matched (`status.413`,
    `no_words` where none did), with `+near_window` or `+far_from_window` if our estimate decided. `message` has its
    secrets removed and is at most 500 characters. `part` is the one part that is refused, where it is only one.
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
    """Says what kind of failure this is, and reads its figures. Pure; never raises.

    `body` is an object, JSON text, bytes, plain text, an event of a stream, or anything else; `error` an exception of
    any client, whose chain of causes is followed as long as nothing tells, or what else stands for one: read as a body.
    A status that is no whole number counts as none. `estimate` is our count of the request and
    `window` the model's window, both in tokens: they decide where the wording does not.

    `request` is what was refused: the JSON value, text or bytes of its whole body. Give it wherever a stranger wrote a
    part of it: what stands in it is no evidence, so that nobody changes a window by quoting an error (an overflow
    that has no other words is one only near the window). `believable` is the rule for a limit that is learned.

    Cost: O(size of the body), with at most 16,384 characters of text searched, and O(size of the request).
    """
    known = _Known(status if isinstance(status, int) else None, _tokens(estimate), _tokens(window))
    found = _classified(body, error, known, None)
    if request is None or found.kind == "other" or found.status in _NO_SIZE:
        return found
    own = _classified(body, error, known, request)
    if own.kind != "other" or found.kind not in _SIZE_KINDS:
        return replace(own, message=found.message)
    doubted = replace(found, kind="ambiguous", limit=None, limit_of=None, requested=None, input_tokens=None)
    near = _resolved(replace(doubted, output_tokens=None, lower_bound=False, pattern="echo"), estimate, window)
    return near if near.kind == "prompt_overflow" else replace(own, message=found.message)


def believable(limit: int | None, taken_tokens: int | None) -> bool:
    """Whether a limit may be true beyond the request that was refused with it.

    `taken_tokens` is the input that the same model took last, as the provider counted it. A limit far below it is
    a misunderstanding, or another's text: fold this one request, and learn nothing. Both None where nothing is known.
    """
    return limit is None or not taken_tokens or limit >= FAR_BELOW * taken_tokens


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known beside the error: the status, our count of the request and the model's window, in tokens."""

    status: int | None
    estimate: int | None
    window: int | None


def _tokens(count: object) -> int | None:
    return int(count) if isinstance(count, int | float) and isfinite(count) else None


def _classified(body: object, error: object, known: _Known, request: object) -> Failure:
    result: Failure | None = None
    for evidence in _evidences(body, error, request):
        found = _judge(evidence, known)
        if result is None or (result.kind in ("other", "ambiguous") and found.kind != "other"):
            result = replace(found, status=found.status if found.status is not None else known.status)
        if result.kind not in ("other", "ambiguous"):
            break
    return result or Failure("other", status=known.status)


def silent_truncation(
    *,
    estimate_tokens: int,
    reported_tokens: int | None,
    window: int | None,
    stop_reason: str | None,
    output_tokens: int | None,
) -> str | None:
    """Says why a reply without an error is one to a cut request, as a sentence; None if nothing points to it.

    `reported_tokens` is the whole input the provider counted, cached tokens included; None or 0 means that it did not
    say. The signs: the stop reason names the window; the input counted is above the window; it is below half of an
    estimate of at least 2,000 tokens; the output ended for length, or the request filled the window, and nothing was
    generated.
    """
    stop = (stop_reason or "").lower()
    if stop == "model_context_window_exceeded":
        return "the model stopped because the context window is full"
    if reported_tokens and window and reported_tokens > window:
        return (
            f"the provider counted {reported_tokens:,} input tokens, more than the window of {window:,}: "
            "it cuts without a word, or its window is larger than known"
        )
    judged = estimate_tokens >= TRUNCATED_MIN_TOKENS
    if reported_tokens and judged and reported_tokens < estimate_tokens * TRUNCATED_RATIO:
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
    """The body first, then each exception of the chain, outermost first: an inner one may be about something else."""
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


def _judge(evidence: Evidence, known: _Known) -> Failure:
    given, estimate, window = known.status, known.estimate, known.window
    # Inside a 200 stream, what counts is the status in the body; else the status of the response itself.
    status = given if given is not None and given >= 400 else evidence.status or given
    kind, pattern, size = _kind_of(evidence, status, known)
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


def _kind_of(evidence: Evidence, status: int | None, known: _Known) -> tuple[Kind, str | None, Size | None]:
    """The kind, what told it, and what a sentence says of sizes: fields first, then rows, then sentences."""
    excluded = kinds_excluded(evidence)
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
    if size is not None and status in _DENIED and _is_near(known.estimate, size.limit or known.window):
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
    """The figures of the wording; where its patterns know none, those of the sentence that speaks of sizes."""
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
    """A request that is larger than the whole allowance never passes, however long it waits."""
    figures = rate_figures(evidence.text)
    size = figures.requested if figures.requested is not None else estimate
    kind = failure.kind
    if kind != "request_too_large_for_rate" and figures.limit and size is not None and size > figures.limit:
        kind = "request_too_large_for_rate"
    return replace(failure, kind=kind, limit=figures.limit, limit_of=figures.limit_of, requested=figures.requested)


def _with_sizes(failure: Failure, figures: TokenFigures, estimate: int | None, window: int | None) -> Failure:
    """Where input and output are both given, the output is at fault if the input alone would fit."""
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
    """Without secrets first, then short: a secret that is cut in two is one no longer recognised."""
    text = redact(message[: 8 * MESSAGE_CHARS])
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"
