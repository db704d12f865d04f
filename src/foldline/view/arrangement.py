"""The messages of one block in an order that the provider accepts, and the repairs that this took.

A block is a run of entries that no group leaves (`pairing`). A legal history comes back as the same message objects.
Rules: the first result wins; a call without a result gets a stand-in that says so; a result without a call is dropped,
and text next to it stays; the answer to a call that is no longer shown becomes a note in words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

from foldline.codecs.base import Codec
from foldline.codecs.blocks import with_session_fields
from foldline.messages import Message, Opaque, Part, Reasoning, ToolCall, ToolResult
from foldline.view.open_calls import RememberedCall, late_answer_note, late_result_note
from foldline.view.transcript import Repair, Seq, Sources

__all__ = ["NO_RESULT", "LateCalls", "arrange", "is_paired", "is_reasoning", "only_answers"]

NO_RESULT: Final = "[no result was recorded for this call]"
NO_CALL: Final = "[a result without its call was left out]"

LateCalls = Mapping[Seq, Mapping[str, RememberedCall]]
"""By message and by the id in its result: the call that it answers, where that is no longer shown."""


def is_reasoning(message: Message) -> bool:
    """Whether a message is nothing but reasoning (a reasoning item of the Responses dialect)."""
    return bool(message.parts) and all(isinstance(part, Reasoning) for part in message.parts)


def is_paired(message: Message) -> bool:
    """Whether a message has halves of pairs of the provider's, or calls that came out of such a pair."""
    for part in message.parts:
        if isinstance(part, Opaque) and (part.opens or part.answers or part.caller):
            return True
        if isinstance(part, ToolCall) and part.caller:
            return True
    return False


def only_answers(message: Message) -> bool:
    """Whether a message holds only results and closing halves of pairs."""
    return all(isinstance(part, ToolResult) or (isinstance(part, Opaque) and part.answers) for part in message.parts)


def arrange(
    codec: Codec,
    block: Sequence[tuple[Seq, Message]],
    *,
    late_calls: LateCalls | None = None,
    left_out: Collection[str] = (),
    ended: bool = False,
) -> tuple[tuple[Message, ...], tuple[Sources, ...], tuple[Repair, ...]]:
    """The messages of a block as the provider accepts them, the entries in each, and what was repaired. O(block).

    `block` holds the visible messages of a run of entries that is closed under grouping; `ended` says that other
    messages follow it, so that the provider continues nothing in it. `left_out` are pairs whose answer is a note
    elsewhere.
    """
    found = _Arrangement(codec, late_calls or {}, left_out)
    for seq, message in block:
        found.append(seq, message)
    if ended:
        found.settle(())
    out, sources = found.render()
    before = [message for _, message in block]
    # By identity: a legal history must come out as the very objects that went in, or its prefix would be sent anew.
    if not found.repairs and (len(out) != len(before) or any(a is not b for a, b in zip(out, before, strict=True))):
        found.repairs.append(Repair(block[0][0], "pairing", "results moved next to their calls"))
    return tuple(out), tuple(sources), tuple(found.repairs)


@dataclass(slots=True, eq=False)
class _Turn:
    """One model turn of a block and the results found for it."""

    number: int
    messages: list[tuple[Seq, Message]] = field(default_factory=list)
    open: dict[str, ToolCall] = field(default_factory=dict)
    results: list[tuple[Seq, Message]] = field(default_factory=list)
    origin: _Turn | None = None
    """The first of the paused turns that this one continues."""


@dataclass(slots=True, eq=False)
class _Single:
    """A message that belongs to no turn; `ours` where it shows nothing of its entry."""

    seq: Seq
    message: Message
    ours: bool = False


@dataclass(slots=True, eq=False)
class _OpenHalf:
    """An opening half of a pair: the turn it stands in, and the stand-in for its other half, if there is one."""

    seq: Seq
    part: Opaque
    turn: _Turn | None
    missing_result: _Single | None = None
    repair: Repair | None = None


@dataclass(slots=True)
class _Arrangement:
    """The block so far: messages are added one by one."""

    codec: Codec
    late_calls: LateCalls
    left_out: Collection[str] = ()
    repairs: list[Repair] = field(default_factory=list)
    _order: list[_Turn | _Single] = field(default_factory=list)
    # The turns that have an open call with an id, the latest last.
    _waiting: dict[str, list[_Turn]] = field(default_factory=dict)
    _called: set[str] = field(default_factory=set)
    # Open pairs of the provider's.
    _open_halves: dict[str, _OpenHalf] = field(default_factory=dict)
    # Pairs that a stand-in of ours closes.
    _settled: dict[str, _OpenHalf] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)
    # All pairs so far, closed ones too.
    _opened: set[str] = field(default_factory=set)
    # Whether a reference to a stored item stands before: the item may be the call that an output seems to lack.
    _refers: bool = False

    # --- adding ------------------------------------------------------------------------------------------------------

    def append(self, seq: Seq, message: Message) -> None:
        """Put one message in its place. O(its parts)."""
        if self._open_halves and not message.results and (message.role == "assistant" or not only_answers(message)):
            self.settle(self._continued_pairs(message))
        if message.role == "assistant":
            self._assistant(seq, message)
        elif message.results:
            self._results(seq, message)
        elif (shown := self._without_lone_halves(seq, message, None)) is not None:
            self._order.append(_Single(seq, shown))

    def _continued_pairs(self, message: Message) -> Collection[str]:
        """The open pairs of the provider that this message continues: none once the user speaks."""
        on: set[str] = set()
        if message.role == "assistant":
            for part in message.parts:
                if isinstance(part, Opaque | ToolCall) and part.caller:
                    on.add(part.caller)
                if isinstance(part, Opaque) and part.answers in self._open_halves:
                    on |= {part.answers, self._open_halves[part.answers].part.caller}
        return on

    def settle(self, but: Collection[str]) -> None:
        """Give a stand-in result to each open call of the provider's, except for these."""
        for opened in [opened for opened in self._open_halves if opened not in but]:
            half = self._open_halves[opened]
            message = self.codec.missing_result(half.part, NO_RESULT)
            if message is None:
                continue
            del self._open_halves[opened]
            half.missing_result = _Single(half.seq, message, ours=True)
            half.repair = Repair(half.seq, "missing-result", f"call {opened!r} has no result")
            self.repairs.append(half.repair)
            self._order.append(half.missing_result)
            self._settled[opened] = half

    def _assistant(self, seq: Seq, message: Message) -> None:
        last = self._order[-1] if self._order else None
        # Gemini refuses a turn of calls that follows another turn of the model, so the two become one content.
        joined = self.codec.one_turn and bool(message.calls)
        if joined:
            last = self._join_turns() or last
        grows = (self.codec.itemised or joined) and isinstance(last, _Turn) and not last.results
        turn = last if grows and isinstance(last, _Turn) else _Turn(len(self._order))
        shown = self._without_lone_halves(seq, message, turn)
        if shown is None:
            return
        if turn is not last:
            turn.number = len(self._order)
            self._order.append(turn)
        turn.messages.append((seq, shown))
        for call in shown.calls:
            self._called.add(call.id)
            self._waiting.setdefault(call.id, []).append(turn)
            turn.open[call.id] = call

    def _join_turns(self) -> _Turn | None:
        """Join the turns at the end that nothing separates, and return the one turn that they are then."""
        joined: _Turn | None = None
        while self._order and isinstance(last := self._order[-1], _Turn) and not last.results:
            if joined is not None:
                if last.open:
                    break  # its results, or ours in their place, stand between
                last.messages += joined.messages
                last.open.update(joined.open)
                for turns in self._waiting.values():
                    turns[:] = [last if turn is joined else turn for turn in turns]
                for half in (*self._open_halves.values(), *self._settled.values()):
                    half.turn = last if half.turn is joined else half.turn
            joined = last
            self._order.pop()
        if joined is not None:
            self._order.append(joined)
        return joined

    def _results(self, seq: Seq, message: Message) -> None:
        """Give each result to the turn that waits for it; the rest of the message stays where it is."""
        message = self._of_known_caller(seq, message)
        shown = len(self._order)
        answers: dict[int, tuple[_Turn, list[Part]]] = {}
        others: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                others.append(part)
            elif turns := self._waiting.get(part.call_id):
                # The latest turn: where ids repeat, an earlier call has its result already or gets a stand-in.
                turn = turns.pop()
                del turn.open[part.call_id]
                answers.setdefault(turn.number, (turn, []))[1].append(part)
            elif self.codec.itemised and self._is_of_stored(part.call_id):
                self._order.append(_Single(seq, message))
            else:
                self._without_call(seq, part)
        are_apart = bool(self._open_halves) and bool(others)  # a user's words end the turn that the provider paused
        for number in sorted(answers):
            turn, results = answers[number]
            # Words beside results follow the last of them: Anthropic refuses text before a result.
            parts = results + (others if number == max(answers) and not are_apart else [])
            mine = message if len(parts) == len(message.parts) else self.codec.revise(message, parts)
            if self.codec.itemised and self._order[-1] is not turn:
                self._order.append(_Single(seq, mine))  # an output may stand anywhere after its call
            else:
                turn.results.append((seq, mine))
        if others and (are_apart or not answers):
            self.settle(())
            self._order.append(_Single(seq, self.codec.revise(message, others)))
        elif self.codec.one_turn and not answers and len(self._order) == shown:
            # Without something of the user two turns of the model would meet, which Gemini refuses.
            self._order.append(_Single(seq, self.codec.note(NO_CALL), ours=True))

    def _is_of_stored(self, call_id: str) -> bool:
        """Whether an output answers a call of the provider's, or one that only the server has."""
        if self._open_halves.pop(call_id, None) is not None:
            return True
        if not self._refers or call_id in self._called or call_id in self._closed:
            return False
        self._closed.add(call_id)
        return True

    def _without_call(self, seq: Seq, result: ToolResult) -> None:
        called = self.late_calls.get(seq, {}).get(result.call_id)
        if result.call_id in self._called:
            self.repairs.append(Repair(seq, "duplicate-result", f"second result for {result.call_id!r}"))
        elif called is None:
            self.repairs.append(Repair(seq, "orphan-result", f"result without its call {result.call_id!r}"))
        else:
            self._insert_note(seq, late_result_note(self.codec, called, result), result.call_id)

    def _insert_note(self, seq: Seq, note: Message, call_id: str) -> None:
        """Show a note of ours for a late answer; before a turn that the provider paused, which must stay last."""
        self.repairs.append(Repair(seq, "late-result", f"the call {call_id!r} is shown no longer; told in words"))
        turns = (
            () if self.codec.itemised else [half.turn for half in self._open_halves.values() if half.turn is not None]
        )
        running = [turn.origin or turn for turn in turns]
        at = next((at for at, item in enumerate(self._order) if item in running), len(self._order))
        self._order.insert(at, _Single(seq, note))

    # --- pairs of the provider's --------------------------------------------------------------------------------------

    def _without_lone_halves(self, seq: Seq, message: Message, turn: _Turn | None) -> Message | None:
        """A message without halves whose other half is missing; None when nothing is left that may be sent alone."""
        if not is_paired(message):
            return message
        parts: list[Part] = []
        for original in message.parts:
            part = self._with_known_caller(seq, original)
            if isinstance(part, Opaque):
                if part.opens and part.opens in self.left_out:
                    self.repairs.append(Repair(seq, "late-result", f"the answer to {part.opens!r} is told in words"))
                    continue
                half = self._open_halves.get(part.answers)
                if part.answers and not self._closes(seq, message, part):
                    continue
                if turn is not None and half is not None and half.turn is not None and half.turn is not turn:
                    turn.origin = turn.origin or half.turn.origin or half.turn
                if part.opens:
                    self._opened.add(part.opens)
                    self._refers = self._refers or part.type == "item_reference"
                    self._open_halves[part.opens] = _OpenHalf(seq, part, turn)
            parts.append(part)
        if len(parts) == len(message.parts) and all(map(is_, parts, message.parts)):
            return message
        if all(isinstance(part, Reasoning) for part in parts):
            return None  # providers refuse thinking without what it led to
        return (
            with_session_fields(message, self.codec.read(parts[0].raw))
            if self.codec.itemised
            else self.codec.revise(message, parts)
        )

    def _closes(self, seq: Seq, message: Message, part: Opaque) -> bool:
        """Whether a closing half stays: its pair is open. Otherwise it is repaired away."""
        opened = part.answers
        if self._open_halves.pop(opened, None) is not None:
            self._closed.add(opened)
            return True
        # The real answer takes the place of the stand-in that an earlier message needed.
        half = self._settled.pop(opened, None)
        if half is not None and half.missing_result is not None and half.repair is not None:
            half.missing_result.seq, half.missing_result.message = seq, self.codec.revise(message, [part])
            half.missing_result.ours = False
            self.repairs.remove(half.repair)
            self.repairs.append(Repair(seq, "pairing", "results moved next to their calls"))
            self._closed.add(opened)
        elif opened in self._closed:
            self.repairs.append(Repair(seq, "duplicate-result", f"second result for {opened!r}"))
        elif (called := self.late_calls.get(seq, {}).get(opened)) is not None:
            self._insert_note(seq, late_answer_note(self.codec, called, part), opened)
        else:
            self.repairs.append(Repair(seq, "orphan-result", f"result without its call {opened!r}"))
        return False

    def _with_known_caller(self, seq: Seq, part: Part) -> Part:
        """A part without its `caller` where that call of the provider's is not shown: providers refuse unknown ones."""
        if not isinstance(part, Opaque | ToolCall) or not part.caller or part.caller in self._opened:
            return part
        raw = part.raw
        if not isinstance(raw, Mapping) or "caller" not in raw:
            return part
        self.repairs.append(
            Repair(seq, "caller", f"a call out of {part.caller!r}, which is not there; sent as the model's")
        )
        return replace(part, caller="", raw={key: value for key, value in raw.items() if key != "caller"})

    def _of_known_caller(self, seq: Seq, message: Message) -> Message:
        """The same for an output item, which names its caller too."""
        caller = message.wire.get("caller") if self.codec.itemised and message.wire is not None else None
        if not isinstance(caller, Mapping) or caller.get("caller_id") in {None, *self._opened}:
            return message
        wire = {key: value for key, value in (message.wire or {}).items() if key != "caller"}
        return with_session_fields(message, self.codec.read(wire))

    # --- rendering ----------------------------------------------------------------------------------------------------

    def render(self) -> tuple[list[Message], list[Sources]]:
        """The messages in order, and the entries in each; calls still open get a stand-in result."""
        out: list[Message] = []
        sources: list[Sources] = []
        for item in self._order:
            if isinstance(item, _Turn):
                messages, seqs = self._render_turn(item)
                out += messages
                sources += seqs
            else:
                out.append(item.message)
                sources.append(() if item.ours else (item.seq,))
        return out, sources

    def _render_turn(self, turn: _Turn) -> tuple[list[Message], list[Sources]]:
        out = [message for _, message in turn.messages]
        called: list[Sources] = [(seq,) for seq, _ in turn.messages]
        if self.codec.itemised:
            # Responses API: "reasoning item provided without its required following item" refuses the whole request.
            while out and is_reasoning(out[-1]):
                out.pop()
                called.pop()
                seq = turn.messages[len(out)][0]
                self.repairs.append(Repair(seq, "reasoning-alone", "reasoning without the item it led to"))
        if self.codec.one_turn and len(out) > 1:
            out = [self.codec.revise(out[0], [part for message in out for part in message.parts])]
            called = [tuple(seq for seq, _ in turn.messages)]
            self.repairs.append(Repair(turn.messages[-1][0], "call-place", "turns of the model joined in one message"))
        # A stand-in rather than a dropped call: the model sees that it called, and will not take the work for done.
        answers = [message for _, message in turn.results]
        sources: list[Sources] = [(seq,) for seq, _ in turn.results]
        for call in turn.open.values():
            self.repairs.append(Repair(turn.messages[0][0], "missing-result", f"call {call.id!r} has no result"))
            answers.append(self.codec.answer(call, NO_RESULT))
            sources.append(())
        if len(answers) > 1 and (merged := self.codec.merge(answers)) is not None:
            if not any(repair.rule == "missing-result" for repair in self.repairs):
                self.repairs.append(
                    Repair(turn.results[-1][0], "split-results", "results of one turn joined in one message")
                )
            answers, sources = [merged], [tuple(sorted({seq for seq, _ in turn.results}))]
        # Where results hold text only, their images go into a message of the user after them.
        whole = answers
        answers, media = self.codec.separate_media(answers)
        if media is not None:
            seq = turn.results[-1][0]
            self.repairs.append(Repair(seq, "result-text", "images of results are sent in a message of the user"))
            shown_apart = (seqs for was, now, seqs in zip(whole, answers, sources, strict=True) if was is not now)
            sources.append(tuple(seq for seqs in shown_apart for seq in seqs))
            answers.append(media)
        return out + answers, called + sources
