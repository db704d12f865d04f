"""A sub-agent: a window of its own for one task, of which only the result comes back (S4.12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from foldline.agent.events import TurnEnded
from foldline.agent.tools.base import Outcome, Scope
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["SpawnAgent"]


def _schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "task": {
                "type": "string",
                "description": "All that the agent must know: it sees nothing of this conversation.",
            }
        },
        "required": ["task"],
        "additionalProperties": False,
    }


@dataclass(slots=True)
class SpawnAgent:
    """Starts agents with windows of their own; `begin(task, number)` runs one to its end.

    At most `max_number` in one session, as `started` counts them: a model that starts an agent for everything would
    never end.
    """

    begin: Callable[[str, int], Awaitable[TurnEnded]]
    started: Callable[[], int]
    max_number: int
    name: str = "spawn_agent"
    description: str = (
        "Gives a task to another agent with a context window of its own and the same tools, and returns its result "
        "only. Good for a file or a search that is too large for this window."
    )
    parameters: Mapping[str, Json] = field(default_factory=_schema)

    async def run(self, arguments: Mapping[str, Json], scope: Scope) -> Outcome:
        """Run the agent; its answer is the result. Raises InvalidInput when there have been too many."""
        del scope
        task = arguments["task"]
        if not task.strip():
            raise InvalidInput("says nothing", place="task")
        if (started := self.started()) >= self.max_number:
            raise InvalidInput(f"{started} agents were started in this session; no more are allowed")
        ended = await self.begin(task, started + 1)
        if ended.reason == "done" and ended.text.strip():
            return Outcome(ended.text)
        why = ended.message or "It ended without an answer."
        return Outcome(f"{why}\n{ended.text}".strip(), is_error=True)
