"""Originals of folds are kept in memory until they are written, and are read from there meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from foldline.agent.recallable_archive import RecallableArchive
from foldline.view.archive import MemoryArchive, key_of


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
