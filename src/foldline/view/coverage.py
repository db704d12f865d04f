"""What a view covers and shows, and where it may be folded: the half of a view that changes nothing.

Reducers read this. A view is a sequence of units that cover the log once, in order: *blocks* (runs of entries that no
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
from foldline.view.transcript import Entry, Fold, Repair, Seq
from foldline.view.units import HELD, JOINT, SUMMED_UP, Seen, Span, Unit, entries_of, gaps, history, reasons, speaks

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
        self.units: list[Unit] = []
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
        return bool(self.units)

    def first_message(self) -> Message | None:
        """The first message that is sent, the supplied one aside."""
        for unit in self.units:
            if unit.messages:
                return unit.messages[0]
        return None

    @property
    def tiles(self) -> tuple[Entry | Fold, ...]:
        """What is shown at each place: an entry, or the fold that stands for it. O(shown)."""
        out: list[Entry | Fold] = []
        for unit in self.units:
            out += [unit.fold] if unit.fold else [unit.forms.get(entry.seq, entry) for entry in unit.entries]
        return tuple(out)

    def history(self) -> Iterator[Seen]:
        """Every entry and who sees it, and what stands for folded ones. O(log)."""
        return history(self.units)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Every repair in effect, in order of the log. O(repairs)."""
        found = self._ledger.repairs()
        if self.leads and not any(unit.fold for unit in self.units[:1]):
            found.insert(0, Repair(0, "user-first", "a first user message was supplied"))
        return tuple(found)

    def wires(self) -> tuple[list[Wire], int]:
        """The JSON messages to send, and how many leading ones are as at the last call. O(what changed) + one copy."""
        wires, stable = self._ledger.wires(self.units)
        led, self._led = self._led, self.leads
        if self._led:
            return [self.codec.write(self._lead), *wires], stable + 1 if led else 0
        return list(wires), 0 if led else stable

    def shown(self) -> list[Wire]:
        """The JSON messages as `wires` would give them, but not taken for sent. O(messages)."""
        lead = [self._lead] if self.leads else []
        return [self.codec.write(message) for message in [*lead, *(m for unit in self.units for m in unit.messages)]]

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
        """User messages that are shown in their own words. O(units)."""
        return sum(1 for unit in self.units if unit.fold is None for entry in unit.entries if speaks(entry.message))

    @property
    def content_bytes(self) -> int:
        """Bytes of contents and tool calls (S0.03): `tokens.content_bytes` over what is sent. O(1)."""
        return self._ledger.content_bytes

    def index(self, seq: Seq) -> int:
        """Number of the unit that covers entry `seq`. O(log units)."""
        return self._ledger.index(seq)

    def count(self, message: Message) -> int:
        """Tokens of a message as this view counts them."""
        return message_tokens(message, self.counter)

    def between(self, first: int, last: int) -> int:
        """Tokens of units [first, last). O(log units) between folds."""
        return self._ledger.between(self.units, first, last)

    @property
    def fixed_tokens(self) -> int:
        """Size of tools and of the system text before everything else: no fold reaches them. O(leading units)."""
        leading = 0
        while leading < len(self.units) and self.units[leading].system:
            leading += 1
        return self.base_tokens + self.between(0, leading)

    def newest(self, share: float, target_tokens: int) -> int:
        """First unit of the tail that stays when the view lands at `target_tokens`: `share` of its room for history.

        A late result that the model has not answered is not old, however much of the room it takes.
        """
        first = self.tail(int(share * max(0, target_tokens - self.fixed_tokens)))
        return first if self.unread is None else min(first, self.index(self.unread))

    def tail(self, tokens: int) -> int:
        """First unit of the longest tail that holds at most `tokens`. O(log units) between folds."""
        return self._ledger.tail(self.units, tokens)

    # --- legality ----------------------------------------------------------------------------------------------------

    def protected(self, index: int, *, requested: bool = False) -> str | None:
        """Why a unit may not be folded away, in a `requested` compaction or else; None if it may."""
        unit = self.units[index]
        if unit.fold is not None:
            return None
        if unit.system:
            return "system text"
        if unit.pinned:
            return "pinned"
        if self.compacted is not None and unit.start <= self.compacted < unit.stop:
            return SUMMED_UP
        if any(refers(entry.message) for entry in unit.entries[:1] if self.codec.itemised):
            return HELD
        if unit.waiting and index == self.last_block:
            return "call that waits for its result"
        if self._holds_newest(unit) and not self._mixed(unit) and not self.frees_newest(requested):
            return "newest user message"
        if self.unread is not None and any(seq >= self.unread for seq in unit.told):
            return "late result that the model has not answered"
        return None

    def frees_newest(self, requested: bool) -> bool:
        """Whether the newest user message may be folded: only a compaction that a user requested does, once answered.

        What such a compaction has folded stays free: a later fold may take it in.
        """
        return self.newest_user in self._folded_users or (requested and self.answered())

    @property
    def last_block(self) -> int:
        """Number of the last unit that shows something, or will: what is hidden, or was left by a fork, does not."""
        index = len(self.units) - 1
        while index >= 0 and not self.units[index].messages and not self.units[index].waiting:
            index -= 1
        return index

    @property
    def request_bytes(self) -> int:
        """Bytes of the list of messages as JSON; about 0 unless the view is weighed. O(1)."""
        lead = wire_bytes(self.codec.write(self._lead)) + 1 if self.weighed and self.leads else 0
        return self.size_bytes + self.message_count + self._ledger.joints + lead + 1

    def answered(self) -> bool:
        """Whether the session ends with a reply: an assistant message that calls nothing, and is not paused."""
        unit = next((unit for unit in reversed(self.units) if unit.messages), None)
        if unit is None or unit.messages[-1].role != "assistant" or unit.messages[-1].calls:
            return False
        return not is_paired(unit.messages[-1]) or not unit.waiting

    def cut(self, index: int) -> bool:
        """Whether a span may end before unit `index`.

        Anthropic, "Extended thinking with tool use": a running tool loop that began with thinking must go on with an
        assistant message that begins with thinking. Completed loops are free: earlier thinking is ignored there.
        """
        while index < len(self.units) and not self.units[index].messages:
            index += 1
        if index >= len(self.units):
            return True
        unit = self.units[index]
        running = self.newest_user is None or unit.start > self.newest_user
        leading = unit.leading
        if unit.fold is not None or not running or leading is None or leading.role != "assistant":
            return True
        return reasons(leading) or not self._loop_reasons

    def spans(self, last: int | None = None, *, requested: bool = False) -> list[Span]:
        """The longest runs of units before unit `last` that may be folded, oldest first. O(units).

        `requested`: whether a user requested the compaction (`Need.requested`).
        """
        out: list[Span] = []
        end = len(self.units) if last is None else last
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
        """Units [first, last) as a span."""
        return Span(first, last, self.units[first].start, self.units[last - 1].stop, self.between(first, last))

    def cuts(self) -> tuple[Seq, ...]:
        """Every place where a span may end. O(units)."""
        return tuple(
            self.units[i].start if i < len(self.units) else self._stop
            for i in range(len(self.units) + 1)
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
        """The last message that is shown before unit `index`."""
        while index > 0:
            index -= 1
            if self.units[index].messages:
                return self.units[index].messages[-1]
        return None

    def replied(self, index: int) -> bool:
        """Whether what is shown before unit `index` stands for something that ended with words of the assistant."""
        while index > 0:
            index -= 1
            if self.units[index].messages:
                return self.units[index].fold is None or self.units[index].replied
        return True

    def ends_replied(self, first: int, last: int) -> bool:
        """Whether units [first, last) end with words of the assistant."""
        message = self.before(last)
        ours = last > first and self.units[last - 1].fold is not None
        return self.replied(last) if ours else message is not None and message.role == "assistant"

    def shows(self, index: int) -> int | None:
        """Number of the first unit from `index` on that shows a message."""
        while index < len(self.units) and not self.units[index].messages:
            index += 1
        return index if index < len(self.units) else None

    def after(self, index: int) -> Unit | None:
        """The first unit from `index` on that shows a message."""
        found = self.shows(index)
        return None if found is None else self.units[found]

    def joining_tokens(self, first: int, last: int, shown: Sequence[Message]) -> int:
        """Tokens of the joints that are needed when units [first, last) are shown as this, less those that go.

        O(shown). Joints inside the units count as what is shown there now.
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
        for unit in self.units[self.index(start) : self.index(stop - 1) + 1]:
            out += [entry for entry in entries_of(unit) if start <= entry.seq < stop]
        return out

    def covered_count(self, start: Seq, stop: Seq, *, seen: bool = False) -> int:
        """How many entries of the active branch whole units [start, stop) cover, or those the model was to see.

        Those that were let go of count. O(units, and the entries of blocks).
        """
        units = self.units[self.index(start) : self.index(stop - 1) + 1]
        return sum(unit.count()[1 if seen else 0] for unit in units)

    def counting(self, unit: Unit) -> list[int]:
        """The weights of a unit, 0 for what the provider leaves out since a summary of its own stands for it."""
        if self.compacted is None or unit.start > self.compacted or unit.system:
            return unit.weights
        at = len(unit.messages) if unit.stop <= self.compacted else summed_up(unit.messages)
        return [0] * at + unit.weights[at:]

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _stop(self) -> Seq:
        return self.units[-1].stop if self.units else 0

    def _holds_newest(self, unit: Unit) -> bool:
        return self.newest_user is not None and unit.start <= self.newest_user < unit.stop

    def _mixed(self, unit: Unit) -> bool:
        """Whether the newest user text of this unit stands beside results, in one message that may be split."""
        return bool(
            self.newest_user is not None and self.entries[self.newest_user].message.results and not unit.waiting
        )
