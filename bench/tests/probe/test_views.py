from __future__ import annotations

import pytest
from bench.tests.probe.support import limit_of, recording_of

from foldline.catalog.models import CACHE_RULES
from foldline.errors import InvalidInput
from foldline.replay import context_for
from foldline.tokens import ESTIMATE
from foldline_bench.probe.views import folded_texts, full_text, transcript

ROOM = 100_000


def test_the_full_view_has_every_line_of_the_session_up_to_the_point() -> None:
    recording = recording_of(20)
    text = full_text(recording, 30, room_tokens=ROOM, counter=ESTIMATE)
    assert text.whole
    assert text.tokens == ESTIMATE.text(text.text)
    shown = {line.strip() for line in text.text.splitlines()}
    assert all(message.lines <= shown | {""} for message in recording.history[:30])
    assert not recording.history[30].lines <= shown


def test_without_room_the_newest_part_is_shown_and_said_to_be_a_part() -> None:
    recording = recording_of(20)
    text = full_text(recording, 40, room_tokens=500, counter=ESTIMATE)
    assert not text.whole
    assert 300 < text.tokens <= 500
    assert recording.history[39].text in text.text
    assert limit_of(0) not in text.text


def test_a_message_larger_than_the_room_is_shown_by_its_end() -> None:
    recording = recording_of(20)
    newest = recording.history[3].text
    text = full_text(recording, 4, room_tokens=40, counter=ESTIMATE)
    assert not text.whole
    assert 0 < text.tokens <= 40
    assert newest.endswith(text.text)


def test_a_folded_view_is_what_the_policy_sends_at_each_point() -> None:
    recording = recording_of(40)
    points = [reply.start for reply in recording.replies[30:45:7]]
    found = folded_texts(recording, points, system="balanced", budget_tokens=1_500, room_tokens=ROOM, counter=ESTIMATE)
    assert sorted(found) == points
    context = context_for(recording, "balanced", window=1_500, rule=CACHE_RULES["anthropic"])
    done = 0
    for reply in recording.replies[:45]:
        context.extend(recording.session.messages[done : reply.start])
        done, request = reply.start, context.prepare()
        if (text := found.get(reply.start)) is not None:
            assert text.text == "\n\n".join(transcript(request.messages, recording.reader))
            assert text.whole
            assert text.tokens < full_text(recording, done, room_tokens=ROOM, counter=ESTIMATE).tokens / 2


def test_what_cannot_be_made_to_fit_is_not_shown() -> None:
    recording = recording_of(20)
    point = recording.replies[15].start
    found = folded_texts(recording, [point], system="balanced", budget_tokens=30, room_tokens=ROOM, counter=ESTIMATE)
    assert found == {point: None}


def test_no_point_asks_for_no_view() -> None:
    assert folded_texts(recording_of(5), [], system="cost", budget_tokens=900, room_tokens=9, counter=ESTIMATE) == {}


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown policy 'best'"):
        folded_texts(recording_of(5), [2], system="best", budget_tokens=900, room_tokens=ROOM, counter=ESTIMATE)
