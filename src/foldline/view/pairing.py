"""Which results answer which calls: each message is placed once, as it arrives, and gets its group.

A result answers the latest open call with its id (by id, never by position), and of several such calls in one turn the
first. The two halves of a pair of the provider's (a call that it runs and its result, an approval and its answer) form
one group with all calls that came out of it; messages may stand between them. `arrangement` repairs what is not legal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from foldline.codecs.base import Codec
from foldline.codecs.blocks import with_session_fields
from foldline.messages import Message, Opaque, Part, Text, ToolCall, ToolResult
from foldline.tokens import content_bytes
from foldline.view.arrangement import NO_RESULT, arrange, is_paired, is_reasoning, only_answers
from foldline.view.open_calls import OpenCall, OpenCalls, RememberedCall, free_name, remembered_call
from foldline.view.transcript import Seq

__all__ = [
    "NO_RESULT",
    "REACH",
    "Pairing",
    "Placement",
    "arrange",
    "is_given",
    "is_little_between",
    "is_paired",
    "is_paused",
    "is_reasoning",
    "is_unfinished",
    "pair_ids",
]

REACH = 64
"""Entries for which an open call waits, after the last of its group; a later result becomes a note in words.

Without a bound one stray call would tie the whole session together and nothing could be folded (adk-python#7236).
"""

# The most messages, and bytes of their contents, between a call and its late result when a user spoke in between. They
# become one block, which is folded whole or not at all: a block larger than a small window could never be sent, while a
# note with the same result fits.
MOST_BETWEEN, MOST_BETWEEN_BYTES = 8, 4_096

# Calls remembered after they were folded without a result. A bound, since a session of months always adds new ones.
MOST_LATE = 1_024

# Items that mean nothing without their id: a repeated one is dropped, where others are sent without the id.
_NEVER_REPEATED = ("_approval_request", "item_reference")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a message belongs: `group` is the seq of its group, `joins` the earliest group it answers, if any.

    `late` are the calls that it answers but can no longer join, by the id in its results; `late_groups` their groups.
    """

    message: Message
    group: Seq
    joins: Seq | None
    faults: tuple[str, ...] = ()
    late: Mapping[str, RememberedCall] = field(default_factory=dict)
    late_groups: tuple[Seq, ...] = ()


def anywhere(group: Seq) -> bool:
    """Let every group be joined."""
    del group
    return True


@dataclass(slots=True)
class _Answers:
    """What a message answers: the groups that it joins, and calls whose groups it can no longer join."""

    reaches: Callable[[Seq], bool]
    joins: list[Seq] = field(default_factory=list)
    late: dict[str, OpenCall] = field(default_factory=dict)


@dataclass(slots=True)
class Pairing:
    """The open calls of a session. `place` is O(size of the message)."""

    codec: Codec
    # Open calls that the client answers.
    _calls: OpenCalls = field(default_factory=OpenCalls)
    # Open calls that the provider runs, and approvals that it asks for.
    _pairs: OpenCalls = field(default_factory=OpenCalls)
    # Calls that were folded, or fell out of reach, before their result came.
    _late: OpenCalls = field(default_factory=OpenCalls)
    _left: deque[OpenCall] = field(default_factory=deque)
    # The group of each pair of the provider's, closed ones too: calls that came out of a pair join its group.
    _origins: dict[str, Seq] = field(default_factory=dict)
    # The group of the newest reference to a stored item: an output without a call is taken to answer that item.
    _referred: Seq | None = None
    # The last entry that joined a waiting group. REACH counts from there, so that a long turn is not late in itself.
    _touched: dict[Seq, Seq] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)
    _run_ids: dict[str, int] = field(default_factory=dict)
    """The ids of the calls of the model turn that may still grow, where turns are joined."""
    _item_ids: set[str] = field(default_factory=set)
    # First entry of the model turn that may still grow (dialects where each item is a message).
    _turns: list[Seq] = field(default_factory=list)
    # The groups of the turns of the model in a row, the oldest first: one, but where `one_turn` joins them.
    _run: Seq | None = None
    # The group of the last message.
    _last: Seq | None = None

    def place(self, seq: Seq, message: Message, reaches: Callable[[Seq], bool] = anywhere) -> Placement:
        """Place one message; a repeated call id is renamed, and results get the new one. O(size of the message).

        `reaches` says whether a message may still join a group: not across a fold.
        """
        # The order matters: ids are made unique before results look for them, and a message's own calls are opened
        # last, so that it cannot answer itself.
        faults: list[str] = []
        if self.codec.itemised and message.agent_visible:
            message = self._fresh_item(message, faults)
        if not message.agent_visible:
            return Placement(message, seq, None, tuple(faults))
        # The ids as they came: results name these, whatever the calls are sent as.
        ids = [call.id for call in message.calls]
        message = self._fresh_calls(message, faults)
        message, answers = self._answers(seq, message, reaches)
        joins = answers.joins
        # Items of one turn stay together: providers refuse reasoning that is separated from the item it led to.
        grows = self.codec.itemised or (self.codec.one_turn and bool(message.calls))
        if self._run is not None and grows and message.role == "assistant":
            joins = [*joins, self._run] if joins else [self._run]
        group = joins[-1] if joins else seq
        if message.role == "assistant":
            # Calls join the whole run of turns of the model, of which the oldest may be folded meanwhile.
            self._turns = [*self._turns, group] if self.codec.one_turn and self._run is not None else [group]
            self._run = self._turns[0]
        elif not self._moves_before_run(message, joins):
            self._run = None
        self._last = group
        self._open(seq, group, message, ids, answers)
        self._prune(seq)
        first = min(joins, default=None)
        if not answers.late:
            return Placement(message, group, first, tuple(faults))
        late = {name: call.called for name, call in answers.late.items()}
        groups = tuple(call.group for call in answers.late.values())
        return Placement(message, group, first, tuple(faults), late, groups)

    def _moves_before_run(self, message: Message, joins: Sequence[Seq]) -> bool:
        """Whether a message is results that move to a turn before the newest one, which is then still the last."""
        run = self._run
        if not self.codec.one_turn or run is None or not joins or not only_answers(message):
            return False
        return max(joins) < self._turns[-1]

    def waits(self, start: Seq) -> bool:
        """Whether a call of a group that began at `start` or later has no result yet. O(groups that wait)."""
        return self._calls.waits(start) or self._pairs.waits(start)

    def close(self, start: Seq, stop: Seq) -> None:
        """Stop waiting for calls in [start, stop), which were folded; a result that still comes becomes a note."""
        self._expire(lambda group: start <= group < stop)
        self._origins = {opened: group for opened, group in self._origins.items() if not start <= group < stop}
        if self._run is not None:
            self._turns = [group for group in self._turns if not start <= group < stop]
            self._run = self._turns[0] if self._turns else None

    def _open(self, seq: Seq, group: Seq, message: Message, ids: Sequence[str], answers: _Answers) -> None:
        """Register the calls of a message, which came with these ids, as open."""
        calls = message.calls
        for call_id, call in zip(ids, calls, strict=True):
            self._calls.add(OpenCall(call_id, call.id, group, remembered_call(call)))
        for part in _open_pairs(message) if is_paired(message) else ():
            self._origins[part.opens] = group
            if part.type == "item_reference":
                # A reference may stand for anything. It is not waited for, since most stored items need no answer.
                self._referred = group
            else:
                self._pairs.add(OpenCall(part.opens, part.opens, group, remembered_call(part)))
        for joined in answers.joins:
            self._touched[joined] = seq
        if calls or group in self._touched or group in self._pairs:
            self._touched[group] = seq

    def _answers(self, seq: Seq, message: Message, reaches: Callable[[Seq], bool]) -> tuple[Message, _Answers]:
        """A message whose results name their calls by the ids these are sent under, and what it answers."""
        found = _Answers(reaches)
        if not message.results and not is_paired(message):
            return message, found
        parts: list[Part] = []
        here: set[str] = set()
        for part in message.parts:
            if isinstance(part, ToolResult):
                name = self._answer(seq, part.call_id, found)
                parts.append(part if name == part.call_id else replace(part, call_id=name))
                continue
            parts.append(part)
            if isinstance(part, Opaque | ToolCall):
                self._join_origin(seq, part.caller, found)
            if isinstance(part, Opaque):
                if (
                    part.answers
                    and part.answers not in here
                    and not self._matches(seq, self._pairs, part.answers, found)
                ):
                    self._join_origin(seq, part.answers, found)  # of a reference, or a second answer
                here.add(part.opens)
        last = self._last
        if found.late and not found.joins and last is not None and last in self._pairs and only_answers(message):
            # The provider's turn is still running: the late result goes before it, as words, and joins its group.
            found.joins.append(last)
        same = all(map(is_, parts, message.parts))
        return message if same else self.codec.revise(message, parts), found

    def _answer(self, seq: Seq, call_id: str, found: _Answers) -> str:
        """Note what a result answers; returns the id its call is sent under, or its own when there is no such call."""
        call = self._matches(seq, self._calls, call_id, found)
        if call is None and self.codec.itemised:
            call = self._matches(seq, self._pairs, call_id, found)
        group = self._referred if self.codec.itemised else None
        if call is None and group is not None and self._within(seq, group) and found.reaches(group):
            found.joins.append(group)
        return call_id if call is None else call.name

    def _matches(self, seq: Seq, calls: OpenCalls, call_id: str, found: _Answers) -> OpenCall | None:
        """Note the call that an id answers: one that is open, or one that was before it was folded."""
        call = calls.find(call_id)
        if call is not None:
            calls.remove(call)
            # Out of reach, or behind a fold: the answer is late even though the call was still open.
            if self._within(seq, call.group) and found.reaches(call.group):
                found.joins.append(call.group)
                return call
        else:
            call = self._late.find(call_id)
            if call is None:
                return None
            self._late.remove(call)
        found.late[call.name] = call
        return call

    def _join_origin(self, seq: Seq, opened: str, found: _Answers) -> None:
        """Join the group of a pair of the provider's, where it is within reach."""
        group = self._origins.get(opened)
        if group is not None and self._within(seq, group) and found.reaches(group):
            found.joins.append(group)

    def _expire(self, left: Callable[[Seq], bool]) -> None:
        for calls in (self._calls, self._pairs):
            for call in calls.remove_groups(left):
                self._late.add(call)
                self._left.append(call)
                if len(self._left) > MOST_LATE:
                    self._late.remove(self._left.popleft())

    def _prune(self, seq: Seq) -> None:
        """Forget groups out of reach. O(1) amortised: only once more than REACH of them have gathered."""
        if len(self._touched) > REACH:
            self._expire(lambda group: not self._within(seq, group))
            self._touched = {
                group: last for group, last in self._touched.items() if group in self._calls or group in self._pairs
            }
        if len(self._origins) > REACH:
            self._origins = {opened: group for opened, group in self._origins.items() if self._within(seq, group)}

    def _within(self, seq: Seq, group: Seq) -> bool:
        """Whether a group is still within REACH."""
        return seq - self._touched.get(group, group) <= REACH

    def _fresh_item(self, message: Message, faults: list[str]) -> Message:
        # OpenAI refuses a request in which two items have one id ("Duplicate item found with id"), and clients that
        # replay a stream send some twice.
        wire = message.wire or {}
        item = wire.get("id")
        if not isinstance(item, str) or not item:
            return message
        if item not in self._item_ids:
            self._item_ids.add(item)
            return message
        faults.append(f"second item with the id {item!r}")
        if is_reasoning(message) or str(wire.get("type")).endswith(_NEVER_REPEATED):
            return replace(message, agent_visible=False)
        return with_session_fields(message, self.codec.read({key: value for key, value in wire.items() if key != "id"}))

    def _fresh_calls(self, message: Message, faults: list[str]) -> Message:
        """The message with a unique id for each call: unique in the session where the codec needs that, else in it."""
        # Some servers give every call the same id, or start anew at each turn; providers refuse the second one.
        if self._run is None or message.role != "assistant":
            self._run_ids = {}
        if len(message.calls) < (1 if self.codec.unique_calls or self.codec.one_turn else 2):
            return message
        # Where two turns of the model are joined, the ids of both must differ.
        joined = self.codec.one_turn and self._run is not None and message.role == "assistant"
        used = self._used if self.codec.unique_calls else self._run_ids if joined else {}
        ids = {call.id for call in message.calls}
        parts: list[Part] = list(message.parts)
        for index, part in enumerate(parts):
            if not isinstance(part, ToolCall):
                continue
            times = used.get(part.id, 0)
            used[part.id] = times + 1
            if times:
                name = free_name(part.id, times + 1, lambda name: name in used or name in ids)
                used[name] = 1
                faults.append(f"call id {part.id!r} was used before; sent as {name!r}")
                parts[index] = replace(part, id=name)
        if self.codec.one_turn and not joined:
            self._run_ids = used
        return self.codec.revise(message, parts) if faults and tuple(parts) != message.parts else message


def is_little_between(messages: Iterable[Message]) -> bool:
    """Whether a call and a result may be one block with these messages between them. O(the first few)."""
    size = 0
    for number, message in enumerate(messages):
        size += content_bytes(message)
        if number >= MOST_BETWEEN or size > MOST_BETWEEN_BYTES:
            return False
    return True


def is_paused(message: Message) -> bool:
    """Whether the provider paused this assistant message, and continues it when it is sent back unchanged.

    Anthropic docs, "Handling stop reasons", pause_turn: such a message has calls that the provider runs, and does not
    end with words.
    """
    if message.role != "assistant" or not any(isinstance(part, Opaque) and part.opens for part in message.parts):
        return False
    last = message.parts[-1]
    return not (isinstance(last, Text) and last.text.strip())


def is_given(message: Message) -> bool:
    """Whether this is a user's approval or refusal: the provider has not acted on it yet."""
    return (
        message.role == "user"
        and bool(message.parts)
        and all(isinstance(p, Opaque) and p.answers for p in message.parts)
    )


def is_unfinished(codec: Codec, message: Message) -> bool:
    """Whether a message needs another after it: reasoning its item, an approval its action, a paused turn its rest."""
    if codec.itemised:
        return is_reasoning(message) or (message.agent_visible and is_given(message))
    return message.agent_visible and is_paused(message)


def pair_ids(message: Message) -> list[str]:
    """The ids that pair a message with others, in order."""
    out: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            out.append(part.id)
        elif isinstance(part, ToolResult):
            out.append(part.call_id)
        elif isinstance(part, Opaque) and (part.opens or part.answers):
            out.append(part.opens or part.answers)
    return out


def _open_pairs(message: Message) -> Iterable[Opaque]:
    """The blocks of a message that open a pair which the message itself does not close."""
    found: dict[str, Opaque] = {}
    for part in message.parts:
        if isinstance(part, Opaque):
            found.pop(part.answers, None)
            if part.opens:
                found[part.opens] = part
    return found.values()
