"""The record of one session: the log, and the view that follows from it.

A `Recorder` appends messages, commits folds, takes them back and forks. It decides nothing: when to fold is decided in
`foldline.engine.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from foldline.codecs.base import Codec
from foldline.engine.events import ContextEvent, FoldFailed, Repaired
from foldline.errors import FoldRefused, InvalidInput
from foldline.messages import Message, Wire
from foldline.tokens import Counter, message_tokens
from foldline.view.archive import Originals
from foldline.view.calibration import Meter
from foldline.view.pairing import Pairing
from foldline.view.system_and_tools import SystemAndTools
from foldline.view.transcript import Branch, BranchTree, Entry, Event, Fold, LeftBranch, Log, Pin, Repair, Seq, Unfold
from foldline.view.view import View

__all__ = ["Branches", "Recorder"]


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The log of a session and the view that follows from it."""

    codec: Codec
    counter: Counter
    originals: Originals
    view: View
    system_and_tools: SystemAndTools
    emit: Callable[[ContextEvent], None]
    pairing: Pairing = field(init=False)
    log: Log = field(default_factory=Log)
    path: list[Wire] = field(default_factory=list)
    """Recorded JSON of the active branch, and the seq of each."""
    path_seqs: list[Seq] = field(default_factory=list)
    folds: dict[int, Fold] = field(default_factory=dict)
    """The folds in effect, including those under other folds."""
    changes: list[Fold | Unfold] = field(default_factory=list)
    """Folds made and taken back since the last request. The next one names them."""
    unsent_from: Seq = 0
    """Entries from here on have not been part of a request."""
    next_seq: Seq = 0
    next_fold: int = 0
    next_batch: int = 0
    appended_tokens: int = 0
    """Size of everything ever appended."""
    arrangement: int = 0
    """Changes with every fold over groups, every one taken back, every fork and every pin: what covers what is the same
    as long as this is."""
    released: bool = False
    """Whether entries have left memory: then the view cannot be rebuilt from this log."""
    span_stop: Seq = 0
    """End of the last fold over whole groups: everything before it has been condensed."""

    def __post_init__(self) -> None:
        self.pairing = Pairing(self.codec)

    @property
    def meter(self) -> Meter:
        """The correction by reported usage."""
        return self.view.meter

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(self, message: Message, recorded: Wire) -> Entry:
        """Record one message and show it. O(size of the message and of the block it joins)."""
        seq = self.next_seq
        hidden = not message.agent_visible
        # A dialect without a system role inside the list (Anthropic) refuses one there: its text moves to the system
        # text of the request, and the entry stays in the log, unsent.
        moves = message.role == "system" and not self.codec.system_inside and message.agent_visible
        readable = self.codec.read({**recorded, "role": "user"}) if moves else message
        clean = self.codec.sanitize(readable, self.system_and_tools.tool_names)
        faults = list(clean.faults)
        sent = replace(message, agent_visible=False) if moves or clean.message is None else clean.message
        if moves and clean.message is not None:
            self.system_and_tools.append_text(seq, clean.message)
            self.view.base_tokens = self.system_and_tools.tokens
            faults.append("system text among the messages; sent as the system text of the request")
        # Pairing sees the message as it is sent: one that is hidden or empty answers no call.
        placed = self.pairing.place(seq, sent, self.view.reaches)
        faults += placed.faults
        tokens = message_tokens(placed.message, self.counter)
        entry = Entry(seq, placed.group, placed.message, tokens, recorded, tuple(faults), hidden)
        self.next_seq += 1
        self.appended_tokens += tokens
        self.log.append(entry)
        self.path.append(recorded)
        self.path_seqs.append(seq)
        self.view.append(entry, placed, self.pairing.waits)
        # Listeners run last: one that raises must find the message recorded as a whole.
        for fault in faults:
            self.emit(Repaired(Repair(seq, "message", fault)))
        return entry

    def pin(self, seq: Seq, *, pinned: bool) -> None:
        """Protect the group of an entry from folding, or stop protecting it. Raises FoldRefused when it is folded."""
        if seq not in self.view.entries:
            raise InvalidInput(f"no entry {seq}", place="seq")
        self.view.pin(seq, pinned)
        self.arrangement += 1
        self.log.append(Pin(seq, pinned))

    def fork(self, keep: int) -> None:
        """Leave the branch after its first `keep` messages; folds that no longer hold are taken back. O(log)."""
        self._require_all_entries("a fork")  # before anything changes
        left = self.path_seqs[keep]
        del self.path[keep:]
        del self.path_seqs[keep:]
        self._go_on_from(left, Branch(left, self.next_seq))

    def go_back(self, tip: Seq) -> int:
        """Send the branch that ends with entry `tip` again; how many messages came back. Raises InvalidInput. O(log).

        The folds that it had are not made again.
        """
        self._require_all_entries("going back")
        tree = BranchTree(self.log)
        if tip not in {one.tip for one in tree.left}:
            raise InvalidInput(f"no branch that was left ends with message {tip}", place="branch")
        chain = tree.to(tip)
        keep = next(
            (at for at, (one, other) in enumerate(zip(chain, self.path_seqs, strict=False)) if one != other), None
        )
        keep = min(len(chain), len(self.path_seqs)) if keep is None else keep
        left = self.path_seqs[keep] if keep < len(self.path_seqs) else self.next_seq
        self.path = [tree.entries[seq].recorded for seq in chain]
        self.path_seqs = chain
        self._go_on_from(left, Branch(left, self.next_seq, tip))
        for seq in chain[keep:]:
            self._move_system_text(tree.entries[seq])
        self.unsent_from = min(self.unsent_from, chain[keep])
        return len(chain) - keep

    def _go_on_from(self, left: Seq, branch: Branch) -> None:
        """Show the path as it is now; folds from entry `left` on, and those that no longer hold, are taken back."""
        self.system_and_tools.drop_from(left)
        self.view.base_tokens = self.system_and_tools.tokens
        holding = self._rebuild({fold.id for fold in self.folds.values() if fold.stop <= left})
        # On another branch an older user message is the newest one, and a fold may now hide it: such folds go.
        while (hiding := _hides_newest(self.view)) is not None:
            holding = self._rebuild(holding - {hiding})
        lost = [Unfold(number) for number in sorted(self.folds, reverse=True) if number not in holding]
        self._drop_folds(lost)
        # The branch first: what was in effect when it was left can be read from the log.
        self.log.extend([branch, *lost])
        self.changes += lost
        self.unsent_from = min(self.unsent_from, left)

    def _move_system_text(self, entry: Entry) -> None:
        """Put system text that a dialect does not allow among the messages back into that of the request."""
        if entry.message.role == "system" and not self.codec.system_inside and not entry.hidden:
            readable = self.codec.read({**entry.recorded, "role": "user"})
            clean = self.codec.sanitize(readable, self.system_and_tools.tool_names).message
            if clean is not None:
                self.system_and_tools.append_text(entry.seq, clean)
                self.view.base_tokens = self.system_and_tools.tokens

    def rewind(self, seq: Seq) -> int:
        """Fork before the group of an entry; how many messages are left. Raises InvalidInput. O(log)."""
        self._require_all_entries("going back")
        if seq not in self.path_seqs:
            raise InvalidInput(f"there is no message {seq} on this branch", place="rewind")
        # A group is left as a whole: a call without its results would be answered by a stand-in.
        keep = next(at for at, here in enumerate(self.path_seqs) if here >= min(seq, self.view.entries[seq].group))
        count = len(self.path) - keep
        self.fork(keep)
        return count

    # --- folds -------------------------------------------------------------------------------------------------------

    def commit(self, fold: Fold, *, batch: int, again: bool = False, requested: bool = False) -> Fold | None:
        """Put a fold into effect and record it; None when the view refuses it, which is emitted.

        `again` marks a fold that was in effect before: it need not shrink by today's count. A recorded fold may have
        come from a compaction that a user `requested`. The log does not say, so it counts as one: what was legal then
        is not judged again.
        """
        try:
            # The archive comes first: what a fold hides must be readable from the moment at which it is hidden.
            key = self.originals.store(self.view, fold, self.view.is_form(fold))
            proposed = replace(fold, id=self.next_fold, archive=key, batch=batch)
            committed = self.view.commit(proposed, again=again, requested=requested)
        except FoldRefused as refused:
            self.emit(FoldFailed(fold.reducer, refused.reason, fold.start, fold.stop))
            return None
        self.next_fold += 1
        self.next_batch = max(self.next_batch, committed.batch + 1)
        self.folds[committed.id] = committed
        self.log.append(committed)
        self.changes.append(committed)
        self._close_groups(committed)
        self.meter.drop_offset()
        return committed

    def commit_recorded(self, fold: Fold) -> Fold | None:
        """Commit a fold of a recorded log under its own number, in its own batch."""
        self.next_fold = fold.id
        committed = self.commit(fold, batch=fold.batch, again=True, requested=True)
        self.skip(fold)
        return committed

    def skip(self, fold: Fold) -> None:
        """Leave the numbers of a recorded fold unused: later folds of the log count on from them."""
        self.next_fold = max(self.next_fold, fold.id + 1)
        self.next_batch = max(self.next_batch, fold.batch + 1)

    def last_batch(self) -> list[int]:
        """The folds in effect that were made in one call with the newest one; [] when there is none. O(folds)."""
        # By number and not by position: calls overlap, and the folds of two may lie between each other in the log.
        number = next((fold.batch for fold in reversed(self.folds.values()) if fold.batch >= 0), None)
        return [fold.id for fold in self.folds.values() if fold.batch == number]

    def unfold(self, folds: Collection[int]) -> tuple[Unfold, ...]:
        """Take folds back, last first. O(log): later messages may join groups that are shown again."""
        lost = [Unfold(number) for number in reversed(list(folds))]
        if lost:
            self._require_all_entries("taking back a fold")
            # A later fold may cover one that goes, or stand only because of it: what no longer holds goes as well.
            remain = self._rebuild(set(self.folds) - set(folds)) | set(folds)
            lost += [Unfold(number) for number in sorted(self.folds, reverse=True) if number not in remain]
            self._drop_folds(lost)
            self.log.extend(lost)
            self.changes += lost
        return tuple(lost)

    def _drop_folds(self, lost: Sequence[Unfold]) -> None:
        for event in lost:
            del self.folds[event.fold]

    def _close_groups(self, fold: Fold) -> None:
        if not fold.form:
            self.arrangement += 1
            self.pairing.close(fold.start, fold.stop)
            self.span_stop = max(self.span_stop, fold.stop)

    def _require_all_entries(self, what: str) -> None:
        if self.released:
            raise InvalidInput(f"{what} needs entries that were released; replay the log that was written down")

    # --- rebuilding --------------------------------------------------------------------------------------------------

    def _rebuild(self, folds: set[int]) -> set[int]:
        """Rebuild the view from the log, with the messages of the path and these folds; returns the folds that hold.

        A view has no way back from an entry or a fold: what one event changes depends on all before it. So a fork and
        an undo replay the log, at O(log), rather than keep an inverse of each change.
        """
        old, view = self.view, self.view.empty()
        self.arrangement += 1
        self.view, self.pairing = view, Pairing(self.codec)
        path, holding, at = set(self.path_seqs), set[int](), 0
        self.span_stop = 0
        for event in self.log:
            if isinstance(event, Entry) and event.seq in path:
                if event.seq > at:
                    view.cover_branch(at, event.seq)
                self._show_again(event)
                at = event.seq + 1
            elif isinstance(event, Branch) and event.stop > at:
                view.cover_branch(at, event.stop)
                at = event.stop
            elif isinstance(event, Pin) and event.seq in path:
                view.pin(event.seq, event.pinned)
            elif isinstance(event, Fold) and event.id in folds:
                try:
                    view.commit(event, again=True, requested=True)
                except FoldRefused as refused:
                    reason = f"no longer holds: {refused.reason}"
                    self.emit(FoldFailed(event.reducer, reason, event.start, event.stop))
                else:
                    holding.add(event.id)
                    self._close_groups(event)
        if at < self.next_seq:
            view.cover_branch(at, self.next_seq)
        # Entries of branches that were left stay readable (`peek`, `grep`) though no tile of the view shows them.
        view.entries |= {seq: entry for seq, entry in old.entries.items() if seq not in view.entries}
        self.meter.drop_offset()
        return holding

    def _show_again(self, entry: Entry) -> None:
        # Read and cleaned again from the recorded JSON: pairing may have renamed the calls of the entry on the branch
        # that was left, and the new branch starts from what came in.
        clean = self.codec.sanitize(self.codec.read(entry.recorded), self.system_and_tools.tool_names).message
        visible = clean is not None and entry.message.agent_visible
        message = _with_flags(clean, entry) if clean and visible else entry.message
        placed = self.pairing.place(entry.seq, message, self.view.reaches)
        again = replace(entry, message=placed.message, group=placed.group)
        self.view.append(again, placed, self.pairing.waits)

    # --- releasing ---------------------------------------------------------------------------------------------------

    def release(self, checkpoints: Collection[str]) -> int:
        """Drop entries that spans have folded, their forms and inner folds from memory; how many. O(in memory).

        Requests and later folds stay the same: reducers read what is shown. The newest fold by one of the reducers
        `checkpoints` stays, since `figures` start there.
        """
        view = self.view
        count = view.release()
        if not count:
            return 0
        self.released = True
        shown = {tile.fold.id for tile in view.tiles if tile.fold is not None}
        shown |= {form.id for tile in view.tiles for form in tile.forms.values()}
        shown |= {max((number for number, fold in self.folds.items() if fold.reducer in checkpoints), default=-1)}
        # `explain`, `undo` and the figures look folds up by their numbers: those of what is shown have to stay.
        self.folds = {number: fold for number, fold in self.folds.items() if number in shown}
        self.originals.retain(view.entries)
        pairs = zip(self.path, self.path_seqs, strict=True)
        path = [(wire, seq) for wire, seq in pairs if seq in view.entries]
        self.path, self.path_seqs = [wire for wire, _ in path], [seq for _, seq in path]

        def stays(event: Event) -> bool:
            if isinstance(event, Entry | Pin):
                return event.seq in view.entries
            return isinstance(event, Fold) and event.id in shown

        self.log.release(stays)
        return count


def _hides_newest(view: View) -> int | None:
    """The id of a fold that hides the newest user message unrequested, as after a fork; None if none does."""
    if view.newest_user is None or view.frees_newest(False):
        return None
    fold = view.tiles[view.index(view.newest_user)].fold
    return None if fold is None or any(m in fold.shown for m in view.residue(fold.start, fold.stop)) else fold.id


def _with_flags(message: Message, entry: Entry) -> Message:
    """A message with the flags that its entry was appended with."""
    was = entry.message
    return replace(
        message, pinned=was.pinned, agent_visible=was.agent_visible, user_visible=was.user_visible, kind=was.kind
    )


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a session that were left, and the way back to one; see `Context.branches`.

    `account` is told of every fold that a branch brings back.
    """

    _recorder: Recorder
    _account: Callable[[Fold], object]

    @property
    def left(self) -> tuple[LeftBranch, ...]:
        """The branches that were left (`rewind`) and that nothing went on from since, oldest first. O(log)."""
        return BranchTree(self._recorder.log).left

    def go_back(self, tip: Seq) -> int:
        """Go on from entry `tip`, the end of a left branch, with the folds it had; how many messages are back.

        What was sent until now is a left branch then. The folds are new events, in one batch: `undo` takes them back.
        Raises InvalidInput where no left branch ends there, and after `release`. O(log).
        """
        recorder = self._recorder
        had = BranchTree(recorder.log).folds_of(tip)
        count = recorder.go_back(tip)
        batch, first = recorder.next_batch, recorder.path_seqs[-count]
        for fold in had:
            # Those before the fork are in effect, or were taken back since. One that no longer holds stays away.
            again = recorder.commit(fold, batch=batch, again=True, requested=True) if fold.stop > first else None
            if again is not None:
                self._account(again)
        return count
