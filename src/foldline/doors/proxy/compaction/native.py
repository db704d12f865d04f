"""Who compacts: whether an upstream does what its maker's API does, by the catalogue and by what the upstream is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from foldline.catalog.models import lookup

__all__ = ["CompactionSetting", "upstream_compacts"]

CompactionSetting: TypeAlias = Literal["auto", "foldline", "upstream"]
"""As the catalogue says; always here; never here."""

# Makers whose own API has compaction in a dialect. Gateways pass it on for their models, and drop it for others
# (OpenRouter, "Compaction").
_MAKERS: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": frozenset({"anthropic"}),
    "openai-responses": frozenset({"openai", "xai"}),
}

# Models that are newer than the catalogue are taken for what their names say.
_NAMES: Final[Mapping[str, re.Pattern[str]]] = {
    "anthropic": re.compile(r"claude", re.IGNORECASE),
    "openai-responses": re.compile(r"(?:^|[/.])(?:gpt-(?!oss)|o\d|codex|chatgpt|grok)", re.IGNORECASE),
}

_MAX_NAME_CHARS: Final = 300  # a model's name is the client's text


def upstream_compacts(dialect: str, model: str, setting: CompactionSetting, *, local: bool, summaries: bool) -> bool:
    """Whether the upstream does what a request asks for. `local` is one on this machine or network.

    With `summaries` the request asks for a summary; without, only for old results or thinking to be cleared.
    """
    if setting != "auto":
        return setting == "upstream"
    if local or dialect not in _MAKERS:
        return False
    found = lookup(model[:_MAX_NAME_CHARS])
    if not found.known:
        return _NAMES[dialect].search(model[:_MAX_NAME_CHARS]) is not None
    return found.vendor in _MAKERS[dialect] and (found.compacts or not summaries)
