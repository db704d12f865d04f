"""The dialects as a table: what the rest of the package looks up by the name of a dialect.

To add a dialect, write its folder here (codec, rules, row), add the row to `ROWS`, and give it a module of the same
name in `foldline.providers` and `foldline.testing.forms`, which find theirs by that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from foldline.codecs import anthropic, gemini, openai_chat, openai_responses
from foldline.codecs.base import BodyForm, Codec, Dialect
from foldline.codecs.encoding import sendable
from foldline.codecs.limits import Caps
from foldline.codecs.openai_chat.roles import role_faults
from foldline.codecs.openai_responses.outputs import OUTPUT
from foldline.codecs.rulebook import Findings, Violation, check_amounts, check_tools
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire

__all__ = ["DIALECTS", "ROWS", "caps_of", "codec", "dialect_named", "form_of", "violations"]

ROWS: Final[Mapping[str, Dialect]] = {
    row.name: row for row in (openai_chat.ROW, openai_responses.ROW, anthropic.ROW, gemini.ROW)
}
"""The rows by name."""

DIALECTS: Final = tuple(ROWS)


def dialect_named(name: str) -> Dialect:
    """Return the row of a dialect. Raises InvalidInput, which lists the known names, for any other name."""
    found = ROWS.get(name)
    if found is None:
        raise InvalidInput(f"unknown dialect {name!r}; known are {', '.join(DIALECTS)}", place="dialect")
    return found


def codec(dialect: str) -> Codec:
    """Return the codec of a dialect. Raises InvalidInput, which lists the known names, for any other name."""
    return dialect_named(dialect).codec


def caps_of(dialect: str, window_tokens: int | None = None) -> Caps:
    """Return the limits of a dialect for a model with this window; the smaller ones if the window is unknown."""
    return dialect_named(dialect).limits.caps_for(window_tokens)


def form_of(body: Mapping[str, Json]) -> BodyForm | None:
    """Return the form of a request whose list of messages has a name of its own (Responses, Gemini), or None."""
    if "messages" in body:
        return None
    forms = (row.body for row in ROWS.values() if row.body.messages != "messages")
    return next((form.spelled(body) for form in forms if form.messages in body), None)


def violations(
    wires: Sequence[Wire],
    dialect: str,
    *,
    system: Json = None,
    tools: Json = None,
    caps: Caps | None = None,
    alternating: bool = False,
) -> list[Violation]:
    """Return why a provider of the dialect would refuse the request; [] if it would accept it. O(size).

    The JSON is checked as it is; nothing is repaired. `system` and `tools` accompany the messages. `caps` replaces the
    smallest limits of the dialect. `alternating` is for a server whose template requires alternating roles. Raises
    InvalidInput only for an unknown dialect.
    """
    row = dialect_named(dialect)
    found = Findings(row.rules, row.limits)
    if not isinstance(wires, list | tuple) or not wires:
        found.add(None, "empty-request")
    else:
        # Each message by itself: one that cannot be encoded is named, instead of the whole request.
        for index, wire in enumerate(wires):
            if not sendable(wire):
                found.add(index, "encoding")
        row.check(found, wires)
        check_amounts(found, caps or row.limits.caps, map(_content, wires))
        if alternating and row.alternates:
            for index, fault in role_faults(wires):
                found.add(index, "alternation", fault)
    for name, value in (("system text", system), ("tools", tools)):
        if not sendable(value):
            found.add(None, "encoding", f"the {name} cannot be sent as UTF-8 JSON")
    check_tools(found, tools)
    if row.check_outside is not None:
        row.check_outside(found, system, tools, wires if isinstance(wires, list | tuple) else ())
    return found.found


def _content(wire: Json) -> Json:
    """Return the content of a message, or the output of an output item."""
    if not isinstance(wire, Mapping):
        return None
    output = wire.get(OUTPUT)
    if isinstance(output, Mapping):  # a computer call answers with one picture, not with a list
        return [output]
    return output if output is not None else wire.get("content", wire.get("parts"))
