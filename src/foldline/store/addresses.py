"""The addresses of stores, and `open_store`, which opens the one at an address.

Addresses are checked here and not in `sql`, so that a wrong one is reported without a database library installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qsl, urlencode

from foldline.errors import InvalidInput, MissingExtra
from foldline.store.base import Store
from foldline.store.folders import FileStore

__all__ = [
    "DRIVERS",
    "LONGEST_LEASE_SECONDS",
    "driver_of",
    "is_address",
    "lease_of",
    "open_store",
]

DRIVERS: Final[Mapping[str, str]] = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""The SQLAlchemy driver for each scheme of an address."""

_LEASE: Final = "lease_seconds"

# Leases are renewed after a third of their time: below half a second a slow query would already lose them. Above an
# hour nobody would wait for the session of a process that died.
_SHORTEST_SECONDS: Final = 0.5
LONGEST_LEASE_SECONDS: Final = 3_600.0


def is_address(place: str) -> bool:
    """Whether a place is an address, not a folder."""
    return "://" in place


def lease_of(address: str) -> tuple[str, float | None]:
    """An address without our parameter `lease_seconds`, and its value or None. Raises InvalidInput."""
    # Taken out here, because drivers refuse parameters that they do not know. `urlencode` writes the others anew.
    head, mark, query = address.partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    values = [value for name, value in parameters if name == _LEASE]
    if not values:
        return address, None
    try:
        seconds = float(values[-1])
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_SECONDS <= seconds <= LONGEST_LEASE_SECONDS:
        why = f"must be from {_SHORTEST_SECONDS} to {LONGEST_LEASE_SECONDS:,.0f} seconds, not {values[-1][:20]!r}"
        raise InvalidInput(why, place=_LEASE)
    rest = urlencode([(name, value) for name, value in parameters if name != _LEASE])
    return head + (mark + rest if rest else ""), seconds


def driver_of(address: str) -> str:
    """The driver for the database at an address. Raises InvalidInput.

    The error names the scheme only: the rest of an address may hold a password.
    """
    scheme = address.partition("://")[0]
    if scheme not in DRIVERS:
        raise InvalidInput(f"is not a supported database; supported are {', '.join(DRIVERS)}", place=f"{scheme}://…")
    return DRIVERS[scheme]


def open_store(place: str | Path) -> Store:
    """Open the store in a folder, or in the database at a URL; missing tables are created. Close it.

    URLs: `sqlite:///sessions.db` (`sqlite:////folder/sessions.db` from the root), `postgresql://user@host/name`, also
    as `postgresql+psycopg://`. Raises InvalidInput for any other and for tables of a newer version, MissingExtra with
    the install command when SQLAlchemy or psycopg is missing, and OSError when the database cannot be reached or
    denies access. No error contains a password.
    """
    if isinstance(place, Path) or not is_address(place):
        return FileStore(os.path.expanduser(place))
    extra = "sql" if driver_of(place).startswith("sqlite") else "postgresql"
    if find_spec("sqlalchemy") is None:
        raise MissingExtra(extra, "keeping sessions in a database")
    # Imported only here: a store of files must neither wait for SQLAlchemy nor need it.
    return cast("Store", import_module("foldline.store.sql.store").SqlStore.at(place))
