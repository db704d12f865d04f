"""The store at a place that a user names: a folder, or the address of a database."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from foldline.errors import MissingExtra
from foldline.store.addresses import driver_of, is_address
from foldline.store.base import Store
from foldline.store.folders import FileStore

__all__ = ["open_store"]


def open_store(place: str | Path) -> Store:
    """The store at a folder, or at the URL of a database; its tables are made if need be. Close it.

    URLs: `sqlite:///sessions.db` (`sqlite:////folder/sessions.db` from the root), `postgresql://user@host/name`, also
    as `postgresql+psycopg://`. Raises InvalidInput for any other and for tables of a newer version, MissingExtra with
    the install line when SQLAlchemy or psycopg is not there, and OSError when the database cannot be reached or lets
    nobody in. A password is in no error.
    """
    if isinstance(place, Path) or not is_address(place):
        return FileStore(os.path.expanduser(place))
    extra = "sql" if driver_of(place).startswith("sqlite") else "postgresql"
    if find_spec("sqlalchemy") is None:
        raise MissingExtra(extra, "keeping sessions in a database")
    # Loaded now: a session in files must not wait for SQLAlchemy, nor need it.
    return cast("Store", import_module("foldline.store.sql.store").SqlStore.at(place))
