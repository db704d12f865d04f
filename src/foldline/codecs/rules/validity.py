"""Whether a provider would take a request: the rules of `rulebook` applied to JSON as it is, nothing repaired.

One module holds the checks of one dialect. They work on whatever they are given: junk is reported, never raised.
O(size of the request).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldline.codecs.base import Violation
from foldline.codecs.dialect import dialect_named
from foldline.codecs.encoding import sendable
from foldline.codecs.limits.caps import Caps
from foldline.codecs.outputs import OUTPUT
from foldline.codecs.roles import roles_out_of_turn
from foldline.codecs.rules.rulebook import RULES, Findings, Rule
from foldline.codecs.rules.shared import check_amounts, check_tools
from foldline.messages import Json, Wire

__all__ = ["RULES", "Rule", "violations"]


def violations(
    wires: Sequence[Wire],
    dialect: str,
    *,
    system: Json = None,
    tools: Json = None,
    caps: Caps | None = None,
    alternating: bool = False,
) -> list[Violation]:
    """Why a provider of the dialect would refuse the request; [] means that it would take it.

    `system` and `tools` are what is sent beside the messages; `caps` what a request may hold, where that differs from
    the least that the dialect takes; `alternating` is for a server whose template wants the roles to alternate. Raises
    InvalidInput for an unknown dialect only.
    """
    row = dialect_named(dialect)
    found = Findings(dialect, row.limits)
    if not isinstance(wires, list | tuple) or not wires:
        found.add(None, "empty-request")
    else:
        for index, wire in enumerate(wires):
            if not sendable(wire):
                found.add(index, "encoding")
        row.check(found, wires)
        check_amounts(found, caps or row.limits.caps, map(_content, wires))
        if alternating and row.alternates:
            for index, fault in roles_out_of_turn(wires):
                found.add(index, "alternation", fault)
    for name, value in (("system text", system), ("tools", tools)):
        if not sendable(value):
            found.add(None, "encoding", f"the {name} cannot be sent as UTF-8 JSON")
    check_tools(found, tools)
    if row.check_outside is not None:
        row.check_outside(found, system, tools, wires if isinstance(wires, list | tuple) else ())
    return found.found


def _content(wire: Json) -> Json:
    """What a message, or an output item, holds."""
    if not isinstance(wire, Mapping):
        return None
    output = wire.get(OUTPUT)
    if isinstance(output, Mapping):
        return [output]
    return output if output is not None else wire.get("content", wire.get("parts"))
