"""The JSON schema of one turn: a call of one of the tools, or an answer.

A server that decodes under a schema compiles it to a grammar (llama.cpp: `json_schema_to_grammar`; vLLM: xgrammar), and
looks at the grammar for every token. So only keywords that shape the output are kept. Every text and list is bounded:
a small model that has begun to repeat itself fills whatever has no end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from foldline.messages import Json

__all__ = ["SMALL", "Bounds", "Function", "functions", "turn_schema"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The longest texts and lists that a model may write: characters of an argument and of an answer, items."""

    argument_chars: int = 8_000
    answer_chars: int = 16_000
    items: int = 32


SMALL: Final = Bounds(argument_chars=120, answer_chars=400, items=4)
"""For models of some 100 million parameters, which soon repeat themselves: a text as long as a path, a few lines."""

_INTEGER_LIMIT: Final = 999_999_999  # a round number of nines is the shortest grammar; the loop checks the arguments
_MAX_DEPTH: Final = 8  # of schemas in schemas; a recursive one ends there
_ANYTHING: Final = {"type": "object"}
_KEPT: Final = frozenset({"type", "enum", "const", "minLength", "minItems", "minimum", "maximum"})
_CHOICES: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class Function:
    """A tool as requests of the dialect "openai-chat" carry it."""

    name: str
    description: str
    parameters: Mapping[str, Json]


def functions(tools: Sequence[Mapping[str, Json]] | None) -> Iterator[Function]:
    """The functions among the tools; what has no name or is of another type is left out, as such a server would."""
    for tool in tools or ():
        body = tool.get("function")
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            parameters = body.get("parameters")
            yield Function(
                body["name"],
                str(body.get("description") or ""),
                parameters if isinstance(parameters, Mapping) else _ANYTHING,
            )


def turn_schema(tools: Sequence[Mapping[str, Json]], bounds: Bounds) -> dict[str, Json]:
    """The schema of {"tool": NAME, "arguments": {…}} for each tool, or of {"answer": TEXT}. O(size of the schemas)."""
    calls = [
        _object(
            {
                "tool": {"type": "string", "enum": [function.name]},
                "arguments": _bounded(function.parameters, function.parameters, bounds, 0),
            }
        )
        for function in functions(tools)
    ]
    # Not empty: a small model takes the shortest way out of a grammar, which is to say nothing.
    text = {"type": "string", "minLength": 1, "maxLength": bounds.answer_chars}
    return {"anyOf": [*calls, _object({"answer": text})]}


def _object(properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _bounded(schema: Json, root: Mapping[str, Json], bounds: Bounds, depth: int) -> dict[str, Json]:
    """A schema with bounds in it, its references replaced by what they refer to."""
    schema = _resolved(schema, root)
    if depth > _MAX_DEPTH:
        return dict(_ANYTHING)
    out: dict[str, Json] = {key: value for key, value in schema.items() if key in _KEPT}
    for key in _CHOICES:
        if isinstance(schema.get(key), list) and schema[key]:
            # "oneOf" differs in what it refuses, not in what it lets a model write.
            name = "anyOf" if key == "oneOf" else key
            out[name] = [_bounded(inner, root, bounds, depth + 1) for inner in schema[key]]
    if "properties" in schema:
        out.setdefault("type", "object")
    kinds = out.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "enum" in out or "const" in out:
        return out
    if "string" in kinds:
        out["maxLength"] = min(bounds.argument_chars, _whole(schema.get("maxLength"), bounds.argument_chars))
        out["minLength"] = min(_whole(schema.get("minLength"), 0), out["maxLength"])
        if not out["minLength"]:
            del out["minLength"]
    if "integer" in kinds or "number" in kinds:
        out.setdefault("minimum", min(-_INTEGER_LIMIT, out.get("maximum", 0)))
        out.setdefault("maximum", max(_INTEGER_LIMIT, out["minimum"]))
    if "array" in kinds:
        least = _whole(schema.get("minItems"), 0)
        out["maxItems"] = max(least, min(bounds.items, _whole(schema.get("maxItems"), bounds.items)))
        out["items"] = _bounded(schema.get("items", {"type": "string"}), root, bounds, depth + 1)
    if "object" in kinds and isinstance(schema.get("properties"), Mapping):
        inner = {name: _bounded(value, root, bounds, depth + 1) for name, value in schema["properties"].items()}
        required = schema.get("required")
        named = [name for name in required if name in inner] if isinstance(required, list) else []
        out |= {"properties": inner, "required": named, "additionalProperties": False}
    return out


def _resolved(schema: Json, root: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a local reference ("#/$defs/Name") names; an object of any kind where it leads nowhere or in a circle."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {} if schema is True else _ANYTHING
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = root
        for escaped in reference.removeprefix("#").strip("/").split("/"):
            key = escaped.replace("~1", "/").replace("~0", "~")
            schema = schema.get(key) if isinstance(schema, Mapping) else None
    return _ANYTHING


def _whole(value: Json, otherwise: int) -> int:
    return value if isinstance(value, int) and value >= 0 else otherwise
