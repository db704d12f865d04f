"""Sizes in tokens as they are given to commands: 16000, 16k, 1m."""

from __future__ import annotations

import re
from typing import Final

import click

__all__ = ["size_list_tokens", "size_or_none_tokens", "size_tokens"]

_FORM: Final = re.compile(r"(\d+)([km]?)", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def size_tokens(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The size that an option names, 1 or more: 16k is 16,000 and 1m is 1,000,000. Raises BadParameter."""
    return None if value is None else _size(value, 1, context, option)


def size_or_none_tokens(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The same, where 0 is a size too: nothing."""
    return None if value is None else _size(value, 0, context, option)


def size_list_tokens(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Sizes with commas between them, such as 8k,16k. Raises BadParameter."""
    return tuple(_size(part, 1, context, option) for part in value.split(","))


def _size(words: str, least: int, context: click.Context, option: click.Parameter) -> int:
    found = _FORM.fullmatch(words.strip())
    if found is None:
        raise click.BadParameter(f"{words!r} is not a size such as 16000 or 16k", context, option)
    size = int(found[1]) * _UNITS[found[2].lower()]
    if size < least:
        raise click.BadParameter(f"{words!r} is too small: {least} or more", context, option)
    return size
