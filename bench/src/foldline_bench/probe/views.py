"""What the judge is shown of a session: nothing, all of it or its newest part, or the request that a policy makes.

Each is one text, message by message: so the view of a policy and the whole session differ in what they show alone, and
a model of any provider can read them, whatever dialect and tools the session had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.replay import MeasuredSession
from foldline.replay.recall import MessageReader
from foldline.text.shorten import clip_tokens
from foldline.tokens import Counter
from foldline_bench.prices import FRONT_RULE
from foldline_bench.workers.jobs import BenchJob
from foldline_bench.workers.offers import sender_maker

__all__ = ["BLIND", "FULL", "NOTHING", "SessionText", "folded_texts", "full_text", "transcript"]

FULL: Final = "full"
"""The system that folded views are compared with: the whole session, or its newest part."""

BLIND: Final = "blind"
"""The system that shows nothing: what the judge guesses from the question alone."""

_HEADS: Final[Mapping[str, str]] = {"user": "user", "assistant": "agent", "tool": "result of a tool"}
_BETWEEN: Final = "\n\n"


@dataclass(frozen=True, slots=True)
class SessionText:
    """A text for the judge and its size; not `whole` where the older part of it was left out for lack of room."""

    text: str
    tokens: int
    whole: bool = True


NOTHING: Final = SessionText("", 0)
"""The view of `BLIND`."""


def transcript(messages: Iterable[Wire], reader: MessageReader) -> list[str]:
    """Write each message as text: who speaks, then the words, with calls and results. O(size)."""
    # By the reader that the questions are made with: a line that they name is a line of this text.
    read = (reader.read(wire) for wire in messages)
    return [f"[{_HEADS.get(message.role, 'system')}]\n{message.text}" for message in read]


def full_text(recording: MeasuredSession, point: int, *, room_tokens: int, counter: Counter) -> SessionText:
    """Return the first `point` messages, or the newest of them that fit. O(size)."""
    return _newest(transcript(recording.session.messages[:point], recording.reader), room_tokens, counter)


def folded_texts(
    recording: MeasuredSession,
    points: Sequence[int],
    *,
    system: str,
    budget_tokens: int,
    room_tokens: int,
    counter: Counter,
) -> dict[int, SessionText | None]:
    """Return what one of our systems sends at each point; None where nothing that it must keep fits. O(session).

    A text that the judge has no room for loses its older part, as the whole session does. Raises InvalidInput for an
    unknown system.
    """
    job = BenchJob(system=system, budget_tokens=budget_tokens, told_rule=FRONT_RULE)
    sender = sender_maker(job, counter)(recording).sender
    # Not the session's own reader: it keeps every message that it has read.
    reader = recording.reader.copy()
    wanted, out, done = set(points), dict[int, SessionText | None](), 0
    # Request by request, as in the session: what a policy shows depends on when it folded before.
    for reply in recording.replies:
        if reply.start > max(wanted, default=0):
            break
        new, done = recording.session.messages[done : reply.start], reply.start
        try:
            sent = sender.send(new)
        except DoesNotFit:
            if reply.start in wanted:
                out[reply.start] = None
            continue
        if reply.start in wanted:
            out[reply.start] = _newest(transcript(sent.messages, reader), room_tokens, counter)
    return out


def _newest(texts: Sequence[str], room_tokens: int, counter: Counter) -> SessionText:
    """The newest texts that fit; of the first that does not, its end."""
    kept: list[str] = []
    tokens = 0
    for text in reversed(texts):
        kept.append(text)
        tokens += counter.text(text)
        if tokens > room_tokens:
            break
    joined = _BETWEEN.join(reversed(kept))
    # Counted as a whole, and with what stands between: it can be more than the sum.
    if counter.text(joined) <= room_tokens:
        return SessionText(joined, counter.text(joined))
    end = clip_tokens(joined, max(0, room_tokens), counter, "tail")[1]
    return SessionText(end, counter.text(end), whole=False)
