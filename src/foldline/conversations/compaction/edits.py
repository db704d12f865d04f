"""The edits that a request of Anthropic Messages asks for: `context_management` and `compaction`, checked.

Sources: Anthropic docs, "Context editing", "Compaction at a token threshold", "Compaction on demand"; the types of the
SDK (anthropic 2.14.0). Words of errors are the API's. Its least trigger of 50,000 tokens does not hold here: many
models have smaller windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.conversations.compaction.refusals import CompactionRefused, integer, listed, mapping, only
from foldline.messages import Json

__all__ = ["ClearThinking", "ClearToolUses", "CompactAt", "Edits", "OnDemand", "read_edits", "read_on_demand"]

_TOOL_USES: Final = "clear_tool_uses_20250919"
_THINKING: Final = "clear_thinking_20251015"
_COMPACT: Final = "compact_20260112"
_TAGS: Final = (_THINKING, _TOOL_USES, _COMPACT)

_CLEAR_AT_TOKENS: Final = 100_000
_KEPT_USES: Final = 3
_COMPACT_AT_TOKENS: Final = 150_000
_MAX_INSTRUCTIONS: Final = 16_384

_NOT_BESIDE: Final = "`{}` cannot be used with `compaction`: a compaction request returns only the compaction block"


@dataclass(frozen=True, slots=True)
class ClearToolUses:
    """Clear old results of tools once the prompt exceeds `trigger` tokens, or tool uses with `counts_uses`.

    `inputs` says whose arguments are cleared too: of all tools, of none, or of those that it names.
    """

    trigger: int = _CLEAR_AT_TOKENS
    counts_uses: bool = False
    keep: int = _KEPT_USES
    least_tokens: int = 0
    excluded: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False


@dataclass(frozen=True, slots=True)
class ClearThinking:
    """Clear the thinking of all assistant turns but the newest `keep` with any; None keeps all."""

    keep: int | None = 1


@dataclass(frozen=True, slots=True)
class CompactAt:
    """Compact the conversation once the prompt has `trigger` tokens; with `pause` answer with the block alone."""

    trigger: int = _COMPACT_AT_TOKENS
    pause: bool = False
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of a request. `asked` says whether it has any list of edits, even an empty one."""

    thinking: ClearThinking | None = None
    tool_uses: ClearToolUses | None = None
    compact: CompactAt | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A request for a summary and nothing else."""

    instructions: str | None = None


# --- context_management -----------------------------------------------------------------------------------------------


def read_edits(fields: Mapping[str, Json]) -> Edits:
    """Return the edits that a request asks for. Raises CompactionRefused."""
    value = fields.get("context_management")
    if value is None:
        return Edits()
    config = mapping(value, "context_management")
    only(config, ("edits",), "context_management")
    found: dict[str, Any] = {}
    edits = listed(config.get("edits") or [], "context_management.edits")
    for at, edit in enumerate(edits):
        place = f"context_management.edits.{at}"
        tag = mapping(edit, place).get("type")
        if not isinstance(tag, str) or tag not in _TAGS:
            expected = ", ".join(f"'{name}'" for name in _TAGS)
            reason = f"Input tag '{tag}' found using 'type' does not match any of the expected tags: {expected}"
            raise CompactionRefused(reason, place=place)
        if tag in found:
            raise CompactionRefused(f"`{tag}` is given more than once", place="context_management.edits")
        if tag == _THINKING and at:
            reason = f"`{_THINKING}` must be the first strategy in `context_management.edits` when provided"
            raise CompactionRefused(reason, place="context_management")
        found[tag] = _READERS[tag](mapping(edit, place), f"{place}.{tag}")
    return Edits(found.get(_THINKING), found.get(_TOOL_USES), found.get(_COMPACT), asked=True)


def _tool_uses(edit: Mapping[str, Any], place: str) -> ClearToolUses:
    only(edit, ("type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"), place)
    kind, trigger = _amount(edit.get("trigger"), f"{place}.trigger", ("input_tokens", "tool_uses"), _CLEAR_AT_TOKENS, 1)
    _, keep = _amount(edit.get("keep"), f"{place}.keep", ("tool_uses",), _KEPT_USES, 0)
    _, least = _amount(edit.get("clear_at_least"), f"{place}.clear_at_least", ("input_tokens",), 0, 1)
    inputs = edit.get("clear_tool_inputs")
    if isinstance(inputs, list):
        cleared: bool | frozenset[str] = _names(inputs, f"{place}.clear_tool_inputs")
    elif inputs is None or isinstance(inputs, bool):
        cleared = bool(inputs)
    else:
        reason = "Input should be a valid boolean or a list of names"
        raise CompactionRefused(reason, place=f"{place}.clear_tool_inputs")
    excluded = _names(edit.get("exclude_tools") or [], f"{place}.exclude_tools")
    return ClearToolUses(trigger, kind == "tool_uses", keep, least, excluded, cleared)


def _thinking(edit: Mapping[str, Any], place: str) -> ClearThinking:
    only(edit, ("type", "keep"), place)
    keep = edit.get("keep")
    if keep == "all" or (isinstance(keep, Mapping) and keep.get("type") == "all"):
        return ClearThinking(None)
    return ClearThinking(_amount(keep, f"{place}.keep", ("thinking_turns",), 1, 1)[1])


def _compact(edit: Mapping[str, Any], place: str) -> CompactAt:
    only(edit, ("type", "trigger", "pause_after_compaction", "instructions"), place)
    _, trigger = _amount(edit.get("trigger"), f"{place}.trigger", ("input_tokens",), _COMPACT_AT_TOKENS, 1)
    pause = edit.get("pause_after_compaction")
    if pause is not None and not isinstance(pause, bool):
        raise CompactionRefused("Input should be a valid boolean", place=f"{place}.pause_after_compaction")
    return CompactAt(trigger, bool(pause), _instructions(edit, place))


_READERS: Final = {_TOOL_USES: _tool_uses, _THINKING: _thinking, _COMPACT: _compact}


def _amount(value: Json, place: str, kinds: Sequence[str], default: int, least: int) -> tuple[str, int]:
    """Return the kind and the value of an amount such as {"type": "input_tokens", "value": 30000}."""
    if value is None:
        return kinds[0], default
    amount = mapping(value, place)
    only(amount, ("type", "value"), place)
    kind = str(amount.get("type"))
    if kind not in kinds:
        expected = " or ".join(f"'{name}'" for name in kinds)
        raise CompactionRefused(f"Input should be {expected}", place=f"{place}.type")
    return kind, integer(amount.get("value"), f"{place}.value", least)


def _names(value: Json, place: str) -> frozenset[str]:
    names = listed(value, place)
    for at, name in enumerate(names):
        if not isinstance(name, str):
            raise CompactionRefused("Input should be a valid string", place=f"{place}.{at}")
    return frozenset(str(name) for name in names)


def _instructions(value: Mapping[str, Json], place: str) -> str | None:
    """Return the instructions for a summary; blank ones count as none."""
    text = value.get("instructions")
    if text is None:
        return None
    if not isinstance(text, str):
        raise CompactionRefused("Input should be a valid string", place=f"{place}.instructions")
    if len(text) > _MAX_INSTRUCTIONS:
        reason = f"String should have at most {_MAX_INSTRUCTIONS} characters"
        raise CompactionRefused(reason, place=f"{place}.instructions")
    return text.strip() or None


# --- compaction -------------------------------------------------------------------------------------------------------


def read_on_demand(fields: Mapping[str, Json]) -> OnDemand | None:
    """Return the request for a summary; None without one. Raises CompactionRefused, also for fields beside it."""
    value = fields.get("compaction")
    if value is None:
        return None
    config = mapping(value, "compaction")
    only(config, ("type", "instructions"), "compaction")
    if config.get("type") != "summarize":
        raise CompactionRefused("Input should be 'summarize'", place="compaction.type")
    for name in ("context_management", "stop_sequences", "output_format"):
        if fields.get(name):
            raise CompactionRefused(_NOT_BESIDE.format(name), place=name)
    choice = fields.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        raise CompactionRefused(_NOT_BESIDE.format(f"tool_choice.type: {choice['type']}"), place="tool_choice")
    output = fields.get("output_config")
    if isinstance(output, Mapping):
        if output.get("format") is not None:
            raise CompactionRefused(_NOT_BESIDE.format("output_config.format"), place="output_config.format")
        budget = output.get("task_budget")
        if isinstance(budget, Mapping) and budget.get("remaining") is not None:
            place = "output_config.task_budget.remaining"
            raise CompactionRefused(_NOT_BESIDE.format(place), place=place)
    return OnDemand(_instructions(config, "compaction"))
