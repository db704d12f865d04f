"""Sessions, turns, folds and messages as the JSON objects of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, cast

from foldline.agent.events import TurnEnded
from foldline.catalog.models import lookup
from foldline.codecs.base import Codec
from foldline.display.resuming import resume_price
from foldline.doors.http.schemas import (
    BranchesJson,
    CompactedJson,
    ContextJson,
    EntryJson,
    EntryState,
    FiguresJson,
    FoldJson,
    Pressure,
    ResumeJson,
    SessionFields,
    SessionJson,
    SessionRowJson,
    StretchJson,
    TurnJson,
    TurnRowJson,
    WholeEntryJson,
)
from foldline.engine.context import Context
from foldline.engine.window_usage import WindowUsage
from foldline.hosting.session_actor import CompactionResult, SessionActor, SessionState
from foldline.hosting.session_text import message_text, parts_of, rows_of
from foldline.hosting.turns import TurnRecord
from foldline.messages import ToolCall, ToolResult
from foldline.store.clock import seconds_since
from foldline.store.recording import snapshot_of
from foldline.store.records import Record, event_of
from foldline.store.snapshot import ListedSession, Snapshot
from foldline.view.tool_sizes import tool_sizes
from foldline.view.transcript import Entry, Fold, Unfold, Usage, active
from foldline.view.view import View

__all__ = [
    "CUT_CHARS",
    "Visibility",
    "branches",
    "context",
    "entry",
    "figures",
    "fold",
    "folds_of",
    "session",
    "session_row",
    "turn",
    "turn_row",
    "visibility",
]

CUT_CHARS: Final = 4_000
"""The bound on all texts of one message, in a page of the history."""

Visibility: TypeAlias = tuple[EntryState, int | None]
"""The state of a message in the view of the model, and the fold that caused it."""


# --- sessions ---------------------------------------------------------------------------------------------------------


def figures(value: WindowUsage) -> FiguresJson:
    """The fill of the window."""
    return {
        "max_context_tokens": value.max_context_tokens,
        "current_context_tokens": value.current_context_tokens,
        "last_prompt_tokens": value.last_prompt_tokens,
        "last_completion_tokens": value.last_completion_tokens,
        "total_prompt_tokens": value.total_prompt_tokens,
        "total_completion_tokens": value.total_completion_tokens,
        "ask_at_tokens": value.ask_at_tokens,
        "used_tokens": value.used_tokens,
        "utilization": value.utilization,
    }


def session_row(listed: ListedSession, actor: SessionActor | None) -> SessionRowJson:
    """A session in a list. The figures of an unreadable one are 0, and `damage` says why."""
    if listed.snapshot is not None:
        return cast(SessionRowJson, _session_fields(listed.snapshot, actor))  # `damage` may be absent
    # The same shape as for a readable session: a client that ignores `damage` still shows a list.
    texts = dict.fromkeys(("created", "updated", "dialect", "policy", "title"), "")
    counts = dict.fromkeys(("turns", "messages", "folds", "tokens", "window_tokens", "log_bytes"), 0)
    unread = Snapshot(id=listed.id, model=None, parent=None, **texts, **counts)  # type: ignore[arg-type]
    return {**_session_fields(unread, actor), "damage": listed.damage}


def _session_fields(found: Snapshot, actor: SessionActor | None) -> SessionFields:
    return {
        "id": found.id,
        "title": found.title,
        "created": found.created,
        "updated": found.updated,
        "dialect": found.dialect,
        "policy": found.policy,
        "model": found.model,
        "parent": found.parent,
        "turns": found.turns,
        "messages": found.messages,
        "folds": found.folds,
        "tokens": found.tokens,
        "window_tokens": found.window_tokens,
        "queued": 0 if actor is None else actor.queued,
        "state": "running" if actor is not None and actor.running else "idle",
    }


def session(look: SessionState, actor: SessionActor) -> SessionJson:
    """One session: its row, its figures, all it has used, and whether its window is due to be folded."""
    now, spent = look.context, [event for event in look.context.events if isinstance(event, Usage)]
    return {
        # The size of the log is not part of the answer, so it need not be looked up.
        **_session_fields(snapshot_of(look.header, look.tally, now, 0), actor),
        "figures": figures(now.figures),
        "usage": {
            "prompt_tokens": sum(usage.input_tokens for usage in spent),
            "completion_tokens": sum(usage.output_tokens for usage in spent),
        },
        "pressure": _pressure(look),
        "limit_tokens": now.limits.input_tokens,
        "resume": _resume(look),
    }


def _resume(look: SessionState) -> ResumeJson | None:
    model = lookup(look.context.model or "")
    price = resume_price(model, look.context.view.tokens)
    if price is None:
        return None
    return {
        "tokens": price.tokens,
        "cold_usd": price.cold_usd,
        "warm_usd": price.warm_usd,
        "cold": model.cache.expired(seconds_since(look.tally.updated)),
    }


def _pressure(look: SessionState) -> Pressure:
    now = look.context
    # Over the limit of a request, the next one folds in any case; over the trigger, the policy wants to.
    if now.view.tokens > now.limits.input_tokens:
        return "hard"
    return "soft" if now.policy.trigger.due(now.view, now.view.tokens, now.limits) else "none"


def context(look: SessionState) -> ContextJson:
    """The next request: the messages as they are sent, and the size of each part. O(shown)."""
    now = look.context
    rows = tuple(rows_of(now))
    parts = parts_of(rows, look.system, look.tools)
    return {
        "dialect": now.dialect,
        "model": look.header.model,
        "messages": [now.view.codec.write(one.message) for one in rows],
        "system": look.system,
        "tools": look.tools,
        "rows": [
            {
                "start": one.start,
                "stop": one.stop,
                "role": one.message.role,
                "kind": one.message.kind,
                "tokens": one.tokens,
                "fold": one.fold,
                "state": cast(EntryState, one.state),
                "text": message_text(one.message),
            }
            for one in rows
        ],
        "parts": {
            "system": parts["system"],
            "tools": parts["tools"],
            "folded": parts["folded"],
            "messages": parts["messages"],
        },
        "rules": [
            {"source": rule.source, "seq": rule.seq, "tokens": rule.tokens, "text": rule.text} for rule in now.rules
        ],
        "tool_sizes": [
            {"name": size.name, "server": size.server, "tokens": size.tokens}
            for size in tool_sizes(look.tools, now.view.counter)
        ],
        "tokens": now.view.tokens,
        "window_tokens": now.limits.window_tokens,
        "max_output_tokens": now.limits.max_output_tokens,
        "pressure": _pressure(look),
    }


def branches(whole: Context, records: Iterable[Record]) -> BranchesJson:
    """The branches that were left, and what is sent now. `records` are those of branches in the log. O(log)."""
    left_at = [(one["start"], one["stop"], str(one.get("at", ""))) for one in records]
    current: list[StretchJson] = []
    for entry in active(whole.events):
        if current and current[-1]["stop"] == entry.seq:
            current[-1]["stop"] += 1
        else:
            current.append({"start": entry.seq, "stop": entry.seq + 1})
    return {
        "branches": [
            {
                "start": one.start,
                "stop": one.tip + 1,
                "messages": one.messages,
                "at": next((at for start, stop, at in reversed(left_at) if start <= one.tip < stop), ""),
            }
            for one in whole.branches.left
        ],
        "current": current,
    }


# --- turns and folds --------------------------------------------------------------------------------------------------


def turn(ended: TurnEnded, name: str, seq: int | None, now: WindowUsage | None) -> TurnJson:
    """The end of a turn. `seq` is the user's message."""
    return {
        "session": name,
        "reason": ended.reason,
        "text": ended.text,
        "message": ended.message,
        "iterations": ended.iterations,
        "seq": seq,
        "figures": None if now is None else figures(now),
    }


def turn_row(one: TurnRecord) -> TurnRowJson:
    """A turn in a list."""
    return {
        "number": one.number,
        "start": one.start,
        "stop": one.stop,
        "prompt_tokens": one.prompt_tokens,
        "completion_tokens": one.completion_tokens,
        "began": one.began,
        "ended": one.ended,
        "reason": one.reason,
        "folds": one.folds,
    }


def fold(one: Fold, *, in_effect: bool = True) -> FoldJson:
    """A fold, with the text that it shows."""
    return {
        "id": one.id,
        "start": one.start,
        "stop": one.stop,
        "before_tokens": one.before_tokens,
        "tokens": one.tokens,
        "reducer": one.reducer,
        "reason": one.reason,
        "shown": "\n\n".join(message_text(message) for message in one.shown),
        "form": one.form,
        "in_effect": in_effect,
        "archive": one.archive,
    }


def folds_of(records: Iterable[Record], codec: Codec) -> list[tuple[Fold, bool]]:
    """Every fold in the records of a log, oldest first, and whether it is in effect."""
    found: dict[int, tuple[Fold, bool]] = {}
    for record in records:
        # Only records that may hold a fold are parsed: most records are messages, which take longer.
        if record.get("type") in ("fold", "unfold") or "json" in record:
            event = event_of(record, codec)
            if isinstance(event, Fold):
                found[event.id] = event, True
            elif isinstance(event, Unfold) and event.fold in found:
                found[event.fold] = found[event.fold][0], False
    return list(found.values())


def compacted(done: CompactionResult) -> CompactedJson:
    """The outcome of a compaction."""
    return {
        "before": figures(done.before),
        "after": figures(done.after),
        "folds": [fold(one) for one in done.folds],
        "summary": done.summary,
    }


def visibility(view: View, seq: int) -> Visibility:
    """The state of a message in the view of the model. O(log tiles)."""
    at = view.index(seq)
    if not 0 <= at < len(view.tiles) or seq >= view.tiles[at].stop:
        return "hidden", None
    tile = view.tiles[at]
    if tile.fold is not None:
        return "hidden", tile.fold.id
    found = next((one for one in tile.entries if one.seq == seq), None)
    if found is None or not found.message.agent_visible:
        return "hidden", None
    if seq in tile.forms:
        return "shortened", tile.forms[seq].id
    if tile.pinned:
        return "pinned", None
    return "repaired" if any(repair.seq == seq for repair in tile.repairs) else "shown", None


def entry(
    record: Record, codec: Codec, states: Mapping[int, Visibility], folds: list[FoldJson] | None = None
) -> EntryJson | WholeEntryJson:
    """A message as it was recorded. With `folds`, those over it, it is whole; without, it is cut to CUT_CHARS."""
    found = event_of(record, codec)
    if not isinstance(found, Entry):
        raise RuntimeError("no record of a message")
    message = found.message
    cut = _TextBudget(CUT_CHARS if folds is None else None)
    state, by = states.get(found.seq, ("hidden", None))
    # Calls and results have lists of their own, so the text has the other parts only.
    words = replace(message, parts=tuple(p for p in message.parts if not isinstance(p, ToolCall | ToolResult)))
    out: EntryJson = {
        "seq": found.seq,
        "role": message.role,
        "kind": message.kind,
        "at": str(record.get("at", "")),
        "text": cut(message_text(words)),
        "calls": [{"id": one.id, "name": one.name, "arguments": cut(one.arguments)} for one in message.calls],
        "results": [{"call_id": one.call_id, "text": cut(one.text)} for one in message.results],
        "tokens": found.tokens,
        "state": state,
        "fold": by,
        "cut": cut.exceeded,
    }
    return out if folds is None else {**out, "folds": folds}


class _TextBudget:
    """Shortens the texts of one message to what they may take together (None: anything)."""

    def __init__(self, chars: int | None) -> None:
        self._left = chars
        self.exceeded = False

    def __call__(self, text: str) -> str:
        if self._left is None:
            return text
        # One budget for all texts of a message: a hundred calls in one turn must not make a page of megabytes.
        shown = text[: self._left]
        self._left -= len(shown)
        self.exceeded = self.exceeded or len(shown) < len(text)
        return shown
