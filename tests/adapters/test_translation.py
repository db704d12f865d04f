"""From a framework's objects to a request and back to the same objects."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from tests.adapters.toy import Note, ToyTranslation, notes

from foldline.adapters.translation import ShownMessage, framework_messages, read_history, shown_places
from foldline.messages import Wire

TOY = ToyTranslation()


def shown_whole(history_notes: list[Note]) -> tuple[list[Note], list[Note]]:
    history = read_history(TOY, history_notes)
    shown = [ShownMessage(wire, place, whole=True) for place, wire in enumerate(history.wires)]
    return history_notes, framework_messages(TOY, history, shown)


def test_what_is_shown_whole_is_the_frameworks_own_object() -> None:
    given, out = shown_whole(notes(3))
    assert len(out) == len(given)
    assert all(one is other for one, other in zip(given, out, strict=True))


def test_an_object_of_several_messages_is_itself_only_with_all_of_them_in_order() -> None:
    history = read_history(TOY, notes(1))
    assert history.owners == [0, 1, 2, 3, 3]
    first, second = (ShownMessage(history.wires[place], place, whole=True) for place in (3, 4))
    assert framework_messages(TOY, history, [first, second]) == [history.messages[3]]
    (alone,) = framework_messages(TOY, history, [second])
    assert alone is not history.messages[3]
    assert (alone.id, [name for name, _ in alone.results]) == ("r0", ["c0_1"])
    (turned,) = framework_messages(TOY, history, [second, first])
    assert [name for name, _ in turned.results] == ["c0_1", "c0_0"]


def test_a_shorter_form_keeps_the_id_and_leaves_the_original_alone() -> None:
    history = read_history(TOY, notes(1))
    before = copy.deepcopy(history.messages)
    short = ShownMessage({**history.wires[3], "content": "short"}, 3)
    (form,) = framework_messages(TOY, history, [short, ShownMessage(history.wires[4], 4, whole=True)])
    assert form.id == "r0"
    assert form.results == [("c0_0", "short"), history.messages[3].results[1]]
    assert history.messages == before


def test_what_foldline_writes_stands_by_itself() -> None:
    history = read_history(TOY, notes(1))
    digest = {"role": "user", "content": "a digest"}
    understood = {"role": "assistant", "content": "Understood."}
    out = framework_messages(TOY, history, [ShownMessage(digest), ShownMessage(understood)])
    assert out == [Note("user", "a digest"), Note("assistant", "Understood.")]


def test_a_message_that_is_never_sent_is_left_out() -> None:
    class Quiet(ToyTranslation):
        def read(self, message: Note, /) -> Sequence[Wire]:
            return () if message.role == "system" else super().read(message)

    history = read_history(Quiet(), notes(1))
    assert history.owners == [1, 2, 3, 3]


def test_what_is_sent_of_a_packed_object_finds_the_places_that_it_shows() -> None:
    one, two, words = (
        {"role": "tool", "tool_call_id": "a", "content": "long"},
        {"role": "tool", "tool_call_id": "b", "content": "long"},
        {"role": "user", "content": "and now"},
    )
    before: list[Wire] = [one, two, words]
    assert shown_places(before, before) == [0, 1, 2]
    assert shown_places([{**two, "content": "short"}], before) == [1]
    assert shown_places([one, {"role": "user", "content": "now"}], before) == [0, 2]
    media = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    assert shown_places([one, media, two], [one, two]) == [0, None, 1]
