"""Reads figures from the text of a failure: limit, sizes of the request, the wait, and the part that is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from foldline.failures.failure import LimitOf, PartKind, RefusedPart, Why

__all__ = ["TokenFigures", "number_of", "rate_figures", "read_part", "retry_after_seconds", "size_figures"]

_MAX_TOKENS = 10**12  # a larger number is no count of tokens

# 9001, 1,234,567, 1.234.567, 1_234, 1 234, 1'234, 128K, 1.5M. At most four more groups of three digits, so that no text
# makes the search slow.
_NUMBER = (
    r"(?<![\d.])(?P<{}>(?:\d{{1,3}}(?:[,._ '’]\d{{3}}){{1,4}}(?!\d)|\d{{1,12}}(?!\d))"
    r"(?:(?:\.\d{{1,2}})?\s?[km]i?(?![a-z0-9]))?)"
)
_UNITS = {"k": 1_000, "ki": 1_024, "m": 1_000_000, "mi": 1_048_576, "万": 10_000}
_NAMES = ("limit", "below", "requested", "input", "output", "more")

# In order of trust: the first pattern that gives a figure decides it. «» marks a number, ≥ an optional "at least".
_SIZES: tuple[tuple[LimitOf, str], ...] = (
    ("output", r"max_(?:completion_|output_)?tokens: «output» > «limit»"),
    ("output", r"too large: «output»\..{0,60}?at most «limit» (?:completion|output) tokens"),
    ("output", r"range of max_(?:completion_|output_)?tokens (?:should be|is) \[\d+, ?«limit»\]"),
    ("output", r"maxOutputTokens value of «output» .{0,80}? to «below» \(exclusive\)"),
    ("output", r"maximum tokens you requested exceeds? the model limit of «limit»"),
    ("output", r"max_(?:completion_)?tokens\W?(?: for \S{1,80})? must be less than or equal to \W?«limit»"),
    ("output", r"integer above maximum value.{0,4} expected a value <= «limit», but got «output»"),
    ("window", r"too large: «output»\..{0,60}?context length is «limit» tokens and your request has «input» input"),
    ("window", r"«input» \+ «output» > «limit»"),
    ("window", (
        r"\(«input» in (?:the messages|your prompt)(?:, «more» in the functions)?[,;]? (?:and )?«output» "
        r"(?:in|for) the completion\)"
    )),
    ("window", r"«input» of text input, (?:«more» of tool input, )?«output» in the output"),
    ("window", r"\(«input» in the (?:input|prompt)[,;]? (?:and )?«output» in the (?:output|completion)\)"),
    ("window", r"«input» tokens from the input messages and «output» tokens for the completion"),
    ("window", (
        r"requested «output» output tokens and your prompt contains ≥«input» input tokens, for a total of "
        r"(?:at least )?«requested» tokens"
    )),
    ("window", r"given: «input» \W?inputs\W? tokens and «output» \W?max_new_tokens"),
    ("window", (
        r"maximum (?:context|prompt|input|sequence|model) (?:length|size|window)(?: of this model)?"
        r"(?: is| of|:)? ?\(?«limit»"
    )),
    ("window", r"context (?:length|window|size|limit)(?: (?:of|is)(?: only)?|:)? ?\(?«limit»"),
    ("window", r"number of tokens allowed \(«limit»"),
    ("window", r"configured (?:limit|context size)(?: of| is) «limit»"),
    ("window", r"token limit(?::| of| is) «limit»"),
    ("window", r"exceeds? (?:the )?limit(?: of|:) «limit»"),
    ("window", r"(?:model|allowed input) length of «limit»"),
    ("window", r"must (?:be <=|have less than) «limit»"),
    ("window", r"range of input length (?:should be|is) \[\d+, ?«limit»\]"),
    ("window", r"\bprompt_tokens \(«input»\) must be less than (?:or equal to )?max_seq_len \(«limit»\)"),
    ("window", r"\bmax_total_tokens \(«requested»\) must be less than (?:or equal to )?max_seq_len \(«limit»\)"),
    ("window", r"total number of tokens .{0,40}?cannot exceed «limit» - received «requested»"),
    ("window", r"current length is «input» while limit is «limit»"),
    ("window", r"cannot truncate to «limit», required «requested»"),
    ("window", r"model with «limit» maximum context"),
    ("window", r"\bn_ctx\W{1,4}«limit»"),
    ("window", r"(?<!\+ )«requested»(?: tokens)? > «limit»(?! -)"),
    ("window", r"resulted in «input» tokens"),
    ("window", r"(?:your|the) (?:request|prompt) (?:has|contains) ≥«input» input tokens"),
    ("window", r"prompt (?:has|contains) ≥«input» tokens"),
    ("window", r"request (?:has|contains) ≥«requested» tokens"),
    ("window", r"\b(?:input(?: length| token count| prompt)?|prompt(?: tokens)?) \(«input»"),
    ("window", r"\b(?:request|requested tokens) \(«requested»"),
    ("window", r"total of ≥«requested» tokens"),
    ("window", r"requested (?:about )?«requested»(?! output)"),
    ("window", r"\(requested: «requested»\)"),
    ("window", r"prompt (?:token count of|is) «input»\b"),
    ("window", r"input length «input» exceeds"),
    ("window", r"too long: «input», model"),
    ("window", r"have less than .{0,24}? tokens\. given: «input»"),
    ("window", r"\bn_keep\W{1,4}«input»"),
    ("window", r"\bfirst «input» tokens when context"),
)  # fmt: skip

_RATES = (
    r"(?<![a-z] )\blimit:? «limit»\b",
    r"rate limit (?:for your organization )?(?:\([^)]{0,80}\) )?of «limit» (?:input |output )?tokens per",
    r"\brequested:? «requested»\b",
)
_COUNTS_TOKENS = r"\btokens? per\b|\bTP[MDH]\b|input_token"

_UNIT_SECONDS = {"ms": 0.001, "millis": 0.001, "m": 60.0, "s": 1.0, "h": 3600.0, "d": 86_400.0}
_DURATION = (
    r"(\d{1,9}(?:\.\d{1,9})?) ?"
    r"(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])"
)
_WAIT = (
    r"(?:(?:try|retry) again (?:in|after)|retry (?:in|after)|retry-after['\"]?:?|retry_?(?:delay|after)['\"]?:|"
    r"wait(?: for)?(?: at least| another)?) ?['\"]?"
    r"((?:\d{1,9}(?:\.\d{1,9})? ?(?:[a-z]{1,12})?,? ?(?:and )?){1,4})"
)


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """Token counts, None when the text lacks them. With `lower_bound` the request is "at least" that large."""

    limit: int | None = None
    limit_of: LimitOf | None = None
    requested: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    lower_bound: bool = False


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for name in _NAMES:
        pattern = pattern.replace(f"«{name}»", _NUMBER.format(name))
    return re.compile(pattern.replace("≥", "(?P<least>at least )?"), re.IGNORECASE)


def number_of(digits: str, unit: str | None) -> int:
    """The number written as digits, in groups or with a decimal point before a unit ("k", "Mi", "万")."""
    if unit is None:
        grouped = re.fullmatch(r"\d{1,3}(?:\D\d{3})+", digits) is not None
        return int(re.sub(r"\D", "", digits)) if grouped or digits.isdecimal() else int(float(digits))
    if re.fullmatch(r"\d{1,3}(?:[,_ '’]\d{3})+|\d+", digits):
        return int(re.sub(r"\D", "", digits)) * _UNITS[unit.lower()]
    return round(float(digits.replace(",", ".")) * _UNITS[unit.lower()])


def _tokens(number: str) -> int | None:
    digits = number.rstrip("kKmMiI \t")
    value = number_of(digits, number[len(digits) :].strip() or None)
    return value if value < _MAX_TOKENS else None


def _found(text: str, pattern: str) -> dict[str, int | None]:
    """The figures that one pattern finds; `least` is 1 when the text says "at least"."""
    match = _compiled(pattern).search(text)
    if match is None:
        return {}
    groups = {name: digits for name, digits in match.groupdict().items() if digits is not None}
    return {name: 1 if name == "least" else _tokens(digits) for name, digits in groups.items()}


def size_figures(text: str, fields: Mapping[str, int]) -> TokenFigures:
    """The figures of an overflow. `fields` are numbers next to the message (n_ctx, n_prompt_tokens). O(size)."""
    beside = {at: value for at, value in fields.items() if 0 < value < _MAX_TOKENS}
    # Fields come before the text: llama-server names its numbers, and they need no reading.
    numbers: dict[str, int | None] = {
        "limit": beside.get("n_ctx"),
        "input": beside.get("n_prompt_tokens"),
        "requested": beside.get("n_tokens", beside.get("n_prompt_tokens")),
    }
    limit_of: LimitOf | None = "window" if numbers["limit"] is not None else None
    for of, pattern in _SIZES:
        found = _found(text, pattern)
        if (below := found.get("below")) is not None:
            found["limit"] = below - 1
        if limit_of is None and found.get("limit") is not None:
            limit_of = of
        if (more := found.get("more")) is not None:
            found["input"] = (found.get("input") or 0) + more
        for name, value in found.items():
            if numbers.get(name) is None:
                numbers[name] = value
    prompt, output = numbers.get("input"), numbers.get("output")
    # A cap on the output tells nothing about the size of the request.
    requested = numbers.get("requested") if limit_of != "output" else None
    if requested is None and prompt is not None:
        requested = prompt + (output or 0)
    return TokenFigures(numbers.get("limit"), limit_of, requested, prompt, output, numbers.get("least") is not None)


def rate_figures(text: str) -> TokenFigures:
    """The figures of a token rate ("Limit 30000, Requested 45000"); none for a limit on the number of requests."""
    if not re.search(_COUNTS_TOKENS, text, re.IGNORECASE):
        return TokenFigures()
    # Requests per minute have the same form, and a limit of 60 taken for tokens would fold a session to nothing.
    numbers: dict[str, int | None] = {}
    for pattern in _RATES:
        for name, value in _found(text, pattern).items():
            numbers.setdefault(name, value)
    limit = numbers.get("limit")
    return TokenFigures(limit, "rate" if limit is not None else None, numbers.get("requested"))


def _unit_seconds(unit: str) -> float:
    return next(_UNIT_SECONDS[start] for start in (unit[:6], unit[:2], unit[:1]) if start in _UNIT_SECONDS)


def retry_after_seconds(text: str) -> float | None:
    """The wait in "try again in 1m30.5s", "retry after 30 seconds", "retryDelay: 34s"; None without one."""
    match = re.search(_WAIT, text, re.IGNORECASE)
    if match is None:
        return None
    # A bare number is in seconds, as the header Retry-After has it (RFC 9110, 10.2.3).
    parts = re.findall(_DURATION, match[1], re.IGNORECASE)
    if parts:
        return sum(float(number) * _unit_seconds(unit.lower()) for number, unit in parts)
    bare = re.match(r"\d{1,9}(?:\.\d{1,9})?", match[1])
    return float(bare[0]) if bare else None


# --- the refused part -------------------------------------------------------------------------------------------------
# A request passes once the part is left out, so its place matters: an index or id in the message comes first, the kind
# of part second.

# "messages.27.content.0", "messages[5]", "input[7]", "contents[3].parts[1]", and pydantic's ('body', 'messages', 2, …).
_PLACE: Final = (
    r"\b(?:messages?|inputs?|contents|items?)\W{0,4}?[.\[ (,'\"]{1,4}(\d{1,6})\b"
    r"(?:[\].)'\", ]{1,4}(?:content|parts|output|tool_calls|blocks?)['\"]?[.\[ ,]{1,3}(\d{1,6})\b"
    r"(?:[\].)'\", ]{1,4}\w{1,24}['\"]?[.\[ ,]{1,3}(?:content|output|parts)['\"]?[.\[ ,]{1,3}(\d{1,6})\b)?)?"
)
_ITEM_ID: Final = r"\b((?:rs|msg|fc|ws|cmp|ci|fs|ig|mcp|mcpr|mcpl|ctc|cu|item|call|toolu|srvtoolu|thk)_[\w\-]{6,80})"
_MOST: Final = (
    r"(?:maximum(?: number)?(?: allowed)?|max|at most|up to|limit|more than|only supports?)"
    r"(?: of| is|:|s)? ?\(?(\d{1,5})\b(?!\s?(?:px|pixels|[km]b|x))|(?:\d|images|"
    r"pages)\s?> ?(\d{1,5})\b(?!\s?(?:px|[km]?b))|"
    r"exceed\w{0,4} (?:the )?(?:limit|maximum)[^\d]{0,20}(\d{1,5})\b(?!\s?(?:px|pixels|[km]b))|"
    r"maximum number of (?:images|documents|pages) \((\d{1,5})\)"
)
_WHY: Final[tuple[tuple[Why, str], ...]] = (
    ("protected", r"password|encrypted(?! content)|locked"),
    ("signature", r"signature|encrypted content|encrypted_content"),
    ("count", r"too many (?:images|documents)|too much media|number of images|\bimages[ ,]{1,2}exceed|\d{1,4} images"),
    ("pages", r"\bpages?\b"),
    ("size", r"too (?:large|big|long)|exceeds? .{0,40}?(?:mb|bytes|size)|dimension|pixels?|maximum (?:allowed )?size"),
    ("unsupported", r"support|only (?:allowed|text|accept)|unknown variant|allowed values|not allowed|must be text"),
    ("count", r"too many|at most|maximum of|more than"),
    ("unreadable", r"valid|invalid|could not|cannot|unable|failed|corrupt|damaged|parse|decode|malformed|read"),
)


def read_part(kind: PartKind, text: str, places: tuple[str, ...]) -> RefusedPart:
    """The part of a kind, read from the text and the parameters of an error. O(size of the text)."""
    place = next((found for source in (*places, text) if (found := _place(source))), ())
    item = re.search(_ITEM_ID, text)
    why: Why = next((why for why, pattern in _WHY if re.search(pattern, text, re.IGNORECASE)), "")
    most = re.search(_MOST, text, re.IGNORECASE) if kind in ("image", "document") else None
    return RefusedPart(
        kind,
        why,
        place,
        item[1] if item else None,
        next((int(digits) for digits in most.groups() if digits), None) if most else None,
    )


def _place(text: str) -> tuple[int, ...]:
    found = re.search(_PLACE, text, re.IGNORECASE)
    return tuple(int(digits) for digits in found.groups() if digits is not None) if found else ()
