"""Which results answer which calls: grouping of what is legal and repair of what is not, in one place.

`Pairing` looks at each message once, as it arrives, and says to which group it belongs. `arrange` puts the messages of
one block (a run of entries that no group leaves) into an order that the provider takes. For a legal history `arrange`
returns exactly what it was given.

Rules: a result answers the latest open call with its id (by id, never by neighbourhood); the first result wins; a call
without a result gets one that says so; a result without a call goes, text beside it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foldline.codecs.base import Codec
from foldline.codecs.encoding import KEPT_ID_CHARS
from foldline.messages import Message, Part, Reasoning, ToolCall, ToolResult
from foldline.transcript import Repair, Seq

__all__ = ["NO_RESULT", "REACH", "Pairing", "Placed", "arrange", "is_reasoning"]

NO_RESULT = "[no result was recorded for this call]"

REACH = 64
"""Entries after the last of its group for which a call is waited for; a result after them has no call.

Without a bound one stray call would tie the whole session together and nothing could be folded (adk-python#7236).
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a message belongs: `group` is the seq of its group, `joins` the earliest group it answers, if any."""

    message: Message
    group: Seq
    joins: Seq | None
    faults: tuple[str, ...] = ()


@dataclass(slots=True)
class Pairing:
    """The open calls of a session. `take` is O(size of the message)."""

    codec: Codec
    _open: dict[str, Seq] = field(default_factory=dict)
    _touched: dict[Seq, Seq] = field(default_factory=dict)
    """The last entry that joined a group which waits: a long turn, or one of many calls, is no late result."""
    _used: dict[str, int] = field(default_factory=dict)
    _alias: dict[str, str] = field(default_factory=dict)
    _item_ids: set[str] = field(default_factory=set)
    _run: Seq | None = None
    """First entry of the model turn that may still grow (itemised dialects only)."""

    def take(self, seq: Seq, message: Message) -> Placed:
        """Place one message; ids that the provider would refuse a second time are renamed here, results follow."""
        faults: list[str] = []
        if self.codec.itemised and message.agent_visible:
            message = self._fresh_item(message, faults)
        if not message.agent_visible:
            return Placed(message, seq, None, tuple(faults))
        message = self._named_results(self._fresh_calls(message, faults))
        joins = [self._open.pop(r.call_id) for r in message.results if self._near(seq, r.call_id)]
        group = seq
        if message.role == "assistant":
            if self.codec.itemised and self._run is not None:
                group = self._run
            self._run = group
        else:
            self._run = None
        for call in message.calls:
            self._open[call.id] = group
        for touched in (*joins, *([group] if message.calls or group in self._touched else ())):
            self._touched[touched] = seq
        if len(self._touched) > REACH:
            self._open = {call: since for call, since in self._open.items() if self._within(seq, since)}
            self._touched = {since: last for since, last in self._touched.items() if since in self._open.values()}
        if joins:
            return Placed(message, joins[-1], min(joins), tuple(faults))
        return Placed(message, group, group if group != seq else None, tuple(faults))

    def waits(self, start: Seq) -> bool:
        """Whether a call of a group that began at `start` or later has no result yet. O(open calls)."""
        return any(group >= start for group in self._open.values())

    def close(self, start: Seq, stop: Seq) -> None:
        """Stop waiting for calls in [start, stop): they were folded, a late result would stand without its call."""
        self._open = {call: group for call, group in self._open.items() if not start <= group < stop}
        if self._run is not None and start <= self._run < stop:
            self._run = None

    def _within(self, seq: Seq, group: Seq) -> bool:
        """Whether a group is still waited for."""
        return seq - self._touched.get(group, group) <= REACH

    def _near(self, seq: Seq, call_id: str) -> bool:
        group = self._open.get(call_id)
        if group is not None and not self._within(seq, group):
            del self._open[call_id]
            return False
        return group is not None

    def _fresh_item(self, message: Message, faults: list[str]) -> Message:
        item = (message.wire or {}).get("id")
        if not isinstance(item, str) or not item:
            return message
        if item not in self._item_ids:
            self._item_ids.add(item)
            return message
        faults.append(f"second item with the id {item!r}")
        if all(isinstance(part, Reasoning) for part in message.parts):
            return replace(message, agent_visible=False)
        plain = {key: value for key, value in (message.wire or {}).items() if key != "id"}
        return self.codec.read(plain)

    def _fresh_calls(self, message: Message, faults: list[str]) -> Message:
        if not self.codec.unique_calls or not message.calls:
            return message
        parts: list[Part] = list(message.parts)
        for index, part in enumerate(parts):
            if not isinstance(part, ToolCall):
                continue
            self._alias.pop(part.id, None)
            times = self._used.get(part.id, 0)
            self._used[part.id] = times + 1
            if times:
                name = self._free_name(part.id, times)
                faults.append(f"call id {part.id!r} was used before; sent as {name!r}")
                self._alias[part.id] = name
                parts[index] = replace(part, id=name)
        return message if not faults or tuple(parts) == message.parts else self.codec.revise(message, parts)

    def _free_name(self, call_id: str, times: int) -> str:
        while (name := f"{call_id[:KEPT_ID_CHARS]}-{times + 1}") in self._used:
            times += 1
        self._used[name] = 1
        return name

    def _named_results(self, message: Message) -> Message:
        if not self._alias or not any(r.call_id in self._alias for r in message.results):
            return message
        renamed = [
            replace(part, call_id=self._alias.get(part.call_id, part.call_id)) if isinstance(part, ToolResult) else part
            for part in message.parts
        ]
        return self.codec.revise(message, renamed)


def is_reasoning(message: Message) -> bool:
    """Whether a message is nothing but reasoning (a reasoning item of the Responses dialect)."""
    return bool(message.parts) and all(isinstance(part, Reasoning) for part in message.parts)


@dataclass(slots=True)
class _Turn:
    """One model turn of a block and the results that were found for it."""

    messages: list[tuple[Seq, Message]]
    open: dict[str, ToolCall]
    results: list[tuple[Seq, Message]] = field(default_factory=list)


def arrange(codec: Codec, block: Sequence[tuple[Seq, Message]]) -> tuple[tuple[Message, ...], tuple[Repair, ...]]:
    """The messages of a block as the provider takes them, and what had to be repaired. O(block).

    `block` holds the visible messages of a run of entries that is closed under grouping.
    """
    repairs: list[Repair] = []
    order: list[_Turn | tuple[Seq, Message]] = []
    turns: list[_Turn] = []
    for seq, message in block:
        if message.role == "assistant":
            joined = codec.itemised and turns and order[-1] is turns[-1] and not turns[-1].results
            if not joined:
                turns.append(_Turn([], {}))
                order.append(turns[-1])
            turns[-1].messages.append((seq, message))
            for call in message.calls:
                for earlier in turns:
                    earlier_call = earlier.open.pop(call.id, None)
                    if earlier_call is not None:
                        earlier.open[f"\0{call.id}"] = earlier_call
                turns[-1].open[call.id] = call
        elif message.results:
            rest = _share_out(codec, seq, message, turns, repairs)
            if codec.itemised:
                rest = _apart(turns, order, message)
            if rest is not None:
                order.append((seq, rest))
        else:
            order.append((seq, message))
    out: list[Message] = []
    for item in order:
        out += _turn_out(codec, item, repairs) if isinstance(item, _Turn) else [item[1]]
    given = [message for _, message in block]
    if not repairs and (len(out) != len(given) or any(a is not b for a, b in zip(out, given, strict=True))):
        repairs.append(Repair(block[0][0], "pairing", "results moved next to their calls"))
    return tuple(out), tuple(repairs)


def _apart(turns: list[_Turn], order: Sequence[object], message: Message) -> Message | None:
    """An output that stands apart from its turn and may stay there, after its call; None if it stands beside it."""
    for turn in turns:
        if turn.results and turn.results[-1][1] is message and order[-1] is not turn:
            turn.results.pop()
            return message
    return None


def _share_out(codec: Codec, seq: Seq, message: Message, turns: list[_Turn], repairs: list[Repair]) -> Message | None:
    """Give each result to the turn that waits for it; what is left of the message is returned, None if nothing is."""
    kept: dict[int, list[Part]] = {}
    for result in message.results:
        index = next((i for i in range(len(turns) - 1, -1, -1) if result.call_id in turns[i].open), None)
        if index is None:
            answered = any(result.call_id == call.id for turn in turns for _, m in turn.messages for call in m.calls)
            rule, why = (
                ("duplicate-result", "second result for") if answered else ("orphan-result", "result without its call")
            )
            repairs.append(Repair(seq, rule, f"{why} {result.call_id!r}"))
        else:
            del turns[index].open[result.call_id]
            kept.setdefault(index, []).append(result)
    others = [part for part in message.parts if not isinstance(part, ToolResult)]
    if not kept:
        return codec.revise(message, others) if others else None
    last = max(kept)
    for index, results in kept.items():
        parts = results + (others if index == last else [])
        same = len(parts) == len(message.parts)
        turns[index].results.append((seq, message if same else codec.revise(message, parts)))
    return None


def _turn_out(codec: Codec, turn: _Turn, repairs: list[Repair]) -> list[Message]:
    out = [message for _, message in turn.messages]
    if codec.itemised:
        while out and is_reasoning(out[-1]):
            out.pop()
            repairs.append(
                Repair(turn.messages[len(out)][0], "reasoning-alone", "reasoning without the item it led to")
            )
    answers = [message for _, message in turn.results]
    for call in turn.open.values():
        repairs.append(Repair(turn.messages[0][0], "missing-result", f"call {call.id!r} has no result"))
        answers.append(codec.answer(call, NO_RESULT))
    if len(answers) > 1 and (merged := codec.merge(answers)) is not None:
        if not any(repair.rule == "missing-result" for repair in repairs):
            repairs.append(Repair(turn.results[-1][0], "split-results", "results of one turn joined in one message"))
        answers = [merged]
    answers, apart = codec.apart(answers)
    if apart is not None:
        repairs.append(
            Repair(turn.results[-1][0], "result-text", "images of results are sent in a message of the user")
        )
        answers.append(apart)
    return out + answers
