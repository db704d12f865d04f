"""The tool with which an agent has its own conversation compacted (S4.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foldline.agent.tools.base import Compact, Outcome, Scope
from foldline.messages import Json

__all__ = ["CompactContext"]


def _schema() -> dict[str, Json]:
    told = "What the summary must keep, in a sentence or two."
    return {
        "type": "object",
        "properties": {"instructions": {"type": "string", "description": told}},
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class CompactContext:
    """Wishes for a compaction. The wish is the typed field of the outcome; no words in any result are one."""

    name: str = "compact_context"
    description: str = (
        "Sums up this conversation so that there is room to go on. Decisions, facts, open tasks and paths are kept, "
        "and everything stays readable with recall. Happens once the results of this turn are recorded."
    )
    parameters: Mapping[str, Json] = field(default_factory=_schema)

    async def run(self, arguments: Mapping[str, Json], scope: Scope) -> Outcome:
        """Answer with the wish; the loop carries it out after this turn's results."""
        room = scope.room()
        instructions = str(arguments.get("instructions") or "").strip() or None
        return Outcome(
            f"The conversation ({room.used_tokens:,} of {room.window_tokens:,} tokens) will be compacted after this "
            "turn's results.",
            compact=Compact(instructions),
        )
