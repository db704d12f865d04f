"""Which databases an address may name. Here, so that a wrong address is told where no database library is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["DRIVERS", "driver_of", "is_address"]

DRIVERS: Final[Mapping[str, str]] = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""What an address may begin with, and the driver that it means."""


def is_address(place: str) -> bool:
    """Whether a place is the address of something, and no folder."""
    return "://" in place


def driver_of(address: str) -> str:
    """The driver for the database at an address. Raises InvalidInput, which holds nothing but the address's beginning:
    anything behind it may be a password.
    """
    scheme = address.partition("://")[0]
    if scheme not in DRIVERS:
        raise InvalidInput(f"is no database that can be used; those are {', '.join(DRIVERS)}", place=f"{scheme}://…")
    return DRIVERS[scheme]
