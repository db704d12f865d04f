"""What a session that is being written has in common, whatever keeps it: how events become records, and are counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Literal, Self

from foldline.codecs import codec as codec_for
from foldline.codecs.base import Codec
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.base import Store
from foldline.store.recording import CHANGEABLE, Clock, Header, Tally, in_force, stamp
from foldline.store.records import Record, record_of, sealed
from foldline.view.transcript import Event

__all__ = ["Writing"]


class Writing(ABC):
    """A session that is being written, by its one writer; what keeps it fills in the abstract methods.

    Whoever derives from it calls `_begin` with the first record of a new session, or `_recount` for one that is there.
    """

    _header: Header
    _tally: Tally
    _codec: Codec
    _counted: list[Event] | None = None
    """The events that were read to count them, until something is written: whoever opens a session asks for them."""

    def __init__(self, agents: Store, clock: Clock) -> None:
        self._agents = agents
        self._clock = clock

    @property
    def id(self) -> str:
        """Its name."""
        return self._header.id

    @property
    def header(self) -> Header:
        """What it is, as of now."""
        return self._header

    @property
    def tally(self) -> Tally:
        """Counts over its log, as of now."""
        return self._tally

    @property
    @abstractmethod
    def place(self) -> str:
        """Where a person finds it."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first, read from where they are kept: what `Context.replay` wants. O(log).

        Limits of a model that the session has left are not among them.
        """
        counted, self._counted = self._counted, None
        if counted is not None:
            return in_force(counted, self._tally)
        return in_force((event for _, _, event in self._read() if event is not None), self._tally)

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them or none; they are safe when it returns. O(their size).

        Raises InvalidInput for what is no JSON, OSError (a full disk, a database that is gone) and SessionLost; then
        none of them is in the log.
        """
        self._held()
        self._counted = None
        at = stamp(self._clock)
        given = tuple(events)
        if not given:
            return
        records = [{**record_of(event, self._codec), "at": at} for event in given]
        try:
            self._extend(records)
        except InvalidInput:  # one of them holds what strict JSON has no form for
            self._extend([{**sealed(record), "at": at} for record in records])
        for record, event in zip(records, given, strict=True):
            self._tally.take(record, event)

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began (`key`: the client's name for it), or ended and why. Raises as `append` does."""
        self._write({"type": "turn", "state": state, **more})

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know. Raises as `append` does."""
        self._write({"type": "note", **more})

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput, or as `append` does."""
        unknown = [name for name in settings if name not in CHANGEABLE]
        if unknown:
            raise InvalidInput(f"cannot be changed; what can: {', '.join(CHANGEABLE)}", place=unknown[0])
        header = self._header.changed(settings)
        self._write({"type": "settings", **settings})
        self._header = header

    def agents(self) -> Store:
        """The sessions of its sub-agents."""
        return self._agents

    @abstractmethod
    def close(self) -> None:
        """Let go of the session for good. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _held(self) -> None:
        """Raises SessionLost when this writer knows that it does not have the session."""

    @abstractmethod
    def _extend(self, records: Sequence[Record]) -> None:
        """Put records into the log, all of them or none. Raises InvalidInput for one that is no strict JSON."""

    @abstractmethod
    def _read(self) -> Iterator[tuple[Header, Record, Event | None]]:
        """The log so far, as `recording.followed` gives it."""

    def _begin(self, header: Header, first: Record) -> None:
        self._header = header
        self._codec = codec_for(header.dialect)
        self._tally = Tally()
        self._tally.take(first)

    def _recount(self) -> None:
        self._count(self._read())

    def _count(self, log: Iterable[tuple[Header, Record, Event | None]]) -> None:
        header, tally = None, Tally()
        events: list[Event] = []
        for header, record, event in log:  # noqa: B007 - the last one counts
            tally.take(record, event)
            if event is not None:
                events.append(event)
        if header is None:
            raise InvalidInput("the log is empty", place=self.place)
        self._counted = events
        self._header, self._tally, self._codec = header, tally, codec_for(header.dialect)

    def _write(self, record: Record) -> None:
        self._held()
        record = {**record, "at": stamp(self._clock)}
        self._extend([record])
        self._tally.take(record)
