"""HTTP responses: JSON, problems (application/problem+json, RFC 9457) and static files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

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

__all__ = [
    "NAMES",
    "Asset",
    "Problem",
    "asset_response",
    "assets",
    "dump_json",
    "json_response",
    "problem_of",
    "problem_response",
]

# When a queue or a store that is down is worth another try.
_RETRY_SECONDS: Final = 5

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
"""Every kind of problem, with its status and title."""

# The first row that matches counts, so subclasses stand before their bases.
_PROBLEM_BY_ERROR: Final[tuple[tuple[type[BaseException], str], ...]] = (
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
# The request field of an error that names its place in the terms of the session, not of HTTP.
_FIELD_BY_PROBLEM: Final[Mapping[str, str]] = {"not-found": "id", "key-used": "Idempotency-Key"}

_RETRYABLE: Final = frozenset({"queue", "stopping", "busy", "store", "timeout", "taken"})
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/vnd.microsoft.icon",
}


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    """A JSON response. Underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(dump_json(value), status, headers=named, media_type="application/json")


def dump_json(value: Json) -> bytes:
    """A value as JSON in UTF-8, whatever a model or a tool wrote.

    Half a surrogate pair is escaped. NaN and the infinities, which JSON lacks, become null.
    """
    # Both repairs walk the whole value, so they are tried only once the plain way has failed.
    try:
        return _encode(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        return _encode(_without_infinities(value), ascii_only=True).encode()
    except ValueError:
        return dump_json(_without_infinities(value))


def _encode(value: Json, *, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, default=dict)


def _without_infinities(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _without_infinities(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(inner) for inner in value]
    return value


# --- problems ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True, kw_only=True)
class Problem(Exception):  # noqa: N818 - an answer, not a fault of the package
    """A request that was refused or failed. `name` is a key of NAMES; `field` names the wrong part of the request.

    `figures` are further members of the JSON object.
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

    def as_json(self) -> dict[str, Json]:
        """The JSON object of the answer."""
        status, title = NAMES[self.name]
        # A relative reference: the server does not know the name under which clients reach it (RFC 9457, 3.1.1).
        own: dict[str, Json] = {"type": f"/problems/{self.name}", "title": title, "status": status}
        own["detail"] = self.detail
        return {**own, **({} if self.field is None else {"field": self.field}), **self.figures}


def problem_of(error: BaseException) -> Problem | None:
    """The problem for one of Foldline's errors; None for an unexpected one."""
    if isinstance(error, Problem):
        return error
    name = next((name for kind, name in _PROBLEM_BY_ERROR if isinstance(error, kind)), None)
    if name is None:
        return None
    detail, figures, where = str(error), dict[str, Json](), None
    if isinstance(error, InvalidInput):
        detail = error.reason
        where = error.place if name == "bad-request" else _FIELD_BY_PROBLEM.get(name)
    elif isinstance(error, TooManyWaiting):
        figures = {"queued": error.queued}
    elif isinstance(error, DoesNotFit):
        figures = {"floor_tokens": error.floor_tokens, "limit_tokens": error.limit}
    elif isinstance(error, TimeoutError):
        detail = "it was not done in time; it may still be going on"
    elif isinstance(error, OSError):
        detail = error.strerror or str(error)
    # Clients retry a status with Retry-After by themselves, so only what may be over by then has one.
    headers = {"Retry-After": str(_RETRY_SECONDS)} if name in _RETRYABLE else {}
    return Problem(name=name, detail=detail, field=where, figures=figures, headers=headers)


def problem_response(problem: Problem) -> Response:
    """A problem as an HTTP response."""
    return Response(
        dump_json(problem.as_json()),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )


# --- static files -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file with its media type and entity tag (RFC 9110, 8.8.3)."""

    data: bytes
    media_type: str
    tag: str


# Read once, so that all files of a page come from the same version while an update replaces them on disk.
@cache
def assets(package: str, folder: str) -> Mapping[str, Asset]:
    """The files in a folder of a package by name, read once. No other path can be requested."""
    found = {}
    for one in (files(package) / folder).iterdir():
        media_type = _MEDIA_TYPES.get(one.name.rpartition(".")[2])
        if media_type is not None and one.is_file():
            data = one.read_bytes()
            found[one.name] = Asset(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found


def asset_response(asset: Asset, request: Request) -> Response:
    """The file, or 304 when the client already has it."""
    # Browsers keep the file, but ask each time: an update of the server must not mix old scripts with new ones.
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if asset.tag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(asset.data, headers=headers, media_type=asset.media_type)


def _tags(header: str) -> Collection[str]:
    return [one.strip().removeprefix("W/") for one in header.split(",")]
