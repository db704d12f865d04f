"""The tables that hold sessions, as this version writes and reads them; `sql_migrations` makes them.

Sessions lie within sessions (those of sub-agents): `scope` is the number of the outer one. Those of a user lie within
the row 0, which stands for the whole database, so that one rule, and one foreign key, holds for all of them.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, MetaData, Table, Text

__all__ = ["ROOT", "bindings", "claims", "migrations", "originals", "records", "remembered", "sessions"]

ROOT: Final = 0
"""The scope of the sessions of a user."""

_tables = MetaData()

sessions = Table(
    "foldline_sessions",
    _tables,
    Column("number", BigInteger, primary_key=True),
    Column("scope", BigInteger, nullable=False),
    Column("id", Text, nullable=False),
    Column("records", BigInteger, nullable=False),  # how many there are: the number of the next one
    Column("snapshot", Text),
    Column("fence", BigInteger, nullable=False),
    Column("owner", Text),
    Column("lease_until", Double),  # seconds since 1970, by the clock of the database
)
records = Table(
    "foldline_records",
    _tables,
    Column("session", BigInteger, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("seq", BigInteger),  # of a message
    Column("at", Text),
    Column("body", Text, nullable=False),
)
originals = Table(
    "foldline_originals",
    _tables,
    Column("session", BigInteger, primary_key=True),
    Column("sha256", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
bindings = Table(
    "foldline_bindings",
    _tables,
    Column("scope", BigInteger, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("session", BigInteger, nullable=False),
)
claims = Table(
    "foldline_claims",
    _tables,
    Column("scope", BigInteger, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("at", Text, nullable=False),
)
remembered = Table(
    "foldline_remembered",
    _tables,
    Column("scope", BigInteger, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
migrations = Table(
    "foldline_migrations",
    _tables,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
)
