"""Sessions, turns, folds and messages as the JSON objects of the HTTP interface."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from foldline.agent.events import TurnEnded, as_json
from foldline.codecs.base import Codec
from foldline.engine.window_usage import Figures
from foldline.hosting.request_rows import parts_of, rows_of
from foldline.hosting.session_actor import CompactionResult, SessionActor, SessionState
from foldline.hosting.session_text import message_text
from foldline.hosting.turns import TurnRecord
from foldline.messages import Json, Message, ToolCall, ToolResult
from foldline.store.recording import snapshot_of
from foldline.store.records import Record, event_of
from foldline.store.snapshot import Listed, Snapshot
from foldline.view.transcript import Entry, Fold, Unfold, Usage
from foldline.view.view import View

__all__ = [
    "CUT_CHARS",
    "Shown",
    "compacted",
    "context",
    "entry",
    "figures",
    "fold",
    "folds_of",
    "row",
    "session",
    "shown_as",
    "turn",
    "turn_row",
]

CUT_CHARS: Final = 4_000
"""What one message may take in a page of the history."""

Shown = tuple[str, int | None]
"""What became of a message in what the model sees: a state, and the fold that did it."""


def figures(value: Figures) -> dict[str, Json]:
    """How full the window is."""
    return {**dataclasses.asdict(value), "used_tokens": value.used_tokens, "utilization": value.utilization}


def row(listed: Listed, actor: SessionActor | None) -> dict[str, Json]:
    """A session in a list; the figures of one that cannot be read are 0, and `damage` says why."""
    if listed.snapshot is not None:
        return _row(listed.snapshot, actor)
    texts = dict.fromkeys(("created", "updated", "dialect", "policy", "title"), "")
    counts = dict.fromkeys(("turns", "messages", "folds", "tokens", "window_tokens", "log_bytes"), 0)
    unread = Snapshot(id=listed.id, model=None, parent=None, **texts, **counts)  # type: ignore[arg-type]
    return {**_row(unread, actor), "damage": listed.damage}


def _row(found: Snapshot, actor: SessionActor | None) -> dict[str, Json]:
    plain = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    del plain["log_bytes"]
    running = actor is not None and actor.running
    return {**plain, "state": "running" if running else "idle", "queued": 0 if actor is None else actor.queued}


def session(look: SessionState, actor: SessionActor) -> dict[str, Json]:
    """One session: its row, its figures, all it has used, and whether its window is to be folded."""
    now, spent = look.context, [event for event in look.context.events if isinstance(event, Usage)]
    return {
        **_row(snapshot_of(look.header, look.tally, now, 0), actor),
        "figures": figures(now.figures),
        "usage": {
            "prompt_tokens": sum(usage.input_tokens for usage in spent),
            "completion_tokens": sum(usage.output_tokens for usage in spent),
        },
        "pressure": _pressure(look),
        "limit_tokens": now.limits.input_tokens,
    }


def _pressure(look: SessionState) -> str:
    now = look.context
    if now.view.tokens > now.limits.input_tokens:
        return "hard"
    return "soft" if now.policy.trigger.due(now.view, now.view.tokens, now.limits) else "none"


def context(look: SessionState) -> dict[str, Json]:
    """What the model is shown now: the messages as they are sent, and what each part takes. O(shown)."""
    now = look.context
    rows = tuple(rows_of(now))
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
                "state": one.state,
                "text": message_text(one.message),
            }
            for one in rows
        ],
        "parts": parts_of(rows, look.system, look.tools),
        "tokens": now.view.tokens,
        "window_tokens": now.limits.window_tokens,
        "max_output_tokens": now.limits.max_output_tokens,
        "pressure": _pressure(look),
    }


def turn(ended: TurnEnded, name: str, seq: int | None, now: Figures | None) -> dict[str, Json]:
    """How a turn ended; `seq` is the user's message."""
    own = {key: value for key, value in as_json(ended).items() if key != "event"}
    return {"session": name, **own, "seq": seq, "figures": None if now is None else figures(now)}


def turn_row(one: TurnRecord) -> dict[str, Json]:
    """A turn in a list."""
    return dataclasses.asdict(one)


def fold(one: Fold, *, in_effect: bool = True) -> dict[str, Json]:
    """A fold, with what it shows."""
    keep = ("id", "start", "stop", "form", "reducer", "reason", "before_tokens", "tokens", "archive")
    shown = "\n\n".join(message_text(message) for message in one.shown)
    return {**{name: getattr(one, name) for name in keep}, "shown": shown, "in_effect": in_effect}


def folds_of(records: Iterable[Record], codec: Codec) -> list[tuple[Fold, bool]]:
    """Every fold in the records of a log, oldest first, and whether it is in effect."""
    found: dict[int, tuple[Fold, bool]] = {}
    for record in records:
        if record.get("type") in ("fold", "unfold") or "json" in record:
            event = event_of(record, codec)
            if isinstance(event, Fold):
                found[event.id] = event, True
            elif isinstance(event, Unfold) and event.fold in found:
                found[event.fold] = found[event.fold][0], False
    return list(found.values())


def compacted(done: CompactionResult) -> dict[str, Json]:
    """What a compaction did."""
    return {
        "before": figures(done.before),
        "after": figures(done.after),
        "folds": [fold(one) for one in done.folds],
        "summary": done.summary,
    }


def shown_as(view: View, seq: int) -> Shown:
    """What became of a message. O(log tiles)."""
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


def entry(record: Record, codec: Codec, shown: Mapping[int, Shown], *, whole: bool = False) -> dict[str, Json]:
    """A message as it was recorded, in a list cut to CUT_CHARS."""
    found = event_of(record, codec)
    if not isinstance(found, Entry):
        raise RuntimeError("no record of a message")
    message = found.message
    cut = _Cut(None if whole else CUT_CHARS)
    state, by = shown.get(found.seq, ("hidden", None))
    out: dict[str, Json] = {
        "seq": found.seq,
        "role": message.role,
        "kind": message.kind,
        "at": str(record.get("at", "")),
        "text": cut(_words(message)),
        "calls": [{"id": one.id, "name": one.name, "arguments": cut(one.arguments)} for one in message.calls],
        "results": [{"call_id": one.call_id, "text": cut(one.text)} for one in message.results],
        "tokens": found.tokens,
        "state": state,
        "fold": by,
    }
    return {**out, "cut": cut.cuts}


def _words(message: Message) -> str:
    """What a message says beside calls and results, which stand in lists of their own."""
    return message_text(
        replace(message, parts=tuple(p for p in message.parts if not isinstance(p, ToolCall | ToolResult)))
    )


class _Cut:
    """Shortens the texts of one message to what it may take together."""

    def __init__(self, chars: int | None) -> None:
        self._left = chars
        self.cuts = False

    def __call__(self, text: str) -> str:
        if self._left is None:
            return text
        taken = text[: self._left]
        self._left -= len(taken)
        self.cuts = self.cuts or len(taken) < len(text)
        return taken
