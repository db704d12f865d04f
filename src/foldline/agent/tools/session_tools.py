"""The tools for the session itself: recall reads it, compact_context folds it, spawn_agent starts another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.events import TurnEnded
from foldline.agent.tools.base import CallScope, CompactionRequest, History, OutputStore, ToolOutcome
from foldline.agent.workers import run_in_thread
from foldline.display import Room
from foldline.engine.excerpts import excerpt, search_text
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.safe_regex import Work

__all__ = [
    "CompactContext",
    "RecallTool",
    "SpawnAgent",
    "asked_compaction",
    "compaction_parameters",
    "told_compaction",
]

# Characters of a search result: as much as one `peek`, about 5,000 tokens.
GREP_CHARS: Final = 20_000


def _recall_schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["peek", "grep"], "description": "Read lines, or search for some."},
            "entry": {
                "type": "integer",
                "minimum": 0,
                "description": "Number of the entry. peek needs it, or saved; grep without both searches all entries.",
            },
            "saved": {
                "type": "string",
                "description": "A saved output instead of an entry, by the SHA-256 that its notice names.",
            },
            "pattern": {"type": "string", "minLength": 1, "description": "For grep: a regular expression."},
            "start_line": {"type": "integer", "minimum": 1, "description": "For peek: the first line, 1 if not given."},
            "start_char": {
                "type": "integer",
                "minimum": 1,
                "description": "For peek: where to begin in the first line, to go on in a long one.",
            },
            "lines": {"type": "integer", "minimum": 1, "description": "For peek: how many lines, 50 if not given."},
            "call_id": {"type": "string", "description": "For peek: only this call or its result."},
        },
        # Which fields an action needs is checked when it runs: providers refuse alternatives at the top of a schema.
        "required": ["action"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class RecallTool:
    """Reads lines of an entry, or searches all entries, including those that the model no longer sees."""

    name: str = "recall"
    description: str = (
        "Looks into this conversation as it was, folded and shortened parts included, and into outputs that a notice "
        "says were saved. peek reads lines of one entry; grep finds lines in all entries and names entry and line."
    )
    parameters: Mapping[str, Json] = field(default_factory=_recall_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Read or search. Raises InvalidInput for an unknown entry, line or call, and for an invalid pattern."""
        if scope.history is None:
            raise InvalidInput("there is no conversation to look into here")
        if "saved" in arguments and "entry" in arguments:
            raise InvalidInput("names an output, entry a part of the conversation: give one of them", place="saved")
        # In a thread: the entries may have left memory, and are then read from disk.
        history = scope.history
        if arguments["action"] == "grep":
            return ToolOutcome(await run_in_thread(lambda stop: _grep(history, arguments, Work(check=stop.check))))
        return ToolOutcome(await run_in_thread(lambda _: _peek(history, arguments)))


def _peek(history: History, arguments: Mapping[str, Json]) -> str:
    # Only what the call has: the defaults are those of `peek`, and are described to the model once.
    part = {name: arguments[name] for name in ("start_line", "start_char", "lines") if name in arguments}
    line, char = part.get("start_line", 1), part.get("start_char", 1)
    at = f"line {line}" if char == 1 else f"line {line}, character {char}"
    if "saved" in arguments:
        return f"[the saved output, from {at}]\n{excerpt(_saved(history, arguments), 'the saved output', **part)}"
    if "entry" not in arguments:
        raise InvalidInput("peek needs the number of an entry; grep finds it", place="entry")
    entry, call_id = arguments["entry"], arguments.get("call_id")
    of = f", call {call_id}" if call_id else ""
    return f"[entry {entry}{of}, from {at}]\n{history.peek(entry, call_id=call_id, **part)}"


def _saved(history: History, arguments: Mapping[str, Json]) -> str:
    if not isinstance(history, OutputStore):
        raise InvalidInput("nothing is saved here", place="saved")
    return history.saved(arguments["saved"])


def _grep(history: History, arguments: Mapping[str, Json], work: Work) -> str:
    if "pattern" not in arguments:
        raise InvalidInput("grep needs a pattern", place="pattern")
    pattern, entry = arguments["pattern"], arguments.get("entry")
    found: Sequence[tuple[str, int, str]]
    if "saved" in arguments:
        where, text = "the saved output", _saved(history, arguments)
        found = [("", number, line) for number, line in search_text(text, pattern, work)]
    else:
        where = "the conversation" if entry is None else f"entry {entry}"
        found = [(f"entry {seq}, ", number, line) for seq, number, line in history.grep(pattern, seq=entry, work=work)]
    if not found:
        return f"No line of {where} matches {pattern!r}."
    lines: list[str] = []
    chars = 0
    for of, number, line in found:
        shown = f"{of}line {number}: {line}"
        # The number of matches is exact even where not all are shown: it tells whether to narrow the pattern.
        if chars + len(shown) > GREP_CHARS:
            lines.append(f"[{len(found) - len(lines):,} more lines match; narrow the pattern, or name an entry]")
            break
        lines.append(shown)
        chars += len(shown) + 1
    return "\n".join([f"{len(found):,} lines of {where} match {pattern!r}:", *lines])


def compaction_parameters() -> dict[str, Json]:
    """The parameters of a tool that compacts: the whole conversation, a stretch of it, or what is about a topic."""
    description = "What the summary must keep, in a sentence or two."
    entry = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "properties": {
            "instructions": {"type": "string", "description": description},
            "first": {**entry, "description": "To fold a stretch alone: its first entry, by the numbers of recall."},
            "last": {**entry, "description": "The last entry of that stretch."},
            "topic": {"type": "string", "description": "To fold what mentions these words alone; without first, last."},
        },
        "additionalProperties": False,
    }


def asked_compaction(arguments: Mapping[str, Json]) -> CompactionRequest:
    """What a call with these arguments asks for. Raises InvalidInput where they contradict each other."""
    instructions = str(arguments.get("instructions") or "").strip() or None
    first, last, topic = arguments.get("first"), arguments.get("last"), str(arguments.get("topic") or "").strip()
    if (first is None) != (last is None) or (first is not None and topic):
        raise InvalidInput("give first and last together, or a topic, or none of them")
    if not isinstance(first, int) or not isinstance(last, int):
        return CompactionRequest(instructions, (), topic)
    if first > last:
        raise InvalidInput(f"first ({first}) is after last ({last})")
    return CompactionRequest(instructions, ((first, last + 1),))


def told_compaction(asked: CompactionRequest, room: Room, when: str) -> str:
    """A sentence for the model that has asked: what is compacted, and `when`."""
    what = f"What mentions {asked.topic[:80]!r}" if asked.topic else "The conversation"
    if asked.ranges:
        (start, stop), *_ = asked.ranges
        what = f"Entries {start} to {stop - 1}"
    in_all = " in all" if asked.ranges or asked.topic else ""
    return f"{what} ({room.used_tokens:,} of {room.window_tokens:,} tokens{in_all}) will be compacted {when}."


@dataclass(frozen=True, slots=True)
class CompactContext:
    """Requests a compaction, by the typed field of the outcome: no text of a result is ever taken for a request."""

    name: str = "compact_context"
    description: str = (
        "Sums up this conversation so that there is room to go on. Decisions, facts, open tasks and paths are kept, "
        "and everything stays readable with recall. Happens once the results of this turn are recorded. With first and "
        "last, or a topic, only that part is summed up."
    )
    parameters: Mapping[str, Json] = field(default_factory=compaction_parameters)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Return the request; the loop compacts after this turn's results are recorded."""
        # Not here: the calls of this reply have no results yet, and a fold must not part a call from its result.
        asked = asked_compaction(arguments)
        return ToolOutcome(told_compaction(asked, scope.room(), "after this turn's results"), compact=asked)


def _spawn_schema() -> dict[str, Json]:
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
    parameters: Mapping[str, Json] = field(default_factory=_spawn_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Run the agent; its answer is the result. Raises InvalidInput when there have been too many."""
        del scope
        task = arguments["task"]
        if not task.strip():
            raise InvalidInput("says nothing", place="task")
        if (started := self.started()) >= self.max_number:
            raise InvalidInput(f"{started} agents were started in this session; no more are allowed")
        # The number is for people, who tell agents apart by it in notices.
        ended = await self.begin(task, started + 1)
        if ended.reason == "done" and ended.text.strip():
            return ToolOutcome(ended.text)
        # With what it had so far: half a result may save the next attempt.
        why = ended.message or "It ended without an answer."
        return ToolOutcome(f"{why}\n{ended.text}".strip(), is_error=True)
