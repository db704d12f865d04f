"""Fixtures: empty places for stores (folders, databases), a store in tables, and the database under it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from tests.real.postgresql import fresh_database
from tests.store.places import Places

from foldline.store.sql.database import Database
from foldline.store.sql.store import SqlStore


@pytest.fixture(scope="session")
def databases() -> list[str]:
    """PostgreSQL databases that were emptied for reuse: creating one takes longer than most tests."""
    return []


@pytest.fixture
def places(tmp_path: Path, request: pytest.FixtureRequest, databases: list[str]) -> Iterator[Places]:
    """A function that returns a new place for a kind of store."""
    numbers = count()
    used: list[str] = []

    def new(kind: str) -> str:
        if kind == "postgresql":
            url = request.getfixturevalue("postgresql_url")
            used.append(databases.pop() if databases else fresh_database(url))
            return used[-1]
        folder = tmp_path / str(next(numbers))
        return str(folder) if kind == "files" else f"sqlite:///{folder / 'sessions.db'}"

    yield new
    for address in used:
        database = Database(address)
        with database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM foldline_claims")
            connection.exec_driver_sql("DELETE FROM foldline_remembered")
            connection.exec_driver_sql("DELETE FROM foldline_sessions WHERE number <> 0")
        database.close()
        databases.append(address)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, places: Places) -> str:
    """The address of an empty database of each kind."""
    return places(request.param)


@pytest.fixture
def store(place: str) -> Iterator[SqlStore]:
    """A store in that database."""
    with closing(SqlStore.at(place)) as opened:
        yield opened


@pytest.fixture
def database(place: str) -> Iterator[Database]:
    """The database itself, to inspect and to damage behind the back of the store."""
    with closing(Database(place)) as opened:
        yield opened
