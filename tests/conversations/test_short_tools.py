"""Shorter descriptions of tools in a client's request: names, schemas and all else stay."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.conversations.short_tools import first_sentence, with_short_tools
from foldline.tokens import ESTIMATE
from foldline.tokens.sizes import tools_tokens

LONG = "Turns the wheel. It takes the place of the thing in the mill, and says what the wheel does with it each turn."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": LONG,
    "properties": {
        "description": {"type": "string", "description": LONG, "enum": [LONG, "b"]},
        "items": {
            "type": "array",
            "items": {"anyOf": [{"type": "string", "description": LONG}, {"$ref": "#/$defs/a"}]},
        },
    },
    "$defs": {"a": {"type": "object", "description": LONG, "default": {"description": LONG}}},
    "required": ["description"],
}


def tools_of(dialect: str, count: int = 3) -> list[dict[str, Any]]:
    schemas = [copy.deepcopy(SCHEMA) for _ in range(count)]
    if dialect == "anthropic":
        out = [{"name": f"turn_{n}", "description": LONG, "input_schema": one} for n, one in enumerate(schemas)]
        return [*out, {"type": "web_search_20250305", "name": "web_search"}]
    if dialect == "openai-responses":
        return [
            {"type": "function", "name": f"turn_{n}", "description": LONG, "parameters": one, "strict": False}
            for n, one in enumerate(schemas)
        ]
    if dialect == "gemini":
        found = [{"name": f"turn_{n}", "description": LONG, "parametersJsonSchema": s} for n, s in enumerate(schemas)]
        return [{"functionDeclarations": found}, {"googleSearch": {}}]
    return [
        {"type": "function", "function": {"name": f"turn_{n}", "description": LONG, "parameters": one}}
        for n, one in enumerate(schemas)
    ]


def body_with(dialect: str, tools: Any) -> RequestBody:
    form = FORMS[dialect]
    said = {"role": "user", "parts": [{"text": "hi"}]} if dialect == "gemini" else {"role": "user", "content": "hi"}
    fields = {"model": "m", "tools": tools, form.messages: [said], "x-unknown": {"kept": [1, None]}}
    return read_body(form, json.dumps(fields).encode())


def without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [without_descriptions(item) for item in value]
    if isinstance(value, dict):
        return {
            name: without_descriptions(item)
            for name, item in value.items()
            if not (name == "description" and isinstance(item, str))
        }
    return value


def descriptions(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from descriptions(item)
    if isinstance(value, dict) and isinstance(value.get("description"), str):
        yield value["description"]


@pytest.mark.parametrize("dialect", list(FORMS))
def test_descriptions_are_cut_and_all_else_is_as_it_was(dialect: str) -> None:
    body = body_with(dialect, tools_of(dialect))
    short = with_short_tools(body, 0)
    assert short is not None
    before, after = json.loads(body.raw), json.loads(short.raw)
    assert without_descriptions(after) == without_descriptions(before)
    cut = [text for text in descriptions(after["tools"]) if text.endswith("[…]")]
    assert len(cut) == 3 * 5
    assert set(cut) == {"Turns the wheel. […]"}
    assert json.dumps(after).count(LONG) == 3 * 2, "values of enums and defaults are data"
    assert short.raw == with_short_tools(body, 0).raw  # type: ignore[union-attr]


def test_the_largest_are_cut_first_and_no_more_than_needed() -> None:
    tools = tools_of("openai-chat")
    tools[1]["function"]["description"] = LONG * 20
    body = body_with("openai-chat", tools)
    most = tools_tokens(tools, ESTIMATE) - 100
    short = with_short_tools(body, most)
    assert short is not None
    after = json.loads(short.raw)["tools"]
    assert [one == other for one, other in zip(tools, after, strict=True)] == [True, False, True]
    assert tools_tokens(after, ESTIMATE) <= most


@pytest.mark.parametrize("tools", [None, [], "x", [1, None], tools_of("anthropic")])
def test_what_fits_and_what_are_no_tools_is_left_alone(tools: Any) -> None:
    assert with_short_tools(body_with("anthropic", tools), 100_000) is None


def test_nothing_in_a_definition_makes_it_fail() -> None:
    deep: Any = {"description": LONG}
    for _ in range(38):
        deep = {"anyOf": [deep]}
    odd = [
        {"name": 1, "description": 5, "input_schema": deep},
        {"function": [LONG]},
        {"parameters": "x"},
        {"name": "a", "description": LONG, "input_schema": None},
    ]
    short = with_short_tools(body_with("anthropic", odd), 0)
    assert short is not None
    assert json.loads(short.raw)["tools"][3]["description"] == "Turns the wheel. […]"


@pytest.mark.parametrize(
    ("text", "short"),
    [(LONG, "Turns the wheel. […]"), ("Turns it.", "Turns it."), ("", ""), ("A\n\n" + "more words " * 9, "A […]")],
)
def test_a_first_sentence_is_marked_where_more_followed(text: str, short: str) -> None:
    assert first_sentence(text) == short
