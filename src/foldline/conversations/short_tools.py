"""Shorter descriptions in the tool definitions of a client's request, where the owner of the proxy asks for it.

Only the client can run its tools, so that nothing could be loaded later: names and schemas stay, and every call that
was valid is valid still. The definitions and the bound alone decide what is cut: all requests of a conversation begin
with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldline.conversations.request_body import RequestBody, read_body, to_json
from foldline.messages import Json
from foldline.text.shorten import first_line
from foldline.tokens import ESTIMATE
from foldline.tokens.sizes import json_tokens

__all__ = ["first_sentence", "with_short_tools"]

_MARK: Final = " […]"
_MOST_CHARS: Final = 160

# Fields of a definition that hold its function or functions, by dialect, and those that hold a schema.
_FUNCTIONS: Final = ("function", "custom", "functionDeclarations", "function_declarations")
_SCHEMAS: Final = ("parameters", "input_schema", "parametersJsonSchema", "inputSchema")
# Keywords of JSON Schema whose names are free, and those whose values are data.
_NAMED: Final = frozenset("properties patternProperties $defs definitions dependentSchemas".split())
_DATA: Final = frozenset("enum const default examples example required".split())

# No tool nests deeper; what does is left as it is.
_MAX_DEPTH: Final = 64


def with_short_tools(body: RequestBody, most_tokens: int) -> RequestBody | None:
    """The request with the descriptions of its largest tools cut, until all take `most_tokens`; None if they do.

    O(size of the definitions).
    """
    tools = body.fields.get("tools")
    if not isinstance(tools, list) or not tools:
        return None
    sizes = [json_tokens(tool, ESTIMATE) for tool in tools]
    over, short = sum(sizes) - most_tokens, list(tools)
    # Largest first: so the fewest tools lose words.
    for at in sorted(range(len(tools)), key=lambda at: -sizes[at]):
        if over <= 0:
            break
        short[at] = _short(tools[at])
        over -= sizes[at] - json_tokens(short[at], ESTIMATE)
    if short == tools:
        return None
    data = body.changed({"tools": to_json(short)})
    return read_body(body.form, data, addressed=body.addressed, streamed=body.streamed_by_path)


def _short(tool: Json) -> Json:
    if isinstance(tool, list):
        return [_short(each) for each in tool]
    if not isinstance(tool, Mapping):
        return tool
    out: dict[str, Json] = {}
    for name, value in tool.items():
        if name == "description" and isinstance(value, str):
            out[name] = first_sentence(value)
        elif name in _FUNCTIONS:
            out[name] = _short(value)
        else:
            out[name] = _schema(value, 0) if name in _SCHEMAS else value
    return out


def _schema(schema: Json, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        return schema
    if isinstance(schema, list):
        return [_schema(each, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Json] = {}
    for name, value in schema.items():
        if name == "description" and isinstance(value, str):
            out[name] = first_sentence(value)
        elif name in _NAMED and isinstance(value, Mapping):
            out[name] = {key: _schema(inner, depth + 2) for key, inner in value.items()}
        else:
            out[name] = value if name in _DATA else _schema(value, depth + 1)
    return out


def first_sentence(text: str) -> str:
    """The first sentence of a description, with a mark where more followed."""
    line = first_line(text.strip(), _MOST_CHARS)
    sentence, end, _ = line.partition(". ")
    short = f"{sentence}." if end else line
    return text if len(short) + len(_MARK) >= len(text.strip()) else f"{short}{_MARK}"
