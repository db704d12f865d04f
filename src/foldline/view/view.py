"""The view: what the model is sent, as the projection of the log.

The view is a sequence of tiles that cover the log once, in order. A tile is a *block* (a run of entries that no group
leaves; each entry may be shown in a shorter form) or a *fold* over whole blocks. Appending costs O(size of the last
block); a fold costs O(what it covers); between folds nothing else is touched, and the rendered prefix is the same list
of the same objects.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from foldline.codecs.base import Codec
from foldline.codecs.limits import Amounts
from foldline.codecs.provider_state import is_provider_summary, may_begin, refers_to_stored_item
from foldline.errors import FoldRefused
from foldline.messages import Message, Opaque, Text, Wire
from foldline.text.identifiers import NameCounts
from foldline.text.memory import TextMemory
from foldline.tokens import Counter, message_tokens, wire_bytes
from foldline.view.calibration import Meter
from foldline.view.origins import OURS, Origin
from foldline.view.pairing import Placement, is_little_between, is_paired, is_unfinished
from foldline.view.rendering import Edit, TileRenderer
from foldline.view.running_totals import RunningTotals
from foldline.view.standing_rules import StandingRules
from foldline.view.tiles import (
    AT_SERVER,
    PROVIDER_SUMMARY,
    Span,
    Tile,
    VisibleMessage,
    begins_signed,
    blocks_of,
    entries_of,
    fold_tile,
    history,
    joint_places,
    leading_system_tokens,
)
from foldline.view.transcript import Entry, Fold, Repair, Seq
from foldline.view.user_words import asks, keeps_user_words, speaks, words_of

__all__ = ["LAST_RUNG", "LEAD", "REFUSED_PART", "View"]

LEAD = "[The conversation begins here.]"
"""Sent as the first user message where a provider wants one and the history has none (Anthropic Messages API)."""

REFUSED_PART = "refused-part"
"""What signs a form without a part that the provider refused: it is made of a pinned or a newest user message too."""

LAST_RUNG = "floor"
"""The reducer that runs where nothing else makes a request fit: it alone may shorten text beside an open pair."""


class View:
    """Tiles that cover the log exactly once, kept current one event at a time: entry, fold, pin, left branch.

    `tokens` is the running size of the whole request (system text and tools in `base_tokens` included), corrected by
    reported usage; every other figure is by our own count. `where` maps an archive key to a location for people.
    """

    def __init__(
        self,
        codec: Codec,
        counter: Counter,
        *,
        base_tokens: int = 0,
        counts_bytes: bool = False,
        where: Callable[[str], str] = str,
    ) -> None:
        self.codec = codec
        self.counter = counter
        self.base_tokens = base_tokens
        self.meter = Meter(scaled=getattr(counter, "scaled", True))
        self.counts_bytes, self.where = counts_bytes, where
        self.tiles: list[Tile] = []
        self.entries: dict[Seq, Entry] = {}
        self.newest_user: Seq | None = None
        # The first late result since the model's last message. It is news to the model, so that it counts as newest
        # and no fold may cover it, however far back in the log its call stands.
        self.unread: Seq | None = None
        self.compacted: Seq | None = None  # the newest message in which the provider stands for all before it
        self._name_counts, self.texts, self.rules = NameCounts(), TextMemory(counter), StandingRules(counter)
        self._renderer = TileRenderer(codec, counter, counts_bytes=counts_bytes)
        self._totals = RunningTotals(codec.write)
        self._lead, self._had_lead = codec.note(LEAD), False  # and whether it stood in the request before
        self.lead_tokens = message_tokens(self._lead, counter)
        # Newest user messages that a requested compaction has folded: a later fold may take them in.
        self._folded_users: set[Seq | None] = set()
        self._spared: Seq | None = None  # a folded newest user message that `release` kept in memory
        # Whether the running tool loop began with signed reasoning; None until it begins. Without it cuts were O(n²).
        self._loop_signed: bool | None = None

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def name_counts(self) -> Counts[str]:
        """How often the user or the agent used each name: those used often are needed again."""
        return self._name_counts.counts

    @property
    def tokens(self) -> int:
        """Size of the whole request as the provider would count it, by the reports so far. O(1)."""
        return self.meter.used(self.estimated_tokens)

    @property
    def estimated_tokens(self) -> int:
        """Size of the whole request by our own count: the sum of its parts. O(1)."""
        return self.base_tokens + self._totals.tokens + (self.lead_tokens if self.has_lead else 0)

    @property
    def has_lead(self) -> bool:
        """Whether a first user message has to be supplied, also where repair left no message at all."""
        # Read ten times a turn, so that the sums are looked at here and not through `shows`.
        totals = self._totals
        if totals.messages or totals.joints:
            return self.codec.user_first and (first := self.first_message()) is not None and not may_begin(first)
        return bool(self.tiles)

    def first_message(self) -> Message | None:
        """The first message sent, not counting the supplied one."""
        tile = self.after(0)
        return None if tile is None else tile.messages[0]

    @property
    def entries_and_folds(self) -> tuple[Entry | Fold, ...]:
        """Every entry that is shown, and every fold in place of entries, in order. O(shown)."""
        out: list[Entry | Fold] = []
        for tile in self.tiles:
            out += [tile.fold] if tile.fold else [tile.forms.get(entry.seq, entry) for entry in tile.entries]
        return tuple(out)

    def history(self) -> Iterator[VisibleMessage]:
        """Every entry with who sees it, and the messages that stand for folded ones. O(log)."""
        return history(self.tiles)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Every repair in effect, in order of the log. O(repairs)."""
        found = self._totals.repairs()
        if self.has_lead and not any(tile.fold for tile in self.tiles[:1]):
            found.insert(0, Repair(0, "user-first", "a first user message was supplied"))
        return tuple(found)

    def wires(self) -> tuple[list[Wire], int]:
        """The JSON messages to send, and how many leading ones equal those of the last call. O(changed) + one copy."""
        # Copies: what a caller does to the list must not reach the prefix that later requests are compared to.
        wires, stable = self._totals.wires(self.tiles)
        had_lead, self._had_lead = self._had_lead, self.has_lead
        # A lead that comes or goes moves every message by one place: nothing is stable then.
        if self._had_lead:
            return [self.codec.write(self._lead), *wires], stable + 1 if had_lead else 0
        return list(wires), 0 if had_lead else stable

    def origins(self) -> tuple[Origin, ...]:
        """Where each message of the last call of `wires` comes from. One copy."""
        return (OURS, *self._totals.origins) if self._had_lead else tuple(self._totals.origins)

    def shown(self) -> list[Wire]:
        """The JSON messages that `wires` would return, without counting them as sent. O(messages)."""
        lead = [self._lead] if self.has_lead else []
        return [self.codec.write(message) for message in [*lead, *(m for tile in self.tiles for m in tile.messages)]]

    @property
    def message_count(self) -> int:
        """Number of messages sent, without joints. O(1)."""
        return self._totals.messages

    @property
    def amounts(self) -> Amounts:
        """Images, pages and messages sent: what providers limit besides tokens. O(1)."""
        return self._totals.amounts

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages as JSON; 0 unless the view `counts_bytes`. O(1)."""
        return self._totals.size_bytes

    @property
    def turn_count(self) -> int:
        """Number of user messages shown in their own words. O(tiles)."""
        return sum(1 for tile in self.tiles if tile.fold is None for entry in tile.entries if speaks(entry.message))

    @property
    def content_bytes(self) -> int:
        """Bytes of contents and tool calls sent (S0.03), as `tokens.content_bytes` counts them. O(1)."""
        return self._totals.content_bytes

    def index(self, seq: Seq) -> int:
        """Number of the tile that covers entry `seq`. O(log tiles)."""
        return self._totals.index(seq)

    def count(self, message: Message) -> int:
        """Tokens of a message as this view counts them."""
        return message_tokens(message, self.counter)

    def measure(self, tile: Tile, forms: dict[Seq, Fold]) -> int:
        """Tokens of a block if its entries also had these forms. O(block)."""
        return self._renderer.block_tokens(tile, tile.forms | forms)

    @property
    def joint_tokens(self) -> int:
        """Tokens of the assistant's words between a message of ours and one of the user."""
        return self._renderer.joint_tokens

    def between(self, first: int, last: int) -> int:
        """Tokens of tiles [first, last). O(log tiles) between folds."""
        return self._totals.between(self.tiles, first, last)

    @property
    def fixed_tokens(self) -> int:
        """Size of the tools and the leading system text, which no fold can reduce. O(leading tiles)."""
        return self.base_tokens + leading_system_tokens(self.tiles)

    def newest(self, share: float, target_tokens: int) -> int:
        """First tile of the tail that stays when the view lands at `target_tokens`: `share` of its room for history.

        A late result that the model has not answered belongs to the tail, whatever it takes of the room.
        """
        # A share of the room for history, not of the target: tools may be most of a small window.
        first = self.tail(int(share * max(0, target_tokens - self.fixed_tokens)))
        return first if self.unread is None else min(first, self.index(self.unread))

    def tail(self, tokens: int) -> int:
        """First tile of the longest tail that holds at most `tokens`. O(log tiles) between folds."""
        return self._totals.tail(self.tiles, tokens)

    # --- legality ----------------------------------------------------------------------------------------------------

    def protected(self, index: int, *, requested: bool = False) -> str | None:
        """Why a tile may not be folded away, in a `requested` compaction or else; None if it may."""
        tile = self.tiles[index]
        if tile.fold is not None:
            return None
        if tile.system:
            return "system text"
        if tile.pinned:
            return "pinned"
        if self.compacted is not None and tile.start <= self.compacted < tile.stop:
            return PROVIDER_SUMMARY
        # A stored item is referred to alone, as the first entry of its block; other dialects have no such references.
        if any(refers_to_stored_item(entry.message) for entry in tile.entries[:1] if self.codec.itemised):
            return AT_SERVER
        # Only the last block can still get its result in place; an earlier open call has a stand-in already.
        if tile.waiting and index == self.last_block:
            return "call that waits for its result"
        if self._is_newest_user(tile) and not self.frees_newest(requested):
            return "newest user message"
        if self.unread is not None and any(seq >= self.unread for seq in tile.late_calls):
            return "late result that the model has not answered"
        return None

    def frees_newest(self, requested: bool) -> bool:
        """Whether the newest user message may be folded: only a compaction that a user requested does, once answered.

        What such a compaction has folded stays free: a later fold may take it in.
        """
        return self.newest_user in self._folded_users or (requested and self.answered())

    @property
    def last_block(self) -> int:
        """Number of the last tile that shows something or will; hidden entries and left branches do not."""
        index = len(self.tiles) - 1
        while index >= 0 and not self.tiles[index].messages and not self.tiles[index].waiting:
            index -= 1
        return index

    @property
    def request_bytes(self) -> int:
        """Bytes of the list of messages as JSON; about 0 unless the view counts them. O(1)."""
        # Each message has a comma or the closing bracket after it; the opening bracket is the last 1.
        lead = wire_bytes(self.codec.write(self._lead)) + 1 if self.counts_bytes and self.has_lead else 0
        return self.size_bytes + self._totals.shows + lead + 1

    def answered(self) -> bool:
        """Whether the session ends with a reply: an assistant message without calls that is not paused."""
        tile = next((tile for tile in reversed(self.tiles) if tile.messages), None)
        if tile is None or tile.messages[-1].role != "assistant" or tile.messages[-1].calls:
            return False
        return not is_paired(tile.messages[-1]) or not tile.waiting

    def may_cut(self, index: int) -> bool:
        """Whether a span may end before tile `index`.

        Anthropic, "Extended thinking with tool use": a running tool loop that began with thinking must go on with an
        assistant message that begins with thinking. Completed loops are free: earlier thinking is ignored there.
        """
        tile = self.after(index)
        if tile is None:
            return True
        running = self.newest_user is None or tile.start > self.newest_user
        leading = tile.leading
        if tile.fold is not None or not running or leading is None or leading.role != "assistant":
            return True
        return begins_signed(leading) or not self._loop_signed

    def spans(self, last: int | None = None, *, requested: bool = False) -> list[Span]:
        """The longest runs of tiles before tile `last` that may be folded, oldest first. O(tiles).

        `requested`: whether a user requested the compaction (`Need.requested`).
        """
        out: list[Span] = []
        end = len(self.tiles) if last is None else last
        # Folding what stands before the provider's own summary saves nothing: the provider leaves it out.
        first = 0 if self.compacted is None else min(end, self.index(self.compacted))
        while first < end:
            stop = first
            while stop < end and self.protected(stop, requested=requested) is None:
                stop += 1
            # Shrink to the last legal cut: a loop that began with signed reasoning must not lose its first message.
            cut = stop
            while cut > first and not self.may_cut(cut):
                cut -= 1
            if cut > first:
                out.append(self.span(first, cut))
            first = max(stop, first + 1)
        return out

    def span(self, first: int, last: int) -> Span:
        """Tiles [first, last) as a span."""
        return Span(first, last, self.tiles[first].start, self.tiles[last - 1].stop, self.between(first, last))

    def residue(self, start: Seq, stop: Seq, *, requested: bool = False) -> tuple[Message, ...]:
        """What must stay visible when [start, stop) is folded: the words (not the results) of the newest user."""
        seq = self.newest_user
        if seq is None or not start <= seq < stop or self.frees_newest(requested):
            return ()
        return (words_of(self.codec, self.entries[seq].message),)

    def with_rules(self, start: Seq, stop: Seq, shown: Sequence[Message], reducer: str) -> tuple[Message, ...]:
        """What a fold over [start, stop) shows, with the standing rules in it; the last rung does without. O(rules)."""
        if reducer == LAST_RUNG:
            return tuple(shown)
        folds = (tile.fold for tile in self.tiles[: self.index(start)] if tile.fold is not None)
        return self.rules.carried(self.codec, start, stop, shown, (m.text for fold in folds for m in fold.shown))

    def before(self, index: int) -> Message | None:
        """The last message shown before tile `index`."""
        while index > 0:
            index -= 1
            if self.tiles[index].messages:
                return self.tiles[index].messages[-1]
        return None

    def replied(self, index: int) -> bool:
        """Whether the assistant had the last word before tile `index`, under a fold too."""
        while index > 0:
            index -= 1
            if self.tiles[index].messages:
                return self.tiles[index].fold is None or self.tiles[index].replied
        return True

    def ends_replied(self, first: int, last: int) -> bool:
        """Whether tiles [first, last) end with words of the assistant."""
        message = self.before(last)
        ours = last > first and self.tiles[last - 1].fold is not None
        return self.replied(last) if ours else message is not None and message.role == "assistant"

    def next_shown(self, index: int) -> int | None:
        """Number of the first tile from `index` on that shows a message; None if there is none."""
        while index < len(self.tiles) and not self.tiles[index].messages:
            index += 1
        return index if index < len(self.tiles) else None

    def after(self, index: int) -> Tile | None:
        """The first tile from `index` on that shows a message."""
        found = self.next_shown(index)
        return None if found is None else self.tiles[found]

    def joining_tokens(self, first: int, last: int, shown: Sequence[Message]) -> int:
        """Tokens of the joints added when `shown` replaces tiles [first, last), less those that are removed. O(shown).

        Joints inside the replaced tiles count as part of them.
        """
        # A fold of a few tokens may cost more in joints than it saves: the comparison has to include them.
        count = len(joint_places(self.before(first), shown, replied=self.replied(first)))
        following = self.after(last)
        if following is not None and shown and (leading := following.leading) is not None:
            replied = self.ends_replied(first, last)
            count += len(joint_places(shown[-1], (leading,), replied=replied)) - (following.messages[0] is not leading)
        return count * self.joint_tokens

    def covered(self, start: Seq, stop: Seq) -> list[Entry]:
        """The entries of the active branch in [start, stop), in order. O(covered)."""
        tiles = self.tiles[self.index(start) : self.index(stop - 1) + 1]
        return [entry for tile in tiles for entry in entries_of(tile) if start <= entry.seq < stop]

    def covered_count(self, start: Seq, stop: Seq, *, seen: bool = False) -> int:
        """How many entries of the active branch the tiles of [start, stop) cover; with `seen`, only visible ones.

        Released entries count. O(tiles, and the entries of blocks).
        """
        tiles = self.tiles[self.index(start) : self.index(stop - 1) + 1]
        return sum(tile.count()[1 if seen else 0] for tile in tiles)

    # --- changing ----------------------------------------------------------------------------------------------------

    def append(self, entry: Entry, placed: Placement, waits: Callable[[Seq], bool]) -> None:
        """Add one entry; it joins the block of the group it answers, else begins a block. O(block).

        O(size of the message), besides copying references, for an item that joins a turn of items or its result.
        `placed` says what it answers, `waits` whether a call of a group from a seq on is still open.
        """
        # Four ways: a new block or an old one (`at`), rendered as a whole or by edits (`edits`).
        message = entry.message
        self.entries[entry.seq] = entry
        self.texts.note_reads(entry.seq, message, entry.tokens)
        self.rules.note(entry)
        at = len(self.tiles)
        if placed.joins is not None and self.reaches(placed.joins):
            at = self.index(placed.joins)
        for group in placed.late_groups:
            self._leave_out(self.index(group), placed.late)
        if at == len(self.tiles) and message.agent_visible:
            self._end()
        # A late result is shown as a note of ours, which only rendering the block as a whole puts in its place.
        edits = None if placed.late else self._edits(at, entry)
        block = self.tiles[at] if edits is not None else self._block_at(at, entry)
        block.entries.append(entry)
        block.stop = entry.seq + 1
        if placed.late:
            block.late_calls[entry.seq] = placed.late
            self.unread = entry.seq if self.unread is None else self.unread
        # A paused turn, an action without approval and reasoning alone wait for the rest, as an open call does.
        block.waiting = waits(block.start) or is_unfinished(self.codec, message)
        self._note_speaker(entry)
        if edits is None:
            self._refresh(at)
        else:
            self._splice(at, edits)
        if message.agent_visible and is_provider_summary(message):
            self._compact_before(entry.seq)

    def _block_at(self, at: int, entry: Entry) -> Tile:
        """The block that an entry joins from tile `at` on, all tiles after it merged into it; or a new block."""
        # An answer to an early call takes all tiles since into its block, because a block may have no group that leaves
        # it; `reaches` keeps that from tying the session together.
        if at == len(self.tiles):
            block = Tile(entry.seq, entry.seq + 1)
            self.tiles.append(block)
            self._totals.replace(at, at, (block,))
            return block
        merged = self.tiles[at:]
        block = merged[0]
        # A stand-in for this result was in the last request, so that the prefix changes here: that is reported. Where
        # no request went out in between nobody has seen one.
        stood_in = any(repair.rule == "missing-result" for repair in block.repairs)
        if len(merged) > 1 and self._totals.is_rendered(at) and stood_in:
            block.late = entry.seq
        for other in merged[1:]:
            block.entries += other.entries
            block.forms |= other.forms
            block.pinned |= other.pinned
            block.late_calls |= other.late_calls
            block.left_out |= other.left_out
        block.ended = False
        self._replace(at, len(self.tiles), [block])
        return block

    def _note_speaker(self, entry: Entry) -> None:
        """Keep what depends on who spoke last: the newest user message, the running loop, what the model has read."""
        message = entry.message
        # A session without a word of a user (all of it came from a client) protects its first user message instead.
        if speaks(message) or (self.newest_user is None and asks(message)):
            self.newest_user, self._loop_signed = entry.seq, None
        if message.role == "assistant":
            self.unread = None
            if self._loop_signed is None:
                self._loop_signed = begins_signed(message)
            self.meter.reply(entry.tokens, item=self.codec.itemised)
        if message.role != "tool":
            self._name_counts.add(message)

    def _compact_before(self, seq: Seq) -> None:
        """Count nothing before entry `seq`, whose summary by the provider replaces it. O(tiles)."""
        self.compacted = seq
        for index in range(self.index(seq) + 1):
            if self.tiles[index].tokens:
                self._refresh(index)
        self.meter.drop_offset()

    def reaches(self, group: Seq) -> bool:
        """Whether the next entry may join a group. O(tiles from there on).

        It may not where the group, or anything after it, is folded. Nor where a user has spoken since and much lies
        between: one block from there to here would hold the newest user's words, so that none of it could be folded.
        """
        found = self.index(group) if self.tiles else -1
        if found < 0 or any(tile.fold is not None for tile in self.tiles[found:]):
            return False
        stop = self.tiles[found].stop
        if self.newest_user is None or self.newest_user < stop:
            return True
        return is_little_between(entry.message for tile in self.tiles[found + 1 :] for entry in tile.entries)

    def cover_branch(self, start: Seq, stop: Seq) -> None:
        """Cover entries [start, stop) of a left branch with a tile that shows nothing."""
        self._replace(len(self.tiles), len(self.tiles), [Tile(start, stop)])
        self._refresh(len(self.tiles) - 1)

    def pin(self, seq: Seq, pinned: bool) -> None:
        """Protect the group of an entry, or stop protecting it. Raises FoldRefused when it is folded already."""
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
        # All checks come before the first change: a refused fold leaves the view as it was, whoever proposed it.
        first = self.index(fold.start)
        if first < 0 or fold.start >= fold.stop or fold.stop > self._stop:
            raise FoldRefused("outside the log", start=fold.start, stop=fold.stop)
        tile = self.tiles[first]
        if (entry := tile.entry_reformed_by(fold)) is not None:
            return self._commit_form(first, tile, entry, fold, again)
        last = self.index(fold.stop - 1) + 1
        if tile.start != fold.start or self.tiles[last - 1].stop != fold.stop:
            raise FoldRefused("it cuts through a group or a fold", start=fold.start, stop=fold.stop)
        for index in range(first, last):
            why = self.protected(index, requested=requested)
            # What only the provider can read may leave once the provider itself refuses it: keeping it would mean that
            # no request of the session ever succeeds again.
            goes = why in {PROVIDER_SUMMARY, AT_SERVER} and (again or fold.reducer == REFUSED_PART)
            if why is not None and not goes:
                raise FoldRefused(f"it covers what must stay ({why})", start=fold.start, stop=fold.stop)
        words = self.residue(fold.start, fold.stop, requested=requested)
        if any(message not in fold.shown for message in words):
            raise FoldRefused("the newest user's words are not in it", start=fold.start, stop=fold.stop)
        if not self.may_cut(last):
            raise FoldRefused("what follows depends on signed reasoning before it", start=fold.start, stop=fold.stop)
        before = self.between(first, last)
        if not again:
            fold = replace(fold, shown=self.with_rules(fold.start, fold.stop, fold.shown, fold.reducer))
        fold = self._shrinking(fold, before, again, self.joining_tokens(first, last, fold.shown))
        newest = self.newest_user
        if newest is not None and fold.start <= newest < fold.stop and self.frees_newest(requested):
            self._folded_users.add(newest)
        inner, replied = self.tiles[first:last], self.ends_replied(first, last)
        speaker = None if newest is None else self.entries[newest]
        over = fold_tile(fold, inner, self.codec, newest=speaker, replied=replied)
        self._replace(first, last, [over])
        self._refresh(first)
        return fold

    def release(self) -> int:
        """Release the entries under folds from memory; returns how many. O(tiles + released).

        Their numbers stay covered. A folded newest user message stays: `residue` and `protected` look at it.
        """
        count, spared = 0, None
        self._name_counts.count()  # it holds messages until they are counted
        for tile in self.tiles:
            if tile.fold is None or not tile.inner:
                continue
            for leaf in blocks_of(tile):
                for seq in range(leaf.start, leaf.stop):  # by number: entries of a left branch are in no tile
                    if seq == self.newest_user:
                        spared = seq
                    else:
                        count += self.entries.pop(seq, None) is not None
            tile.inner = []
        # The message spared by an earlier release may go once another one is the newest.
        if self._spared not in (None, self.newest_user):
            self.entries.pop(self._spared, None)
            self._spared = None
        self._spared = self._spared if spared is None else spared
        return count

    def is_form(self, fold: Fold) -> bool:
        """Whether a fold replaces the form of one entry and not whole tiles."""
        index = self.index(fold.start)
        return 0 <= index < len(self.tiles) and self.tiles[index].entry_reformed_by(fold) is not None

    def empty(self) -> View:
        """An empty view to replace this one: with its settings, and its last request to compare the next one to."""
        new = View(
            self.codec, self.counter, base_tokens=self.base_tokens, counts_bytes=self.counts_bytes, where=self.where
        )
        new.rules = self.rules.empty()
        new.meter = self.meter  # shared: its ratio is about the model, and a fork changes nothing about that
        new._totals.continue_from(self._totals)
        new._had_lead = self._had_lead
        return new

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _stop(self) -> Seq:
        return self.tiles[-1].stop if self.tiles else 0

    def _is_newest_user(self, tile: Tile) -> bool:
        """Whether a tile holds the newest user message, and nothing of it but its words."""
        if self.newest_user is None or not tile.start <= self.newest_user < tile.stop:
            return False
        # Results beside the words may be folded while the words stay (`residue`), unless their turn goes on.
        return tile.waiting or not self.entries[self.newest_user].message.results

    def _end(self) -> None:
        """Mark the last block as ended: something follows it, so that the provider continues nothing in it."""
        index = self.last_block
        tile = self.tiles[index] if index >= 0 else None
        if tile is not None and tile.waiting and not tile.ended:
            tile.ended = True
            if any(map(is_paired, (entry.message for entry in tile.entries))):
                self._refresh(index)

    def _leave_out(self, index: int, answered: Collection[str]) -> None:
        """Leave out the opening half of pairs whose answer became a note: providers take both halves or none."""
        tile = self.tiles[index] if index >= 0 else None
        if tile is None or tile.fold is not None:
            return
        opened = {p.opens for entry in tile.entries for p in entry.message.parts if isinstance(p, Opaque) and p.opens}
        if found := opened & set(answered):
            tile.left_out |= found
            self._refresh(index)

    def _commit_form(self, index: int, tile: Tile, entry: Entry, fold: Fold, again: bool) -> Fold:
        # A pinned group may still lose a part that its provider refuses: else no request would ever succeed again.
        refused = None
        if entry.message.role == "system":
            refused = "system text"
        elif tile.pinned and fold.reducer != REFUSED_PART:
            refused = "pinned"
        elif tile.waiting and index == self.last_block and not self._may_change(entry.message, fold):
            refused = "call that waits for its result"
        elif entry.seq == self.newest_user and not keeps_user_words(
            entry.message, fold.shown[0], parts_refused=fold.reducer == REFUSED_PART
        ):
            refused = "newest user message"
        if refused:
            raise FoldRefused(f"it covers what must stay ({refused})", start=fold.start, stop=fold.stop)
        fold = replace(self._shrinking(fold, tile.form_tokens(entry), again), form=True)
        tile.forms[entry.seq] = fold
        self._refresh(index)
        return fold

    def _may_change(self, message: Message, fold: Fold) -> bool:
        """Whether a fold may show another form of a message in a block that waits: its calls must stay unchanged."""
        if message.calls or not is_paired(message):
            return not message.calls
        blocks = [part.raw for part in message.parts if not isinstance(part, Text)]
        shown = [part.raw for part in fold.shown[0].parts if not isinstance(part, Text)]
        return fold.reducer == LAST_RUNG and shown == blocks

    def _shrinking(self, fold: Fold, before: int, again: bool, joining: int = 0) -> Fold:
        # Counted here: a reducer of a user may report any size, and every fold must shrink the view.
        tokens = sum(map(self.count, fold.shown))
        if max(tokens, tokens + joining) >= before and not again:
            why = f"it does not shrink ({before} tokens before, {tokens + max(0, joining)} after)"
            raise FoldRefused(why, start=fold.start, stop=fold.stop)
        return replace(fold, tokens=tokens, before_tokens=before)

    def _replace(self, first: int, last: int, tiles: list[Tile]) -> None:
        for tile in self.tiles[first:last]:
            self._totals.remove(tile)
        for tile in tiles:
            self._totals.add(tile)
        self.tiles[first:last] = tiles
        self._totals.replace(first, last, tiles)

    def _edits(self, index: int, entry: Entry) -> tuple[Edit, ...] | None:
        """What an entry changes in the block it joins; None when that block has to be made or rendered again."""
        # Where a turn is one message, appending to it is rare and cheap: only itemised dialects need edits.
        if not self.codec.itemised or index != len(self.tiles) - 1:
            return None
        return self._renderer.edits(self.tiles[index], entry)

    def _splice(self, index: int, edits: Sequence[Edit]) -> None:
        """Make these edits in a block, instead of rendering it again."""
        tile = self.tiles[index]
        self._totals.remove(tile)
        unchanged = self._renderer.splice(tile, edits)
        self._totals.add(tile)
        self._totals.invalidate(index, unchanged)

    def _refresh(self, index: int) -> None:
        """Render one tile again, and the joint before the next one. O(tile)."""
        # Taken out before and added after: the totals subtract the figures that the tile had when it was added.
        tile = self.tiles[index]
        self._totals.remove(tile)
        self._renderer.render(tile, self.before(index), replied=self.replied(index), compacted=self.compacted)
        self._totals.add(tile)
        self._totals.invalidate(index)
        # Whether a joint stands before the next tile follows from what this one ends with now.
        following = self.next_shown(index + 1)
        if following is not None and (leading := self.tiles[following].leading) is not None:
            joins = joint_places(self.before(following), (leading,), replied=self.replied(following))
            if bool(joins) != (self.tiles[following].messages[0] is not leading):
                self._refresh(following)
