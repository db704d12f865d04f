"""Classifies a failure by its status, codes and wording, and reads its figures.

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
from typing import Final

from foldline.failures.evidence import Evidence, read_body, read_error
from foldline.failures.failure import NEAR_WINDOW, Failure, Kind, LimitOf, RefusedPart
from foldline.failures.figures import TokenFigures, rate_figures, read_part, retry_after_seconds, size_figures
from foldline.failures.overflow_sentences import Size, cap_in, overflow_in
from foldline.failures.wordings import WORDINGS, Wording
from foldline.text.redaction import redact

__all__ = ["classify"]

# Of a message that is shown: enough for one sentence and its figures; a gateway may append a page of HTML.
_MESSAGE_CHARS: Final = 500

# Statuses that never mean a size: keys, money, addresses, methods and rates.
_NO_SIZE: Final = frozenset((401, 402, 403, 404, 405, 407, 429))

_SIZE_KINDS: Final = frozenset(("bytes_overflow", "output_overflow", "prompt_overflow", "ambiguous"))

# A gateway also sends these when a plan has a smaller window.
_DENIED: Final = frozenset((401, 403))

# With these an empty body may mean an overflow.
_UNSAID: Final = frozenset((400, 413, 422))

# Codes that name no subject: SDKs and gateways give them to any refusal with one of the statuses above.
_GENERIC_CODES: Final = frozenset(
    "invalid_request_error bad_request bad_request_error badrequesterror invalid_argument validationexception".split()
)

# The last resort, when no word of the error says more. 529 is Anthropic's "overloaded".
_BY_STATUS: Final[dict[int, Kind]] = {
    401: "auth", 403: "auth", 402: "quota", 429: "rate", 529: "rate", 413: "bytes_overflow"
}  # fmt: skip

# Exceptions followed in one chain of causes: SDKs wrap three or four, and a chain may lead back into itself.
_MAX_CHAIN: Final = 10


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
    # Twice where there is a request: with its words, for the message that people see, and without, for what may be
    # learned. Only where both agree is the first one taken as it is.
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


# Compiled as they are tried: the first rows decide most failures, and the table has patterns by the hundred.
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
    outer, estimate, window = facts.status, facts.estimate, facts.window
    # In a stream with status 200 the body has the status of the failure; otherwise the response has.
    status = outer if outer is not None and outer >= 400 else evidence.status or outer
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
    # A row that is itself ambiguous knows the wording: against it a sentence needs a figure.
    is_clear = size is not None and size.kind != "ambiguous" and (row is None or size.limit is not None)
    if size is not None and is_clear and status not in _NO_SIZE:
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
    # A sentence is read only for what the patterns did not find: they know which number is which, it goes by the order.
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
    prompt = figures.input_tokens
    if prompt is not None and figures.lower_bound and estimate is not None:
        prompt = max(prompt, estimate)  # "at least" is the window less the output plus one, not the size of the prompt
    if room is not None and prompt is not None and figures.output_tokens is not None:
        kind = "output_overflow" if prompt < room else "prompt_overflow"
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
        limited = replace(failure, limit=limit, limit_of="window") if limit else failure
        return replace(limited, kind="prompt_overflow", pattern=f"{failure.pattern}+near_window")
    if estimate is None or not window:
        return failure
    if failure.status == 413:  # far below the window in tokens, so what is too large is the bytes
        return replace(failure, kind="bytes_overflow", pattern=f"{failure.pattern}+far_from_window")
    return failure


def _shown(message: str) -> str:
    """The message, redacted and then cut: a secret cut in two would no longer be recognised."""
    text = redact(message[: 8 * _MESSAGE_CHARS])
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"


# --- fields of the error ----------------------------------------------------------------------------------------------
# Codes and the named parameter tell the subject of an error before its text does: a refusal of `reasoning_effort` is no
# overflow, whatever its text quotes. Wordings of sizes apply only when no field names another subject.

_TOKEN_SIZES: Final[frozenset[Kind]] = frozenset(("prompt_overflow", "output_overflow", "ambiguous"))
_ANY_SIZE: Final[frozenset[Kind]] = _TOKEN_SIZES | {"bytes_overflow"}

# OpenAI: error codes of the API reference; Anthropic: error types; pydantic 2: "Validation Errors" (what FastAPI and
# with it vLLM, SGLang and LiteLLM answer with). A length (`string_too_long`, `too_long`) may be the prompt's.
_OTHER_CODES: Final = (
    r"(?:invalid|unsupported|unknown|unrecogni[sz]ed|missing|duplicate|deprecated|disallowed)_(?:required_)?"
    r"(?:values?|types?|param|parameters?|enum(?:_value)?|fields?|model|json|base64(?:_\w{1,20})?|"
    r"function_parameters|tools?|tool_\w{1,20}|schema|response_format|url|encoding|mime_type|media_type|header|role)|"
    r"(?:decimal|integer|number|array|string)_(?:below|under)_min\w{0,20}|empty_\w{1,20}|invalid_prompt|"
    r"not_found(?:_error)?|model_not_found|(?:\w{1,30}_)?content_?(?:policy|filter)\w{0,20}|\w{0,20}moderation\w{0,20}|"
    r"(?:string|int|float|bool|boolean|number|bytes|list|tuple|set|dict|mapping|model|date|time|datetime|json|enum|url|"
    r"literal|decimal|dataclass|iterable|callable|none|is_instance|model_attributes|frozen_field|uuid|union_tag|"
    r"arguments?)_(?:type|parsing|error|invalid|of|from_float|sub_type|pattern_mismatch|required|unicode|not_found|"
    r"unexpected)|missing|extra_forbidden|enum|multiple_of|finite_number|greater_than(?:_equal)?|"
    r"(?:type|value)_error\.(?!any_str\.max_length|list\.max_items|number\.not_le)[\w.]{1,60}"
)
_OVERFLOW_CODES: Final = (
    r"(?:model_?)?context_?(?:length|window|size|limit)?_?(?:exceeded|overflow)\w{0,9}|exceed\w{0,2}_?context\w{0,20}|"
    r"prompt_too_long"
)
_MONEY: Final = r"\w{0,40}(?:quota|billing|credit|balance|payment)\w{0,40}"
_AUTH: Final = r"\w{0,40}(?:auth(?!or)|permission|forbidden|api_?key|access_?denied)\w{0,40}"

# Last steps of paths to a parameter: those of the output cap, and those of parts of a request that have a size.
_OUTPUT_PLACES: Final = frozenset(
    "max_tokens max_completion_tokens max_output_tokens max_new_tokens maxoutputtokens maxtokens maxtokenstosample "
    "max_tokens_to_sample n_predict num_predict max_gen_len max_length".split()
)
_SIZED_PLACES: Final = frozenset(
    "messages message input inputs input_text prompt prompts contents content text parts system instructions body "
    "conversation history chat_history context query documents request data num_ctx n_ctx max_input_tokens tools "
    "generate chatcompletionrequest inputtext input_tokens prompt_tokens".split()
)


def kinds_excluded(evidence: Evidence) -> frozenset[Kind]:
    """The kinds that the fields of an error rule out. O(codes and parameters)."""
    codes, places = evidence.codes, [_last(place) for place in evidence.places]
    if any(re.fullmatch(_OVERFLOW_CODES, code) for code in codes):
        return frozenset()
    of_output = any(place in _OUTPUT_PLACES for place in places)
    if places and not of_output and not any(place in _SIZED_PLACES for place in places):
        return _ANY_SIZE
    if any(re.fullmatch(_OTHER_CODES, code) for code in codes):
        return _TOKEN_SIZES - {"output_overflow"} if of_output or not places else _TOKEN_SIZES
    return frozenset()


def is_of_output(evidence: Evidence) -> bool:
    """Whether the refused parameter is the output cap."""
    return any(_last(place) in _OUTPUT_PLACES for place in evidence.places)


def kind_of_codes(evidence: Evidence) -> Kind | None:
    """The kind of a code that the table lacks, when its name speaks of money or of a key."""
    for code in evidence.codes:
        if re.fullmatch(_MONEY, code):
            return "quota"
        if re.fullmatch(_AUTH, code):
            return "auth"
    return None


def _last(place: str) -> str:
    """The last step of a path that is a name: "content" of "messages[3].content[0]"."""
    steps = [step for step in re.split(r"[.\[\]/]+", place) if step and not step.isdecimal()]
    return steps[-1] if steps else ""
