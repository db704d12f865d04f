"""What went wrong, as an HTTP answer: application/problem+json (RFC 9457), from one table over all our errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from foldline.doors.http.json_output import dumped
from foldline.errors import (
    DoesNotFit,
    FoldRefused,
    InvalidInput,
    MissingExtra,
    ProviderError,
    SessionLost,
    SessionTaken,
    Stopping,
    SummaryError,
    TooManyWaiting,
)
from foldline.hosting.actor_values import KeyReused, SessionDeleted
from foldline.hosting.session_lease import DialectMismatch
from foldline.messages import Json

__all__ = ["NAMES", "Problem", "answer", "problem_of"]

RETRY_SECONDS: Final = 5
"""When a queue or a store that is away is worth another try."""

NAMES: Final[Mapping[str, tuple[int, str]]] = {
    "bad-request": (400, "The request is not what it must be"),
    "unauthorized": (401, "A token is needed"),
    "foreign": (403, "Not from here"),
    "not-found": (404, "There is no such thing"),
    "method": (405, "That cannot be done here"),
    "slow-body": (408, "The body came too slowly"),
    "taken": (409, "Another process has this session"),
    "lost": (409, "Another process has taken this session over"),
    "another-dialect": (409, "The session speaks another dialect"),
    "unreadable": (409, "The session cannot be read"),
    "folded": (409, "It is folded"),
    "nothing-to-compact": (409, "It was not compacted"),
    "too-large": (413, "The body is too large"),
    "media-type": (415, "The body must be JSON"),
    "key-used": (422, "The key stands for another message"),
    "does-not-fit": (422, "It does not fit into the window"),
    "rate": (429, "Too many requests"),
    "queue": (429, "Too many wait for this session"),
    "internal": (500, "A fault of the server"),
    "model": (502, "The model's server failed"),
    "stopping": (503, "The server stops"),
    "busy": (503, "The server is busy"),
    "store": (503, "The sessions cannot be reached"),
    "timeout": (503, "It took too long"),
}
"""The kinds of problems: status and title."""

_OF: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (DialectMismatch, "another-dialect"),
    (SessionTaken, "taken"),
    (SessionDeleted, "not-found"),
    (KeyReused, "key-used"),
    (InvalidInput, "bad-request"),
    (SessionLost, "lost"),
    (TooManyWaiting, "queue"),
    (Stopping, "stopping"),
    (DoesNotFit, "does-not-fit"),
    (SummaryError, "nothing-to-compact"),
    (FoldRefused, "folded"),
    (ProviderError, "model"),
    (MissingExtra, "store"),
    (TimeoutError, "timeout"),  # an OSError too, so before it
    (OSError, "store"),
)
_PLACES: Final[Mapping[str, str]] = {"not-found": "id", "key-used": "Idempotency-Key"}
"""What a client wrote of what an error calls by another name."""

_RETRIED: Final = frozenset({"queue", "stopping", "busy", "store", "timeout", "taken"})


@dataclasses.dataclass(slots=True, kw_only=True)
class Problem(Exception):  # noqa: N818 - an answer, not a fault of the package
    """A request that is refused, or could not be done: `name` is one of NAMES, `field` what of the request is wrong.

    `figures` stand beside these in the answer.
    """

    name: str
    detail: str
    field: str | None = None
    figures: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail

    @property
    def status(self) -> int:
        """The HTTP status."""
        return NAMES[self.name][0]

    def plain(self) -> dict[str, Json]:
        """The JSON object."""
        status, title = NAMES[self.name]
        own: dict[str, Json] = {"type": f"/problems/{self.name}", "title": title, "status": status}
        own["detail"] = self.detail
        return {**own, **({} if self.field is None else {"field": self.field}), **self.figures}


def problem_of(error: BaseException) -> Problem | None:
    """The problem that an error of ours is; None for one that nobody foresaw."""
    if isinstance(error, Problem):
        return error
    name = next((name for kind, name in _OF if isinstance(error, kind)), None)
    if name is None:
        return None
    detail, figures, where = str(error), dict[str, Json](), None
    if isinstance(error, InvalidInput):
        detail = error.reason
        where = error.place if name == "bad-request" else _PLACES.get(name)
    elif isinstance(error, TooManyWaiting):
        figures = {"queued": error.queued}
    elif isinstance(error, DoesNotFit):
        figures = {"floor_tokens": error.floor_tokens, "limit_tokens": error.limit}
    elif isinstance(error, TimeoutError):
        detail = "it was not done in time; it may still be going on"
    elif isinstance(error, OSError):
        detail = error.strerror or str(error)
    headers = {"Retry-After": str(RETRY_SECONDS)} if name in _RETRIED else {}
    return Problem(name=name, detail=detail, field=where, figures=figures, headers=headers)


def answer(problem: Problem) -> Response:
    """The HTTP answer."""
    return Response(
        dumped(problem.plain()),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )
