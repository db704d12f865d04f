"""A request with tools as plain messages, for a template without tools, and the JSON schema of its turns.

The result is one system message and then alternating user and assistant messages that begin with the user, because the
strictest templates (Gemma's) refuse anything else. The text of message i depends only on the messages up to i, so the
next prompt begins with this one and the server's prefix cache stays warm.

A server compiles the schema to a grammar (llama.cpp: `json_schema_to_grammar`; vLLM: xgrammar) and checks it for every
token. So the schema has only keywords that shape the output. Every text and list is bounded, because a small model that
repeats itself fills anything without an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.codecs import codec
from foldline.engine.context import Request
from foldline.messages import Json, Message, Opaque, Part, Text, ToolResult, Wire

__all__ = ["SMALL", "Bounds", "Function", "call_text", "functions", "plain_messages", "tools_text", "turn_schema"]

_CHAT: Final = codec("openai-chat")
_RULE: Final = 'Reply with one JSON object: {"tool":NAME,"arguments":{…}} to use a tool, or {"answer":TEXT}.\nTools:'
_BEFORE: Final = "(The conversation goes on.)"  # the user's turn before a history that begins with the model
_BETWEEN: Final = "\n\n"
_MAX_LINE_DEPTH: Final = 3  # of objects in the line of a tool

_Content = str | list[Mapping[str, Any]]


def plain_messages(request: Request) -> list[Wire]:
    """Return a request of the dialect "openai-chat" as plain messages, with tools and system text. O(size).

    A call becomes the JSON object that the model is to write, a result a user message. Images stay content blocks.
    Reasoning is left out, as templates do for earlier turns.
    """
    # Tools belong to the system text, where they stay the same for the prompt cache of the server.
    system = [_system_text(request.system), tools_text(request.tools)]
    turns: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for wire in request.messages:
        message = _CHAT.read(wire)
        # A result names its call only if there are several.
        several = len(message.calls) > 1
        names.update((call.id, f" of {call.name}" if several else "") for call in message.calls)
        if message.role == "system" and not turns:
            system.append(message.text)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": _BEFORE})
        content = _content(message, names)
        # Joined, because results are the user's here and such templates want the roles to alternate.
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] = _joined(turns[-1]["content"], content)
        else:
            turns.append({"role": role, "content": content})
    text = _BETWEEN.join(filter(None, system))
    return [*([{"role": "system", "content": text}] if text else []), *turns]


def tools_text(tools: Sequence[Mapping[str, Json]] | None) -> str:
    """Return the tools as text: one line for each, and one more for each parameter with a description."""
    lines = []
    for function in functions(tools):
        properties = function.parameters.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        lines.append(f"{function.name}{_fields(function.parameters, '()', 0)}: {function.description}".rstrip(": "))
        lines += [
            f"  {name}: {schema['description']}"
            for name, schema in properties.items()
            if isinstance(schema, Mapping) and schema.get("description")
        ]
    return "\n".join([_RULE, *lines]) if lines else ""


def call_text(name: str, arguments: str) -> str:
    """Return a call as the object that the model is to write, with unchanged `arguments` and so the same tokens."""
    return f'{{"tool":{json.dumps(name, ensure_ascii=False)},"arguments":{arguments.strip() or "{}"}}}'


def _system_text(system: Json) -> str:
    if isinstance(system, str) or not system:
        return system or ""
    return _BETWEEN.join(str(block.get("text", "")) for block in system if isinstance(block, Mapping))


def _content(message: Message, names: Mapping[str, str]) -> _Content:
    content: _Content = ""
    for part in message.parts:
        if isinstance(part, ToolResult):
            content = _joined(content, f"Result{names.get(part.call_id, '')}:\n{part.text}")
            for inner in part.parts:
                if not isinstance(inner, Text):
                    content = _joined(content, _block(inner))
        elif isinstance(part, Text):
            content = _joined(content, part.text)
        else:
            content = _joined(content, _block(part))
    for call in message.calls:
        content = _joined(content, call_text(call.name, call.arguments), "\n")
    return content


def _block(part: Part) -> _Content:
    """Return the original block of a part that is not text, or "" for one from other fields of the message."""
    raw = part.raw
    if isinstance(raw, Mapping) and raw.get("type") in ("image_url", "input_audio", "file"):
        return [raw]
    return json.dumps(raw, ensure_ascii=False, default=str) if isinstance(part, Opaque) else ""


def _joined(first: _Content, second: _Content, between: str = _BETWEEN) -> _Content:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}"
    return [*_blocks(first), *_blocks(second)]


def _blocks(content: _Content) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# --- Types as a person writes them ------------------------------------------------------------------------------------


def _fields(schema: Mapping[str, Json], brackets: str, depth: int) -> str:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required") or ()
    named = [f"{name}{'' if name in required else '?'}: {_type(each, depth + 1)}" for name, each in properties.items()]
    return brackets[0] + ", ".join(named) + brackets[1]


def _type(schema: Json, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_LINE_DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return "|".join(_type(each, depth + 1) for each in schema[key])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    if kind == "array":
        return f"[{_type(schema.get('items'), depth + 1)}]"
    if kind == "object" and schema.get("properties"):
        return _fields(schema, "{}", depth)
    return str(kind)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The longest texts and lists that a model may write."""

    argument_chars: int = 8_000
    answer_chars: int = 16_000
    items: int = 32


SMALL: Final = Bounds(argument_chars=120, answer_chars=400, items=4)
"""Bounds for models of about 100 million parameters, which soon repeat themselves: a path, a few lines."""

_INTEGER_LIMIT: Final = 999_999_999  # all nines make the shortest grammar; the agent loop checks the arguments
_MAX_SCHEMA_DEPTH: Final = 8  # of schemas in schemas; a recursive one ends there
_ANYTHING: Final = {"type": "object"}
# What llama.cpp turns into a grammar. `pattern` and `format` are left out: an expression that it cannot convert makes
# it refuse the request, and the agent checks arguments anyway.
_KEPT: Final = frozenset({"type", "enum", "const", "minLength", "minItems", "minimum", "maximum"})
_CHOICES: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class Function:
    """A tool of the dialect "openai-chat"."""

    name: str
    description: str
    parameters: Mapping[str, Json]


def functions(tools: Sequence[Mapping[str, Json]] | None) -> Iterator[Function]:
    """Yield the functions among the tools. Tools without a name or of another type are skipped, as servers do."""
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
    """Return the schema of {"tool": NAME, "arguments": {…}} for each tool, or {"answer": TEXT}. O(size)."""
    calls = [
        _closed_object(
            {
                "tool": {"type": "string", "enum": [function.name]},
                "arguments": _bounded(function.parameters, function.parameters, bounds, 0),
            }
        )
        for function in functions(tools)
    ]
    # At least one character: a small model takes the shortest path through a grammar, an empty answer.
    text = {"type": "string", "minLength": 1, "maxLength": bounds.answer_chars}
    return {"anyOf": [*calls, _closed_object({"answer": text})]}


def _closed_object(properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _bounded(schema: Json, root: Mapping[str, Json], bounds: Bounds, depth: int) -> dict[str, Json]:
    """Return a schema with bounds and resolved references."""
    schema = _resolved(schema, root)
    if depth > _MAX_SCHEMA_DEPTH:
        return dict(_ANYTHING)
    out: dict[str, Json] = {key: value for key, value in schema.items() if key in _KEPT}
    for key in _CHOICES:
        if isinstance(schema.get(key), list) and schema[key]:
            # To a grammar "oneOf" is "anyOf": it only refuses more of what can be written.
            name = "anyOf" if key == "oneOf" else key
            out[name] = [_bounded(inner, root, bounds, depth + 1) for inner in schema[key]]
    if "properties" in schema:
        out.setdefault("type", "object")
    kinds = out.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "enum" in out or "const" in out:  # the values say everything
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
    """Resolve a local reference ("#/$defs/Name"); any object if it leads nowhere or in a circle."""
    for _ in range(_MAX_SCHEMA_DEPTH):
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
