"""Working weeks: recorded sessions of one source, joined into one that is long enough for a large window.

A recorded session is rarely as large as the windows of today, but a chat that somebody keeps open for a week is. So
sessions of one source follow each other as in such a chat: in the order of their names, so that those of one repository
or domain stand together, with breaks of minutes and with nights between them. Nothing is generated or written.

What a joined session refers to stands in itself: nobody recorded what its agent would have used of those before. So
references across a joint count for nothing, and neither do those of the first requests after one, which are to what the
user just said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

from foldline.messages import Wire
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, Pauses
from foldline.tokens import Counter

__all__ = ["NIGHT_SECONDS", "WEEK_TOKENS", "Joint", "Week", "WeekRecording", "WeekRow", "join", "pause_seconds"]

WEEK_TOKENS: Final = 4_000_000
"""The most tokens of one week; what a source has beyond them makes another."""

SETTLING_REQUESTS: Final = 2
"""Requests after a joint whose references are left out."""

DAYS: Final = 5
NIGHT_SECONDS: Final = 14 * 3_600.0
"""From one working day to the next: every cache is cold."""

BREAK_SECONDS: Final = (120.0, 1_200.0)
"""Breaks between sessions of a day, in turn. Most caches outlive the first; one of five minutes ends in the other."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Where a joined session begins: the place of its first message, and the pause before it."""

    start: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Week:
    """Sessions joined into one."""

    session: Session
    joints: tuple[Joint, ...] = ()


class WeekRow(TypedDict):
    """How a week was made: its sessions, the nights between them, its images, and references that count for nothing."""

    sessions: int
    nights: int
    images: int
    references: int
    left_out: int


def pause_seconds(number: int, sessions: int) -> float:
    """Return the pause before session `number` (from 1) of a week that has so many after the first one and with it.

    The sessions are spread evenly over the days.
    """
    if number * DAYS // sessions > (number - 1) * DAYS // sessions:
        return NIGHT_SECONDS
    return BREAK_SECONDS[number % len(BREAK_SECONDS)]


def join(sessions: Iterable[Session], count: int) -> Week:
    """Join `count` sessions of the Chat Completions dialect, read one after the other. O(size).

    The system text is that of the first. Each later session begins with its first message of a user; a call at its end
    that has no result is left out. Ids of calls that occurred before get another one.
    """
    messages: list[Wire] = []
    joints: list[Joint] = []
    taken: set[str] = set()
    first: Session | None = None
    for number, session in enumerate(sessions):
        if first is None:
            first = session
            own: Sequence[Wire] = session.messages
        else:
            own = _from_first_user(session.messages)
            joints += [Joint(len(messages), pause_seconds(number, count))] if own else []
        messages += _with_new_ids(own if number == count - 1 else _answered(own), taken, number)
    if first is None:
        raise ValueError("no session to join")
    return Week(replace(first, messages=tuple(messages)), tuple(joints))


def _from_first_user(messages: Sequence[Wire]) -> Sequence[Wire]:
    start = next((place for place, wire in enumerate(messages) if wire.get("role") == "user"), len(messages))
    return messages[start:]


def _answered(messages: Sequence[Wire]) -> Sequence[Wire]:
    """The messages up to the last call if that lacks results. O(messages at the end)."""
    for place in range(len(messages) - 1, -1, -1):
        wire = messages[place]
        if wire.get("role") != "tool":
            results = {after.get("tool_call_id") for after in messages[place + 1 :]}
            return messages if _ids(wire) <= results else messages[:place]
    return messages


def _ids(wire: Wire) -> set[str]:
    return {str(call.get("id")) for call in _calls(wire)}


def _calls(wire: Wire) -> Sequence[Any]:
    calls = wire.get("tool_calls")
    return calls if isinstance(calls, list) else ()


def _with_new_ids(messages: Sequence[Wire], taken: set[str], number: int) -> Iterator[Wire]:
    """The messages, with another id for each that is taken. Adds their ids to `taken`. O(messages)."""
    own = set[str]().union(*map(_ids, messages))
    new = {}
    for used in sorted(own & taken):
        again = number
        while (name := f"{used}_{again}") in taken | own:
            again += 1
        new[used] = name
    taken |= (own - new.keys()) | set(new.values())
    for wire in messages:
        if not new:
            yield wire
        elif _ids(wire) & new.keys():
            calls = [{**call, "id": new.get(str(call.get("id")), call.get("id"))} for call in _calls(wire)]
            yield {**wire, "tool_calls": calls}
        elif wire.get("tool_call_id") in new:
            yield {**wire, "tool_call_id": new[str(wire["tool_call_id"])]}
        else:
            yield wire


class WeekRecording(MeasuredSession):
    """A week, read and measured once; a session that was not joined is a week without joints.

    `pauses` are those at the joints, by request. `all_references` counts those of the recording before references at
    the joints were left out.
    """

    def __init__(self, week: Week, counter: Counter) -> None:
        super().__init__(week.session, counter)
        self.week = week
        starts = [joint.start for joint in week.joints]
        replies = [reply.start for reply in self.replies]
        firsts = [bisect_right(replies, start) for start in starts]
        self.pauses = Pauses(
            at={first + 1: joint.idle_seconds for first, joint in zip(firsts, week.joints, strict=True)}
        )
        self.all_references = sum(map(len, self.references))
        kept = []
        for request, refs in enumerate(self.references):
            joint = bisect_right(starts, replies[request]) - 1
            settling = joint >= 0 and request - firsts[joint] < SETTLING_REQUESTS
            since = starts[joint] if joint >= 0 else 0
            kept.append(() if settling else tuple(ref for ref in refs if ref.source >= since))
        self.references = tuple(kept)

    def row(self) -> WeekRow | None:
        """Say how the week was made; None for a session that was not joined."""
        joints = self.week.joints
        if not joints:
            return None
        return WeekRow(
            sessions=len(joints) + 1,
            nights=sum(joint.idle_seconds == NIGHT_SECONDS for joint in joints),
            images=sum(map(_images, self.session.messages)),
            references=self.all_references,
            left_out=self.all_references - sum(map(len, self.references)),
        )


def _images(wire: Wire) -> int:
    content = wire.get("content")
    blocks = content if isinstance(content, list) else ()
    return sum(isinstance(block, dict) and block.get("type") == "image_url" for block in blocks)
