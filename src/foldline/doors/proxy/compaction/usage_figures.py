"""Figures of the calls that wrote summaries, in the form in which each API reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from foldline.messages import Json
from foldline.view.transcript import Usage

__all__ = ["compaction_iteration", "message_iteration", "no_tokens", "responses_usage"]


def compaction_iteration(usages: Iterable[Usage]) -> dict[str, Json]:
    """Return the entry of `usage.iterations` for a compaction (Anthropic); zeros where no model was called."""
    calls = list(usages)
    cached, written = sum(call.cached_tokens for call in calls), sum(call.written_tokens for call in calls)
    return {
        "type": "compaction",
        "input_tokens": sum(call.input_tokens for call in calls) - cached - written,
        "output_tokens": sum(call.output_tokens for call in calls),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
    }


def message_iteration(usage: Mapping[str, Any]) -> dict[str, Json]:
    """Return the entry for the reply, with the figures that the upstream reported for it."""
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return {"type": "message", **{name: usage.get(name) or 0 for name in names}}


def no_tokens(iterations: list[Json]) -> dict[str, Json]:
    """Return the usage of an answer without a reply (Anthropic): what was used stands in its iterations alone."""
    return {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "iterations": iterations,
    }


def responses_usage(usages: Iterable[Usage]) -> dict[str, Json]:
    """Return the usage of a compaction pass (Responses)."""
    calls = list(usages)
    read, wrote = sum(call.input_tokens for call in calls), sum(call.output_tokens for call in calls)
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": sum(call.cached_tokens for call in calls),
            "cache_write_tokens": sum(call.written_tokens for call in calls),
        },
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + wrote,
    }
