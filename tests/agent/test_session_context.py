"""A long text is counted in a thread before the loop takes it up, and not again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest

from foldline.agent.session_context import BackgroundCounter, RecallableArchive
from foldline.tokens import ESTIMATE
from foldline.view.archive import MemoryArchive, key_of

LONG = "\n".join(f"ok {number}" for number in range(20_000))


class Watched:
    """Counts as the estimate does, and notes in which thread it counts what."""

    name = "watched"

    def __init__(self) -> None:
        self.counted: list[tuple[threading.Thread, int]] = []

    def text(self, text: str, /) -> int:
        self.counted.append((threading.current_thread(), len(text)))
        return ESTIMATE.text(text)


def test_a_long_text_is_counted_once_and_in_another_thread() -> None:
    watched = Watched()
    counter = BackgroundCounter(watched)
    asyncio.run(counter.count_in_background(LONG))
    assert counter.text(LONG) == counter.text(LONG) == ESTIMATE.text(LONG)
    [(thread, chars)] = watched.counted
    assert thread is not threading.current_thread()
    assert chars == len(LONG)


def test_a_short_text_is_counted_where_it_is_asked_for() -> None:
    watched = Watched()
    counter = BackgroundCounter(watched)
    asyncio.run(counter.count_in_background("short"))
    assert watched.counted == []
    assert counter.text("short") == ESTIMATE.text("short")
    assert [thread for thread, _ in watched.counted] == [threading.current_thread()]


def test_another_text_is_counted_anew_and_so_is_one_that_was_taken_up() -> None:
    watched = Watched()
    counter = BackgroundCounter(watched)
    asyncio.run(counter.count_in_background(LONG))
    assert counter.text(f"{LONG}.") == ESTIMATE.text(f"{LONG}.")
    counter.clear()
    assert counter.text(LONG) == ESTIMATE.text(LONG)
    assert len(watched.counted) == 3
    assert counter.name == "watched"


class Full(MemoryArchive):
    """An archive on a disk that is full for the first object that comes."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = False

    def put(self, data: bytes, /) -> str:
        if not self.refused:
            self.refused = True
            raise OSError(28, "No space left on device")
        return super().put(data)


class AllAtOnce(MemoryArchive):
    """An archive that keeps several objects at the price of one."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []

    def put_all(self, several: Iterable[bytes], /) -> None:
        given = list(several)
        self.times.append(len(given))
        for data in given:
            self.put(data)


def test_what_is_held_is_read_from_memory_and_put_in_place_when_it_is_written() -> None:
    inner = MemoryArchive()
    archive = RecallableArchive(inner)
    archive.buffering = True
    key = archive.put(b"an original")
    assert key == key_of(b"an original")
    assert key in archive and archive.get(key) == b"an original"
    assert key not in inner
    archive.write()
    assert inner.get(key) == archive.get(key) == b"an original"


def test_without_being_held_it_is_put_in_place_at_once() -> None:
    inner = MemoryArchive()
    assert RecallableArchive(inner).put(b"an original") in inner


def test_what_a_full_disk_refused_is_written_with_the_next_call() -> None:
    inner = Full()
    archive = RecallableArchive(inner)
    archive.buffering = True
    keys = [archive.put(b"one"), archive.put(b"two")]
    with pytest.raises(OSError, match="No space"):
        archive.write()
    assert [archive.get(key) for key in keys] == [b"one", b"two"]
    archive.write()
    assert [inner.get(key) for key in keys] == [b"one", b"two"]


def test_an_archive_that_takes_many_at_once_is_asked_once() -> None:
    inner = AllAtOnce()
    archive = RecallableArchive(inner)
    archive.buffering = True
    for number in range(5):
        archive.put(str(number).encode())
    archive.write()
    archive.write()
    assert inner.times == [5]


def test_its_places_say_how_the_agent_gets_there() -> None:
    inner = MemoryArchive()
    key = inner.put(b"an original")
    assert RecallableArchive(inner).where(key) == f"{inner.where(key)} (the tool recall reads it)"
