"""Which conversation a call continues."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.adapters.toy import Note, ToyTranslation, notes

from foldline.adapters.histories import FollowedHistory, Histories
from foldline.adapters.translation import FrameworkHistory, read_history
from foldline.engine.context import Context
from foldline.view.transcript import Branch, active

TOY = ToyTranslation()


def context() -> Context:
    return Context(window=100_000)


def read(messages: list[Note]) -> FrameworkHistory[Note]:
    return read_history(TOY, messages)


def followed(histories: Histories[Note], key: str | None, messages: list[Note]) -> FollowedHistory:
    history = read(messages)
    with histories.lend(key, history, context) as found:
        found.follow(history)
    assert [entry.recorded for entry in active(found.context.events)] == history.wires
    return found


def test_what_goes_on_is_the_same_conversation_by_name_and_by_content() -> None:
    for key in ("t1", None):
        histories: Histories[Note] = Histories()
        first = followed(histories, key, notes(2))
        assert followed(histories, key, notes(5)) is first
        assert followed(histories, key, notes(5)) is first  # the same once more: a call that is tried again
        assert len(histories) == 1


def test_another_name_is_another_conversation() -> None:
    histories: Histories[Note] = Histories()
    assert followed(histories, "t1", notes(2)) is not followed(histories, "t2", notes(2))
    assert followed(histories, None, notes(2)) is not followed(histories, "t1", notes(2))


def test_an_edit_of_a_named_conversation_is_a_branch_and_nothing_is_lost() -> None:
    histories: Histories[Note] = Histories()
    first = followed(histories, "t1", notes(4))
    count = first.context.event_count
    edited = [*notes(2), Note("user", "Another way.")]
    assert followed(histories, "t1", edited) is first
    assert any(isinstance(event, Branch) for event in first.context.events)
    assert first.context.event_count > count


def test_without_a_name_a_branch_is_another_conversation() -> None:
    """Two users may begin alike; what one has said is not there for the other."""
    histories: Histories[Note] = Histories()
    first = followed(histories, None, notes(4))
    assert followed(histories, None, [*notes(2), Note("user", "Another way.")]) is not first
    assert followed(histories, None, notes(6)) is first


def test_a_sub_agent_with_the_same_name_and_system_text_has_a_context_of_its_own() -> None:
    histories: Histories[Note] = Histories()
    first = followed(histories, "t1", notes(4))
    inner = [notes(1)[0], Note("user", "Only look at one file.")]
    other = followed(histories, "t1", inner)
    assert other is not first
    # Each finds its own again, whichever was used last.
    assert followed(histories, "t1", notes(5)) is first
    assert followed(histories, "t1", [*inner, Note("assistant", "It is fine.")]) is other


def test_a_call_beside_another_of_the_same_conversation_gets_one_of_its_own() -> None:
    histories: Histories[Note] = Histories()
    followed(histories, "t1", notes(2))
    history = read(notes(3))
    with (
        histories.lend("t1", history, context) as one,
        histories.lend("t1", history, context) as other,
    ):
        one.follow(history)
        other.follow(history)
        assert one is not other
    assert len(histories) == 2


def test_the_conversation_that_was_idle_for_longest_goes_first_and_is_read_again() -> None:
    histories: Histories[Note] = Histories(2)
    first = followed(histories, "t1", notes(2))
    second = followed(histories, "t2", notes(2))
    assert followed(histories, "t1", notes(3)) is first
    followed(histories, "t3", notes(2))
    assert len(histories) == 2
    assert histories.context("t2") is None
    assert histories.context("t1") is first.context
    assert followed(histories, "t2", notes(3)) is not second


def test_a_conversation_that_was_never_read_is_not_kept() -> None:
    histories: Histories[Note] = Histories()
    with histories.lend("t1", read(notes(1)), context):
        pass
    assert len(histories) == 0


def test_many_threads_lend_and_no_conversation_is_in_two_hands() -> None:
    histories: Histories[Note] = Histories(8)
    in_use: set[int] = set()
    guard = threading.Lock()

    def turn(number: int) -> None:
        history = read(notes(number // 4 + 1))
        with histories.lend(f"t{number % 4}", history, context) as found:
            with guard:
                assert id(found) not in in_use
                in_use.add(id(found))
            found.follow(history)
            with guard:
                in_use.remove(id(found))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(turn, range(80)))
    assert 4 <= len(histories) <= 8
