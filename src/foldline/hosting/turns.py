"""The turns of a session, read from its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast, get_args

from foldline.agent.events import EndReason, TurnEnded
from foldline.codecs.base import Codec
from foldline.store.records import Record, event_of, seq_of
from foldline.view.transcript import Entry, Seq

__all__ = ["TurnRecord", "recorded_turn", "turns_of"]

_REASONS = frozenset(get_args(EndReason))


@dataclass(slots=True, kw_only=True)
class TurnRecord:
    """One turn: its number from 1, its times, its first and last message, and its size.

    `prompt_tokens` is the largest reported request, `completion_tokens` the sum of all output. `folds` are the ids of
    its folds. `reason` is "" while it runs.
    """

    number: int
    began: str
    ended: str = ""
    reason: str = ""
    start: Seq = -1
    stop: Seq = -1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    folds: list[int]


def turns_of(records: Iterable[Record]) -> Iterator[TurnRecord]:
    """Yield the turns in the records of a log, oldest first. What happened between two turns counts for the first."""
    turn: TurnRecord | None = None
    number = 0
    for record in records:
        kind = record.get("type")
        if kind == "turn" and record.get("state") == "begun":
            if turn is not None and turn.start >= 0:
                yield turn
            # A turn without a message (refused, or killed at once) takes no number: clients count those that they see.
            number += turn is None or turn.start >= 0
            turn = TurnRecord(number=number, began=str(record.get("at", "")), folds=[])
        elif turn is not None:
            _add(turn, record)
    if turn is not None and turn.start >= 0:
        yield turn


def _add(turn: TurnRecord, record: Record) -> None:
    kind, seq = record.get("type"), seq_of(record)
    if seq is not None:
        turn.start = seq if turn.start < 0 else turn.start
        turn.stop = seq + 1
    elif kind == "turn":
        turn.reason, turn.ended = str(record.get("reason", "")), str(record.get("at", ""))
    elif kind == "usage":
        # The largest, not the sum: it shows how close the turn came to the limit.
        turn.prompt_tokens = max(turn.prompt_tokens, int(record.get("input_tokens", 0)))
        turn.completion_tokens += int(record.get("output_tokens", 0))
    elif kind == "fold":
        turn.folds.append(int(record["id"]))


def recorded_turn(records: Iterable[Record], seq: Seq, codec: Codec) -> tuple[str, TurnEnded]:
    """The text of a message and the outcome of its turn, for a client that repeats a request. O(records).

    A turn without a recorded end was interrupted.
    """
    prompt, answer, reason = None, "", "interrupted"
    for record in records:
        if record.get("type") == "turn" and prompt is not None:
            reason = str(record.get("reason", reason))
            break
        at = seq_of(record)
        if at is None or at < seq:
            continue
        event = event_of(record, codec)
        if isinstance(event, Entry) and at == seq:
            prompt = event.message.text
        elif isinstance(event, Entry) and event.message.role == "assistant":
            answer = event.message.text
    # A newer version may have recorded a reason that this one does not know; the answer counts all the same.
    ended = cast(EndReason, reason if reason in _REASONS else "done")
    why = "" if ended == "done" else "This turn ran before under the same key, and ended so."
    return prompt or "", TurnEnded(reason=ended, text=answer, message=why)
