"""The OpenAPI 3.1 document, derived from the routes, the fields that check requests and the types of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from foldline.doors.http.requests import RequestField
from foldline.doors.http.responses import NAMES
from foldline.doors.http.routes import Route
from foldline.doors.http.schemas import ProblemJson

__all__ = ["document"]

_ANY_ROUTE_STATUSES: Final = (400, 401, 403, 405, 429, 503)
_BODY_STATUSES: Final = (408, 413, 415)
_JSON_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def document(routes: Iterable[Route], *, version: str) -> dict[str, Any]:
    """The document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    types: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, types)
    # Problems are components, which routes refer to: the same object for each status of each route.
    statuses = sorted({status for status, _ in NAMES.values()})
    responses = {str(status): _problem(status, types) for status in statuses}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Foldline",
            "version": version,
            "summary": "Sessions of an agent that never runs out of context.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": types,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": responses,
        },
    }


# --- types as JSON Schema ---------------------------------------------------------------------------------------------
#
# By hand, not by pydantic: five kinds of types are all that answers use, while its schemas repeat every name as a
# title, and it would be loaded by each start of the server for nothing else.


def _schema(kind: Any, types: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a type. Named types go to `types`, and a reference stands for each."""
    if is_typeddict(kind):
        name = kind.__name__.removesuffix("Json")
        if name not in types:
            types[name] = {}  # a type that holds itself finds its place taken
            types[name] = _object_schema(kind, types)
        return {"$ref": f"#/components/schemas/{name}"}
    # `Json` is Any to type checkers. Its schema is that of any value.
    if kind is Any:
        return {}
    if kind in _JSON_TYPES:
        return {"type": _JSON_TYPES[kind]}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (Union, UnionType):
        # One type or null is all that answers have; any other union is a mistake here, and fails at the start.
        (some,) = (one for one in inner if one is not NoneType)
        schema = _schema(some, types)
        return {"type": [schema["type"], "null"]} if "type" in schema else {"anyOf": [schema, {"type": "null"}]}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], types)}
    if origin is Mapping:
        return {"type": "object"}
    raise TypeError(f"no JSON Schema for {kind}")


def _object_schema(kind: type, types: dict[str, Any]) -> dict[str, Any]:
    properties, required = {}, []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        properties[name] = _schema(get_args(hint)[0] if optional else hint, types)
        if not optional:
            required.append(name)
    out = {"type": "object", "required": required, "properties": properties}
    # Some kinds of problems have figures as further members; all other objects are closed.
    return out if kind is ProblemJson else {**out, "additionalProperties": False}


# --- operations -------------------------------------------------------------------------------------------------------


def _operation(route: Route, types: dict[str, Any]) -> dict[str, Any]:
    fields = route.fields
    out: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        # A server without a token serves everybody, so a token is one way and none is another.
        "security": [{}] if route.free else [{"token": []}, {}],
        "responses": _responses(route, types),
    }
    places: tuple[tuple[str, Sequence[RequestField]], ...] = (
        ("path", fields.path),
        ("query", fields.query),
        ("header", fields.headers),
    )
    parameters = [_parameter(one, where) for where, those in places for one in those]
    if parameters:
        out["parameters"] = parameters
    if fields.body is not None:
        out["requestBody"] = _body(fields.body)
    return out


def _parameter(one: RequestField, where: str) -> dict[str, Any]:
    schema = one.schema()
    about = schema.pop("description")
    return {"name": one.name, "in": where, "required": where == "path", "description": about, "schema": schema}


def _body(fields: Sequence[RequestField]) -> dict[str, Any]:
    # A body whose fields are all optional may be left out altogether.
    required = [one.name for one in fields if one.required]
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    schema["properties"] = {one.name: one.schema() for one in fields}
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route, types: dict[str, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": route.about}
    if route.status != 204:
        shape = {} if route.answer is None else {"schema": _schema(route.answer, types)}
        success["content"] = {route.media_type: shape}
        if route.streams and route.answer is not None:
            success["content"]["text/event-stream"] = {}
    out = {str(route.status): success}
    if route.name == "health":  # the same object, while the server stops
        out["503"] = success
    problems = {*_ANY_ROUTE_STATUSES, *route.problems, *(_BODY_STATUSES if route.fields.body is not None else ())}
    for status in sorted(problems):
        out.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
    return out


def _problem(status: int, types: dict[str, Any]) -> dict[str, Any]:
    titles = " / ".join(title for own, title in NAMES.values() if own == status)
    return {"description": titles, "content": {"application/problem+json": {"schema": _schema(ProblemJson, types)}}}
