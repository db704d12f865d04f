from __future__ import annotations

from typing import Any

import pytest

from foldline.agent.tools.schema import faults, has_patterns, portable

READ: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "start_line": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["text", "raw", 1]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def test_arguments_that_fit_have_no_faults() -> None:
    assert faults(READ, {"path": "a.py", "start_line": 3, "mode": "raw"}) == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "'path' is missing"),
        ({"path": 7}, "path: must be a string, not 7"),
        ({"path": ""}, "path: must not be empty"),
        ({"path": "a", "start_line": "3"}, 'start_line: must be an integer, not "3"'),
        ({"path": "a", "start_line": True}, "start_line: must be an integer, not true"),
        ({"path": "a", "start_line": 1.5}, "start_line: must be an integer, not 1.5"),
        ({"path": "a", "start_line": 0}, "start_line: must be at least 1, not 0"),
        ({"path": "a", "mode": True}, 'mode: must be one of "text", "raw", 1, not true'),
        ({"path": "a", "lines": 3}, "lines: is not an argument; known are path, start_line, mode"),
    ],
)
def test_a_fault_names_place_and_reason(arguments: dict[str, Any], expected: str) -> None:
    assert faults(READ, arguments) == (expected,)


def test_all_faults_are_told_at_once_but_never_more_than_five() -> None:
    many = {"type": "object", "properties": {str(n): {"type": "null"} for n in range(9)}}
    assert len(faults(many, {str(n): n for n in range(9)})) == 5
    assert len(faults(READ, {"start_line": "x"})) == 2


def test_a_long_value_is_not_repeated_whole() -> None:
    (expected,) = faults({"type": "integer"}, "x" * 10_000)
    assert len(expected) < 200


@pytest.mark.parametrize(
    ("schema", "good", "bad", "expected"),
    [
        ({"type": ["string", "null"]}, None, 1, "must be a string or null, not 1"),
        ({"type": "integer"}, 3.0, 3.5, "must be an integer, not 3.5"),
        ({"type": "number"}, 1e300, "1", 'must be a number, not "1"'),
        ({"const": {"a": [1]}}, {"a": [1]}, {"a": [True]}, 'must be {"a": [1]}, not {"a": [true]}'),
        ({"exclusiveMinimum": 0}, 0.1, 0, "must be more than 0, not 0"),
        ({"maximum": 5}, 5, 6, "must be at most 5, not 6"),
        ({"multipleOf": 4}, 8, 9, "must be a multiple of 4, not 9"),
        ({"maxLength": 2}, "ab", "abc", "must have at most 2 characters, not 3"),
        ({"pattern": "^[a-z]+$"}, "abc", "ABC", 'must match ^[a-z]+$, which "ABC" does not'),
        ({"items": {"type": "string"}}, ["a"], ["a", 2], "[1]: must be a string, not 2"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 2], "[1]: is not allowed"),
        ({"minItems": 1}, [0], [], "must have at least 1 items, not 0"),
        ({"uniqueItems": True}, [1, True], [1, 1], "must not hold the same item twice"),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}, "must have at most 1 members, not 2"),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}, 'a: must be an integer, not "x"'),
        (
            {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            {"x-a": "1"},
            {"x-a": 1},
            "x-a: must be a string, not 1",
        ),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {"a": 1}, {}, "'a' is missing"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            1,
            None,
            "fits none of the 2 forms that are allowed (must be a string, not null; must be an integer, not null)",
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
            3,
            7,
            "fits 2 of the forms that are allowed, and may fit only one",
        ),
        ({"not": {"type": "string"}}, 1, "x", 'must not be "x"'),
    ],
)
def test_each_keyword_holds(schema: dict[str, Any], good: Any, bad: Any, expected: str) -> None:
    assert faults(schema, good) == ()
    assert faults(schema, bad) == (expected,)


def test_references_inside_the_schema_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}}},
        "$defs": {"Edit": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}},
    }
    assert faults(schema, {"edits": [{"line": 1}]}) == ()
    assert faults(schema, {"edits": [{"line": 1}, {}]}) == ("edits[1]: 'line' is missing",)


def test_a_tree_that_refers_to_itself_is_checked_as_deep_as_the_value() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}, "size": {"type": "integer"}}}
    assert faults(tree, {"next": {"next": {"size": 1}}}) == ()
    assert faults(tree, {"next": {"next": {"size": "1"}}}) == ('next.next.size: must be an integer, not "1"',)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    ],
)
def test_a_schema_that_never_ends_is_a_fault_and_not_a_hang(schema: dict[str, Any]) -> None:
    expected = faults(schema, {})
    assert expected
    assert all(len(fault) <= 400 for fault in expected)


def test_a_circle_of_references_is_named() -> None:
    assert faults({"$ref": "#"}, {}) == ("is too large or nested too deep to be checked",)


@pytest.mark.parametrize(
    "schema",
    [
        {"x-of-a-vendor": 1, "format": "email", "description": "free"},
        {"type": "unheard-of"},
        {"type": 5, "required": 3, "properties": [], "items": "x", "enum": {}, "anyOf": None, "minimum": "0"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        {"pattern": "(?=look-ahead)"},
        {},
    ],
)
def test_what_is_unknown_or_broken_in_a_schema_refuses_nothing(schema: dict[str, Any]) -> None:
    assert faults(schema, {"a": [1, "x", None]}) == ()
    assert faults(schema, "text") == ()


def test_a_portable_schema_is_a_plain_object_at_the_top() -> None:
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "$defs": {"X": {"type": "string"}},
    }
    assert portable(given) == {"properties": given["properties"], "$defs": given["$defs"], "type": "object"}
    assert portable({}) == {"type": "object", "properties": {}}


def test_the_patterns_of_others_take_so_many_steps_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldline.agent.tools.schema.PATTERN_STEPS", 100_000)
    schema = {"type": "array", "items": {"type": "string", "pattern": "^(.{0,100}a){6}x$"}}
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    value = ["ab1 c" * 2_000 + str(n) for n in range(50)]
    assert len(faults(schema, value, look)) <= 5  # those that it did not come to are left to the server
    assert 0 < looks < 100


def test_a_check_ends_when_nobody_waits_for_it() -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        faults({"properties": {"a": {"pattern": "(.{0,100}a){6}x"}}}, {"a": "ab1 c" * 50_000}, ends)


@pytest.mark.parametrize(
    ("schema", "has"),
    [
        ({"properties": {"a": {"pattern": "x"}}}, True),
        ({"patternProperties": {"x": True}}, True),
        ({"properties": {"a": {"type": "string"}}}, False),
    ],
)
def test_it_is_told_whether_a_schema_has_patterns(schema: dict[str, Any], has: bool) -> None:
    assert has_patterns(schema) == has
