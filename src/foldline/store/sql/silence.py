"""How long a server of PostgreSQL may say nothing while it is asked something, before it counts as gone.

The other bounds do not reach everywhere. TCP's own ends a connection whose packets nobody acknowledges; the kernel of a
server whose processes hang does acknowledge them. Those of the server are kept by the server. So whoever waits looks at
the clock himself.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event

__all__ = ["PING_SECONDS", "bound_silence", "expect_within"]

PING_SECONDS: Final = 3.0
"""For what any server answers at once: whether it is there. It is asked that before each transaction."""

T = TypeVar("T")


class _Listening:
    """What is put before psycopg's `Connection`: it gives up a server that is silent for `silence_seconds`."""

    silence_seconds: float | None = PING_SECONDS
    """None: however long."""

    gone: type[Exception]
    """The driver's own error for it."""

    pgconn: Any

    def wait(self, gen: Generator[Any, Any, T], *more: Any, **named: Any) -> T:
        """As psycopg's own, through which it waits for each answer ("Connection.wait" in its manual)."""
        waited: T = super().wait(self._heard(gen), *more, **named)  # type: ignore[misc]
        return waited

    def _heard(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same steps. Ten times a second psycopg (from 3.3 on) sends on that nothing has come, which is false."""
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
                    self.pgconn.finish()  # whatever comes later would be taken for the answer to something else
                    raise self.gone(f"the server did not answer within {self.silence_seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as ended:
            done: T = ended.value
            return done


def bound_silence(engine: Engine) -> None:
    """Have each connection that an engine makes from now on give up a silent server: OperationalError, and closed."""

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
    """Bound the silence for the transaction that a connection is in."""
    driven: Any = connection.connection.dbapi_connection
    driven.silence_seconds = seconds
