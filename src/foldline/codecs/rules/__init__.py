"""Whether a provider would take a request: the rules of `rulebook` applied to JSON as it is, nothing repaired.

One module holds the checks of one dialect. They work on whatever they are given: junk is reported, never raised.
O(size of the request).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from foldline.codecs.base import Violation
from foldline.codecs.encoding import sendable
from foldline.codecs.rulebook import RULES, Findings, Rule
from foldline.codecs.rules.anthropic import check_messages, check_outside
from foldline.codecs.rules.chat import check_chat
from foldline.codecs.rules.responses import check_responses
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire

__all__ = ["RULES", "Rule", "violations"]


def violations(wires: Sequence[Wire], dialect: str, *, system: Json = None, tools: Json = None) -> list[Violation]:
    """Why a provider of the dialect would refuse the request; [] means that it would take it.

    `system` and `tools` are what is sent beside the messages. Raises InvalidInput for an unknown dialect only.
    """
    check = _CHECKS.get(dialect)
    if check is None:
        raise InvalidInput(f"unknown dialect {dialect!r}; known are {', '.join(_CHECKS)}", place="dialect")
    found = Findings(dialect)
    if not isinstance(wires, list | tuple) or not wires:
        found.add(None, "empty-request")
    else:
        for index, wire in enumerate(wires):
            if not sendable(wire):
                found.add(index, "encoding")
        check(found, wires)
    for name, value in (("system text", system), ("tools", tools)):
        if not sendable(value):
            found.add(None, "encoding", f"the {name} cannot be sent as UTF-8 JSON")
    if dialect == "anthropic":
        check_outside(found, system, tools)
    return found.found


_CHECKS: Final[dict[str, Callable[[Findings, Sequence[Wire]], None]]] = {
    "openai-chat": check_chat,
    "openai-responses": check_responses,
    "anthropic": check_messages,
}
