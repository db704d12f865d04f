"""The OpenAPI 3.1 document, made from the table of routes and the fields that check requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from foldline.doors.http.fields import Field
from foldline.doors.http.problems import NAMES
from foldline.doors.http.routes import Route
from foldline.doors.http.schemas import SCHEMAS, ref

__all__ = ["document"]

_ALWAYS: Final = (400, 401, 403, 405, 429, 503)
_WITH_BODY: Final = (408, 413, 415)


def document(routes: Iterable[Route], *, version: str) -> dict[str, Any]:
    """The document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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
            "schemas": dict(SCHEMAS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {str(status): _problem(status) for status in sorted({status for status, _ in NAMES.values()})},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    takes = route.takes
    out: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        # Without a token the server takes everybody; where it has one, it is needed.
        "security": [{}] if route.free else [{"token": []}, {}],
        "responses": _responses(route),
    }
    kinds: tuple[tuple[str, Sequence[Field]], ...] = (
        ("path", takes.path),
        ("query", takes.query),
        ("header", takes.headers),
    )
    parameters = [_parameter(one, where) for where, fields in kinds for one in fields]
    if parameters:
        out["parameters"] = parameters
    if takes.body is not None:
        out["requestBody"] = _body(takes.body)
    return out


def _parameter(one: Field, where: str) -> dict[str, Any]:
    schema = one.schema()
    about = schema.pop("description")
    return {"name": one.name, "in": where, "required": where == "path", "description": about, "schema": schema}


def _body(fields: Sequence[Field]) -> dict[str, Any]:
    needed = [one.name for one in fields if one.required]
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    schema["properties"] = {one.name: one.schema() for one in fields}
    if needed:
        schema["required"] = needed
    return {"required": bool(needed), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route) -> dict[str, Any]:
    done: dict[str, Any] = {"description": route.about}
    if route.status != 204:
        shape = {} if route.answer is None else {"schema": ref(route.answer)}
        done["content"] = {route.media_type: shape}
        if route.streams and route.answer is not None:
            done["content"]["text/event-stream"] = {}
    out = {str(route.status): done}
    if route.name == "health":
        out["503"] = done
    refusals = {*_ALWAYS, *route.problems, *(_WITH_BODY if route.takes.body is not None else ())}
    for status in sorted(refusals):
        out.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
    return out


def _problem(status: int) -> dict[str, Any]:
    names = [name for name, (own, _) in NAMES.items() if own == status]
    titles = " / ".join(NAMES[name][1] for name in names)
    return {"description": titles, "content": {"application/problem+json": {"schema": ref("Problem")}}}
