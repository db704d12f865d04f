"""Going on after damage in the middle of a log: what can be read stays, what cannot is named and kept aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from foldline.codecs import codec as codec_for
from foldline.codecs.base import Codec
from foldline.errors import InvalidInput
from foldline.store.files import unused, write_whole
from foldline.store.recording import Header, header_of
from foldline.store.records import Record, event_of, record_of
from foldline.transcript import Branch, Entry, Event, Fold, Pin, Seq, Unfold

__all__ = ["LOST", "Repaired", "repair_log"]

LOST: Final = "[a message was lost here: the log of this session was damaged]"


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did: the damaged lines of the old log, which is kept at `kept`, and how many messages are lost.

    Folds, unfolds and pins behind the damage are left out of the new log (`left_out`), because they may rest on what
    was lost: the messages stand there whole, and are folded anew.
    """

    lines: tuple[int, ...]
    kept: Path
    lost_messages: int
    left_out: int

    def __str__(self) -> str:
        lines = ", ".join(map(str, self.lines[:5])) + (" …" if len(self.lines) > 5 else "")
        return f"line {lines} of the log was damaged; {self.lost_messages} messages are lost; the old log: {self.kept}"


@dataclass(slots=True)
class _Mending:
    """One walk over the lines of a damaged log."""

    codec: Codec
    version: int
    next_seq: Seq = 0
    lost: int = 0
    left_out: int = 0
    damaged: list[int] = field(default_factory=list)

    def records(self, number: int, line: bytes) -> Iterator[Record]:
        """What stands for one line in the new log."""
        event: Event | None = None
        try:
            record = json.loads(line)
            if record["type"] not in ("turn", "settings", "note"):
                event = event_of(record, self.codec, version=self.version)
            if isinstance(event, Entry) and event.seq < self.next_seq:
                raise InvalidInput("this message is there already", place="seq")
        except (ValueError, TypeError, KeyError, RecursionError):
            self.damaged.append(number)
            return
        yield from self._stand_ins(_known(event))
        if self.damaged and isinstance(event, Fold | Unfold | Pin):
            self.left_out += 1
            return
        self.next_seq += isinstance(event, Entry)
        yield record

    def _stand_ins(self, stop: Seq) -> Iterator[Record]:
        """Entries keep their numbers: an unseen one stands where a message is missing."""
        for seq in range(self.next_seq, stop):
            note = self.codec.note(LOST)
            yield record_of(Entry(seq, seq, note, 0, self.codec.write(note), (), hidden=True), self.codec)
            self.lost += 1
        self.next_seq = max(self.next_seq, stop)


def _known(event: Event | None) -> Seq:
    """How many messages there must have been before an event."""
    match event:
        case Entry(seq=stop) | Fold(stop=stop) | Branch(stop=stop):
            return stop
        case Pin(seq=seq):
            return seq + 1
    return 0


def repair_log(path: Path, header: Header | None = None) -> Repaired | None:
    """Puts a log that can be read in place of a damaged one; None when nothing is damaged. O(log).

    Whoever calls this holds the log's lock. The old log is kept beside the new one. `header` is used where the first
    record itself is damaged; without it that raises InvalidInput. Raises OSError, then the old log is in its place.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        first = header_of(json.loads(lines[0]))
        damaged: list[int] = []
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        if header is None:
            why = "the record of the session is damaged, and nothing else tells what it was"
            raise InvalidInput(why, place=f"{path}, line 1") from None
        first, damaged = header, [1]
    mending = _Mending(codec_for(first.dialect), first.version, damaged=damaged)
    records = [record for number, line in enumerate(lines[1:], 2) for record in mending.records(number, line)]
    if not mending.damaged:
        return None
    kept = unused(path.with_name(f"events.damaged-{path.stat().st_size}.jsonl"))
    write_whole(kept, lines)
    text = (json.dumps(record) + "\n" for record in ({**first.record(), "at": first.created}, *records))
    write_whole(path, (line.encode() for line in text))
    return Repaired(tuple(mending.damaged), kept, mending.lost, mending.left_out)
