"""The tool that looks into the session itself: what was folded, shortened or put away stays readable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.base import History, Outcome, Scope
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["Recall"]

FOUND_CHARS: Final = 20_000
"""Characters of one answer to a search, at most: as much as one look (`peek`), about 5,000 tokens."""


def _schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["peek", "grep"], "description": "Read lines, or search for some."},
            "entry": {
                "type": "integer",
                "minimum": 0,
                "description": "Number of the entry. peek needs it; grep without it searches all entries.",
            },
            "pattern": {"type": "string", "minLength": 1, "description": "For grep: a regular expression."},
            "start_line": {"type": "integer", "minimum": 1, "description": "For peek: the first line, 1 if not given."},
            "lines": {"type": "integer", "minimum": 1, "description": "For peek: how many lines, 50 if not given."},
            "call_id": {"type": "string", "description": "For peek: only this call or its result."},
        },
        "required": ["action"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class Recall:
    """Reads lines of an entry as it came in, or searches all entries, whether the model still sees them or not."""

    name: str = "recall"
    description: str = (
        "Looks into this conversation as it was, folded and shortened parts included. peek reads lines of one entry; "
        "grep finds lines in all entries and names entry and line."
    )
    parameters: Mapping[str, Json] = field(default_factory=_schema)

    async def run(self, arguments: Mapping[str, Json], scope: Scope) -> Outcome:
        """Look. Raises InvalidInput for an entry, line or call that there is not, and a pattern that is none."""
        if scope.history is None:
            raise InvalidInput("there is no conversation to look into here")
        if arguments["action"] == "grep":
            return Outcome(_found(scope.history, arguments))
        return Outcome(_read(scope.history, arguments))


def _read(history: History, arguments: Mapping[str, Json]) -> str:
    if "entry" not in arguments:
        raise InvalidInput("peek needs the number of an entry; grep finds it", place="entry")
    entry, call_id = arguments["entry"], arguments.get("call_id")
    text = history.peek(
        entry,
        start_line=arguments.get("start_line", 1),
        lines=arguments.get("lines", 50),
        call_id=call_id,
    )
    of = f", call {call_id}" if call_id else ""
    return f"[entry {entry}{of}, from line {arguments.get('start_line', 1)}]\n{text}"


def _found(history: History, arguments: Mapping[str, Json]) -> str:
    if "pattern" not in arguments:
        raise InvalidInput("grep needs a pattern", place="pattern")
    pattern, entry = arguments["pattern"], arguments.get("entry")
    where = "the conversation" if entry is None else f"entry {entry}"
    found = history.grep(pattern, seq=entry)
    if not found:
        return f"No line of {where} matches {pattern!r}."
    lines: list[str] = []
    chars = 0
    for seq, number, line in found:
        told = f"entry {seq}, line {number}: {line}"
        if chars + len(told) > FOUND_CHARS:
            lines.append(f"[{len(found) - len(lines):,} more lines match; narrow the pattern, or name an entry]")
            break
        lines.append(told)
        chars += len(told) + 1
    return "\n".join([f"{len(found):,} lines of {where} match {pattern!r}:", *lines])
