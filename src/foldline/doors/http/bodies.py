"""Requests read and checked: path, query, headers and the JSON of the body, each wrong part named."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from foldline.doors.http.fields import Field, refused
from foldline.doors.http.problems import Problem
from foldline.messages import Json

__all__ = ["BodyLimits", "Call", "Takes", "read_call"]

BODY: Final = "body"
"""What stands for the body as a whole where a problem names a field."""

_INLINE_BYTES: Final = 65_536
"""A larger body is read in a thread: it takes 10 ms for a megabyte, in which nobody else would be answered."""

_LINGER_BYTES: Final = 2**24
_LINGER_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, and how long it may take to come."""

    max_bytes: int = 1_048_576
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a route takes. `body` None: it has none."""

    path: Sequence[Field] = ()
    query: Sequence[Field] = ()
    headers: Sequence[Field] = ()
    body: Sequence[Field] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose parts are what they must be; absent fields have their defaults."""

    request: Request
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]


async def read_call(request: Request, takes: Takes, limits: BodyLimits) -> Call:
    """The request, read and checked. Raises Problem that names the first part that is wrong."""
    given: dict[str, Any] = {one.name: one.read(request.path_params[one.name]) for one in takes.path}
    given |= _query(request, takes.query)
    for one in takes.headers:
        text = request.headers.get(one.name)
        given[one.name] = one.default if text is None else one.read(text)
    if takes.body is not None:
        given |= await _body(request, takes.body, limits)
    return Call(request, given)


async def _body(request: Request, fields: Sequence[Field], limits: BodyLimits) -> dict[str, Json]:
    data = await _bytes(request, limits)
    media_type = request.headers.get("content-type", "")

    def read() -> dict[str, Json]:
        return _checked(_json(data, media_type, fields), fields)

    return read() if len(data) <= _INLINE_BYTES else await asyncio.to_thread(read)


def _query(request: Request, fields: Sequence[Field]) -> dict[str, Json]:
    pairs = request.query_params.multi_items()
    known = {one.name for one in fields}
    for name, times in Counter(name for name, _ in pairs).items():
        if name not in known:
            raise refused(name[:100], "is no parameter of this request")
        if times > 1:
            raise refused(name, "is given more than once")
    given = dict(pairs)
    return {one.name: one.read(given[one.name]) if one.name in given else one.default for one in fields}


def _checked(value: Mapping[str, Json], fields: Sequence[Field]) -> dict[str, Json]:
    known = {one.name for one in fields}
    for name in value:
        if name not in known:
            raise refused(name[:100], "is no field of this request")
    out: dict[str, Json] = {}
    for one in fields:
        if one.name in value:
            out[one.name] = one.check(value[one.name])
        elif one.required:
            raise refused(one.name, "is missing")
        else:
            out[one.name] = one.default
    return out


def _json(data: bytes, media_type: str, fields: Sequence[Field]) -> dict[str, Json]:
    if not data and not any(one.required for one in fields):
        return {}
    if not _is_json(media_type):
        raise Problem(name="media-type", detail="must be application/json, in UTF-8", field="Content-Type")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise refused(BODY, "is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise refused(BODY, f"is no UTF-8 at byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        raise refused(BODY, f"is no JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # a number with thousands of digits
        raise refused(BODY, f"is no JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise refused(BODY, "must be a JSON object")
    return value


def _is_json(media_type: str) -> bool:
    kind, *parameters = (part.strip().lower() for part in media_type.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset")]
    return kind == "application/json" and all(charset in {"utf-8", "utf8"} for charset in charsets)


async def _bytes(request: Request, limits: BodyLimits) -> bytes:
    told = request.headers.get("content-length", "")
    too_large = told.isdecimal() and len(told) < 20 and int(told) > limits.max_bytes
    pieces, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.seconds) as until:
            async for piece in request.stream():
                size += len(piece)
                if not too_large and size > limits.max_bytes:
                    too_large = True
                    pieces.clear()
                if not too_large:
                    pieces.append(piece)
                elif size > _LINGER_BYTES:
                    break
                else:  # who sends it hears of the answer only when it has been read: but not for long
                    until.reschedule(min(until.when() or 0.0, asyncio.get_running_loop().time() + _LINGER_SECONDS))
    except TimeoutError:
        if too_large:
            raise _too_large(limits) from None
        detail = f"was not there after {limits.seconds:,.0f} seconds"
        raise Problem(name="slow-body", detail=detail, field=BODY, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise refused(BODY, "is cut off") from None
    if too_large:
        raise _too_large(limits)
    return b"".join(pieces)


def _too_large(limits: BodyLimits) -> Problem:
    return Problem(
        name="too-large",
        detail=f"is larger than {limits.max_bytes:,} bytes",
        field=BODY,
        figures={"max_bytes": limits.max_bytes},
        headers={"Connection": "close"},  # what is still to come is not read
    )


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name, value in pairs:
        if name in out:
            raise refused(name[:100], "stands in the body twice")
        out[name] = value
    return out


def _no_constant(name: str) -> Json:
    raise refused(BODY, f"holds {name}, which is no JSON")
