"""Checks the arguments of a call against the JSON Schema of its tool, and names each fault with its place.

The keywords are those of JSON Schema 2020-12 that tools use, the ones of MCP servers among them, with `$ref` inside the
same schema. An unknown keyword is ignored, as the standard has it (Core, section 4.3.1). Nothing is converted: "3" is
no number.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeGuard

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.safe_regex import OutOfSteps, Pattern, Work

__all__ = ["faults", "has_patterns", "portable"]

# Nesting of schemas, references followed. No tool nests so deep, and a cycle of references ends.
MAX_DEPTH: Final = 64
# Characters that a fault quotes of a value.
SHOWN_CHARS: Final = 80
# Schemas visited for one value: alternatives that refer to each other would double at every level.
MAX_STEPS: Final = 50_000
# Steps of all patterns for one value: about a second.
PATTERN_STEPS: Final = 10_000_000
# Characters of one fault: a fault of alternatives contains those of their own alternatives.
FAULT_CHARS: Final = 400
# Faults reported at a time: a model mends a few at once.
MAX_FAULTS: Final = 5


def _whole(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _whole(value) or (isinstance(value, float) and value.is_integer()),
    "number": _number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
}
_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
# What providers refuse at the top of a tool's schema: OpenAI "Structured outputs", Supported schemas (the root must be
# a plain object), Anthropic's error "input_schema does not support oneOf, allOf, or anyOf at the top level".
_NOT_AT_THE_TOP: Final = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"})
_NAMES_OF_SCHEMAS: Final = frozenset({"$schema", "$id"})


def faults(schema: Mapping[str, Json], value: Json, check: Callable[[], None] = lambda: None) -> tuple[str, ...]:
    """Return the faults of a value, each with its place ("edits[0].line: must be …"); empty for a valid one.

    Five at most. All patterns share 10 million steps; later ones are not checked. `check` is called meanwhile, and may
    raise to end the check. O(value x schema).
    """
    found = _SchemaChecker(schema, Work(PATTERN_STEPS, check)).check(schema, value, "", 0)
    return tuple(str(fault) for fault in islice(found, MAX_FAULTS))


def has_patterns(schema: Mapping[str, Json]) -> bool:
    """Return whether a schema has patterns, which may be slow to match. O(schema)."""
    # By text: a property named "pattern" counts as one too, which only costs a thread.
    text = json.dumps(schema, default=repr)
    return '"pattern"' in text or '"patternProperties"' in text


def portable(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return a schema that every provider accepts: an object with properties, without alternatives at the top.

    Only the model sees this one; arguments are checked against the whole schema.
    """
    plain = {key: inner for key, inner in schema.items() if key not in _NOT_AT_THE_TOP | _NAMES_OF_SCHEMAS}
    properties = plain.get("properties")
    return plain | {"type": "object", "properties": properties if isinstance(properties, Mapping) else {}}


_Schema: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class _SchemaFault:
    place: str
    reason: str

    def __str__(self) -> str:
        text = f"{self.place}: {self.reason}" if self.place else self.reason
        return text if len(text) <= FAULT_CHARS else f"{text[: FAULT_CHARS - 1]}…"


def _equal(one: Json, other: Json) -> bool:
    """Compare as JSON does: true is not 1, and 1.0 is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _excerpt(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def _named(types: Json) -> list[str]:
    return [name for name in ([types] if isinstance(types, str) else _listed(types)) if name in _TYPES]


def _article(names: Sequence[str]) -> str:
    return " or ".join("null" if name == "null" else f"{'an' if name[:1] in 'aio' else 'a'} {name}" for name in names)


class _SchemaChecker:
    """Checks values against one schema and the targets of its references."""

    def __init__(self, root: Mapping[str, Json], work: Work) -> None:
        self._root, self._work = root, work
        self._steps = 0
        self._patterns: dict[str, Pattern | None] = {}

    def check(self, schema: Json, value: Json, place: str, depth: int) -> Iterator[_SchemaFault]:
        if schema is False:
            yield _SchemaFault(place, "is not allowed")
        if not isinstance(schema, Mapping):
            return
        self._steps += 1
        # Refused, not passed: arguments that were not checked must not reach a tool.
        if depth > MAX_DEPTH or self._steps > MAX_STEPS:
            yield _SchemaFault(place, "is too large or nested too deep to be checked")
            return
        # Other keywords beside a reference count too, since draft 2019-09.
        if "$ref" in schema:
            yield from self.check(self._target(schema["$ref"]), value, place, depth + 1)
        if fault := _kind_fault(schema, value):
            # Nothing below: faults of a value of the wrong type would only repeat that one.
            yield _SchemaFault(place, fault)
            return
        for of_kind in (_text_faults, _number_faults, _size_faults):
            yield from (_SchemaFault(place, reason) for reason in of_kind(schema, value))
        if isinstance(value, str) and not self._fits(schema.get("pattern"), value):
            yield _SchemaFault(place, f"must match {schema['pattern']}, which {_excerpt(value)} does not")
        if isinstance(value, Mapping):
            yield from self._members(schema, value, place, depth)
        elif isinstance(value, list):
            yield from self._items(schema, value, place, depth)
        yield from self._combined(schema, value, place, depth)

    def _fits(self, text: Json, value: str) -> bool:
        """Return whether a value matches. True for a pattern that one pass cannot match: its server checks it too."""
        if not isinstance(text, str):
            return True
        try:
            if text not in self._patterns:
                self._patterns[text] = _pattern(text)
            pattern = self._patterns[text]
            return pattern is None or pattern.search(value, self._work) is not None
        except OutOfSteps:
            return True

    def _target(self, reference: Json) -> Json:
        """Resolve a reference. One that leaves the schema is not followed, and allows everything."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        found: Json = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return True
            found = found[name]
        return found

    def _members(
        self, schema: Mapping[str, Json], value: Mapping[str, Json], place: str, depth: int
    ) -> Iterator[_SchemaFault]:
        properties = _mapping(schema.get("properties"))
        patterns = [(key, inner) for key, inner in _mapping(schema.get("patternProperties")).items()]
        others = schema.get("additionalProperties", True)
        for name in _listed(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield _SchemaFault(place, f"{name!r} is missing")
        for name, member in value.items():
            inside = f"{place}.{name}" if place else str(name)
            inner_schemas = [properties[name]] if name in properties else []
            inner_schemas += [inner for pattern, inner in patterns if self._fits(pattern, name)]
            if not inner_schemas and others is False:
                listed = f"known are {', '.join(properties)}" if properties else "none is taken"
                yield _SchemaFault(inside, f"is not an argument; {listed}" if not place else f"is not known; {listed}")
            for inner in inner_schemas or [others]:
                if inner is not False:
                    yield from self.check(inner, member, inside, depth + 1)

    def _items(self, schema: _Schema, value: Sequence[Json], place: str, depth: int) -> Iterator[_SchemaFault]:
        first = _listed(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for number, item in enumerate(value):
            yield from self.check(first[number] if number < len(first) else rest, item, f"{place}[{number}]", depth + 1)

    def _combined(self, schema: _Schema, value: Json, place: str, depth: int) -> Iterator[_SchemaFault]:
        for inner in _listed(schema.get("allOf")):
            yield from self.check(inner, value, place, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            forms = _listed(schema.get(keyword))
            # The first fault of each form is enough, and costs least: the check is a generator.
            found = [next(self.check(inner, value, place, depth + 1), None) for inner in forms]
            fitting = sum(fault is None for fault in found)
            if forms and not fitting:
                reasons = "; ".join(dict.fromkeys(str(fault) for fault in found[:MAX_FAULTS]))
                yield _SchemaFault(place, f"fits none of the {len(forms)} forms that are allowed ({reasons})")
            elif keyword == "oneOf" and fitting > 1:
                yield _SchemaFault(place, f"fits {fitting} of the forms that are allowed, and may fit only one")
        if "not" in schema and next(self.check(schema["not"], value, place, depth + 1), None) is None:
            yield _SchemaFault(place, f"must not be {_excerpt(value)}")


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _pattern(text: str) -> Pattern | None:
    """Compile a pattern. None if it cannot be matched in one pass (look-around, or another language's syntax)."""
    try:
        return Pattern(text)
    except InvalidInput:
        return None


def _kind_fault(schema: _Schema, value: Json) -> str | None:
    names = _named(schema.get("type"))
    if names and not any(_TYPES[name](value) for name in names):
        return f"must be {_article(names)}, not {_excerpt(value)}"
    choices = _listed(schema.get("enum"))
    if choices and not any(_equal(choice, value) for choice in choices):
        return f"must be one of {', '.join(map(_excerpt, choices))}, not {_excerpt(value)}"
    if "const" in schema and not _equal(schema["const"], value):
        return f"must be {_excerpt(schema['const'])}, not {_excerpt(value)}"
    return None


def _text_faults(schema: _Schema, value: Json) -> Iterator[str]:
    if not isinstance(value, str):
        return
    least, most = schema.get("minLength"), schema.get("maxLength")
    if _number(least) and len(value) < least:
        yield "must not be empty" if least == 1 else f"must have at least {least:,} characters, not {len(value):,}"
    if _number(most) and len(value) > most:
        yield f"must have at most {most:,} characters, not {len(value):,}"


def _number_faults(schema: _Schema, value: Json) -> Iterator[str]:
    if not _number(value):
        return
    for keyword, (holds, words) in _BOUNDS.items():
        bound = schema.get(keyword)
        if _number(bound) and not holds(value, bound):
            yield f"must be {words} {bound}, not {_excerpt(value)}"
    step = schema.get("multipleOf")
    if _whole(step) and step > 0 and value % step:
        yield f"must be a multiple of {step}, not {_excerpt(value)}"


def _size_faults(schema: _Schema, value: Json) -> Iterator[str]:
    for kind, least_key, most_key, what in (
        (list, "minItems", "maxItems", "items"),
        (Mapping, "minProperties", "maxProperties", "members"),
    ):
        if not isinstance(value, kind):
            continue
        least, most = schema.get(least_key), schema.get(most_key)
        if _number(least) and len(value) < least:
            yield f"must have at least {least} {what}, not {len(value)}"
        if _number(most) and len(value) > most:
            yield f"must have at most {most} {what}, not {len(value)}"
    if schema.get("uniqueItems") is True and isinstance(value, list):
        # As JSON texts: members may be objects, which have no hash.
        texts = [json.dumps(item, sort_keys=True) for item in value]
        if len(set(texts)) < len(texts):
            yield "must not hold the same item twice"
