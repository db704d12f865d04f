"""Connections to a database, SQLite or PostgreSQL: transactions, time limits, and the meaning of errors.

Transactions are READ COMMITTED on PostgreSQL, and BEGIN IMMEDIATE on SQLite when they write. That is enough: each
transaction that writes a log begins with one UPDATE of the session's row, which names its owner and fence. A second
writer waits for that row, and then sees the result of the first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Double, Engine, Table, create_engine, event, literal_column
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from foldline.errors import FoldlineError, InvalidInput, MissingExtra
from foldline.store.addresses import driver_of
from foldline.store.sqlite import errno_of, is_damaged, make_private_file

__all__ = [
    "PING_SECONDS",
    "Database",
    "bound_silence",
    "expect_within",
]

_BUSY_SECONDS: Final = 10.0  # records are written in milliseconds: a longer wait means a stuck writer
_STATEMENT_SECONDS: Final = 60
_QUICK_SECONDS: Final = 5  # for statements of milliseconds that somebody waits for
_LOCK_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 2.0  # allowed to the server, beyond these, to report its own timeout
_POOL_SECONDS: Final = 5.0  # reached only while every connection waits for a database that is gone

# Set in each transaction: behind a pooler, settings of a connection are lost or refused. The last one ends the
# transaction of a process that was stopped in the middle of it.
_TIMEOUTS: Final = (
    "SET LOCAL lock_timeout = '{lock}s'; SET LOCAL statement_timeout = '{statement}s';"
    " SET LOCAL idle_in_transaction_session_timeout = '15s'"
)

# The advisory lock of migrations. It ends with the transaction, so it works behind a pooler.
_MIGRATION_LOCK: Final = int.from_bytes(b"Foldline")

_NOW: Final = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
}

# A server that vanishes silently is noticed within 8 seconds; the address may set other values. An idle connection is
# pinged first (`PING_SECONDS`) and then replaced: 3 and 4 seconds until that fails.
_CONNECT: Final[Mapping[str, str]] = {
    "application_name": "foldline",
    "connect_timeout": "4",
    "keepalives_idle": "4",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "8000",
}

_SQLSTATE: Final[Mapping[str, int]] = {
    "53100": errno.ENOSPC,  # disk_full
    "42501": errno.EACCES,  # insufficient_privilege
    "25006": errno.EROFS,  # read_only_sql_transaction: a standby
    "55P03": errno.EAGAIN,  # lock_not_available
    "57014": errno.EAGAIN,  # query_canceled: it took too long
}


class Database:
    """A database at a URL, safe to use in any number of threads. It connects with the first transaction.

    Raises InvalidInput for a malformed address, MissingExtra without the driver, and OSError when an SQLite file cannot
    be created. No error contains a password.
    """

    def __init__(self, address: str) -> None:
        # To blank them in errors: drivers quote parts of the address.
        url = _parsed(address)
        self._secrets = tuple(filter(None, (url.password, _only(url.query.get("password")))))
        if url.get_backend_name() == "sqlite":
            url = _file(url)
            make_private_file(Path(str(url.database)))
        self._place = _place(url)
        self._engine = _engine(url)
        # `execution_options` makes a copy of the engine with the same pool. Made once: the listeners of "begin" read
        # them.
        self._ways = {
            (writes, quick): self._engine.execution_options(foldline_writes=writes, foldline_quick=quick)
            for writes in (False, True)
            for quick in (False, True)
        }

    @property
    def place(self) -> str:
        """The address without the password."""
        return self._place

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

    @property
    def now(self) -> ColumnElement[float]:
        """Seconds since 1970 by the clock of the database, the only one that all its users share."""
        return literal_column(_NOW[self._engine.dialect.name], Double)

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that supports ON CONFLICT."""
        return sqlite.insert(table) if self._engine.dialect.name == "sqlite" else postgresql.insert(table)

    @contextmanager
    def reading(self, *, quick: bool = False) -> Iterator[Connection]:
        """A read transaction; a `quick` one may take seconds at most.

        Raises OSError (the database is unreachable or busy) and InvalidInput (it is damaged).
        """
        with self._faults(), self._ways[False, quick].begin() as connection:
            yield connection

    @contextmanager
    def writing(self, *, quick: bool = False) -> Iterator[Connection]:
        """A write transaction, on disk at the end of the block. Otherwise as `reading`.

        IntegrityError is left to the caller. After an OSError the transaction may be committed all the same, if the
        connection broke between the commit and its answer.
        """
        # The doubt about the commit is for the caller to resolve: only it knows whether writing again does harm.
        with self._faults(), self._ways[True, quick].begin() as connection:
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction of one process at a time; the others wait. Raises as `reading` does."""
        with self.writing() as connection:
            # SQLite's BEGIN IMMEDIATE excludes others already. PostgreSQL would run two CREATE TABLE side by side, and
            # fail one of them. The limits are lifted, for a migration may rewrite a large table.
            if connection.dialect.name == "postgresql":
                expect_within(connection, None)
                connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = 0")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            yield connection

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        # `from None`: the error of the library may hold texts of a session. `_meaning` keeps what is safe.
        try:
            yield
        except IntegrityError:
            raise
        except PoolTimeout:
            raise OSError(errno.EAGAIN, "all connections to the database are in use", self._place) from None
        except DBAPIError as error:
            raise self._meaning(error) from None

    def _meaning(self, error: DBAPIError) -> OSError | FoldlineError:
        # An OSError says "try again later"; InvalidInput says that trying again is of no use. What is neither known nor
        # a lost connection is refused, so that no caller repeats it for ever.
        cause = error.orig or error
        text = " ".join(str(cause).split()).removeprefix("connection failed: ")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        number = errno_of(cause) or _SQLSTATE.get(getattr(cause, "sqlstate", None) or "")
        if number is None and is_damaged(cause):
            return InvalidInput(f"is not an SQLite database, or a damaged one ({text})", place=self._place)
        lost = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError | InternalError)
        if number is not None or lost:
            return OSError(number or errno.EIO, f"the database: {text}", self._place)
        return InvalidInput(f"the database refused it: {text}", place=self._place)


def _only(value: str | tuple[str, ...] | None) -> str:
    return value if isinstance(value, str) else ""


def _parsed(address: str) -> URL:
    """The address with our driver. No error quotes it: any part of a malformed address may be the password."""
    driver = driver_of(address)
    try:
        return make_url(address).set(drivername=driver)
    except (ArgumentError, ValueError):
        why = "cannot be read as the address of a database (characters like @ : / in a password are written as %40 …)"
        raise InvalidInput(why, place=f"{address.partition('://')[0]}://…") from None


def _file(url: URL) -> URL:
    if url.host or url.query or not url.database or url.database == ":memory:":
        why = "must name a file and nothing else: sqlite:///sessions.db, or sqlite:////folder/sessions.db from the root"
        raise InvalidInput(why, place="sqlite://…")
    return url.set(database=os.path.abspath(os.path.expanduser(url.database)))


def _place(url: URL) -> str:
    """The address for people: without the password, and of its parameters only those that locate the database."""
    # A list of what is shown, not of what is hidden: any parameter of a later libpq may be a secret.
    where = {name: value for name, value in url.query.items() if name in {"host", "port", "service"}}
    scheme = url.get_backend_name()
    return url.set(drivername=scheme, query=where)._replace(password=None).render_as_string(hide_password=True)


def _engine(url: URL) -> Engine:
    is_sqlite = url.get_backend_name() == "sqlite"
    # No prepared statements: behind a pooler the next transaction may run on another connection of the server.
    more: dict[str, Any] = {"timeout": _BUSY_SECONDS} if is_sqlite else {"prepare_threshold": None}
    if not is_sqlite:
        more |= {name: value for name, value in _CONNECT.items() if name not in url.query}
    # 25 connections at most, of the 100 that PostgreSQL has by default: several servers share them. A ping before each
    # use, because a connection that lay idle through a restart of the database fails only when it is used.
    pool: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 5, "max_overflow": 20, "pool_timeout": _POOL_SECONDS}
    try:
        engine = create_engine(url, connect_args=more, hide_parameters=True, **pool)
    except ImportError as error:
        raise MissingExtra("postgresql", "keeping sessions in PostgreSQL") from error
    if is_sqlite:
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "begin", _bound_waiting)
        bound_silence(engine)
    return engine


def _prepare(connection: Any, record: object) -> None:
    del record
    connection.isolation_level = None  # the `sqlite3` module begins transactions on its own; `_begin` does it instead
    connection.text_factory = _text
    # WAL, so that readers never wait for a writer. FULL, because NORMAL syncs a WAL only at checkpoints, and a power
    # cut could undo an acknowledged commit. SQLite enforces foreign keys only where a connection asks for it.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _text(data: bytes) -> str:
    """Decode a text of SQLite, which checks no encoding. An altered byte must reach the checksum, not raise here."""
    return data.decode("utf-8", "backslashreplace")


def _begin(connection: Connection) -> None:
    # IMMEDIATE takes the lock of writers now: a transaction that read first may fail to get it later, whatever the
    # timeout.
    writes = connection.get_execution_options().get("foldline_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _bound_waiting(connection: Connection) -> None:
    # Somebody waits for a quick one. Others include the reading of a whole log, page by page.
    quick = connection.get_execution_options().get("foldline_quick")
    seconds = _QUICK_SECONDS if quick else _STATEMENT_SECONDS
    expect_within(connection, seconds + _ANSWER_SECONDS)
    connection.exec_driver_sql(_TIMEOUTS.format(lock=min(seconds, _LOCK_SECONDS), statement=seconds))


PING_SECONDS: Final = 3.0
"""For the ping before each transaction, which a healthy server answers at once."""


T = TypeVar("T")


class _Listening:
    """A mixin before psycopg's `Connection` that gives up a server after `silence_seconds` without an answer.

    Needed because no other bound covers it: TCP's timeout ends a connection whose packets are not acknowledged, but the
    kernel of a server whose processes hang does acknowledge them; and the server's own timeouts hang with the server.
    """

    silence_seconds: float | None = PING_SECONDS  # None: no bound
    gone: type[Exception]  # the driver's own error for a lost connection

    pgconn: Any

    def wait(self, gen: Generator[Any, Any, T], *more: Any, **named: Any) -> T:
        """Override psycopg's method for every wait ("Connection.wait" in its manual)."""
        waited: T = super().wait(self._heard(gen), *more, **named)  # type: ignore[misc]
        return waited

    def _heard(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same steps, with a clock. psycopg (from 3.3) sends a false value ten times a second when nothing came."""
        if self.silence_seconds is None:
            return (yield from gen)
        until = monotonic() + self.silence_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    until = monotonic() + self.silence_seconds
                elif monotonic() >= until:
                    gen.close()
                    self.pgconn.finish()  # a late answer would be taken for that of the next query
                    raise self.gone(f"the server did not answer within {self.silence_seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as ended:
            done: T = ended.value
            return done


def bound_silence(engine: Engine) -> None:
    """Make every new connection of an engine give up a silent server: it closes and raises OperationalError."""

    def connect(dialect: Any, record: object, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        del record
        driver = dialect.loaded_dbapi
        kind: Any = type("Listening", (_Listening, driver.Connection), {"gone": driver.OperationalError})
        return kind.connect(*arguments, **named)

    def rested(connection: Any, record: object) -> None:
        del record
        if connection is not None:
            connection.silence_seconds = PING_SECONDS

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkin", rested)


def expect_within(connection: Connection, seconds: float | None) -> None:
    """Set the bound of silence for the current transaction of a connection."""
    driven: Any = connection.connection.dbapi_connection
    driven.silence_seconds = seconds
