"""Repair of damaged logs: intact records stay, the others are reported and saved aside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Final

from foldline.catalog.models import lookup
from foldline.codecs import codec as codec_for
from foldline.codecs.base import Codec
from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.recorded.sessions import detect_dialect
from foldline.store.checksums import Damage, Verifier, root_of, without_frame
from foldline.store.event_log import line_of, parse_object
from foldline.store.files import free_path, write_atomic
from foldline.store.recording import Header, first_record, header_of, stop_of
from foldline.store.records import Record, event_of, record_of
from foldline.view.transcript import Entry, Event, Fold, Pin, Seq, Unfold

__all__ = ["LOST", "RawRecord", "RebuiltLog", "RepairReport", "rebuild_log", "repair_log"]

LOST: Final = "[a message was lost here: the log of this session was damaged]"

# The beginning of the record of a message.
_SEQ: Final = re.compile(rb'\{"type": ?"message", ?"seq": ?([0-9]{1,15})\b')

# A damaged block of a disk hits dozens of lines. The message names the first; `damage` has all.
_PRINTED: Final = 5  # damaged lines named in `str(report)`
_NOTED: Final = 20  # faults recorded in the new log; `damage` has all of them


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair: the faults and their places, the place of the old log, and the number of lost messages.

    Folds, unfolds and pins after a loss are omitted from the new log (`left_out`), because they may depend on it: the
    messages are shown whole again, and folded anew. Records that were only misplaced or doubled are put in order.
    """

    damage: tuple[Damage, ...]
    old_log: Path | str
    lost_messages: int
    left_out: int

    @property
    def lines(self) -> tuple[int, ...]:
        """The damaged lines of the old log, or records of the table."""
        return tuple(sorted({one.line for one in self.damage}))

    def __str__(self) -> str:
        unit = "record" if self.damage and self.damage[0].byte is None else "line"
        lines = ", ".join(map(str, self.lines[:_PRINTED])) + (" …" if len(self.lines) > _PRINTED else "")
        where = f"{unit} {lines} of the log was" if len(self.lines) == 1 else f"{unit}s {lines} of the log were"
        left = f", {self.left_out} folds and pins after the damage are left out" if self.left_out else ""
        lost = "1 message is lost" if self.lost_messages == 1 else f"{self.lost_messages:,} messages are lost"
        return f"{where} damaged; {lost}{left}; the old log: {self.old_log}"


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One line of a log, or one record of a table, as stored."""

    number: int
    byte: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class RebuiltLog:
    """The records of the new log, its header first, and the faults of the old one."""

    records: tuple[Record, ...]
    damage: tuple[Damage, ...]
    lost_messages: int
    left_out: int


@dataclass(slots=True)
class _Rebuild:
    """One pass over the intact records of a damaged log, in the order in which they were written.

    `most` bounds the messages that may be missing in one place: a damaged number may be anything. `broken` says
    whether something is missing before the current record.
    """

    header: Header
    codec: Codec
    context: Context
    max_missing: int
    broken: bool = False
    next_seq: Seq = 0
    lost: int = 0
    left_out: int = 0
    damage: list[Damage] = field(default_factory=list)

    def records(self, line: RawRecord, record: Record) -> Iterator[Record]:
        """The records of the new log for one record of the old."""
        event: Event | None = None
        try:
            if record.get("type") == "settings":
                self.header = self.header.changed(record)
            elif record.get("type") not in ("turn", "note"):
                event = event_of(record, self.codec, version=self.header.version)
            # The new log is replayed while it is built: whatever is accepted here will open later.
            if isinstance(event, Entry) and event.seq < self.next_seq:
                raise InvalidInput("this message is already there", place="seq")
            if stop_of(event) > self.next_seq and not self.broken:
                gone = f"message {self.next_seq:,} is missing before it"
                self.damage.append(Damage(line.number, line.byte, "missing", gone))
            for missing_result in self._stand_ins(stop_of(event)):
                self.context.apply(event_of(missing_result, self.codec))
                yield missing_result
            # A summary may tell of messages that are lost, and a fold may lie on a fold that is. Dropping one costs
            # tokens and no history: its messages are shown whole and folded anew.
            if isinstance(event, Fold | Unfold | Pin) and self.broken:
                self.left_out += 1
                return
            if event is not None:
                self.context.apply(event)
        except InvalidInput as error:
            # From here on a fold may rest on what is missing, so folds are dropped until the end of the log.
            self.damage.append(Damage(line.number, line.byte, "contradiction", str(error)))
            self.broken = True
            return
        self.next_seq += isinstance(event, Entry)
        yield record

    def lost_at_the_end(self, lines: Sequence[RawRecord], known: int) -> Iterator[Record]:
        """Stand-ins for messages after the last intact one.

        Their number follows from damaged lines that still show one, or from `known`, the snapshot's count.
        """
        # Without them the next message would get the number of a lost one, and a client that says "after message 40"
        # would be answered from another.
        numbers = [int(found[1]) for line in lines if (found := _SEQ.match(line.data)) is not None]
        stop = max((seq + 1 for seq in numbers if seq - self.next_seq < self.max_missing), default=0)
        yield from self._stand_ins(max(stop, known))

    def _stand_ins(self, stop: Seq) -> Iterator[Record]:
        """Hidden entries in place of missing messages, up to `stop`. Raises InvalidInput for an impossible number."""
        # Messages keep their numbers: folds, pins and commands refer to them.
        if stop - self.next_seq > self.max_missing:
            raise InvalidInput(f"it refers to message {stop - 1:,}, but there are only {self.next_seq:,}", place="seq")
        while self.next_seq < stop:
            # Hidden from the model: it would only wonder. People see in the history that something is missing.
            note = self.codec.note(LOST)
            seq = self.next_seq
            self.next_seq += 1
            self.lost += 1
            self.broken = True
            yield record_of(Entry(seq, seq, note, 0, self.codec.write(note), (), hidden=True), self.codec)


def rebuild_log(
    lines: Sequence[RawRecord],
    *,
    header: Header | None,
    name: str,
    place: str,
    other_damage: Sequence[Damage] = (),
    known_messages: int = 0,
) -> RebuiltLog | None:
    """The best log that a damaged one yields; None when it is intact. O(log).

    When the first record is damaged, `header` (from the snapshot) replaces it, else what can be read of it, or the
    dialect of the messages; raises InvalidInput when there is none of these. `name` is the id of the session. `more`
    are faults found elsewhere, which count when the lines show none. `known_messages` were certainly written.
    """
    # In order of trust: what the records say by themselves, then what the row or the snapshot says about all of them.
    root = _checksum_root(lines)
    intact = _intact_records(lines, root)
    damage = list(_find_damage(lines, root)) or list(other_damage)
    first, rest = _header_and_rest(intact, lines, header, name, place)
    if rest is intact and not damage:
        damage = [Damage(1, 0, "contradiction", "the log does not begin with the record of its session")]
    # The context only checks that the records fit together. Its window decides nothing, because nothing is folded.
    window = first.window or lookup(first.model).window_tokens
    context = Context(dialect=first.dialect, window=window)
    # No log has more messages than lines, but a few lines may be lost as well.
    max_missing = max(len(lines) + _NOTED, known_messages)
    walk = _Rebuild(first, codec_for(first.dialect), context, max_missing=max_missing, damage=damage)
    records = [first_record(first)]
    for one in rest:
        walk.broken = walk.broken or one.gap
        records += walk.records(one.line, one.record)
    if walk.damage:
        records += walk.lost_at_the_end(lines, known_messages)
    if not walk.damage:
        return None
    reasons = [str(one) for one in walk.damage[:_NOTED]]
    note = {"type": "note", "repaired": reasons, "damaged": len(walk.damage), "lost_messages": walk.lost}
    return RebuiltLog((*records, note), tuple(walk.damage), walk.lost, walk.left_out)


def _header_and_rest(
    intact: list[_IntactRecord], lines: Sequence[RawRecord], header: Header | None, name: str, place: str
) -> tuple[Header, list[_IntactRecord]]:
    """The header, and the records after it; all records when the first is damaged."""
    try:
        return header_of(intact[0].record), intact[1:]
    except (InvalidInput, IndexError):
        if header is not None:
            return header, intact
    # A header with a wrong checksum is believed, except for its id: commands find the session by that of its folder or
    # row.
    read = parse_object(without_frame(lines[0].data)) if lines else ""
    try:
        return replace(header_of({} if isinstance(read, str) else read), id=name), intact
    except InvalidInput:
        messages = [one.record.get("message") for one in intact if one.record.get("type") == "message"]
        if not messages:
            why = "the record of the session is damaged, and nothing else identifies it"
            raise InvalidInput(why, place=place) from None
    created = next((str(one.record["at"]) for one in intact if "at" in one.record), "")
    return Header(id=name, created=created, dialect=detect_dialect(messages)), intact


def repair_log(
    path: Path, header: Header | None = None, *, known_bytes: int = 0, known_messages: int = 0
) -> RepairReport | None:
    """Replace a damaged log by a readable one; None when it is intact. O(log).

    The caller holds the lock of the log. The old log is saved beside the new one. `header` is as in `rebuild_log`;
    `known_bytes` and `known_messages` were certainly written. Raises InvalidInput, and OSError; then the old log is
    still in place.
    """
    # As bytes, split at \n alone: `str.splitlines` also splits at U+2028 and others, which JSON allows inside a text.
    lines, end = [], 0
    for number, data in enumerate(BytesIO(path.read_bytes()), 1):
        lines.append(RawRecord(number, end, data))
        end += len(data)
    other_damage: list[Damage] = []
    if end < known_bytes:
        why = f"the last {known_bytes - end:,} bytes that were written are missing"
        other_damage = [Damage(len(lines) + 1, end, "missing", why)]
    rebuilt = rebuild_log(
        lines,
        header=header,
        name=path.parent.name,
        place=f"{path}, line 1",
        other_damage=other_damage,
        known_messages=known_messages,
    )
    if rebuilt is None:
        return None
    old_log = free_path(path.with_name(f"events.damaged-{end}.jsonl"))
    # First the old log under a name of its own, then the new one in its place. A crash in between leaves the damaged
    # log and a copy of it; the next repair begins again.
    write_atomic(old_log, [line.data for line in lines])
    checks = Verifier()
    write_atomic(path, [line_of(record, checks) for record in rebuilt.records])
    return RepairReport(rebuilt.damage, old_log, rebuilt.lost_messages, rebuilt.left_out)


# --- intact records, and faults ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _IntactRecord:
    """An intact record; `gap` says whether something is missing before it."""

    line: RawRecord
    record: Record
    gap: bool


def _checksum_root(lines: Sequence[RawRecord]) -> int | None:
    """The root of the checksums: that of the first record, unless no other record agrees with it."""
    # The first record may be damaged in a way that still parses. One other record that agrees with it proves it;
    # against it the others vote (`root_of`), since damaged records agree with each other only by a chance of 1 in 2^32.
    if not lines:
        return None
    checks = Verifier()
    by_first = None if isinstance(checks.body(lines[0].data), tuple) else checks.root
    if by_first is not None and any(Verifier(root=by_first).fits(line.data) for line in lines[1:]):
        return by_first
    by_most, agreed = root_of(line.data for line in lines)
    return by_most if by_first is None or agreed > 1 else by_first  # a damaged first record agrees with none


def _intact_records(lines: Sequence[RawRecord], root: int | None) -> list[_IntactRecord]:
    """The intact records, each once, in the order in which they were written.

    Without a checksum every readable record counts as intact, at its position.
    """
    # Sealed records sort by their own number, unsealed ones stay after the newest sealed record that precedes them.
    found: dict[tuple[int, int], tuple[int | None, RawRecord, Record]] = {}
    checks, newest = Verifier(root=root), -1
    for line in lines:
        index = line.number if line.byte is None else line.number - 1
        number = checks.fits(line.data)
        record = parse_object(without_frame(line.data))
        if isinstance(record, str):
            continue
        if number is not None:
            newest = max(newest, number)
            found.setdefault((number, -1), (number, line, record))
        elif not isinstance(Verifier(root=root).body(line.data), tuple):
            found[newest, index] = (index if newest < 0 else None, line, record)
    out: list[_IntactRecord] = []
    expected = 0
    for _, (number, line, record) in sorted(found.items(), key=lambda item: item[0]):
        out.append(_IntactRecord(line, record, number is not None and number > expected))
        expected = expected + 1 if number is None else number + 1
    return out


def _find_damage(lines: Sequence[RawRecord], root: int | None) -> Iterator[Damage]:
    """The faults of the lines, as a reader of the log meets them."""
    # After each fault the expected number is taken from the record itself, so that one missing line is one fault and
    # does not put every later record in the wrong position.
    checks = Verifier()
    for line in lines:
        if line.byte is None and line.number > checks.number:
            yield Damage(checks.number, None, "missing", "it is missing, and so are all up to the next")
            checks = Verifier(line.number, root, sealed=checks.sealed, before=None)
        body = checks.body(line.data)
        record = parse_object(without_frame(line.data) if isinstance(body, tuple) else body)
        if isinstance(record, str):
            yield Damage(line.number, line.byte, "not-json", record)
        elif isinstance(body, tuple):
            yield Damage(line.number, line.byte, *body)
        else:
            continue
        number = Verifier(root=root).fits(line.data)
        next_number = checks.number + isinstance(body, tuple) if number is None else max(checks.number, number + 1)
        checks = Verifier(next_number, root, sealed=checks.sealed or number is not None, before=None)
