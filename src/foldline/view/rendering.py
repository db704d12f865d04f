"""Renders one tile: its messages, the size of each, and the repairs.

A tile is rendered as a whole when it is made or folded. The one exception is a model turn in a dialect where every item
is a message of its own: there a turn grows item by item, and rendering it again at each item would cost O(turn²).
`GrowingTurn` says which messages one more item changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from foldline.codecs.base import Codec
from foldline.codecs.provider_state import summarised_count
from foldline.messages import Message
from foldline.tokens import Counter, content_bytes, message_tokens, wire_bytes
from foldline.view.arrangement import arrange, is_paired, is_reasoning
from foldline.view.tiles import JOINT, Tile, joint_places, total_amounts
from foldline.view.transcript import Entry, Fold, Repair, Seq, Sources

__all__ = ["UNDERSTOOD", "Edit", "GrowingTurn", "TileRenderer", "growing_turn"]

UNDERSTOOD = "Understood."
"""The assistant's words between a message of ours and one of the user: templates want roles that alternate."""

Edit: TypeAlias = tuple[int, int, tuple[tuple[Message, Sources], ...]]
"""At a place among the rendered messages, so many of them give way to others; the entries in each of those."""

T = TypeVar("T")


# It predicts what `arrange` would do with one more entry, in the usual cases only. In all others it answers None, and
# `arrange` decides: two full implementations of the same rules would drift apart.
@dataclass(slots=True)
class GrowingTurn:
    """A block that is one model turn and its results: the items, then the results, then stand-ins.

    `item_count` and `result_count` count what is shown; `open` has the calls that have a stand-in, in order.
    `unsent_reasoning` is reasoning at the end of the turn: providers refuse reasoning without the item it led to, so it
    is shown once that item is there.
    """

    codec: Codec
    item_count: int = 0
    result_count: int = 0
    unsent_reasoning: list[tuple[Message, Repair]] = field(default_factory=list)
    open: dict[str, Repair] = field(default_factory=dict)
    _faults: list[Repair] = field(default_factory=list)
    _first: Seq | None = None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs, in the order of `arrange`. O(repairs)."""
        return (*self._faults, *(repair for _, repair in reversed(self.unsent_reasoning)), *self.open.values())

    @property
    def is_repaired(self) -> bool:
        """Whether there are repairs. O(1)."""
        return bool(self._faults or self.unsent_reasoning or self.open)

    def append(self, entry: Entry) -> tuple[Edit, ...] | None:
        """What one more entry changes, last place first; None when it is no item of the turn and no result of it.

        After None the state is invalid: the block has to be rendered as a whole. O(size of the message + open calls).
        """
        message = entry.message
        self._faults += (Repair(entry.seq, "message", fault) for fault in entry.faults)
        if not message.agent_visible:
            return ()
        if is_paired(message):
            return None  # what is shown of it depends on the rest of the block, which only `arrange` looks at
        if message.role == "assistant":
            return None if self.result_count else self._item(entry.seq, message)
        return self._result(entry.seq, message)

    def _item(self, seq: Seq, message: Message) -> tuple[Edit, ...] | None:
        if self._first is None:
            self._first = seq
        reasoning = is_reasoning(message)
        # `arrange` decides, so that a turn that grew and one that was rendered as a whole cannot differ.
        shown, sources, repairs = arrange(self.codec, [(seq if reasoning else self._first, message)])
        if reasoning:
            self.unsent_reasoning.append((message, repairs[0]))
            return ()
        ids = [call.id for call in message.calls]
        # A repeated id needs the order in which `arrange` matches results: the block is rendered as a whole then.
        if any(call_id in self.open for call_id in ids) or len(set(ids)) < len(shown) - 1:
            return None
        new = (*((earlier, (repair.seq,)) for earlier, repair in self.unsent_reasoning), (message, (seq,)))
        # All of its results are still stand-ins (no result has come, see `append`), so the items end before them. The
        # later place comes first: an edit must not move the place of the next one.
        end = self.item_count + len(self.open)
        stand_ins = tuple(zip(shown[1:], sources[1:], strict=True))
        edits = ((end, 0, stand_ins), (self.item_count, 0, new))
        self.item_count += len(new)
        self.unsent_reasoning.clear()
        self.open.update(zip(ids, repairs, strict=True))
        return edits

    def _result(self, seq: Seq, message: Message) -> tuple[Edit, ...] | None:
        ids = [result.call_id for result in message.results]
        if len(ids) != 1 or len(message.parts) != 1 or ids[0] not in self.open:
            return None
        end = self.item_count + self.result_count
        first = next(iter(self.open)) == ids[0]  # results mostly come in the order of their calls: no list is built
        missing_result = end + (0 if first else list(self.open).index(ids[0]))
        del self.open[ids[0]]
        self.result_count += 1
        return (missing_result, 1, ()), (end, 0, ((message, (seq,)),))


def growing_turn(codec: Codec, entries: Iterable[Entry]) -> GrowingTurn | None:
    """The state after these entries of one block; None when they are more than one turn with its results. O(block)."""
    turn = GrowingTurn(codec)
    return turn if all(turn.append(entry) is not None for entry in entries) else None


def _by_identity(pairs: Iterable[tuple[Message, T]]) -> dict[int, tuple[Message, T]]:
    """Values by the id of the very message: comparing messages would cost their size, and equal ones may have been
    counted apart. Each message is kept with its value, so that no other message can get its id while this lives.
    """
    return {id(message): (message, value) for message, value in pairs}


class TileRenderer:
    """Renders tiles for one codec and one counter. It holds no state of a session, only what its figures depend on.

    `counts_bytes` says whether the bytes of messages as JSON are counted too, which costs O(size) for each message.
    """

    def __init__(self, codec: Codec, counter: Counter, *, counts_bytes: bool) -> None:
        self.codec = codec
        self.counter = counter
        self.counts_bytes = counts_bytes
        self.joint = codec.note(UNDERSTOOD, role="assistant", kind=JOINT)
        self.joint_tokens = message_tokens(self.joint, counter)

    def count(self, message: Message) -> int:
        """Tokens of a message."""
        return message_tokens(message, self.counter)

    def render(self, tile: Tile, before: Message | None, *, replied: bool, compacted: Seq | None) -> None:
        """Render the messages of a tile, with their sizes. O(tile).

        `before` is the message shown before it, `replied` whether that ended the assistant's turn; between some roles a
        joint is needed. What the provider's own summary at `compacted` replaces weighs nothing.
        """
        tile.turn = None
        measured = _by_identity(zip(tile.messages, tile.contents, strict=True))
        if tile.fold is not None:
            tile.messages, tile.rendered_repairs = list(tile.fold.shown), ()
            tile.sources = list(tile.shown_sources)
            tile.weights = list(map(self.count, tile.messages))
        else:
            tile.messages, tile.sources, tile.weights, found = self.block(tile, tile.forms)
            faults = (Repair(entry.seq, "message", fault) for entry in tile.entries for fault in entry.faults)
            if tile.late is not None and not found:
                found = (Repair(tile.late, "late-result", "it came when an answer in its place had been sent"),)
            tile.rendered_repairs = (*faults, *found)
        places = joint_places(before, tile.messages, replied=replied)
        tile.joints = len(places)
        if places:
            tile.messages = _with(tile.messages, places, self.joint)
            tile.sources = _with(tile.sources, places, ())
            tile.weights = _with(tile.weights, places, self.joint_tokens)
        tile.weights = _counted_weights(tile, compacted)
        # Bytes are carried over for messages that stay: of a long block most do, and each costs its size to measure.
        tile.contents = [
            content_bytes(message) if (size := measured.get(id(message))) is None else size[1]
            for message in tile.messages
        ]
        tile.tokens, tile.content_bytes = sum(tile.weights), sum(tile.contents)
        tile.amounts = total_amounts(tile.messages)
        tile.size_bytes = self.size_bytes(tile.messages) if self.counts_bytes else 0

    def edits(self, tile: Tile, entry: Entry) -> tuple[Edit, ...] | None:
        """What an entry changes in the block that it joins; None when that block has to be rendered as a whole."""
        # A shortened entry, a late result or a replaced stand-in changes what `arrange` does with the whole block.
        if tile.forms or tile.late_calls or tile.late is not None or not tile.entries:
            return None
        turn = tile.turn or growing_turn(self.codec, tile.entries)
        edits = None if turn is None else turn.append(entry)
        tile.turn = None if edits is None else turn
        return edits

    def splice(self, tile: Tile, edits: Sequence[Edit]) -> int:
        """Make these edits in the messages of a block; the number of leading messages that stay. O(edits)."""
        # The messages of an edit are of the newest entries but for what `arrange` made: those are counted again.
        counted = _by_identity((entry.message, entry.tokens) for entry in tile.entries[-8:])
        for at, gone, made in edits:
            stop, new = at + gone, [message for message, _ in made]
            weights = [found[1] if (found := counted.get(id(message))) else self.count(message) for message in new]
            contents = list(map(content_bytes, new))
            tile.tokens += sum(weights) - sum(tile.weights[at:stop])
            tile.content_bytes += sum(contents) - sum(tile.contents[at:stop])
            if self.counts_bytes:
                tile.size_bytes += self.size_bytes(new) - self.size_bytes(tile.messages[at:stop])
            tile.amounts = total_amounts(new, tile.amounts - total_amounts(tile.messages[at:stop]))
            tile.messages[at:stop] = new
            tile.sources[at:stop] = [sources for _, sources in made]
            tile.weights[at:stop] = weights
            tile.contents[at:stop] = contents
        return min((at for at, _, _ in edits), default=len(tile.messages))

    def block_tokens(self, tile: Tile, forms: Mapping[Seq, Fold]) -> int:
        """Tokens of a block if its entries were shown in these forms. O(block)."""
        return sum(self.block(tile, forms)[2])

    def size_bytes(self, messages: Iterable[Message]) -> int:
        """Bytes of messages as JSON. O(their size)."""
        return sum(wire_bytes(self.codec.write(message)) for message in messages)

    def block(
        self, tile: Tile, forms: Mapping[Seq, Fold]
    ) -> tuple[list[Message], list[Sources], list[int], tuple[Repair, ...]]:
        """The messages of a block in these forms, the entries in each, their sizes, and the repairs. O(block)."""
        sized: list[tuple[Message, int]] = []
        block: list[tuple[Seq, Message]] = []
        for entry in tile.entries:
            fold = forms.get(entry.seq)
            form, tokens = (entry.message, entry.tokens) if fold is None else (fold.shown[0], fold.tokens)
            sized.append((form, tokens))
            if form.agent_visible:
                block.append((entry.seq, form))
        messages, sources, repairs = arrange(
            self.codec, block, late_calls=tile.late_calls, left_out=tile.left_out, ended=tile.ended
        )
        # An entry was counted when it was recorded: only what `arrange` wrote or merged is counted here.
        counted = _by_identity(sized)
        weights = [found[1] if (found := counted.get(id(message))) else self.count(message) for message in messages]
        return list(messages), list(sources), weights, repairs


def _counted_weights(tile: Tile, compacted: Seq | None) -> list[int]:
    """The weights of a tile; 0 for what the provider leaves out because its own summary replaces it."""
    # Such messages are sent all the same: the provider wants its own summary back where it stood, and drops the rest.
    if compacted is None or tile.start > compacted or tile.system:
        return tile.weights
    at = len(tile.messages) if tile.stop <= compacted else summarised_count(tile.messages)
    return [0] * at + tile.weights[at:]


def _with(items: list[T], places: Sequence[int], item: T) -> list[T]:
    """The items, with one more before each of these places."""
    out = list(items)
    for place in reversed(places):
        out.insert(place, item)
    return out
