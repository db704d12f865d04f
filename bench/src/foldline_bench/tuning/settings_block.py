"""A setting as a block of `agents.yaml`, ready to be put there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from foldline.messages import Json
from foldline_bench.tuning.values import Setting

__all__ = ["agents_yaml"]


def agents_yaml(setting: Setting, *, model: str | None, window: int | None, comments: tuple[str, ...] = ()) -> str:
    """The file for an agent "main" with this setting; model and window where they were named. Ends in a line break.

    No model sums up in it: none did in the replays. `comments` are lines at its head.
    """
    named: dict[str, Json] = {}
    if model is not None:
        named["name"] = model
    if window is not None:
        named["max_input_tokens"] = window
    main: dict[str, Json] = {
        **({"model": named} if named else {}),
        "policy": {"name": setting.policy, **dict(setting.settings)},
        "summariser": False,
        **({"session": {"context": dict(setting.context)}} if setting.context else {}),
    }
    lines = [*(f"# {line}" for line in comments), *_lines({"agents": {"main": main}})]
    return "\n".join(lines) + "\n"


def _lines(block: Mapping[str, Json], indent: str = "") -> Iterator[str]:
    """YAML of blocks of fields; a value is JSON, which YAML takes as it is."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {'off' if value is False and key == 'summariser' else json.dumps(value)}"
