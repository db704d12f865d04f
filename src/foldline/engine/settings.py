"""Settings of the documented systems, with their figures as defaults. A bad value is an InvalidInput naming the field.

An agent's file of settings is read in `agent/settings`; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from foldline.catalog.models import default_window
from foldline.errors import InvalidInput
from foldline.text.shorten import Mode

__all__ = [
    "COMPACT_THRESHOLD",
    "CheckpointSettings",
    "ContextSettings",
    "compact_threshold",
    "effective_limit",
    "memory_limit",
]

# The confirm system's figure (S4.03): late enough to be asked seldom, with a tenth of the window left for the answer.
COMPACT_THRESHOLD: Final = 0.9
"""Share of the window at which a user is asked whether to compact, where nothing else is set."""

TRUNCATIONS: Final = ("head", "tail", "both")


def _whole(value: object, place: str, least: int) -> None:
    # A bool is an int in Python: `true` where a number is due is a mistake, and would count as 1.
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"must be a whole number, not {_shown(value)}", place=place)
    if value < least:
        wanted = "greater than 0" if least == 1 else f"{least} or more"
        raise InvalidInput(f"must be {wanted}, not {value}", place=place)


def _one_of(value: object, place: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(f"must be one of {', '.join(known)}, not {_shown(value)}", place=place)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """The `context` block. Raises InvalidInput that names the field.

    `max_history_tokens` caps the history at the start of a turn (0: no cap); a result is cut to
    `max_tool_result_tokens` by `tool_result_truncation`, or to what `tool_result_limits` says for its tool; between the
    first and the last results that are kept, older ones are masked (both 0: none is). With `summarize_omitted` a model
    sums up what leaves, where there is one.
    """

    # The three-layer system's defaults. They are absolute, not shares of the window: its document gives them so.
    max_history_tokens: int = 20_000
    max_tool_result_tokens: int = 8_000
    tool_result_truncation: Mode = "head"
    tool_result_keep_first: int = 2
    tool_result_keep_last: int = 5
    tool_result_limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    summarize_omitted: bool = False

    def __post_init__(self) -> None:
        for name in ("max_history_tokens", "tool_result_keep_first", "tool_result_keep_last"):
            _whole(getattr(self, name), name, 0)
        _whole(self.max_tool_result_tokens, "max_tool_result_tokens", 1)
        _one_of(self.tool_result_truncation, "tool_result_truncation", TRUNCATIONS)
        if not isinstance(self.tool_result_limits, Mapping):
            raise InvalidInput(
                f"must give a number of tokens for each tool, not {_shown(self.tool_result_limits)}",
                place="tool_result_limits",
            )
        for tool, limit in self.tool_result_limits.items():
            _whole(limit, f"tool_result_limits.{tool}", 1)
        if not isinstance(self.summarize_omitted, bool):
            raise InvalidInput(
                f"must be true or false, not {_shown(self.summarize_omitted)}", place="summarize_omitted"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Settings of the checkpoint system, with its defaults (S2.01). Raises InvalidInput that names the field.

    Compaction is due when the tokens reach window - `reserve_tokens`, or `max_tokens` where that is not positive;
    without either, when the messages reach `max_messages`. `keep_recent_tokens` stay whole (0: `keep_recent` messages),
    and `tool_call_cutoff` tool results. With `auto_compact` off nothing is compacted unasked.
    """

    max_messages: int = 50
    max_tokens: int = 8_000
    keep_recent: int = 5
    keep_recent_tokens: int = 20_000
    reserve_tokens: int = 16_384
    tool_call_cutoff: int = 10
    tool_summary_strategy: Literal["llm", "heuristic", "off"] = "llm"
    auto_compact: bool = True

    def __post_init__(self) -> None:
        for name in ("max_tokens", "keep_recent", "keep_recent_tokens", "reserve_tokens", "tool_call_cutoff"):
            _whole(getattr(self, name), name, 0)
        _whole(self.max_messages, "max_messages", 1)
        _one_of(self.tool_summary_strategy, "tool_summary_strategy", ("llm", "heuristic", "off"))
        if not isinstance(self.auto_compact, bool):
            raise InvalidInput(f"must be true or false, not {_shown(self.auto_compact)}", place="auto_compact")


def compact_threshold(agent: float | None = None, overall: float | None = None) -> float:
    """The share of the window at which to ask: the agent's own, else the one for all, else 0.9. Raises InvalidInput."""
    chosen = next((share for share in (agent, overall) if share is not None), COMPACT_THRESHOLD)
    if isinstance(chosen, bool) or not isinstance(chosen, int | float) or not 0 < chosen <= 1:
        raise InvalidInput(f"must be above 0 and at most 1, not {_shown(chosen)}", place="compact_threshold")
    return float(chosen)


# The next two are the layered system's formulas, to the letter: the catalogue knows better windows, but users of that
# system expect its numbers.


def effective_limit(max_input_tokens: int | None, model: str | None) -> int:
    """The window to keep to: the agent's own setting, else the default by the model's name, else 128,000."""
    if max_input_tokens is None:
        return default_window(model or "")
    _whole(max_input_tokens, "max_input_tokens", 1)
    return max_input_tokens


def memory_limit(max_input_tokens: int | None) -> int:
    """Messages that a session holds in memory: twice the window at 200 tokens each, 100 to 2,000; 1,000 if unknown."""
    return 1_000 if max_input_tokens is None else min(2_000, max(100, max_input_tokens // 200 * 2))
