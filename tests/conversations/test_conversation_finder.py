"""The events that a branch inherits from its source."""

from __future__ import annotations

import pytest
from tests.conversations.clients import body_of, turns, under

from foldline.conversations.conversation import Conversation
from foldline.conversations.conversation_finder import events_before, inherited_events
from foldline.conversations.request_plan import limits_for
from foldline.view.archive import MemoryArchive
from foldline.view.transcript import Entry, Event, Fold

OWN, OTHER = b"own", b"other"


def log() -> tuple[tuple[Event, ...], int]:
    """The log of a conversation that was folded when all its messages were there, and where its first fold ends."""
    body = body_of("openai-chat", turns("openai-chat", 12)[:-3])
    made = Conversation("c", body, under(), limits_for(body, 3_000), archive=MemoryArchive())
    made.append(body)
    made.plan(body, limits_for(body, 3_000))
    events = made.context.events
    return events, min(event.stop for event in events if isinstance(event, Fold))


def folds(events: list[Event]) -> int:
    return sum(isinstance(event, Fold) for event in events)


def test_what_a_model_wrote_with_later_messages_in_sight_is_for_nobody_who_has_not_sent_them() -> None:
    events, stop = log()
    entries = sum(isinstance(event, Entry) for event in events)
    assert stop < entries - 1
    assert folds(events_before(events, entries - 1)) > 0 == folds(events_before(events, entries - 1, folds="alone"))
    assert folds(events_before(events, entries, folds="alone")) == folds(events_before(events, entries))
    assert folds(events_before(events, entries, folds="none")) == 0
    assert folds(events_before(events, stop)) > 0 == folds(events_before(events, stop - 1))


@pytest.mark.parametrize(("sight", "some", "all_"), [(b"", True, True), (OWN, False, True), (OTHER, False, False), (None, False, False)])  # fmt: skip  # noqa: E501
def test_it_depends_on_what_was_in_sight_how_much_is_taken_over(sight: bytes | None, some: bool, all_: bool) -> None:
    events, _ = log()
    entries = sum(isinstance(event, Entry) for event in events)
    assert bool(folds(inherited_events(events, entries - 1, sight, OWN))) == some
    assert bool(folds(inherited_events(events, entries, sight, OWN))) == all_
