"""Usage as providers report it, in one form: the whole input with cached tokens counted once.

OpenAI and its compatibles report cached tokens inside the input count; Anthropic beside it ("Prompt caching": total
input = input_tokens + cache_read_input_tokens + cache_creation_input_tokens); Gemini inside. A gateway may put
Anthropic's cache fields into OpenAI's form (LiteLLM): `prompt_tokens` holds them already. Tokens written to the cache
stand in the details too, inside the input as well (OpenAI, "Prompt caching", from GPT-5.6 on; OpenRouter).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foldline.errors import InvalidInput
from foldline.view.transcript import Usage

__all__ = ["usage_of"]

_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_token_count", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count", "eval_count")
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "cached_content_token_count")
_WRITTEN = ("cache_write_tokens",)
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def usage_of(reported: object, request: int = 0) -> Usage:
    """The usage in a provider's report: a mapping, or an SDK object with the same names. Raises InvalidInput."""
    if isinstance(reported, Usage):
        return replace(reported, request=request) if request and not reported.request else reported
    fields = _mapping(reported)
    found = _first(fields, _INPUT)
    if found is None:
        raise InvalidInput(f"no input token count in {sorted(fields)[:8]}", place="usage")
    read, written = _number(fields, "cache_read_input_tokens"), _number(fields, "cache_creation_input_tokens")
    if read is not None or written is not None:
        cached, wrote = read or 0, written or 0
        beside = 0 if fields.get("prompt_tokens") is not None else cached + wrote
        return Usage(
            input_tokens=found + beside,
            output_tokens=_first(fields, _OUTPUT) or 0,
            cached_tokens=cached,
            written_tokens=wrote,
            written_long_tokens=min(wrote, _written_long(fields)),
            request=request,
        )
    given = [fields[name] for name in _DETAILS if fields.get(name) is not None]
    details = [_mapping(one) for one in given if not isinstance(one, list | tuple)]  # Google's are by kind of content
    read_inside = [number for one in (fields, *details) if (number := _first(one, _CACHED)) is not None]
    written_inside = [number for one in details if (number := _first(one, _WRITTEN)) is not None]
    return Usage(
        input_tokens=found,
        output_tokens=_first(fields, _OUTPUT) or 0,
        cached_tokens=read_inside[0] if read_inside else 0,
        written_tokens=written_inside[0] if written_inside else 0,
        request=request,
    )


def _written_long(fields: Mapping[str, Any]) -> int:
    """Tokens written to be kept for an hour (Anthropic, "Prompt caching": `cache_creation`). 0 where nothing says."""
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidInput(f"must be a count of tokens, not {value!r}", place=f"usage.{name}")
    return int(value)


def _first(fields: Mapping[str, Any], wanted: tuple[str, ...]) -> int | None:
    return next((number for name in wanted if (number := _number(fields, name)) is not None), None)
