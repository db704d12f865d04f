"""A real PostgreSQL for the tests: a cluster of their own in a temporary folder, reached by a socket in that folder.

Each pytest-xdist worker that asks for it makes its own (about two seconds), which needs no agreement between workers.
The servers that a distribution's package may have started are never touched. Writes are synced as in production, so
that a killed server tells the truth.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.real.leash import held
from tests.real.parts import missing

__all__ = ["cluster", "fresh_database", "postgresql_url"]

OWNER = "foldline"
SERVER_USER = "postgres"  # whom Debian's package adds; the server refuses to run as root


def programs() -> Path | None:
    """The folder of the newest server installed; Debian has none of them on the PATH."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda folder: float(folder.parent.name), default=None)


@contextmanager
def cluster() -> Iterator[str]:
    """A new cluster until the block ends: the URL of its database "postgres", for SQLAlchemy, as a superuser."""
    binaries = programs()
    if binaries is None:
        missing("postgresql", "its server is not installed (apt-get install postgresql)")
    user = SERVER_USER if os.geteuid() == 0 else None
    # Not the folder that TMPDIR names: a socket's path may have 107 bytes, and the server's user must get there.
    folder = Path(tempfile.mkdtemp(prefix="foldline-postgresql-", dir="/tmp"))
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    data = shlex.quote(str(folder / "data"))
    prepare = f"{binaries}/initdb -D {data} -U {OWNER} --auth=trust --encoding=UTF8 --no-locale --no-sync"
    # What is written outlives the server as long as the machine runs, which is all that the tests kill.
    options = "-c listen_addresses= -c log_min_messages=log -c fsync=off -c full_page_writes=off"
    start = f"{binaries}/postgres -D {data} -k {shlex.quote(str(folder))} {options}"
    with held(
        ["/bin/sh", "-c", f"{prepare} && exec {start}"], folder, stop=signal.SIGINT, user=user
    ) as server:  # SIGINT: without waiting for clients
        server.said("ready to accept connections")
        yield f"postgresql+psycopg://{OWNER}@/postgres?host={folder}"


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The URL of a running server's database "postgres"; take `fresh_database` of it for an empty one."""
    with cluster() as url:
        yield url


def fresh_database(url: str) -> str:
    """Make an empty database beside the one at `url`; its URL. It goes when the cluster goes."""
    from sqlalchemy import NullPool, create_engine, make_url, text

    name = f"test_{secrets.token_hex(8)}"
    engine = create_engine(
        url, isolation_level="AUTOCOMMIT", poolclass=NullPool
    )  # CREATE DATABASE wants no transaction
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)
