"""What a view covers and shows, and where it may be folded: the half of a view that changes nothing.

Reducers read this. A view is a sequence of tiles that cover the log once, in order: *blocks* (runs of entries that no
group leaves) and *folds* over whole blocks.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator, Sequence

from foldline.codecs.base import Codec
from foldline.codecs.caps import Amounts
from foldline.codecs.provider_state import refers, summed_up
from foldline.messages import Message, ToolResult, Wire
from foldline.text.identifiers import SpokenNames
from foldline.tokens import Counter, message_tokens, wire_bytes
from foldline.view.calibration import Meter
from foldline.view.pairing import is_paired
from foldline.view.running_totals import Ledger
from foldline.view.tiles import HELD, JOINT, SUMMED_UP, Seen, Span, Tile, entries_of, gaps, history, reasons, speaks
from foldline.view.transcript import Entry, Fold, Repair, Seq

__all__ = ["LEAD", "Cover"]

LEAD = "[The conversation begins here.]"
"""Sent as the first user message where a provider wants one and the history has none (Anthropic Messages API)."""


UNDERSTOOD = "Understood."
"""The assistant's words between a message of ours and one of the user: templates want roles that alternate."""


class Cover:
    """Tiles that cover the log exactly once, kept current one event at a time.

    `tokens` is the running size of the whole request (system text and tools in `base_tokens` included), corrected by
    reported usage; every other figure is by our own count.
    """

    def __init__(
        self,
        codec: Codec,
        counter: Counter,
        *,
        base_tokens: int = 0,
        weighed: bool = False,
        where: Callable[[str], str] = str,
    ) -> None:
        self.codec = codec
        self.counter = counter
        self.base_tokens = base_tokens
        self.meter = Meter(scaled=getattr(counter, "scaled", True))
        self.weighed = weighed
        self.where = where
        """Where the archive keeps an object, from its key."""
        self._spoken = SpokenNames()
        self.tiles: list[Tile] = []
        self.entries: dict[Seq, Entry] = {}
        self.newest_user: Seq | None = None
        self.unread: Seq | None = None
        """The first late result since the model's last message: the newest thing there is, whatever the room."""
        self.compacted: Seq | None = None  # the newest message in which the provider stands for all before it
        self._folded_users: set[Seq | None] = set()
        self._spared: Seq | None = None
        """A folded newest user message that stayed when entries were let go of."""
        self._loop_reasons: bool | None = None
        """Whether the running tool loop began with signed reasoning; None until it begins."""
        self._ledger = Ledger(codec.write)
        self._lead = codec.note(LEAD)
        self._led = False
        """Whether the supplied first message stood in the request before."""
        self.lead_tokens = message_tokens(self._lead, counter)
        self.joint = codec.note(UNDERSTOOD, role="assistant", kind=JOINT)
        """What the assistant says between a message of ours and one of the user."""
        self.joint_tokens = message_tokens(self.joint, counter)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def spoken(self) -> Counts[str]:
        """How often the user or the agent used a name: what is asked for again is most often among them."""
        return self._spoken.counts

    @property
    def tokens(self) -> int:
        """Size of the whole request as the provider would count it, as far as is known. O(1)."""
        return self.meter.used(self.estimated_tokens)

    @property
    def estimated_tokens(self) -> int:
        """Size of the whole request by our own count: the sum of its parts. O(1)."""
        return self.base_tokens + self._ledger.tokens + (self.lead_tokens if self.leads else 0)

    @property
    def leads(self) -> bool:
        """Whether a first user message has to be supplied (one also stands when repair left nothing)."""
        if self._ledger.shows:
            return self.codec.user_first and (first := self.first_message()) is not None and first.role != "user"
        return bool(self.tiles)

    def first_message(self) -> Message | None:
        """The first message that is sent, the supplied one aside."""
        for tile in self.tiles:
            if tile.messages:
                return tile.messages[0]
        return None

    @property
    def entries_and_folds(self) -> tuple[Entry | Fold, ...]:
        """What is shown at each place: an entry, or the fold that stands for it. O(shown)."""
        out: list[Entry | Fold] = []
        for tile in self.tiles:
            out += [tile.fold] if tile.fold else [tile.forms.get(entry.seq, entry) for entry in tile.entries]
        return tuple(out)

    def history(self) -> Iterator[Seen]:
        """Every entry and who sees it, and what stands for folded ones. O(log)."""
        return history(self.tiles)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Every repair in effect, in order of the log. O(repairs)."""
        found = self._ledger.repairs()
        if self.leads and not any(tile.fold for tile in self.tiles[:1]):
            found.insert(0, Repair(0, "user-first", "a first user message was supplied"))
        return tuple(found)

    def wires(self) -> tuple[list[Wire], int]:
        """The JSON messages to send, and how many leading ones are as at the last call. O(what changed) + one copy."""
        wires, stable = self._ledger.wires(self.tiles)
        led, self._led = self._led, self.leads
        if self._led:
            return [self.codec.write(self._lead), *wires], stable + 1 if led else 0
        return list(wires), 0 if led else stable

    def shown(self) -> list[Wire]:
        """The JSON messages as `wires` would give them, but not taken for sent. O(messages)."""
        lead = [self._lead] if self.leads else []
        return [self.codec.write(message) for message in [*lead, *(m for tile in self.tiles for m in tile.messages)]]

    @property
    def message_count(self) -> int:
        """Messages that are sent, joints aside. O(1)."""
        return self._ledger.messages

    @property
    def amounts(self) -> Amounts:
        """Images and what else is limited besides tokens, of all that is sent. O(1)."""
        return self._ledger.amounts

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages as JSON; 0 unless the view is `weighed`. O(1)."""
        return self._ledger.size_bytes

    @property
    def turn_count(self) -> int:
        """User messages that are shown in their own words. O(tiles)."""
        return sum(1 for tile in self.tiles if tile.fold is None for entry in tile.entries if speaks(entry.message))

    @property
    def content_bytes(self) -> int:
        """Bytes of contents and tool calls (S0.03): `tokens.content_bytes` over what is sent. O(1)."""
        return self._ledger.content_bytes

    def index(self, seq: Seq) -> int:
        """Number of the tile that covers entry `seq`. O(log tiles)."""
        return self._ledger.index(seq)

    def count(self, message: Message) -> int:
        """Tokens of a message as this view counts them."""
        return message_tokens(message, self.counter)

    def between(self, first: int, last: int) -> int:
        """Tokens of tiles [first, last). O(log tiles) between folds."""
        return self._ledger.between(self.tiles, first, last)

    @property
    def fixed_tokens(self) -> int:
        """Size of tools and of the system text before everything else: no fold reaches them. O(leading tiles)."""
        leading = 0
        while leading < len(self.tiles) and self.tiles[leading].system:
            leading += 1
        return self.base_tokens + self.between(0, leading)

    def newest(self, share: float, target_tokens: int) -> int:
        """First tile of the tail that stays when the view lands at `target_tokens`: `share` of its room for history.

        A late result that the model has not answered is not old, however much of the room it takes.
        """
        first = self.tail(int(share * max(0, target_tokens - self.fixed_tokens)))
        return first if self.unread is None else min(first, self.index(self.unread))

    def tail(self, tokens: int) -> int:
        """First tile of the longest tail that holds at most `tokens`. O(log tiles) between folds."""
        return self._ledger.tail(self.tiles, tokens)

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
            return SUMMED_UP
        if any(refers(entry.message) for entry in tile.entries[:1] if self.codec.itemised):
            return HELD
        if tile.waiting and index == self.last_block:
            return "call that waits for its result"
        if self._holds_newest(tile) and not self._mixed(tile) and not self.frees_newest(requested):
            return "newest user message"
        if self.unread is not None and any(seq >= self.unread for seq in tile.told):
            return "late result that the model has not answered"
        return None

    def frees_newest(self, requested: bool) -> bool:
        """Whether the newest user message may be folded: only a compaction that a user requested does, once answered.

        What such a compaction has folded stays free: a later fold may take it in.
        """
        return self.newest_user in self._folded_users or (requested and self.answered())

    @property
    def last_block(self) -> int:
        """Number of the last tile that shows something, or will: what is hidden, or was left by a fork, does not."""
        index = len(self.tiles) - 1
        while index >= 0 and not self.tiles[index].messages and not self.tiles[index].waiting:
            index -= 1
        return index

    @property
    def request_bytes(self) -> int:
        """Bytes of the list of messages as JSON; about 0 unless the view is weighed. O(1)."""
        lead = wire_bytes(self.codec.write(self._lead)) + 1 if self.weighed and self.leads else 0
        return self.size_bytes + self.message_count + self._ledger.joints + lead + 1

    def answered(self) -> bool:
        """Whether the session ends with a reply: an assistant message that calls nothing, and is not paused."""
        tile = next((tile for tile in reversed(self.tiles) if tile.messages), None)
        if tile is None or tile.messages[-1].role != "assistant" or tile.messages[-1].calls:
            return False
        return not is_paired(tile.messages[-1]) or not tile.waiting

    def cut(self, index: int) -> bool:
        """Whether a span may end before tile `index`.

        Anthropic, "Extended thinking with tool use": a running tool loop that began with thinking must go on with an
        assistant message that begins with thinking. Completed loops are free: earlier thinking is ignored there.
        """
        while index < len(self.tiles) and not self.tiles[index].messages:
            index += 1
        if index >= len(self.tiles):
            return True
        tile = self.tiles[index]
        running = self.newest_user is None or tile.start > self.newest_user
        leading = tile.leading
        if tile.fold is not None or not running or leading is None or leading.role != "assistant":
            return True
        return reasons(leading) or not self._loop_reasons

    def spans(self, last: int | None = None, *, requested: bool = False) -> list[Span]:
        """The longest runs of tiles before tile `last` that may be folded, oldest first. O(tiles).

        `requested`: whether a user requested the compaction (`Need.requested`).
        """
        out: list[Span] = []
        end = len(self.tiles) if last is None else last
        first = 0 if self.compacted is None else min(end, self.index(self.compacted))  # before it nothing counts
        while first < end:
            if self.protected(first, requested=requested) is not None:
                first += 1
                continue
            stop = first
            while stop < end and self.protected(stop, requested=requested) is None:
                stop += 1
            cut = stop
            while cut > first and not self.cut(cut):
                cut -= 1
            if cut > first:
                out.append(self.span(first, cut))
            first = max(stop, first + 1)
        return out

    def span(self, first: int, last: int) -> Span:
        """Tiles [first, last) as a span."""
        return Span(first, last, self.tiles[first].start, self.tiles[last - 1].stop, self.between(first, last))

    def cuts(self) -> tuple[Seq, ...]:
        """Every place where a span may end. O(tiles)."""
        return tuple(
            self.tiles[i].start if i < len(self.tiles) else self._stop
            for i in range(len(self.tiles) + 1)
            if self.cut(i)
        )

    def residue(self, start: Seq, stop: Seq, *, requested: bool = False) -> tuple[Message, ...]:
        """What must stay visible when [start, stop) is folded: the newest user's words beside results."""
        seq = self.newest_user
        if seq is None or not start <= seq < stop or self.frees_newest(requested):
            return ()
        entry = self.entries[seq]
        if not entry.message.results:
            return (entry.message,)
        return (self.codec.revise(entry.message, [p for p in entry.message.parts if not isinstance(p, ToolResult)]),)

    def before(self, index: int) -> Message | None:
        """The last message that is shown before tile `index`."""
        while index > 0:
            index -= 1
            if self.tiles[index].messages:
                return self.tiles[index].messages[-1]
        return None

    def replied(self, index: int) -> bool:
        """Whether what is shown before tile `index` stands for something that ended with words of the assistant."""
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

    def shows(self, index: int) -> int | None:
        """Number of the first tile from `index` on that shows a message."""
        while index < len(self.tiles) and not self.tiles[index].messages:
            index += 1
        return index if index < len(self.tiles) else None

    def after(self, index: int) -> Tile | None:
        """The first tile from `index` on that shows a message."""
        found = self.shows(index)
        return None if found is None else self.tiles[found]

    def joining_tokens(self, first: int, last: int, shown: Sequence[Message]) -> int:
        """Tokens of the joints that are needed when tiles [first, last) are shown as this, less those that go.

        O(shown). Joints inside the tiles count as what is shown there now.
        """
        count = len(gaps(self.before(first), shown, replied=self.replied(first)))
        following = self.after(last)
        if following is not None and shown and (leading := following.leading) is not None:
            replied = self.ends_replied(first, last)
            count += len(gaps(shown[-1], (leading,), replied=replied)) - (following.messages[0] is not leading)
        return count * self.joint_tokens

    def covered(self, start: Seq, stop: Seq) -> list[Entry]:
        """The entries of the active branch in [start, stop), in order. O(covered)."""
        out: list[Entry] = []
        for tile in self.tiles[self.index(start) : self.index(stop - 1) + 1]:
            out += [entry for entry in entries_of(tile) if start <= entry.seq < stop]
        return out

    def covered_count(self, start: Seq, stop: Seq, *, seen: bool = False) -> int:
        """How many entries of the active branch whole tiles [start, stop) cover, or those the model was to see.

        Those that were let go of count. O(tiles, and the entries of blocks).
        """
        tiles = self.tiles[self.index(start) : self.index(stop - 1) + 1]
        return sum(tile.count()[1 if seen else 0] for tile in tiles)

    def counting(self, tile: Tile) -> list[int]:
        """The weights of a tile, 0 for what the provider leaves out since a summary of its own stands for it."""
        if self.compacted is None or tile.start > self.compacted or tile.system:
            return tile.weights
        at = len(tile.messages) if tile.stop <= self.compacted else summed_up(tile.messages)
        return [0] * at + tile.weights[at:]

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _stop(self) -> Seq:
        return self.tiles[-1].stop if self.tiles else 0

    def _holds_newest(self, tile: Tile) -> bool:
        return self.newest_user is not None and tile.start <= self.newest_user < tile.stop

    def _mixed(self, tile: Tile) -> bool:
        """Whether the newest user text of this tile stands beside results, in one message that may be split."""
        return bool(
            self.newest_user is not None and self.entries[self.newest_user].message.results and not tile.waiting
        )
