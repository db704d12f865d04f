"""A long text is counted in a thread before the loop takes it up, and not again."""

from __future__ import annotations

import asyncio
import threading

from foldline.agent.background_counter import BackgroundCounter
from foldline.tokens import ESTIMATE

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
