"""Who compacts: whether an upstream does what its maker's API does, by the catalogue and by what the upstream is."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from foldline.catalog.models import lookup
from foldline.codecs.dialect import dialect_named

__all__ = ["CompactionSetting", "upstream_compacts"]

CompactionSetting: TypeAlias = Literal["auto", "foldline", "upstream"]
"""As the catalogue says; always here; never here."""

_MAX_NAME_CHARS: Final = 300  # a model's name is the client's text


def upstream_compacts(dialect: str, model: str, setting: CompactionSetting, *, local: bool, summaries: bool) -> bool:
    """Whether the upstream does what a request asks for. `local` is one on this machine or network.

    With `summaries` the request asks for a summary; without, only for old results or thinking to be cleared.
    """
    if setting != "auto":
        return setting == "upstream"
    compaction = dialect_named(dialect).compaction
    if local or compaction is None:
        return False
    found = lookup(model[:_MAX_NAME_CHARS])
    if not found.known:
        return compaction.model_names.search(model[:_MAX_NAME_CHARS]) is not None
    return found.vendor in compaction.makers and (found.compacts or not summaries)
