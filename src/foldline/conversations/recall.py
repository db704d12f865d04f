"""What a client may read and ask of its own conversation, as tools: recall, context, compact.

They answer from the log, which has everything that folds hide. Their results return to the window that they are about,
so each is bounded by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from foldline.agent.session_context import ranges_about
from foldline.agent.tools.base import CallScope, CompactionRequest, Tool, ToolOutcome
from foldline.agent.tools.session_tools import RecallTool, asked_compaction, compaction_parameters, told_compaction
from foldline.agent.tools.toolbox import Toolbox
from foldline.catalog.models import lookup
from foldline.codecs import codec
from foldline.codecs.base import Codec
from foldline.conversations.conversation import Conversation, summariser_for
from foldline.conversations.conversation_cache import CachedConversation
from foldline.conversations.incoming_request import IncomingRequest
from foldline.display import Room
from foldline.engine.arguments import checked_ranges
from foldline.engine.context import Context
from foldline.engine.excerpts import entry_excerpt, grep
from foldline.errors import InvalidInput, SummaryError
from foldline.messages import Json, ToolCall
from foldline.store.recording import Recording
from foldline.text.formatting import money
from foldline.text.safe_regex import Work
from foldline.view.budget import cache_seconds
from foldline.view.transcript import Entry, Event, Fold, Seq

__all__ = [
    "TOOLS",
    "ReadableConversation",
    "RecordedHistory",
    "call_tool",
    "compact_conversation",
    "context_report",
    "looks_back",
    "readable_conversation",
    "stored_conversation",
]

# Characters of a token, for bounds: a text of this many for each token takes no more than that.
_CHARS: Final = 3
_MAX_FOLDS: Final = 20
"""Folds in a report, the newest."""
_MAX_NUMBERS: Final = 20
_MODEL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """The messages of a conversation as they were recorded, by number: those that folds hide too."""

    codec: Codec
    entries: Mapping[Seq, Entry]

    @classmethod
    def of(cls, dialect: str, events: Iterable[Event]) -> RecordedHistory:
        """The history in a log. O(log)."""
        return cls(codec(dialect), {event.seq: event for event in events if isinstance(event, Entry)})

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Return lines of an entry: see `excerpts.excerpt`. Raises InvalidInput."""
        part = {"start_line": start_line, "start_char": start_char, "lines": lines}
        return entry_excerpt(self.codec, self.entries, seq, call_id=call_id, **part)

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """Return (seq, line number, line) of each match: see `excerpts.grep`. Raises InvalidInput."""
        return grep(self.codec, self.entries, pattern, seq=seq, work=work)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableConversation:
    """One conversation for its tools: its messages, its report, and its room.

    `ask_compaction` has the next request fold it; None where no request can follow (a stored conversation).
    """

    history: RecordedHistory
    report: str
    room: Room
    ask_compaction: Callable[[CompactionRequest], None] | None = None


async def call_tool(conversation: ReadableConversation, name: str, arguments: str) -> ToolOutcome:
    """Run a tool of `TOOLS` with its arguments as JSON. Raises CancelledError and nothing else."""
    room = conversation.room
    history = conversation.history
    compact = AskCompaction(conversation.ask_compaction, max(history.entries, default=-1) + 1)
    tools = Toolbox([RecallFolded(), ShowContext(conversation.report), compact])
    scope = CallScope(room=lambda: room, history=history)
    outcome = await tools.run(ToolCall("", name, arguments), scope)
    return ToolOutcome(_within(outcome.text, _CHARS * room.budget_tokens), is_error=outcome.is_error)


def _within(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    cut = text[:most_chars]
    kept = cut[: cut.rfind("\n")] if "\n" in cut else cut
    return f"{kept}\n[{len(text) - len(kept):,} more characters: there is no room for them; ask for less]"


# --- the tools --------------------------------------------------------------------------------------------------------


def _recall_parameters() -> dict[str, Json]:
    found: dict[str, Any] = dict(RecallTool().parameters)
    kept = {name: schema for name, schema in found["properties"].items() if name != "saved"}  # a client saves nothing
    return {**found, "properties": kept}


@dataclass(frozen=True, slots=True)
class RecallFolded:
    """Reads lines of a message, or searches all messages, those that the model no longer sees too."""

    name: str = "recall"
    description: str = (
        "Reads back what this conversation has left out. Long conversations are folded: old messages and tool results "
        "are shortened, summarised or removed, and stay readable here as they were. grep finds lines in all messages "
        "and names message (entry) and line; peek reads lines of one entry. Use it before asking the user again or "
        "repeating work."
    )
    parameters: Mapping[str, Json] = field(default_factory=_recall_parameters)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Read or search. Raises InvalidInput for an unknown entry, line or call, and for an invalid pattern."""
        return await RecallTool().run(arguments, scope)


def _nothing() -> dict[str, Json]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ShowContext:
    """Says what is in the window, what is folded, and what the next request costs."""

    report: str = ""
    name: str = "context"
    description: str = (
        "Says how full the context window of this conversation is, which messages are folded and how, and what the "
        "next request costs."
    )
    parameters: Mapping[str, Json] = field(default_factory=_nothing)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Return the report."""
        del arguments, scope
        return ToolOutcome(self.report)


@dataclass(frozen=True, slots=True)
class AskCompaction:
    """Has the next request fold the conversation, entries of it, or what is about a topic; `stop`: after its last."""

    ask: Callable[[CompactionRequest], None] | None = None
    stop: Seq = 0
    name: str = "compact"
    description: str = (
        "Sums up this conversation before the next request, so that there is room to go on. Decisions, facts, open "
        "tasks and paths are kept, and everything stays readable with recall. With first and last, or a topic, only "
        "that part is summed up. Only needed ahead of time: what no longer fits is folded by itself."
    )
    parameters: Mapping[str, Json] = field(default_factory=compaction_parameters)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Note the request. Raises InvalidInput for entries that are not there, and where no request can follow."""
        if self.ask is None:
            raise InvalidInput("only a conversation that a running proxy serves can be compacted")
        # Not here: the call that asks has no result yet, and a summary is written with the key of the client, which a
        # request brings.
        asked = asked_compaction(arguments)
        if asked.ranges:
            checked_ranges(asked.ranges, self.stop)
        self.ask(asked)
        return ToolOutcome(told_compaction(asked, scope.room(), "with the next request"))


TOOLS: Final[tuple[Tool, ...]] = (RecallFolded(), ShowContext(), AskCompaction())
"""The tools, for their names, descriptions and parameters."""


# A client puts the name of the server before that of a tool: mcp__foldline__recall, foldline_recall, foldline/recall.
_RECALL: Final = re.compile(r"(?:^|[^A-Za-z0-9])recall$")


def looks_back(cached: CachedConversation) -> int:
    """How likely a call of these tools is about a conversation, by the tools of its latest request: 2, 1 or 0."""
    return any(_RECALL.search(name) for name in cached.tool_names) + bool(cached.tool_names)


def readable_conversation(cached: CachedConversation, events: Sequence[Event]) -> ReadableConversation:
    """A conversation in memory for its tools; `events` are its whole log, () for a store that does not answer. O(log).

    The caller holds its lock.
    """
    conversation, context = cached.conversation, cached.conversation.context
    notes = [] if events else ["Its older messages cannot be read: the store does not answer."]
    if cached.compaction is not None:
        notes.append("A compaction is made with the next request.")
    elif cached.compaction_fault:
        notes.append(f"The last compaction changed nothing: {cached.compaction_fault}")
    return ReadableConversation(
        history=RecordedHistory.of(conversation.dialect, events or context.events),
        report=context_report(context, conversation.count, conversation.given_tokens, notes),
        room=Room(context.limits.window_tokens, context.view.tokens),
        ask_compaction=partial(setattr, cached, "compaction"),
    )


def stored_conversation(recording: Recording) -> ReadableConversation:
    """A stored conversation for its tools. O(log). Raises InvalidInput for a log that contradicts itself."""
    context = recording.replay()
    history = RecordedHistory.of(recording.header.dialect, recording.events)
    given_tokens = context.view.base_tokens + sum(entry.tokens for entry in history.entries.values())
    return ReadableConversation(
        history=history,
        report=context_report(
            context, len(history.entries), given_tokens, ["It is stored: system text and tools are not."]
        ),
        room=Room(context.limits.window_tokens, context.view.tokens),
    )


# --- the report -------------------------------------------------------------------------------------------------------


def context_report(context: Context, held: int, given_tokens: int, notes: Sequence[str] = ()) -> str:
    """What is shown, folded and paid in a conversation whose client holds so many messages, in lines. O(tiles)."""
    view, window = context.view, context.limits.window_tokens
    tokens, fixed = view.tokens, view.base_tokens
    parts = f"system text and tools {fixed:,}, messages {max(0, tokens - fixed):,}"
    lines = [
        f"Window: {window:,} tokens. The next request has about {tokens:,} ({tokens / max(1, window):.0%}): {parts}.",
        f"Messages: {view.message_count:,} are sent. The client holds about {given_tokens:,} tokens in {held:,}.",
        *_folds(context),
        *_price(context, tokens),
        *notes,
    ]
    return "\n".join(lines)


def _folds(context: Context) -> Iterator[str]:
    folds = [tile.fold for tile in context.view.tiles if tile.fold is not None]
    forms: dict[str, list[Fold]] = {}
    for tile in context.view.tiles:
        for fold in tile.forms.values():
            forms.setdefault(fold.reducer, []).append(fold)
    if not folds and not forms:
        yield "Nothing is folded."
        return
    yield "Folded (recall reads each entry as it was):"
    if len(folds) > _MAX_FOLDS:
        yield f"- {len(folds) - _MAX_FOLDS:,} older folds"
    for fold in folds[-_MAX_FOLDS:]:
        span = f"entries {fold.start}-{fold.stop - 1}" if fold.stop - fold.start > 1 else f"entry {fold.start}"
        yield f"- {span}: {fold.reducer}, {fold.before_tokens:,} tokens shown in {fold.tokens:,}"
    for reducer, listed in sorted(forms.items()):
        numbers = [str(fold.start) for fold in listed]
        more = f" and {len(numbers) - _MAX_NUMBERS:,} more" if len(numbers) > _MAX_NUMBERS else ""
        before, after = sum(fold.before_tokens for fold in listed), sum(fold.tokens for fold in listed)
        yield (
            f"- in entries {', '.join(islice(numbers, _MAX_NUMBERS))}{more}: {reducer}, {before:,} tokens shown in "
            f"{after:,}"
        )


def _price(context: Context, tokens: int) -> Iterator[str]:
    model = lookup((context.model or "")[:_MODEL_CHARS])
    whole, cached = model.usd(tokens), model.usd(tokens, tokens)
    if whole is not None and cached is not None:
        yield f"Price of its input: {money(whole)}, or {money(cached)} where all of it is in the cache ({model.name})."


# --- compaction -------------------------------------------------------------------------------------------------------


def compact_conversation(conversation: Conversation, request: IncomingRequest, asked: CompactionRequest) -> str:
    """Fold a conversation as its client has asked. Returns why that failed, or "". It then stays as it was."""
    body, context, writer = request.body, conversation.context, request.summarize
    context.switch_model(body.model or None, request.limits, cache_seconds=cache_seconds(body.text))
    if request.scope and not conversation.scope_varies:
        reads = partial(setattr, conversation, "summary_scope", request.scope)
        writer = summariser_for(writer, body, conversation.positions, reads)
    try:
        if asked.ranges or asked.topic:
            ranges = asked.ranges or ranges_about(context, asked.topic)
            context.fold(*ranges, instructions=asked.instructions, summarize=writer)
        else:
            context.compact(asked.instructions, summarize=writer, idle_seconds=conversation.idle.seconds)
    except (SummaryError, InvalidInput) as error:
        return str(error)
    return ""
