"""Requests, read and checked against the fields of their route: path, query, headers and the JSON body.

A `RequestField` both checks a value and describes it in the OpenAPI document, so the two cannot differ.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.requests import ClientDisconnect, Request

from foldline.doors.http.responses import Problem
from foldline.messages import Json

__all__ = ["ApiRequest", "BodyLimits", "RequestField", "RequestFields", "read_request"]

# The largest whole number that every reader of JSON keeps exactly.
_MAX_NUMBER: Final = 2**53 - 1

# Control characters pass: only NUL, which no store can hold, and unpaired surrogates, which are not Unicode text.
_INVALID_CHARS: Final = re.compile("[\x00\ud800-\udfff]")
_NO_NUL: Final = "^[^\\u0000]*$"
_DIGITS: Final = re.compile(r"-?[0-9]{1,16}")
_FLAGS: Final = {"true": True, "false": False}
_JSON_TYPES: Final = {"text": "string", "whole": "integer", "flag": "boolean"}

# The `field` of a problem with the body as a whole.
_BODY: Final = "body"

# A larger body is parsed in a thread: a megabyte takes 10 ms, during which the loop would answer nobody else.
_INLINE_BYTES: Final = 65_536

# Beyond these bounds the connection is closed, whether or not the client has read the refusal.
_DRAIN_BYTES: Final = 2**24
_DRAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestField:
    """One value of a request: in the body, the query, the path or a header.

    `kind` is a text, a whole number or true/false. A text has `least` to `most` characters and matches `pattern`
    (searched for), or is one of `choices`; a number lies between `least` and `most`. An absent field has its `default`.
    """

    name: str
    kind: Literal["text", "whole", "flag"] = "text"
    about: str
    required: bool = False
    default: Json = None
    least: int = 0
    most: int = _MAX_NUMBER
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    example: Json = None

    def schema(self) -> dict[str, Json]:
        """The field as JSON Schema, for the OpenAPI document."""
        out: dict[str, Json] = {"type": _JSON_TYPES[self.kind], "description": self.about}
        if self.kind == "whole":
            out |= {"minimum": self.least, "maximum": self.most}
        elif self.choices:
            out["enum"] = list(self.choices)
        elif self.kind == "text":
            out |= {"minLength": self.least} if self.least else {}
            out |= {"maxLength": self.most} if self.most < _MAX_NUMBER else {}
            out["pattern"] = self.pattern or _NO_NUL
        if self.default is not None:
            out["default"] = self.default
        if self.example is not None:
            out["example"] = self.example
        return out

    def check(self, value: Json) -> Json:
        """Return the value in the form that handlers expect. Raises Problem, which names the field."""
        if self.kind == "flag":
            if not isinstance(value, bool):
                raise _field_problem(self.name, "must be true or false")
            return value
        if self.kind == "whole":
            return self._check_number(value)
        if not isinstance(value, str):
            raise _field_problem(self.name, f"must be a text, not {_type_name(value)}")
        if _INVALID_CHARS.search(value):
            raise _field_problem(self.name, "holds a character that is none (NUL, or half of a surrogate pair)")
        if self.choices and value not in self.choices:
            raise _field_problem(self.name, f"must be one of {', '.join(self.choices)}")
        if len(value) < self.least:
            raise _field_problem(self.name, "is empty" if not value else f"has fewer than {self.least} characters")
        if len(value) > self.most:
            raise _field_problem(self.name, f"has {len(value):,} characters, more than {self.most:,}")
        if self.pattern is not None and re.search(self.pattern, value) is None:
            reason = "there is nothing in it" if not value.strip() else f"must match {self.pattern}"
            raise _field_problem(self.name, reason)
        return value

    def parse(self, text: str) -> Json:
        """Parse and check the text of a path, query or header parameter. Raises Problem, which names the field."""
        if self.kind == "flag":
            return self.check(_FLAGS.get(text, text))
        if self.kind == "whole":
            # Not int() alone: it also takes "1_000", " 7 " and digits of other scripts, which the schema forbids.
            if not _DIGITS.fullmatch(text):
                raise _field_problem(self.name, "must be a whole number")
            return self.check(int(text))
        return self.check(text)

    def _check_number(self, value: Json) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_NUMBER:
            value = int(value)  # 1.0 is a whole number to JSON Schema
        if isinstance(value, bool) or not isinstance(value, int):  # bool is a subclass of int
            raise _field_problem(self.name, f"must be a whole number, not {_type_name(value)}")
        if not self.least <= value <= self.most:
            raise _field_problem(self.name, f"must be from {self.least:,} to {self.most:,}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFields:
    """The fields of a route's requests, by where they stand. `body` None: the route has no body."""

    path: Sequence[RequestField] = ()
    query: Sequence[RequestField] = ()
    headers: Sequence[RequestField] = ()
    body: Sequence[RequestField] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, and how long it may take to arrive."""

    max_bytes: int = 1_048_576
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request with checked values; absent fields have their defaults."""

    request: Request
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


async def read_request(request: Request, fields: RequestFields, limits: BodyLimits) -> ApiRequest:
    """Read and check a request. Raises Problem, which names the first wrong part."""
    values: dict[str, Any] = {one.name: one.parse(request.path_params[one.name]) for one in fields.path}
    values |= _query_values(request, fields.query)
    for one in fields.headers:
        text = request.headers.get(one.name)
        values[one.name] = one.default if text is None else one.parse(text)
    # The body comes last: a request that is refused by its head is not read further.
    if fields.body is not None:
        values |= await _body_values(request, fields.body, limits)
    return ApiRequest(request, values)


# --- query and body ---------------------------------------------------------------------------------------------------


def _query_values(request: Request, fields: Sequence[RequestField]) -> dict[str, Json]:
    pairs = request.query_params.multi_items()
    # An unknown parameter is refused: a misspelled `limit` that is ignored would look like a fault of the server.
    names = {one.name for one in fields}
    for name, times in Counter(name for name, _ in pairs).items():
        if name not in names:
            raise _field_problem(name[:100], "is no parameter of this request")
        if times > 1:  # servers differ in which one counts
            raise _field_problem(name, "is given more than once")
    texts = dict(pairs)
    return {one.name: one.parse(texts[one.name]) if one.name in texts else one.default for one in fields}


async def _body_values(request: Request, fields: Sequence[RequestField], limits: BodyLimits) -> dict[str, Json]:
    data = await _read_body(request, limits)
    media_type = request.headers.get("content-type", "")

    def read() -> dict[str, Json]:
        return _check_fields(_parse_object(data, media_type, fields), fields)

    return read() if len(data) <= _INLINE_BYTES else await asyncio.to_thread(read)


def _check_fields(value: Mapping[str, Json], fields: Sequence[RequestField]) -> dict[str, Json]:
    names = {one.name for one in fields}
    for name in value:
        if name not in names:
            raise _field_problem(name[:100], "is no field of this request")
    out: dict[str, Json] = {}
    for one in fields:
        if one.name in value:
            out[one.name] = one.check(value[one.name])
        elif one.required:
            raise _field_problem(one.name, "is missing")
        else:
            out[one.name] = one.default
    return out


def _parse_object(data: bytes, media_type: str, fields: Sequence[RequestField]) -> dict[str, Json]:
    # No body is the empty object where nothing is required: clients send POST /compact without one, and untyped.
    if not data and not any(one.required for one in fields):
        return {}
    # A form or a plain text is what a page of another origin can send without asking (Fetch, "CORS-safelisted
    # request-header"), so only JSON is accepted, with or without a token.
    if not _is_json(media_type):
        raise Problem(name="media-type", detail="must be application/json, in UTF-8", field="Content-Type")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
    except RecursionError:
        raise _field_problem(_BODY, "is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _field_problem(_BODY, f"is no UTF-8 at byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        detail = f"is no JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise _field_problem(_BODY, detail) from None
    except ValueError as error:  # a number with thousands of digits
        raise _field_problem(_BODY, f"is no JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise _field_problem(_BODY, "must be a JSON object")
    return value


def _is_json(media_type: str) -> bool:
    kind, *parameters = (part.strip().lower() for part in media_type.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset")]
    return kind == "application/json" and all(charset in {"utf-8", "utf8"} for charset in charsets)


async def _read_body(request: Request, limits: BodyLimits) -> bytes:
    declared = request.headers.get("content-length", "")
    # A declared length may be absent or wrong; the bytes are counted in any case.
    too_large = declared.isdecimal() and len(declared) < 20 and int(declared) > limits.max_bytes
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
                elif size > _DRAIN_BYTES:
                    break
                else:
                    # A client that is still sending reads the 413 only afterwards, and a closed connection would
                    # reset it first (RFC 9112, 9.6). So the rest is read and dropped, up to a bound.
                    until.reschedule(min(until.when() or 0.0, asyncio.get_running_loop().time() + _DRAIN_SECONDS))
    except TimeoutError:
        if too_large:
            raise _too_large(limits) from None
        detail = f"was not there after {limits.seconds:,.0f} seconds"
        raise Problem(name="slow-body", detail=detail, field=_BODY, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise _field_problem(_BODY, "is cut off") from None
    if too_large:
        raise _too_large(limits)
    return b"".join(pieces)


# --- problems ---------------------------------------------------------------------------------------------------------


def _too_large(limits: BodyLimits) -> Problem:
    return Problem(
        name="too-large",
        detail=f"is larger than {limits.max_bytes:,} bytes",
        field=_BODY,
        figures={"max_bytes": limits.max_bytes},
        headers={"Connection": "close"},  # the rest of the body is not read
    )


def _field_problem(field: str, detail: str) -> Problem:
    return Problem(name="bad-request", detail=detail, field=field)


def _unique_names(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name, value in pairs:
        # Parsers differ in which of the two counts (RFC 8259, section 4).
        if name in out:
            raise _field_problem(name[:100], "is in the body twice")
        out[name] = value
    return out


def _refuse_constant(name: str) -> Json:
    """Refuse NaN and Infinity, which Python's parser takes and JSON does not have."""
    raise _field_problem(_BODY, f"holds {name}, which is no JSON")


def _type_name(value: Json) -> str:
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), "an object")
