"""The turns of a session, read from its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

from foldline.agent.events import EndReason, TurnEnded
from foldline.codecs import codec as codec_for
from foldline.errors import InvalidInput
from foldline.store.base import Store
from foldline.store.records import Record
from foldline.transcript import Seq

__all__ = ["KeyUsed", "Turn", "earlier_turn", "turns_of"]

_REASONS = frozenset(get_args(EndReason))


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn: its number from 1, when it began and ended, the messages it begins and ends with, and its size.

    `prompt_tokens` is the largest request that was reported in it, `completion_tokens` all that was written. `folds`
    are the ids of those that were made in it. `reason` is "" while it runs.
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


def turns_of(records: Iterable[Record]) -> Iterator[Turn]:
    """The turns in the records of a log, oldest first. What happened between two is counted to the one before."""
    turn: Turn | None = None
    number = 0
    for record in records:
        kind = record.get("type")
        if kind == "turn" and record.get("state") == "begun":
            if turn is not None and turn.start >= 0:
                yield turn
            number += turn is None or turn.start >= 0  # without a message it never was
            turn = Turn(number=number, began=str(record.get("at", "")), folds=[])
        elif turn is not None:
            _take(turn, record)
    if turn is not None and turn.start >= 0:
        yield turn


def _take(turn: Turn, record: dict[str, Any]) -> None:
    kind = record.get("type")
    if kind == "turn":
        turn.reason, turn.ended = str(record.get("reason", "")), str(record.get("at", ""))
    elif kind == "message":
        seq = int(record.get("seq", -1))
        turn.start = seq if turn.start < 0 else turn.start
        turn.stop = seq + 1
    elif kind == "usage":
        turn.prompt_tokens = max(turn.prompt_tokens, int(record.get("input_tokens", 0)))
        turn.completion_tokens += int(record.get("output_tokens", 0))
    elif kind == "fold":
        turn.folds.append(int(record["id"]))


class KeyUsed(InvalidInput):
    """A key stands for another message of the session already, so its turn is not the one that is asked for."""

    def __init__(self) -> None:
        super().__init__("another message of this session had this key: take a new one", place="Idempotency-Key")


def earlier_turn(store: Store, name: str, seq: Seq, text: str) -> TurnEnded:
    """How the turn ended that began with a message: for a client that asks again. O(log).

    Raises KeyUsed where the message is not `text`.
    """
    codec = codec_for(store.read(name).header.dialect)
    reply, reason, began = "", "interrupted", False
    for record in store.records(name):
        kind = record.get("type")
        if kind == "message" and record.get("seq") == seq:
            began = True
            if codec.read(record["message"]).text != text:
                raise KeyUsed
        elif not began:
            continue
        elif kind == "message" and isinstance(record.get("message"), dict):
            message = codec.read(record["message"])
            reply = message.text if message.role == "assistant" else reply
        elif kind == "turn":
            reason = str(record.get("reason", reason))
            break
    known = cast(EndReason, reason if reason in _REASONS else "done")
    why = "" if known == "done" else "This turn was asked for before, and ended so."
    return TurnEnded(reason=known, text=reply, message=why)
