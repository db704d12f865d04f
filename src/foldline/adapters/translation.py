"""From a framework's messages to the JSON of a dialect, and from a request back to the framework's own objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from foldline.messages import Wire

__all__ = ["FrameworkHistory", "ShownMessage", "Translation", "framework_messages", "read_history", "shown_places"]

M = TypeVar("M")


class Translation(Protocol[M]):
    """How messages of a framework are read and written. Neither changes a message of the framework."""

    @property
    def dialect(self) -> str:
        """The dialect of the JSON."""

    def read(self, message: M, /) -> Sequence[Wire]:
        """A message as JSON: several objects where the dialect sends its parts apart, none where it is never sent.

        Equal messages give equal JSON, also after a checkpoint of the framework has stored and loaded them: what a
        framework adds by itself (ids, times, usage) is left out.
        """

    def write(self, wires: Sequence[Wire], original: M | None, /) -> Sequence[M]:
        """Messages of the framework for JSON. With `original` they are other forms of it, with its id and metadata.

        Without, the JSON is Foldline's own: a digest, a summary, a stand-in for a missing result.
        """


@dataclass(slots=True)
class FrameworkHistory(Generic[M]):
    """The messages of a framework, read: `wires` is their JSON, `owners` the index of the message of each of these."""

    messages: Sequence[M]
    wires: list[Wire] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)


def read_history(translation: Translation[M], messages: Sequence[M]) -> FrameworkHistory[M]:
    """Read the messages of a framework. O(their size)."""
    history = FrameworkHistory(messages)
    for index, message in enumerate(messages):
        for wire in translation.read(message):
            history.wires.append(wire)
            history.owners.append(index)
    return history


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message of a request: its JSON, and the place in the history of the entry that it shows.

    `place` is None for one of Foldline's own. `whole` says that it is the JSON of that place itself.
    """

    wire: Wire
    place: int | None = None
    whole: bool = False


def framework_messages(
    translation: Translation[M], history: FrameworkHistory[M], shown: Sequence[ShownMessage]
) -> list[M]:
    """The messages of a request as the framework's: its own objects wherever they are shown whole. O(messages)."""

    def owner(message: ShownMessage) -> int | None:
        return None if message.place is None else history.owners[message.place]

    counts: dict[int, int] = {}
    for index in history.owners:
        counts[index] = counts.get(index, 0) + 1
    out: list[M] = []
    for of, found in groupby(shown, owner):
        group = list(found)
        if of is None:
            for message in group:
                out += translation.write([message.wire], None)
            continue
        # One object may hold what a dialect sends as several messages: it is itself only with all of them, in order.
        places = [message.place for message in group if message.place is not None]
        in_order = places == list(range(places[0], places[0] + counts[of]))
        if in_order and all(message.whole for message in group):
            out.append(history.messages[of])
        else:
            out += translation.write([message.wire for message in group], history.messages[of])
    return out


def shown_places(wires: Sequence[Wire], before: Sequence[Wire]) -> list[int | None]:
    """For `write`, of an object that holds several messages: which of them each of the messages to send shows.

    `before` was read of the object. None stands for one that is none of them: media, parted from a result. O(all).
    """
    left = list(range(len(before)))
    places: list[int | None] = []
    for wire in wires:
        same = [place for place in left if before[place] == wire]
        found = same or [place for place in left if _fellow(before[place]) == _fellow(wire)]
        places.append(found[0] if found else None)
        if found:
            left = [place for place in left if place > found[0]]
    return places


def _fellow(wire: Wire) -> tuple[object, object]:
    return wire.get("role"), wire.get("tool_call_id")
