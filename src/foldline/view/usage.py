"""Usage as providers report it, in one form: the whole input, with cached tokens counted once.

A report is checked against the request that it belongs to, since some are of something else (sums, zeros, stale ones).

OpenAI and its compatibles report cached tokens inside the input count; Anthropic beside it ("Prompt caching": total
input = input_tokens + cache_read_input_tokens + cache_creation_input_tokens); Gemini inside. A gateway may put
Anthropic's cache fields into OpenAI's form (LiteLLM): `prompt_tokens` holds them already. Tokens written to the cache
stand in the details too, inside the input as well (OpenAI, "Prompt caching", from GPT-5.6 on; OpenRouter). Where a
report has a total, its sum says which of both it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foldline.errors import InvalidInput
from foldline.failures.failure import silent_truncation
from foldline.view.calibration import Meter
from foldline.view.transcript import Usage

__all__ = ["CheckedUsage", "UsageReports", "usage_of"]

_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_token_count", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count", "eval_count")
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "cached_content_token_count")
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")
_WRITTEN = ("cache_write_tokens",)
_TOTAL = ("total_tokens", "totalTokenCount", "total_token_count")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def usage_of(reported: object, request: int = 0) -> Usage:
    """The usage in a provider's report: a mapping, or an SDK object with the same names. Raises InvalidInput."""
    # A caller may hand in usage that it has read itself: only a missing number is added.
    if isinstance(reported, Usage):
        return replace(reported, request=request) if request and not reported.request else reported
    fields = _mapping(reported)
    # The same names mean different things in two APIs. Anthropic's cache fields decide: only its form has them.
    found = _first(fields, _INPUT)
    if found is None:
        raise InvalidInput(f"no input token count in {sorted(fields)[:8]}", place="usage")
    read, written = _number(fields, "cache_read_input_tokens"), _number(fields, "cache_creation_input_tokens")
    if read is not None or written is not None:
        cached, wrote, output = read or 0, written or 0, _first(fields, _OUTPUT) or 0
        inside = fields.get("prompt_tokens") is not None or _first(fields, _TOTAL) == found + output
        return Usage(
            input_tokens=found if inside else found + cached + wrote,
            output_tokens=output,
            cached_tokens=cached,
            written_tokens=wrote,
            written_long_tokens=min(wrote, _written_long(fields)),
            request=request,
        )
    reported_details = [fields[name] for name in _DETAILS if fields.get(name) is not None]
    details = [
        _mapping(one) for one in reported_details if not isinstance(one, list | tuple)
    ]  # Google's are by kind of content
    read_inside = [number for one in (fields, *details) if (number := _first(one, _CACHED)) is not None]
    written_inside = [number for one in details if (number := _first(one, _WRITTEN)) is not None]
    thoughts = _first(fields, _THOUGHTS) or 0  # beside the candidates' tokens (Gemini, UsageMetadata)
    output = (_first(fields, _OUTPUT) or 0) + thoughts
    cached, wrote = read_inside[0] if read_inside else 0, written_inside[0] if written_inside else 0
    # A server whose own total counts the cached tokens once more has them beside its input, whatever it calls them.
    is_beside = _first(fields, _TOTAL) == found + cached + wrote + output
    return Usage(
        input_tokens=found + cached + wrote if is_beside else found,
        output_tokens=output,
        cached_tokens=cached,
        written_tokens=wrote,
        request=request,
    )


def _written_long(fields: Mapping[str, Any]) -> int:
    """Tokens written to the cache for an hour (Anthropic, "Prompt caching": `cache_creation`); 0 by default."""
    parts = fields.get("cache_creation")
    return 0 if parts is None else _number(_mapping(parts), "ephemeral_1h_input_tokens") or 0


def _mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump()
        if isinstance(dumped, Mapping):
            return dumped
    try:
        return vars(value)
    except TypeError:
        raise InvalidInput(f"not a usage report: {type(value).__name__}", place="usage") from None


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    # Some servers send counts as floats, and a NaN is neither below nor above anything: the range rules it out.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidInput(f"must be a count of tokens, not {value!r}", place=f"usage.{name}")
    return int(value)


def _first(fields: Mapping[str, Any], wanted: tuple[str, ...]) -> int | None:
    return next((number for name in wanted if (number := _number(fields, name)) is not None), None)


# Requests whose size is remembered for their reports: more are never under way at once. A report for an older one is
# recorded, and corrects nothing.
REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class CheckedUsage:
    """A report after its check: `usage.doubt` says why it is rejected.

    `cut` says why the provider seems to have truncated the request, "" otherwise; `estimated_tokens` is our count of
    that request.
    """

    usage: Usage
    estimated_tokens: int = 0
    cut: str = ""


# By number, not in order: of overlapping requests the later one may report first, and a stream that breaks never does.
@dataclass(slots=True)
class UsageReports:
    """The last requests sent, by number, with our count of each."""

    number: int = 0
    """The running number of the last request."""
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)

    def record(self, estimated_tokens: int, changes: int) -> None:
        """Note that a request of `estimated_tokens` is sent, after this number of changes of the prefix. O(1)."""
        self.number += 1
        self._sent[self.number] = estimated_tokens, changes
        # One in, one out: a report that never comes must not keep its request in memory.
        self._sent.pop(self.number - REMEMBERED, None)

    def check(self, usage: Usage, meter: Meter, window_tokens: int) -> CheckedUsage:
        """Check a report against its request. Corrects nothing yet. O(1)."""
        if usage.request not in self._sent:
            return CheckedUsage(usage)
        estimated, changes = self._sent[usage.request]
        found = _likely(usage, estimated, meter)
        cut = silent_truncation(
            estimate_tokens=meter.used(estimated),
            reported_tokens=found.input_tokens,
            window=window_tokens,
            stop_reason=None,
            output_tokens=found.output_tokens,
        )
        if cut is not None:
            return CheckedUsage(replace(found, doubt=cut), estimated, cut)
        return CheckedUsage(replace(found, estimated_tokens=estimated, current=changes == meter.changes), estimated)


def _likely(usage: Usage, estimated_tokens: int, meter: Meter) -> Usage:
    """The report in the reading that is true of the request; as documented unless that cannot be true.

    Cached tokens are inside the input count or beside it, as the API documents it (`usage_of`); some gateways do it the
    other way round (infinity#52). A report is read the other way only if it cannot be true as it stands, and either
    more tokens were cached than there are, or several reports show it (`Meter.reads_otherwise`). One report that is
    low or high alone is what the provider counted, and our count is wrong: a reading that was made to fit would say of
    a window that it was too small for what was answered. A ratio that repeats itself is another tokenizer's, and no
    other reading.
    """
    tokens, beside = usage.input_tokens, usage.cached_tokens + usage.written_tokens
    if not beside or not meter.doubt(estimated_tokens, tokens) or meter.repeats(estimated_tokens, tokens):
        return usage
    other = tokens + beside if tokens < estimated_tokens or beside >= tokens else tokens - beside
    if beside > tokens and meter.expects(estimated_tokens, other):
        return replace(usage, input_tokens=other)
    if not meter.reads_otherwise(estimated_tokens, tokens, other):
        return usage
    return replace(usage, input_tokens=other, cached_tokens=min(usage.cached_tokens, other))
