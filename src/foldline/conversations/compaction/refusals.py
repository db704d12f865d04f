"""Refusals of a request for compaction, with what an error of the provider names beside its words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["CompactionRefused", "integer", "listed", "mapping", "only"]


class CompactionRefused(InvalidInput):
    """A request for compaction is invalid. `place` is the field as the provider names it, `code` its error code."""

    def __init__(self, reason: str, *, place: str | None = None, code: str | None = None) -> None:
        super().__init__(reason, place=place)
        self.code = code


def mapping(value: Json, place: str) -> Mapping[str, Any]:
    """Return an object. Raises CompactionRefused for any other value."""
    if isinstance(value, Mapping):
        return value
    raise CompactionRefused("Input should be a valid dictionary", place=place)


def listed(value: Json, place: str) -> list[Json]:
    """Return a list. Raises CompactionRefused for any other value."""
    if isinstance(value, list):
        return value
    raise CompactionRefused("Input should be a valid list", place=place)


def integer(value: Json, place: str, least: int) -> int:
    """Return a whole number of at least `least`. Raises CompactionRefused for any other value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise CompactionRefused("Input should be a valid integer", place=place)
    if value < least:
        raise CompactionRefused(f"Input should be greater than or equal to {least}", place=place)
    return value


def only(value: Mapping[str, Json], known: Collection[str], place: str) -> None:
    """Raise CompactionRefused for the first field that the provider does not have."""
    for name in value:
        if name not in known:
            raise CompactionRefused("Extra inputs are not permitted", place=f"{place}.{name}")
