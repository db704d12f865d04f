"""The view: what the model is sent, as the projection of the log.

The view is a sequence of units that cover the log once, in order. A unit is a *block* (a run of entries that no group
leaves; each entry may be shown in a shorter form) or a *fold* over whole blocks. Appending costs O(size of the last
block); a fold costs O(what it covers); between folds nothing else is touched, and the rendered prefix is the same list
of the same objects.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from dataclasses import replace

from foldline.codecs.base import Codec
from foldline.errors import FoldRefused
from foldline.ledger import Ledger
from foldline.messages import Message, ToolResult, Wire
from foldline.meter import Meter
from foldline.names import names
from foldline.pairing import arrange, is_reasoning
from foldline.tiles import Span, Unit, entries_of, own_words, reasons, speaks
from foldline.tokens import Counter, message_tokens, wire_bytes
from foldline.transcript import Entry, Fold, Repair, Seq

__all__ = ["LEAD", "View"]

FRAME_BYTES = 32
"""Keys, quotes and role of a message as JSON: not content."""

LEAD = "[The conversation begins here.]"
"""Sent as the first user message where a provider wants one and the history has none (Anthropic: Messages API, `messages`)."""


class View:
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
        self.meter = Meter()
        self.weighed = weighed
        self.where = where
        """Where the archive keeps an object, from its key."""
        self.spoken: Counts[str] = Counts()
        """How often the user or the agent used a name: what is asked for again is most often among them."""
        self.units: list[Unit] = []
        self.entries: dict[Seq, Entry] = {}
        self.newest_user: Seq | None = None
        self.asked = False
        """Set while a compaction that was asked for runs: it may fold a newest user message that is answered."""
        self._folded_users: set[Seq | None] = set()
        self._ledger = Ledger(codec.write)
        self._lead = codec.note(LEAD)
        self.lead_tokens = message_tokens(self._lead, counter)

    # --- reading -----------------------------------------------------------------------------------------------------

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
        first = self.first_message()
        return bool(self.units) if first is None else self.codec.user_first and first.role != "user"

    def first_message(self) -> Message | None:
        """The first message that is sent, the supplied one aside."""
        return next((unit.messages[0] for unit in self.units if unit.messages), None)

    @property
    def tiles(self) -> tuple[Entry | Fold, ...]:
        """What is shown at each place: an entry, or the fold that stands for it. O(shown)."""
        out: list[Entry | Fold] = []
        for unit in self.units:
            out += [unit.fold] if unit.fold else [unit.forms.get(entry.seq, entry) for entry in unit.entries]
        return tuple(out)

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
        if self.leads:
            return [self.codec.write(self._lead), *wires], stable + 1
        return list(wires), stable

    @property
    def message_count(self) -> int:
        """Messages that are sent. O(1)."""
        return self._ledger.messages

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
        """Bytes of contents and tool calls (S0.03), about: the bytes of the messages as JSON less their frame. O(1)."""
        return max(0, self.size_bytes - FRAME_BYTES * self.message_count)

    def index(self, seq: Seq) -> int:
        """Number of the unit that covers entry `seq`. O(log units)."""
        return self._ledger.index(seq)

    def count(self, message: Message) -> int:
        """Tokens of a message as this view counts them."""
        return message_tokens(message, self.counter)

    def between(self, first: int, last: int) -> int:
        """Tokens of units [first, last). O(log units) between folds."""
        return self._ledger.between(self.units, first, last)

    def tail(self, tokens: int) -> int:
        """First unit of the longest tail that holds at most `tokens`. O(log units) between folds."""
        return self._ledger.tail(self.units, tokens)

    # --- legality ----------------------------------------------------------------------------------------------------

    def protected(self, index: int) -> str | None:
        """Why a unit may not be folded away; None if it may."""
        unit = self.units[index]
        if unit.fold is not None:
            return None
        if unit.system:
            return "system text"
        if unit.pinned:
            return "pinned"
        if unit.waiting and index == len(self.units) - 1:
            return "call that waits for its result"
        if self._holds_newest(unit) and not self._mixed(unit) and not self.released:
            return "newest user message"
        return None

    @property
    def released(self) -> bool:
        """Whether the newest user message may be folded: it is answered, and a compaction was asked for (or did it)."""
        return self.newest_user in self._folded_users or (self.asked and self.answered())

    def answered(self) -> bool:
        """Whether the session ends with a reply: an assistant message that calls nothing."""
        last = next((unit for unit in reversed(self.units) if unit.messages), None)
        return last is not None and last.messages[-1].role == "assistant" and not last.messages[-1].calls

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
        if unit.fold is not None or not running or unit.messages[0].role != "assistant":
            return True
        return reasons(unit.messages[0]) or not self._loop_reasons()

    def spans(self, last: int | None = None) -> list[Span]:
        """The longest runs of units before unit `last` that may be folded, oldest first. O(units)."""
        out: list[Span] = []
        end = len(self.units) if last is None else last
        first = 0
        while first < end:
            if self.protected(first) is not None:
                first += 1
                continue
            stop = first
            while stop < end and self.protected(stop) is None:
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

    def residue(self, start: Seq, stop: Seq) -> tuple[Message, ...]:
        """What must stay visible when [start, stop) is folded: the text of a newest user message that also carries results."""
        seq = self.newest_user
        if seq is None or not start <= seq < stop or self.released:
            return ()
        entry = self.entries[seq]
        if not entry.message.results:
            return (entry.message,)
        return (self.codec.revise(entry.message, [p for p in entry.message.parts if not isinstance(p, ToolResult)]),)

    def covered(self, start: Seq, stop: Seq) -> list[Entry]:
        """The entries of the active branch in [start, stop), in order. O(covered)."""
        out: list[Entry] = []
        for unit in self.units[self.index(start) : self.index(stop - 1) + 1]:
            out += [entry for entry in entries_of(unit) if start <= entry.seq < stop]
        return out

    # --- changing ----------------------------------------------------------------------------------------------------

    def append(self, entry: Entry, joins: Seq | None, waits: Callable[[Seq], bool]) -> None:
        """Take up one entry; it joins the block of the group it answers, else begins a block. O(block).

        `waits` says whether a call of a group from a seq on is still open.
        """
        self.entries[entry.seq] = entry
        at = len(self.units)
        if joins is not None and self.units:
            found = self.index(joins)
            if found >= 0 and all(unit.fold is None for unit in self.units[found:]):
                at = found
        if at < len(self.units):
            merged = self.units[at:]
            block = merged[0]
            for other in merged[1:]:
                block.entries += other.entries
                block.forms |= other.forms
                block.pinned |= other.pinned
            self._replace(at, len(self.units), [block])
        else:
            block = Unit(entry.seq, entry.seq + 1)
            self._replace(at, at, [block])
        block.entries.append(entry)
        block.stop = entry.seq + 1
        block.waiting = waits(block.start) or (self.codec.itemised and is_reasoning(entry.message))
        if speaks(entry.message):
            self.newest_user = entry.seq
        if entry.message.role != "tool":
            self.spoken.update(names(entry.message.text))
            for call in entry.message.calls:
                self.spoken.update(names(call.arguments))
        self._refresh(at)

    def leave(self, start: Seq, stop: Seq) -> None:
        """Stand for entries [start, stop) of a branch that was left: they are covered, and show nothing."""
        self._replace(len(self.units), len(self.units), [Unit(start, stop)])
        self._refresh(len(self.units) - 1)

    def pin(self, seq: Seq, pinned: bool) -> None:
        """Protect the group of an entry, or stop protecting it. Raises FoldRefused when it is already folded."""
        unit = self.units[self.index(seq)]
        if unit.fold is not None:
            raise FoldRefused("already folded; undo the fold first", start=unit.start, stop=unit.stop)
        unit.pinned = pinned

    def commit(self, fold: Fold) -> Fold:
        """Put a fold into effect; returns it with its size before. Raises FoldRefused. O(what it covers).

        A fold over whole units replaces them; a fold over one entry that keeps its calls and results replaces the form
        of that entry inside its block.
        """
        first = self.index(fold.start)
        if first < 0 or fold.start >= fold.stop or fold.stop > self._stop:
            raise FoldRefused("outside the log", start=fold.start, stop=fold.stop)
        unit = self.units[first]
        if (entry := self._paired(unit, fold)) is not None:
            return self._commit_form(first, unit, entry, fold)
        last = self.index(fold.stop - 1) + 1
        if unit.start != fold.start or self.units[last - 1].stop != fold.stop:
            raise FoldRefused("it cuts through a group or a fold", start=fold.start, stop=fold.stop)
        for index in range(first, last):
            if (why := self.protected(index)) is not None:
                raise FoldRefused(f"it covers what must stay ({why})", start=fold.start, stop=fold.stop)
        if any(message not in fold.shown for message in self.residue(fold.start, fold.stop)):
            raise FoldRefused("the newest user's words are not in it", start=fold.start, stop=fold.stop)
        if not self.cut(last):
            raise FoldRefused("what follows depends on signed reasoning before it", start=fold.start, stop=fold.stop)
        before = self.between(first, last)
        fold = self._shrinking(fold, before)
        if self.newest_user is not None and fold.start <= self.newest_user < fold.stop and self.released:
            self._folded_users.add(self.newest_user)
        self._replace(first, last, [Unit(fold.start, fold.stop, fold=fold, under=self.units[first:last])])
        self._refresh(first)
        return fold

    def is_form(self, fold: Fold) -> bool:
        """Whether a fold replaces (or would replace) the form of one entry, not whole units."""
        index = self.index(fold.start)
        return 0 <= index < len(self.units) and self._paired(self.units[index], fold) is not None

    def empty(self) -> View:
        """A view of the same kind with nothing in it."""
        new = View(self.codec, self.counter, base_tokens=self.base_tokens, weighed=self.weighed, where=self.where)
        new.meter = self.meter
        return new

    def hides_newest(self) -> int | None:
        """The id of a fold over the newest user message that no compaction was asked for; None if it is shown."""
        if self.newest_user is None or self.newest_user in self._folded_users:
            return None
        fold = self.units[self.index(self.newest_user)].fold
        return None if fold is None or any(m in fold.shown for m in self.residue(fold.start, fold.stop)) else fold.id

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

    def _loop_reasons(self) -> bool:
        """Whether the running tool loop began with signed reasoning."""
        after = 0 if self.newest_user is None else self.newest_user + 1
        for unit in self.units[self.index(after) if self.units else 0 :]:
            for entry in entries_of(unit):
                if entry.seq >= after and entry.message.role == "assistant":
                    return reasons(entry.message)
        return False

    def _paired(self, unit: Unit, fold: Fold) -> Entry | None:
        """The entry whose form a fold replaces: same calls, same results; None when the fold is about whole units."""
        if unit.fold is not None or fold.stop - fold.start != 1:
            return None
        entry = next((e for e in unit.entries if e.seq == fold.start), None)
        if entry is None or len(fold.shown) != 1:
            return None
        old, new = entry.message, fold.shown[0]
        ids = [call.id for call in old.calls] + [result.call_id for result in old.results]
        if not ids and len(unit.entries) == 1 and new.role != old.role:
            return None
        same = [call.id for call in new.calls] + [result.call_id for result in new.results] == ids
        return entry if same and new.role == old.role and (ids or len(unit.entries) > 1 or not new.kind) else None

    def _commit_form(self, index: int, unit: Unit, entry: Entry, fold: Fold) -> Fold:
        refused = None
        if entry.message.role == "system":
            refused = "system text"
        elif unit.pinned:
            refused = "pinned"
        elif entry.message.calls and unit.waiting and index == len(self.units) - 1:
            refused = "call that waits for its result"
        elif entry.seq == self.newest_user and own_words(entry.message) != own_words(fold.shown[0]):
            refused = "newest user message"
        if refused:
            raise FoldRefused(f"it covers what must stay ({refused})", start=fold.start, stop=fold.stop)
        fold = replace(self._shrinking(fold, unit.form_tokens(entry)), form=True)
        unit.forms[entry.seq] = fold
        self._refresh(index)
        return fold

    def _shrinking(self, fold: Fold, before: int) -> Fold:
        if fold.tokens >= before:
            raise FoldRefused(
                f"it does not shrink ({before} tokens before, {fold.tokens} after)", start=fold.start, stop=fold.stop
            )
        return replace(fold, before_tokens=before)

    def _replace(self, first: int, last: int, units: list[Unit]) -> None:
        for unit in self.units[first:last]:
            self._ledger.account(unit, -1)
        for unit in units:
            self._ledger.account(unit, 1)
        self.units[first:last] = units
        self._ledger.replace(first, last, units)

    def measure(self, unit: Unit, forms: dict[Seq, Fold]) -> int:
        """Tokens of a block if these forms of its entries were shown besides those that are. O(block)."""
        return sum(self._rendered(unit, unit.forms | forms)[1])

    def _refresh(self, index: int) -> None:
        """Render one unit again."""
        unit = self.units[index]
        self._ledger.account(unit, -1)
        if unit.fold is not None:
            unit.messages, unit.repairs = unit.fold.shown, ()
            unit.weights = tuple(map(self.count, unit.messages))
        else:
            unit.messages, unit.weights, found = self._rendered(unit, unit.forms)
            faults = (Repair(entry.seq, "message", fault) for entry in unit.entries for fault in entry.faults)
            unit.repairs = (*faults, *found)
        unit.tokens = sum(unit.weights)
        unit.size_bytes = sum(wire_bytes(self.codec.write(m)) for m in unit.messages) if self.weighed else 0
        self._ledger.account(unit, 1)
        self._ledger.touch(index)

    def _rendered(
        self, unit: Unit, forms: dict[Seq, Fold]
    ) -> tuple[tuple[Message, ...], tuple[int, ...], tuple[Repair, ...]]:
        """The messages of a block in these forms, their sizes, and what was repaired."""
        known: dict[int, int] = {}
        block: list[tuple[Seq, Message]] = []
        for entry in unit.entries:
            fold = forms.get(entry.seq)
            form, tokens = (entry.message, entry.tokens) if fold is None else (fold.shown[0], fold.tokens)
            known[id(form)] = tokens
            if form.agent_visible:
                block.append((entry.seq, form))
        messages, repairs = arrange(self.codec, block)
        return messages, tuple(known.get(id(m)) or self.count(m) for m in messages), repairs
