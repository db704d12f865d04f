"""Sizes in tokens as they are given to commands: 16000, 16k, 1m."""

from __future__ import annotations

import re
from typing import Final

import click

__all__ = ["size_tokens"]

_FORM: Final = re.compile(r"([1-9]\d*)([km]?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def size_tokens(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The size that an option names, 1 or more: 16k is 16,000 and 1m is 1,000,000. Raises BadParameter."""
    if value is None:
        return None
    found = _FORM.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size such as 16000 or 16k", context, option)
    return int(found[1]) * _UNITS[found[2].lower()]
