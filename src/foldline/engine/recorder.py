"""The record of one session: takes messages up, commits folds, takes them back, and forks.

Everything here is about what happened; when to fold is the engine's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from foldline.codecs.base import Codec
from foldline.engine.events import ContextEvent, FoldFailed, Repaired
from foldline.engine.folding import Folding
from foldline.engine.window_usage import Totals
from foldline.errors import FoldRefused, InvalidInput
from foldline.messages import Message, Wire
from foldline.tokens import Counter, message_tokens
from foldline.view.archive import Originals
from foldline.view.calibration import Meter
from foldline.view.pairing import Pairing
from foldline.view.system_and_tools import SystemAndTools
from foldline.view.transcript import Branch, Entry, Event, Fold, Log, Pin, Repair, Seq, Unfold, Usage
from foldline.view.view import View

__all__ = ["Recorder"]


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The log of a session and the view that follows from it."""

    codec: Codec
    counter: Counter
    originals: Originals
    view: View
    beside: SystemAndTools
    tell: Callable[[ContextEvent], None]
    pairing: Pairing = field(init=False)
    log: Log = field(default_factory=Log)
    path: list[Wire] = field(default_factory=list)
    """Recorded JSON of the active branch, and the seq of each."""
    path_seqs: list[Seq] = field(default_factory=list)
    folds: dict[int, Fold] = field(default_factory=dict)
    """The folds in effect, those under other folds too."""
    folding: Folding | None = None
    """The call that is at work now; None while each one waits for a model."""
    next_batch: int = 0
    news: list[Fold | Unfold] = field(default_factory=list)
    """What the next request names: folds made and taken back since the one before."""
    totals: Totals = field(default_factory=Totals)
    fresh: Seq = 0
    next_seq: Seq = 0
    next_fold: int = 0
    taken_tokens: int = 0
    """Size of everything ever taken up."""
    released: bool = False
    """Whether entries were let go of: then the view cannot be made anew from this log."""
    span_stop: Seq = 0
    """Where the last fold over whole groups ends: what stands before it has been condensed."""

    def __post_init__(self) -> None:
        self.pairing = Pairing(self.codec)

    @property
    def meter(self) -> Meter:
        """The correction by reported usage."""
        return self.view.meter

    # --- taking up ---------------------------------------------------------------------------------------------------

    def take(self, message: Message, recorded: Wire) -> Entry:
        """Record one message and show it. O(size of the message and of the block it joins)."""
        seq = self.next_seq
        hidden = not message.agent_visible
        moves = message.role == "system" and not self.codec.system_inside and message.agent_visible
        given = self.codec.read({**recorded, "role": "user"}) if moves else message
        clean = self.codec.sanitize(given, self.beside.tool_names)
        faults = list(clean.faults)
        sent = replace(message, agent_visible=False) if moves or clean.message is None else clean.message
        if moves and clean.message is not None:
            self.beside.append_text(seq, clean.message)
            self.view.base_tokens = self.beside.tokens
            faults.append("system text among the messages; sent as the system text of the request")
        placed = self.pairing.place(seq, sent, self.view.reaches)
        faults += placed.faults
        tokens = message_tokens(placed.message, self.counter)
        entry = Entry(seq, placed.group, placed.message, tokens, recorded, tuple(faults), hidden)
        self.next_seq += 1
        self.taken_tokens += tokens
        self.log.append(entry)
        self.path.append(recorded)
        self.path_seqs.append(seq)
        self.view.append(entry, placed, self.pairing.waits)
        for fault in faults:
            self.tell(Repaired(Repair(seq, "message", fault)))
        return entry

    def note_usage(self, usage: Usage) -> None:
        """Record what was reported for a request. O(1)."""
        self.log.append(usage)
        self.totals.report(usage)

    def fork(self, keep: int) -> None:
        """Leave the branch after its first `keep` messages; folds that no longer hold are taken back. O(log)."""
        self._whole("a fork")
        left = self.path_seqs[keep]
        self.beside.drop_from(left)
        self.view.base_tokens = self.beside.tokens
        del self.path[keep:]
        del self.path_seqs[keep:]
        held = self._rebuild({fold.id for fold in self.folds.values() if fold.stop <= left})
        while (hiding := self.view.hides_newest()) is not None:
            held = self._rebuild(held - {hiding})
        lost = [Unfold(number) for number in sorted(self.folds, reverse=True) if number not in held]
        self._forget(lost)
        self.log.extend([*lost, Branch(left, self.next_seq)])
        self.news += lost
        self.fresh = min(self.fresh, left)

    def take_back(self, batch: Sequence[int]) -> tuple[Unfold, ...]:
        """Undo folds, last first. O(log): what came in since may belong to groups that are shown again."""
        lost = [Unfold(number) for number in reversed(batch)]
        if lost:
            self._whole("taking back a fold")
            held = self._rebuild(set(self.folds) - set(batch))
            lost += [Unfold(number) for number in sorted(self.folds, reverse=True) if number not in held | set(batch)]
            self._forget(lost)
            self.log.extend(lost)
            self.news += lost
        return tuple(lost)

    def _forget(self, lost: Sequence[Unfold]) -> None:
        for event in lost:
            del self.folds[event.fold]

    def _rebuild(self, folds: set[int]) -> set[int]:
        """The view anew from the log: the messages of the path, and of the folds only those given. Those that held."""
        old, view = self.view, self.view.empty()
        self.view, self.pairing = view, Pairing(self.codec)
        path, held, at = set(self.path_seqs), set[int](), 0
        self.span_stop = 0
        for event in self.log:
            if isinstance(event, Entry) and event.seq in path:
                if event.seq > at:
                    view.leave(at, event.seq)
                self._show_again(event)
                at = event.seq + 1
            elif isinstance(event, Branch) and event.stop > at:
                view.leave(at, event.stop)
                at = event.stop
            elif isinstance(event, Pin) and event.seq in path:
                view.pin(event.seq, event.pinned)
            elif isinstance(event, Fold) and event.id in folds:
                try:
                    view.commit(event, again=True, requested=True)
                except FoldRefused as refused:
                    self.tell(FoldFailed(event.reducer, f"no longer holds: {refused.reason}", event.start, event.stop))
                else:
                    held.add(event.id)
                    self._close(event)
        if at < self.next_seq:
            view.leave(at, self.next_seq)
        view.entries |= {seq: entry for seq, entry in old.entries.items() if seq not in view.entries}
        self.meter.folded()
        return held

    def _show_again(self, entry: Entry) -> None:
        clean = self.codec.sanitize(self.codec.read(entry.recorded), self.beside.tool_names).message
        visible = clean is not None and entry.message.agent_visible
        message = _flags(clean, entry) if clean and visible else entry.message
        placed = self.pairing.place(entry.seq, message, self.view.reaches)
        again = replace(entry, message=placed.message, group=placed.group)
        self.view.append(again, placed, self.pairing.waits)

    # --- letting go --------------------------------------------------------------------------------------------------

    def release(self, checkpoint: str) -> int:
        """Let go of what spans have folded: entries, their forms, inner folds. How many entries. O(in memory).

        What is sent, and what is folded next, stay as they are: reducers look at what is shown. The newest fold by the
        reducer `checkpoint` stays, `figures` begin there.
        """
        view = self.view
        gone = view.release()
        if not gone:
            return 0
        self.released = True
        shown = {tile.fold.id for tile in view.tiles if tile.fold is not None}
        shown |= {form.id for tile in view.tiles for form in tile.forms.values()}
        shown |= {max((number for number, fold in self.folds.items() if fold.reducer == checkpoint), default=-1)}
        self.folds = {number: fold for number, fold in self.folds.items() if number in shown}
        self.originals.retain(view.entries)
        pairs = zip(self.path, self.path_seqs, strict=True)
        path = [(wire, seq) for wire, seq in pairs if seq in view.entries]
        self.path, self.path_seqs = [wire for wire, _ in path], [seq for _, seq in path]

        def counts(event: Event) -> bool:
            if isinstance(event, Entry | Pin):
                return event.seq in view.entries
            return isinstance(event, Fold) and event.id in shown

        self.log.release(counts)
        return gone

    def _whole(self, what: str) -> None:
        if self.released:
            raise InvalidInput(f"{what} needs entries that were released; replay the log that was written down")

    # --- folds -------------------------------------------------------------------------------------------------------

    def last_batch(self) -> list[int]:
        """The folds in effect that were made in one call with the newest one; [] when there is none. O(folds)."""
        number = next((fold.batch for fold in reversed(self.folds.values()) if fold.batch >= 0), None)
        return [fold.id for fold in self.folds.values() if fold.batch == number]

    def commit(self, fold: Fold, *, again: bool = False, requested: bool = False) -> Fold | None:
        """Put a fold into effect (`again`: as it was before) and record it; None when it was refused, which is told.

        A fold of a log may have come of a compaction that a user `requested`: the log does not say, so it is taken for
        one, and what was legal then is not judged anew.
        """
        folding = self.folding
        requested = requested or (folding is not None and folding.requested)
        try:
            key = self.originals.store(self.view, fold, self.view.is_form(fold))
            batch = fold.batch if folding is None else self.next_batch if folding.batch < 0 else folding.batch
            proposed = replace(fold, id=self.next_fold, archive=key, batch=batch)
            made = self.view.commit(proposed, again=again, requested=requested)
        except FoldRefused as refused:
            self.tell(FoldFailed(fold.reducer, refused.reason, fold.start, fold.stop))
            return None
        self.next_fold += 1
        self.folds[made.id] = made
        self.log.append(made)
        self.news.append(made)
        self.next_batch = max(self.next_batch, made.batch + 1)
        if folding is not None:
            folding.batch = made.batch
            folding.folds.append(made)
        self._close(made)
        self.closed(made)
        self.meter.folded()
        return made

    def closed(self, fold: Fold) -> None:
        """Called for each fold that is made, in a replay as well; not for those that a rebuilt view shows again."""

    def repeat(self, fold: Fold) -> None:
        """Commit a fold of a recorded log, with its id and in its batch."""
        self.next_fold = fold.id
        self.commit(fold, again=True, requested=True)
        self.next_fold = fold.id + 1  # of one that no longer holds, too
        self.next_batch = max(self.next_batch, fold.batch + 1)

    def _close(self, fold: Fold) -> None:
        if not fold.form:
            self.pairing.close(fold.start, fold.stop)
            self.span_stop = max(self.span_stop, fold.stop)


def _flags(message: Message, entry: Entry) -> Message:
    """A message with what was said about the entry when it was taken up."""
    was = entry.message
    return replace(
        message, pinned=was.pinned, agent_visible=was.agent_visible, user_visible=was.user_visible, kind=was.kind
    )
