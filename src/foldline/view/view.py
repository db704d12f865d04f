"""The view: what the model is sent, as the projection of the log.

The view is a sequence of tiles that cover the log once, in order. A tile is a *block* (a run of entries that no group
leaves; each entry may be shown in a shorter form) or a *fold* over whole blocks. Appending costs O(size of the last
block); a fold costs O(what it covers); between folds nothing else is touched, and the rendered prefix is the same list
of the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from foldline.codecs.provider_state import compacts
from foldline.errors import FoldRefused
from foldline.messages import Message, Opaque, Text
from foldline.tokens import content_bytes, wire_bytes
from foldline.view.coverage import Cover
from foldline.view.pairing import (
    Placed,
    arrange,
    is_given,
    is_little_between,
    is_paired,
    is_paused,
    is_reasoning,
    pair_ids,
)
from foldline.view.tiles import HELD, SUMMED_UP, Tile, asks, gaps, held_by, leaves, own_words, reasons, speaks
from foldline.view.transcript import Entry, Fold, Repair, Seq
from foldline.view.turn_rendering import Edit, grown

__all__ = ["LAST_RUNG", "REFUSED_PART", "View"]

REFUSED_PART = "refused-part"
"""What signs a form without a part that the provider refused: it is made of a pinned or a newest user message too."""

LAST_RUNG = "floor"
"""The reducer that runs where nothing else makes a request fit: it alone may shorten the text of a paused turn."""

T = TypeVar("T")


class View(Cover):
    """The projection of the log, changed one event at a time: an entry, a fold, a pin, a branch that was left."""

    # --- changing ----------------------------------------------------------------------------------------------------

    def append(self, entry: Entry, placed: Placed, waits: Callable[[Seq], bool]) -> None:
        """Take up one entry; it joins the block of the group it answers, else begins a block. O(block).

        An item that joins a turn of items, and a result of one: O(size of the message), besides copying references.

        `placed` says what it answers, `waits` whether a call of a group from a seq on is still open.
        """
        self.entries[entry.seq] = entry
        at = len(self.tiles)
        if placed.joins is not None and self.reaches(placed.joins):
            at = self.index(placed.joins)
        for group in placed.late_groups:
            self._leave_out(self.index(group), placed.late)
        if at == len(self.tiles) and entry.message.agent_visible:
            self._end()
        edits = None if placed.late else self._edits(at, entry)
        if edits is not None:
            block = self.tiles[at]
        elif at < len(self.tiles):
            merged = self.tiles[at:]
            block = merged[0]
            if (
                len(merged) > 1
                and self._ledger.rendered(at)
                and any(repair.rule == "missing-result" for repair in block.repairs)
            ):
                block.late = entry.seq
            for other in merged[1:]:
                block.entries += other.entries
                block.forms |= other.forms
                block.pinned |= other.pinned
                block.told |= other.told
                block.left_out |= other.left_out
            block.ended = False
            self._replace(at, len(self.tiles), [block])
        else:
            block = Tile(entry.seq, entry.seq + 1)
            self.tiles.append(block)
            self._ledger.replace(at, at, (block,))
        block.entries.append(entry)
        block.stop = entry.seq + 1
        if placed.late:
            block.told[entry.seq] = placed.late
            self.unread = entry.seq if self.unread is None else self.unread
        block.waiting = waits(block.start) or self._is_unfinished(entry.message)
        if speaks(entry.message) or (self.newest_user is None and asks(entry.message)):
            self.newest_user, self._loop_reasons = entry.seq, None
        if entry.message.role == "assistant":
            self.unread = None
            if self._loop_reasons is None:
                self._loop_reasons = reasons(entry.message)
            self.meter.reply(entry.tokens, item=self.codec.itemised)
        if entry.message.role != "tool":
            self._spoken.add(entry.message)
        if edits is None:
            self._refresh(at)
        else:
            self._splice(at, edits)
        if entry.message.agent_visible and compacts(entry.message):
            self._sum_up(entry.seq)

    def _sum_up(self, seq: Seq) -> None:
        """From here on the provider stands for what was before: it counts nothing any more. O(tiles)."""
        self.compacted = seq
        for index in range(self.index(seq) + 1):
            if self.tiles[index].tokens:
                self._refresh(index)
        self.meter.folded()

    def reaches(self, group: Seq) -> bool:
        """Whether the next entry may join a group. O(tiles from there on).

        Not where it is folded, or something after it. Nor where a user has spoken since and much has been said: one
        block from there to here would hold the newest user's words, and could not be folded any more.
        """
        found = self.index(group) if self.tiles else -1
        if found < 0 or any(tile.fold is not None for tile in self.tiles[found:]):
            return False
        stop = self.tiles[found].stop
        if self.newest_user is None or self.newest_user < stop:
            return True
        return is_little_between(entry.message for tile in self.tiles[found + 1 :] for entry in tile.entries)

    def leave(self, start: Seq, stop: Seq) -> None:
        """Stand for entries [start, stop) of a branch that was left: they are covered, and show nothing."""
        self._replace(len(self.tiles), len(self.tiles), [Tile(start, stop)])
        self._refresh(len(self.tiles) - 1)

    def pin(self, seq: Seq, pinned: bool) -> None:
        """Protect the group of an entry, or stop protecting it. Raises FoldRefused when it is already folded."""
        tile = self.tiles[self.index(seq)]
        if tile.fold is not None:
            raise FoldRefused("already folded; undo the fold first", start=tile.start, stop=tile.stop)
        tile.pinned = pinned

    def commit(self, fold: Fold, *, again: bool = False, requested: bool = False) -> Fold:
        """Put a fold into effect; returns it with its size before. Raises FoldRefused. O(what it covers).

        A fold over whole tiles replaces them; a fold over one entry that keeps its calls and results replaces the form
        of that entry inside its block. One that was in effect before (`again`) shrank by the count of then, which need
        not be that of now. Only a fold of a `requested` compaction may cover the newest user message.
        """
        first = self.index(fold.start)
        if first < 0 or fold.start >= fold.stop or fold.stop > self._stop:
            raise FoldRefused("outside the log", start=fold.start, stop=fold.stop)
        tile = self.tiles[first]
        if (entry := self._paired(tile, fold)) is not None:
            return self._commit_form(first, tile, entry, fold, again)
        last = self.index(fold.stop - 1) + 1
        if tile.start != fold.start or self.tiles[last - 1].stop != fold.stop:
            raise FoldRefused("it cuts through a group or a fold", start=fold.start, stop=fold.stop)
        for index in range(first, last):
            why = self.protected(index, requested=requested)
            if why is not None and not (why in {SUMMED_UP, HELD} and (again or fold.reducer == REFUSED_PART)):
                raise FoldRefused(f"it covers what must stay ({why})", start=fold.start, stop=fold.stop)
        if any(message not in fold.shown for message in self.residue(fold.start, fold.stop, requested=requested)):
            raise FoldRefused("the newest user's words are not in it", start=fold.start, stop=fold.stop)
        if not self.cut(last):
            raise FoldRefused("what follows depends on signed reasoning before it", start=fold.start, stop=fold.stop)
        before = self.between(first, last)
        fold = self._shrinking(fold, before, again, self.joining_tokens(first, last, fold.shown))
        free = self.frees_newest(requested)
        if self.newest_user is not None and fold.start <= self.newest_user < fold.stop and free:
            self._folded_users.add(self.newest_user)
        under = self.tiles[first:last]
        counts = [inner.count() for inner in under]
        covers = sum(count for count, _ in counts), sum(seen for _, seen in counts)
        replied = self.ends_replied(first, last)
        tile = Tile(fold.start, fold.stop, fold=fold, under=under, covers=covers, replied=replied)
        self._replace(first, last, [tile])
        self._refresh(first)
        return fold

    def release(self) -> int:
        """Let go of the entries under folds; how many. O(tiles + what is let go of).

        Their numbers stay covered. A folded newest user message stays: it says what may be folded next.
        """
        count, spared = 0, None
        self._spoken.count()  # messages that wait for it would stay in memory
        for tile in self.tiles:
            if tile.fold is None or not tile.under:
                continue
            for leaf in leaves(tile):
                for seq in range(leaf.start, leaf.stop):  # those of a branch that was left stand in no tile
                    if seq == self.newest_user:
                        spared = seq
                    else:
                        count += self.entries.pop(seq, None) is not None
            tile.under = []
        if self._spared not in (None, self.newest_user):
            self.entries.pop(self._spared, None)
            self._spared = None
        self._spared = self._spared if spared is None else spared
        return count

    def is_form(self, fold: Fold) -> bool:
        """Whether a fold replaces (or would replace) the form of one entry, not whole tiles."""
        index = self.index(fold.start)
        return 0 <= index < len(self.tiles) and self._paired(self.tiles[index], fold) is not None

    def empty(self) -> View:
        """A view of the same kind with nothing in it."""
        new = View(self.codec, self.counter, base_tokens=self.base_tokens, weighed=self.weighed, where=self.where)
        new.meter = self.meter
        new._ledger.follow(self._ledger)
        new._led = self._led
        return new

    def hides_newest(self) -> int | None:
        """The id of a fold over the newest user message that no compaction was asked for; None if it is shown."""
        if self.newest_user is None or self.newest_user in self._folded_users:
            return None
        fold = self.tiles[self.index(self.newest_user)].fold
        return None if fold is None or any(m in fold.shown for m in self.residue(fold.start, fold.stop)) else fold.id

    # --- inside ------------------------------------------------------------------------------------------------------

    def _paired(self, tile: Tile, fold: Fold) -> Entry | None:
        """The entry whose form a fold replaces: same calls, same results; None when the fold is about whole tiles."""
        if tile.fold is not None or fold.stop - fold.start != 1:
            return None
        entry = next((e for e in tile.entries if e.seq == fold.start), None)
        if entry is None or len(fold.shown) != 1:
            return None
        old, new = entry.message, fold.shown[0]
        ids = pair_ids(old)
        if not ids and len(tile.entries) == 1 and new.role != old.role:
            return None
        same = pair_ids(new) == ids
        return entry if same and new.role == old.role and (ids or len(tile.entries) > 1 or not new.kind) else None

    def _end(self) -> None:
        """Note that something follows the last block, so that the provider goes on with nothing in it."""
        index = self.last_block
        tile = self.tiles[index] if index >= 0 else None
        if tile is not None and tile.waiting and not tile.ended:
            tile.ended = True
            if any(map(is_paired, (entry.message for entry in tile.entries))):
                self._refresh(index)

    def _leave_out(self, index: int, answered: Collection[str]) -> None:
        """Leave out what opened a pair in a block, where its answer can only be told in words: both halves, or none."""
        tile = self.tiles[index] if index >= 0 else None
        if tile is None or tile.fold is not None:
            return
        opened = {p.opens for entry in tile.entries for p in entry.message.parts if isinstance(p, Opaque) and p.opens}
        if found := opened & set(answered):
            tile.left_out |= found
            self._refresh(index)

    def _is_unfinished(self, message: Message) -> bool:
        """Whether more is sure to follow a message: what reasoning led to, what was approved, a paused turn's rest."""
        if self.codec.itemised:
            return is_reasoning(message) or (message.agent_visible and is_given(message))
        return message.agent_visible and is_paused(message)

    def _commit_form(self, index: int, tile: Tile, entry: Entry, fold: Fold, again: bool) -> Fold:
        refused = None
        if entry.message.role == "system":
            refused = "system text"
        elif tile.pinned and fold.reducer != REFUSED_PART:
            refused = "pinned"
        elif tile.waiting and index == self.last_block and not self._may_change(entry.message, fold):
            refused = "call that waits for its result"
        elif entry.seq == self.newest_user and not _keeps_words(entry.message, fold):
            refused = "newest user message"
        if refused:
            raise FoldRefused(f"it covers what must stay ({refused})", start=fold.start, stop=fold.stop)
        fold = replace(self._shrinking(fold, tile.form_tokens(entry), again), form=True)
        tile.forms[entry.seq] = fold
        self._refresh(index)
        return fold

    def _may_change(self, message: Message, fold: Fold) -> bool:
        """Whether a fold may show another form of a message in a block that waits: calls must stay as they are."""
        if message.calls or not is_paired(message):
            return not message.calls
        if is_paused(message):
            return False
        kept = [part.raw for part in message.parts if not isinstance(part, Text)]
        shown = [part.raw for part in fold.shown[0].parts if not isinstance(part, Text)]
        return fold.reducer == LAST_RUNG and shown == kept

    def _shrinking(self, fold: Fold, before: int, again: bool, joining: int = 0) -> Fold:
        tokens = sum(map(self.count, fold.shown))  # ours: what a reducer says of itself is not the measure
        if max(tokens, tokens + joining) >= before and not again:
            why = f"it does not shrink ({before} tokens before, {tokens + max(0, joining)} after)"
            raise FoldRefused(why, start=fold.start, stop=fold.stop)
        return replace(fold, tokens=tokens, before_tokens=before)

    def _replace(self, first: int, last: int, tiles: list[Tile]) -> None:
        for tile in self.tiles[first:last]:
            self._ledger.account(tile, -1)
        for tile in tiles:
            self._ledger.account(tile, 1)
        self.tiles[first:last] = tiles
        self._ledger.replace(first, last, tiles)

    def measure(self, tile: Tile, forms: dict[Seq, Fold]) -> int:
        """Tokens of a block if these forms of its entries were shown besides those that are. O(block)."""
        return sum(self._rendered(tile, tile.forms | forms)[1])

    def _edits(self, index: int, entry: Entry) -> tuple[Edit, ...] | None:
        """What an entry changes in the block it joins; None when that block has to be made or rendered again."""
        if not self.codec.itemised or index != len(self.tiles) - 1:
            return None
        tile = self.tiles[index]
        if tile.forms or tile.told or tile.late is not None or not tile.entries:
            return None
        growth = tile.growth or grown(self.codec, tile.entries)
        edits = None if growth is None else growth.take(entry)
        tile.growth = None if edits is None else growth
        return edits

    def _splice(self, index: int, edits: Sequence[Edit]) -> None:
        """Change the rendering of a block where its growth says, instead of rendering it again."""
        tile = self.tiles[index]
        self._ledger.account(tile, -1)
        known = {id(entry.message): entry.tokens for entry in tile.entries[-8:]}  # else it is counted again
        for at, gone, new in edits:
            stop = at + gone
            weights = [known.get(id(m)) or self.count(m) for m in new]
            contents = list(map(content_bytes, new))
            tile.tokens += sum(weights) - sum(tile.weights[at:stop])
            tile.content_bytes += sum(contents) - sum(tile.contents[at:stop])
            if self.weighed:
                tile.size_bytes += self._bytes(new) - self._bytes(tile.messages[at:stop])
            tile.amounts = held_by(new, tile.amounts - held_by(tile.messages[at:stop]))
            tile.messages[at:stop] = new
            tile.weights[at:stop] = weights
            tile.contents[at:stop] = contents
        self._ledger.account(tile, 1)
        self._ledger.touch(index, min((at for at, _, _ in edits), default=len(tile.messages)))

    def _bytes(self, messages: Sequence[Message]) -> int:
        return sum(wire_bytes(self.codec.write(message)) for message in messages)

    def _refresh(self, index: int) -> None:
        """Render one tile again, and the joint before the next one."""
        tile = self.tiles[index]
        self._ledger.account(tile, -1)
        tile.growth = None
        measured = {id(m): (size, m) for m, size in zip(tile.messages, tile.contents, strict=True)}
        if tile.fold is not None:
            tile.messages, tile.noted = list(tile.fold.shown), ()
            tile.weights = list(map(self.count, tile.messages))
        else:
            tile.messages, tile.weights, found = self._rendered(tile, tile.forms)
            faults = (Repair(entry.seq, "message", fault) for entry in tile.entries for fault in entry.faults)
            if tile.late is not None and not found:
                found = (Repair(tile.late, "late-result", "it came when an answer in its place had been sent"),)
            tile.noted = (*faults, *found)
        places = gaps(self.before(index), tile.messages, replied=self.replied(index))
        tile.joints = len(places)
        if places:
            tile.messages = _with(tile.messages, places, self.joint)
            tile.weights = _with(tile.weights, places, self.joint_tokens)
        tile.weights = self.counting(tile)
        tile.contents = [measured[id(m)][0] if id(m) in measured else content_bytes(m) for m in tile.messages]
        tile.tokens, tile.content_bytes = sum(tile.weights), sum(tile.contents)
        tile.amounts = held_by(tile.messages)
        tile.size_bytes = self._bytes(tile.messages) if self.weighed else 0
        self._ledger.account(tile, 1)
        self._ledger.touch(index)
        following = self.shows(index + 1)
        if following is not None and (leading := self.tiles[following].leading) is not None:
            joins = gaps(self.before(following), (leading,), replied=self.replied(following))
            if bool(joins) != (self.tiles[following].messages[0] is not leading):
                self._refresh(following)

    def _rendered(self, tile: Tile, forms: dict[Seq, Fold]) -> tuple[list[Message], list[int], tuple[Repair, ...]]:
        """The messages of a block in these forms, their sizes, and what was repaired."""
        known: dict[int, int] = {}
        block: list[tuple[Seq, Message]] = []
        for entry in tile.entries:
            fold = forms.get(entry.seq)
            form, tokens = (entry.message, entry.tokens) if fold is None else (fold.shown[0], fold.tokens)
            known[id(form)] = tokens
            if form.agent_visible:
                block.append((entry.seq, form))
        messages, repairs = arrange(self.codec, block, told=tile.told, left_out=tile.left_out, ended=tile.ended)
        return list(messages), [known.get(id(m)) or self.count(m) for m in messages], repairs


def _keeps_words(old: Message, fold: Fold) -> bool:
    """Whether a form says all that the user said; what is no text may leave when the provider refused it."""
    new = fold.shown[0]
    before, after = own_words(old), own_words(new)
    if fold.reducer != REFUSED_PART or not new.agent_visible:
        return before == after
    said = [part.text for part in after if isinstance(part, Text)]
    return all(part.text in said for part in before if isinstance(part, Text))


def _with(items: list[T], places: Sequence[int], item: T) -> list[T]:
    """The items, with one more before each of these places."""
    out = list(items)
    for place in reversed(places):
        out.insert(place, item)
    return out
