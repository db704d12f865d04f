"""Every error that Foldline raises, as one tree.

FoldlineError
├── InvalidInput      input is invalid (file, place and field are named)
│   └── SessionTaken  another process is writing this session
├── SessionLost       another process has taken this session over
├── TooManyWaiting    the queue of a session is full
├── Stopping          the server is stopping
├── DoesNotFit        what cannot be reduced is over the limit (the parts are named)
├── SummaryError      a requested summary failed or was rejected
├── FoldRefused       a fold breaks a rule: it does not shrink, cuts a group or covers what must stay
├── MissingExtra      an optional dependency is not installed (says the one install line)
└── ProviderError     a provider answered with an error

Errors of sessions and servers (SessionTaken, SessionLost, TooManyWaiting, Stopping) are here too, so that every door
maps the same tree to exit codes and HTTP statuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldline.failures.failure import Failure

__all__ = [
    "DoesNotFit",
    "FoldRefused",
    "FoldlineError",
    "InvalidInput",
    "MissingExtra",
    "Part",
    "ProviderError",
    "SessionLost",
    "SessionTaken",
    "Stopping",
    "SummaryError",
    "TooManyWaiting",
]


class FoldlineError(Exception):
    """Base of all errors of this package."""


# A ValueError too, so that code which validates with the standard exceptions needs no import of this package.
class InvalidInput(FoldlineError, ValueError):  # noqa: N818 - a fixed public name
    """Input is invalid; `place` names where (file, line, message index or field)."""

    def __init__(self, reason: str, *, place: str | None = None) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.place = place


class SessionTaken(InvalidInput):
    """Another process is writing this session. It can be read now, and opened for writing once that process ends."""

    def __init__(self, name: str) -> None:
        why = "this session is open in another process; it can be read there, or here without being taken"
        super().__init__(why, place=name)


class SessionLost(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """Another writer has taken the session over, so nothing was written here. Open it again to continue."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: another process has taken this session over; nothing was written here")
        self.name = name


class TooManyWaiting(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """The queue of this session is full."""

    def __init__(self, queued: int) -> None:
        super().__init__(f"{queued} wait for this session already; try again when one is answered")
        self.queued = queued


class Stopping(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """The server is stopping and starts nothing new."""

    def __init__(self) -> None:
        super().__init__("the server stops, and begins nothing new")


# A name for people, and a number for programs: with `seq` a caller can unpin or replace the message.
@dataclass(frozen=True, slots=True)
class Part:
    """One part of the floor: a name ("system", "tools", "newest user message", ...) and its size."""

    name: str
    tokens: int
    seq: int | None = None

    def __str__(self) -> str:
        where = "" if self.seq is None else f" (message {self.seq})"
        return f"{self.name}{where}: {self.tokens:,} tokens"


# An error that says only "too long" leaves its reader to guess. This one carries what is needed to act: the least
# limit that would work, and where the tokens are.


class DoesNotFit(FoldlineError):  # noqa: N818 - a fixed public name
    """What cannot be reduced needs `floor_tokens`, and the limit is `limit` tokens.

    A limit of exactly `floor_tokens` works. `parts` make up the floor, largest first. `unit` is "tokens", or "bytes"
    for the byte budget of the request, or what else there is too much of ("images", "messages"). Where folding is
    switched off, or a provider refuses a request that cannot be made smaller, `reason` says so, `used_tokens` is the
    size of the request, and the floor may be under the limit.
    """

    def __init__(
        self,
        floor_tokens: int,
        limit: int,
        parts: tuple[Part, ...],
        *,
        reason: str | None = None,
        unit: str = "tokens",
        used_tokens: int | None = None,
    ) -> None:
        named = "; ".join(map(str, parts)) or "nothing that could be named"
        text = f"does not fit: what must stay needs {floor_tokens:,} {unit}, the limit is {limit:,} ({named})"
        if reason and used_tokens is not None:
            text = f"{used_tokens:,} {unit} do not fit: the limit is {limit:,}, what must stay needs {floor_tokens:,}"
        super().__init__(f"{text}; {reason}" if reason else text)
        self.used_tokens = floor_tokens if used_tokens is None else used_tokens
        self.floor_tokens = floor_tokens
        self.limit = limit
        self.parts = parts
        self.reason = reason
        self.unit = unit


# The length is told apart, because it alone may come right at the next try: all else a model does again.
class SummaryError(FoldlineError):
    """A summary failed; the view is unchanged. `tokens` is the size of the rejected text, if there was one.

    `too_long` says that only its length was wrong.
    """

    def __init__(self, reason: str, *, tokens: int | None = None, too_long: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tokens = tokens
        self.too_long = too_long


# Raised by the view, whatever proposed the fold: a reducer of a user is not trusted with the validity of a request.


class FoldRefused(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """A fold was refused; the view is unchanged."""

    def __init__(self, reason: str, *, start: int, stop: int) -> None:
        super().__init__(f"fold [{start}, {stop}) refused: {reason}")
        self.reason = reason
        self.start = start
        self.stop = stop


# An ImportError too: an optional import is tried and caught as one.
class MissingExtra(FoldlineError, ImportError):  # noqa: N818 - names what is missing
    """An optional dependency is missing; the message gives the command that installs it (`install`, if given)."""

    def __init__(self, extra: str, what: str, *, install: str | None = None, needs: str = "an extra") -> None:
        line = f"pip install 'foldline[{extra}]'" if install is None else install
        super().__init__(f"{what} needs {needs}: {line}")
        self.extra = extra
        self.install = install


class ProviderError(FoldlineError):
    """A provider refused or failed; `failure` is its classification."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure
