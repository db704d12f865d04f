from __future__ import annotations

from typing import Any

import pytest

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import request_price
from foldline.engine.one_shot import check
from foldline.messages import Wire
from foldline.recorded.sessions import Session
from foldline.replay import bill_tokens, replay
from foldline.tokens import ESTIMATE
from foldline_bench.weeks import BREAK_SECONDS, NIGHT_SECONDS, Week, WeekRecording, join, pause_seconds

ANTHROPIC = CACHE_RULES["anthropic"]
OPEN_CALL = {"id": "open", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


def recorded(subject: str, rounds: int = 4, *, last: tuple[dict[str, Any], ...] = ()) -> Session:
    """A session about one file, with the ids c0, c1 … that each of them has."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You mend {subject}."},
        {"role": "user", "content": f"Mend src/{subject}.py."},
    ]
    for turn in range(rounds):
        function = {"name": "read_file", "arguments": f'{{"path": "src/{subject}_{turn}.py"}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        said = f"As src/{subject}_{turn - 1}.py and src/shared.py."
        messages += [
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"src/{subject}_{turn}.py src/shared.py"},
        ]
    return Session(name=subject, dialect="openai-chat", messages=(*messages, *last))


def ids(messages: tuple[Wire, ...]) -> list[str]:
    return [call["id"] for wire in messages for call in wire.get("tool_calls") or ()]


def named_in(recording: WeekRecording) -> list[set[str]]:
    return [{ref.fact for ref in refs} for refs in recording.references]


def of(*sessions: Session) -> Week:
    return join(iter(sessions), len(sessions))


def test_a_joined_session_begins_with_its_user_under_the_first_system_text() -> None:
    week = of(recorded("first"), recorded("second"), recorded("third"))
    starts = [week.session.messages[joint.start] for joint in week.joints]
    assert [wire["content"] for wire in starts] == ["Mend src/second.py.", "Mend src/third.py."]
    roles = [wire["role"] for wire in week.session.messages]
    assert (roles.count("system"), roles[0]) == (1, "system")
    assert week.session.messages[: week.joints[0].start] == recorded("first").messages


def test_no_id_of_a_call_occurs_in_two_sessions_and_results_stay_with_their_calls() -> None:
    taken = {**OPEN_CALL, "id": "c0_1"}
    answered = ({"role": "assistant", "tool_calls": [taken]}, {"role": "tool", "tool_call_id": "c0_1", "content": "ok"})
    week = of(recorded("first", last=answered), recorded("second"), recorded("third"))
    found = ids(week.session.messages)
    assert len(found) == len(set(found)) == 13
    assert found[:5] == ["c0", "c1", "c2", "c3", "c0_1"]
    assert check(week.session.messages, dialect="openai-chat", system=None, tools=None) == []


def test_a_call_that_was_never_answered_is_left_out_before_a_joint_and_stays_at_the_end() -> None:
    begun = {"role": "assistant", "content": "", "tool_calls": [OPEN_CALL, {**OPEN_CALL, "id": "other"}]}
    half = ({"role": "tool", "tool_call_id": "open", "content": "half of it"},)
    week = of(recorded("first", last=(begun, *half)), recorded("second", last=(begun,)))
    assert week.joints[0].start == len(recorded("first").messages)
    assert week.session.messages[-1] == begun


def test_a_session_without_a_user_is_no_joint() -> None:
    silent = Session(name="silent", dialect="openai-chat", messages=({"role": "assistant", "content": "Hello."},))
    week = of(recorded("first"), silent)
    assert (week.joints, week.session.messages) == ((), recorded("first").messages)
    assert of(silent).session.messages == silent.messages


@pytest.mark.parametrize(("sessions", "nights"), [(2, 1), (3, 2), (5, 4), (6, 4), (23, 4), (100, 4)])
def test_a_week_has_five_days_and_breaks_in_turn_between_its_other_sessions(sessions: int, nights: int) -> None:
    pauses = [pause_seconds(number, sessions) for number in range(1, sessions)]
    assert pauses.count(NIGHT_SECONDS) == nights
    assert set(pauses) <= {NIGHT_SECONDS, *BREAK_SECONDS}
    assert sessions < 23 or set(BREAK_SECONDS) < set(pauses)
    assert pauses == [pause_seconds(number, sessions) for number in range(1, sessions)]


def test_what_a_session_refers_to_stands_in_itself_after_its_first_requests() -> None:
    recording = WeekRecording(of(recorded("first"), recorded("second")), ESTIMATE)
    first, second = (WeekRecording(of(recorded(subject)), ESTIMATE) for subject in ("first", "second"))
    named = named_in(recording)
    assert named[:4] == named_in(first)
    assert named[4:6] == [set(), set()]
    assert named[6:] == named_in(second)[2:]
    assert all(named[6:])
    row = recording.row()
    assert row is not None
    assert row["left_out"] == row["references"] - sum(map(len, named)) > 0
    assert (row["sessions"], row["nights"], row["images"]) == (2, 1, 0)
    assert second.row() is None


def test_a_name_of_another_session_is_no_reference_even_late_in_a_session() -> None:
    last = ({"role": "assistant", "content": "As in src/first_2.py."},)
    recording = WeekRecording(of(recorded("first"), recorded("second", last=last)), ESTIMATE)
    assert recording.references[-1] == ()


def test_a_night_expires_every_cache_and_a_short_break_none() -> None:
    sessions = [recorded(f"subject{number}", 12) for number in range(20)]
    recording = WeekRecording(of(*sessions), ESTIMATE)
    done = replay(recording, "none", window=100_000, rule=ANTHROPIC, pauses=recording.pauses)
    idle = {turn.index: turn.idle_seconds for turn in done.turns if turn.idle_seconds}
    assert list(idle) == [12 * number for number in range(1, 20)]
    assert list(idle.values()) == [pause_seconds(number, 20) for number in range(1, 20)]
    night = next(turn for turn in done.turns if turn.idle_seconds == NIGHT_SECONDS)
    short = next(turn for turn in done.turns if turn.idle_seconds == BREAK_SECONDS[0])
    assert bill_tokens((night,), ANTHROPIC) == request_price(ANTHROPIC, night.tokens, 0)
    assert bill_tokens((short,), ANTHROPIC) == request_price(ANTHROPIC, short.tokens, short.cached_tokens)
    assert short.cached_tokens > 0


def test_images_are_counted() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    seen = ({"role": "user", "content": [{"type": "text", "text": "See."}, image, image]},)
    plain = WeekRecording(of(recorded("first"), recorded("second")), ESTIMATE)
    recording = WeekRecording(of(recorded("first", last=seen), recorded("second")), ESTIMATE)
    row = recording.row()
    assert row is not None
    assert row["images"] == 2
    assert recording.tokens > plain.tokens + 100


def test_no_session_makes_no_week() -> None:
    with pytest.raises(ValueError, match="no session to join"):
        join(iter(()), 0)
