"""A client that has said all it will say, and may still listen: told from one that has gone.

Both look alike: the end of what is sent (a FIN). Whoever has gone answers the next bytes with a reset, and the write
after that fails. So some bytes are written ahead, one at a time, that are to be written anyway: the first ones of the
status line, or zeros before the size of a chunk, which mean nothing (RFC 9112, section 7.1). Nobody who listens sees
any difference, whatever version of HTTP is spoken.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["HalfClosed"]

_BEGINNING: Final = b"HTTP/1.1 "
"""What every answer begins with."""

_AFTER_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""When a byte is written, each after the one before: the first two tell a client on this machine or network that has
gone, later ones one that is far away, or goes later. There are no more than fit before a status."""


class HalfClosed:
    """Looks whether a client is still there that sends nothing any more; a write that fails tells the connection.

    It stands between an answer and its transport from then on, and takes out what was written ahead.
    """

    def __init__(self, cycle: RequestResponseCycle, loop: AbstractEventLoop) -> None:
        self._cycle, self._loop, self._transport = cycle, loop, cycle.transport
        self._ahead, self._looks = 0, 0
        self._timer: TimerHandle | None = None
        cycle.keep_alive = False
        cycle.transport = self  # type: ignore[assignment]
        self._wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write what belongs to the answer."""
        if self._ahead and data.startswith(_BEGINNING):
            data = data[self._ahead :]
        self._ahead = 0
        self._transport.write(data)

    def drop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._looks < len(_AFTER_SECONDS):
            self._timer = self._loop.call_later(_AFTER_SECONDS[self._looks], self._look)
            self._looks += 1

    def _look(self) -> None:
        cycle = self._cycle
        if cycle.disconnected or cycle.response_complete or self._transport.is_closing():
            return
        if not cycle.response_started:
            self._transport.write(_BEGINNING[self._ahead : self._ahead + 1])
            self._ahead += 1
        elif cycle.chunked_encoding:
            self._transport.write(b"0")
        self._wait()
