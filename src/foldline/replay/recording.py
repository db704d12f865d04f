"""A session read and measured once, for as many replays as there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldline.codecs import Codec, codec
from foldline.errors import InvalidInput
from foldline.recorded.sessions import Session
from foldline.replay.facts import Lens, Seen, references
from foldline.tokens import ESTIMATE, Counter, system_tokens, tools_tokens

__all__ = ["Recording"]


class Recording:
    """A session read and measured once, to be replayed under several policies. O(size of the session).

    Every size is counted by `counter`, which no policy can choose: the same for all that are compared.
    """

    def __init__(self, session: Session, counter: Counter = ESTIMATE) -> None:
        self.session = session
        self.counter = counter
        self.codec = codec(session.dialect)
        self.lens = Lens(self.codec, counter)
        self.history = [self._look(index) for index in range(len(session.messages))]
        self.replies = tuple(_replies(self.codec, self.history))
        self.references = references(self.history, self.replies)
        self.tools_tokens = tools_tokens(session.tools, counter)
        sizes = [seen.tokens for seen in self.history]
        self.tokens = sum(sizes) + self.tools_tokens + system_tokens(session.system, counter)

    def _look(self, index: int) -> Seen:
        try:
            return self.lens.look(self.session.messages[index])
        except InvalidInput as error:
            inner = f": {error.place}" if error.place else ""
            raise InvalidInput(error.reason, place=f"message {index}{inner}") from error


def _replies(dialect: Codec, history: Sequence[Seen]) -> Iterator[range]:
    """Where the model spoke: each assistant message, or each run of its items; not what a session begins with."""
    start: int | None = None
    for index, seen in enumerate(history):
        if seen.role != "assistant":
            start = None
            continue
        if start is None or not dialect.itemised:
            start = index
            stop = index + 1
            while dialect.itemised and stop < len(history) and history[stop].role == "assistant":
                stop += 1
            if index:
                yield range(index, stop)
