"""Every error that Foldline raises, as one tree.

FoldlineError
├── InvalidInput      what was handed in is not what it must be (file, place and field are named)
│   └── SessionTaken  another process writes this session at the moment
├── SessionLost       another process has taken this session over
├── TooManyWaiting    a session has a full queue
├── Stopping          a server stops, and begins nothing new
├── DoesNotFit        what may not be reduced is larger than the limit (the parts are named)
├── SummaryError      a summary that was asked for could not be had, or was rejected
├── FoldRefused       a fold breaks a promise: it does not shrink, crosses a group or covers what must stay
├── MissingExtra      an optional dependency is not installed (says the one install line)
└── ProviderError     what a provider answered instead of a reply
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldline.failures import Failure

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


class InvalidInput(FoldlineError, ValueError):  # noqa: N818 - a fixed public name
    """Input is not what it must be; `place` names where (file, line, message index or field)."""

    def __init__(self, reason: str, *, place: str | None = None) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.place = place


class SessionTaken(InvalidInput):
    """The session has another writer at this moment; it can be read, and taken once that one lets go of it."""

    def __init__(self, name: str) -> None:
        why = "this session is open in another process; it can be read there, or here without being taken"
        super().__init__(why, place=name)


class SessionLost(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """Another writer has taken the session over, so nothing was written. Open it again to go on."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: another process has taken this session over; nothing was written here")
        self.name = name


class TooManyWaiting(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """So many wait for this session already that another is not taken."""

    def __init__(self, queued: int) -> None:
        super().__init__(f"{queued} wait for this session already; try again when one is answered")
        self.queued = queued


class Stopping(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """The server stops: nothing new is begun."""

    def __init__(self) -> None:
        super().__init__("the server stops, and begins nothing new")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the floor: a name ("system", "tools", "newest user message", ...) and its size."""

    name: str
    tokens: int
    seq: int | None = None

    def __str__(self) -> str:
        where = "" if self.seq is None else f" (message {self.seq})"
        return f"{self.name}{where}: {self.tokens:,} tokens"


class DoesNotFit(FoldlineError):  # noqa: N818 - a fixed public name
    """What may not be reduced needs `floor_tokens`, and the limit is `limit` tokens.

    Fitting with a limit of exactly `floor_tokens` works. `parts` are what the floor is made of, largest first.
    `unit` is "tokens", or "bytes" when the byte budget of the request is what cannot be met, or what else there is too
    much of ("images", "messages"). Where folding is switched
    off, or a provider refuses a request that cannot be made smaller, `reason` says so, `used_tokens` is its size, and
    the floor may be under the limit.
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


class SummaryError(FoldlineError):
    """A summary was not made; the view is as it was. `tokens` is the size of the rejected text, if there was one.

    `too_long` says that there was nothing wrong with it but its length.
    """

    def __init__(self, reason: str, *, tokens: int | None = None, too_long: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tokens = tokens
        self.too_long = too_long


class FoldRefused(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """A fold was not committed; the view is as it was."""

    def __init__(self, reason: str, *, start: int, stop: int) -> None:
        super().__init__(f"fold [{start}, {stop}) refused: {reason}")
        self.reason = reason
        self.start = start
        self.stop = stop


class MissingExtra(FoldlineError, ImportError):  # noqa: N818 - names what is missing
    """An optional dependency is missing; the message is the install line, or `install` where that needs more."""

    def __init__(self, extra: str, what: str, *, install: str | None = None) -> None:
        line = f"pip install 'foldline[{extra}]'" if install is None else install
        super().__init__(f"{what} needs an extra: {line}")
        self.extra = extra


class ProviderError(FoldlineError):
    """A provider refused or failed; `failure` says how it was classified."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure
