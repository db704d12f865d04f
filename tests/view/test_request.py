"""What is settled about a request as a whole: cache markers within their number, and roles in turn where wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear

from foldline.codecs.anthropic.cache_markers import markers
from foldline.codecs.openai_chat.roles import SEPARATOR, alternate_roles, role_faults
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES
from foldline.failures.classification import classify
from foldline.messages import Wire
from foldline.reducers.mask import Mask
from foldline.testing.scripted_model import session
from foldline.view.request import Request

MARK: Wire = {"cache_control": {"type": "ephemeral"}}
HOUR: Wire = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(words: str, mark: Wire | None = None) -> Wire:
    return {"type": "text", "text": words, **(mark or {})}


def says(role: str, *blocks: Wire) -> Wire:
    return {"role": role, "content": list(blocks)}


def marks(messages: list[Wire]) -> int:
    return len(list(markers(None, None, messages)))


def test_of_five_markers_the_newest_stay() -> None:
    wires = [says("user", *[block(f"b{n}", MARK) for n in range(5)])]
    out = fit(wires, max_tokens=10_000, dialect="anthropic")
    assert check(out.messages, dialect="anthropic") == []
    assert out.messages[0]["content"] == [block(f"b{n}", MARK if n > 2 else None) for n in range(5)]
    assert [repair.rule for repair in out.repairs] == ["cache-count"]


def test_four_markers_are_sent_as_they_came() -> None:
    wires = [says("user", *[block(f"b{n}", MARK) for n in range(4)])]
    out = fit(wires, max_tokens=10_000, dialect="anthropic")
    assert out.messages[0] is wires[0]
    assert not out.repairs


def test_markers_of_system_text_and_tools_count() -> None:
    system, tools = [block("s", MARK)], [{"name": "f", "input_schema": {}, **MARK}]
    wires = [says("user", *[block(f"b{n}", MARK) for n in range(3)])]
    out = fit(wires, max_tokens=10_000, dialect="anthropic", system=system, tools=tools)
    assert marks(out.messages) <= 2
    assert out.messages[0]["content"][-1] == block("b2", MARK)
    assert check(out.messages, dialect="anthropic", system=system, tools=tools) == []


@dear
@given(st.lists(st.lists(st.sampled_from([None, MARK, HOUR]), min_size=1, max_size=3), min_size=1, max_size=14))
def test_whatever_a_client_marks_the_request_is_taken_and_old_messages_seldom_change(turns: list[list[Any]]) -> None:
    context = Context(dialect="anthropic", window=100_000, max_output_tokens=0)
    requests: list[Request] = []
    moves = 0
    for number, turn in enumerate(turns):
        role = "assistant" if number % 2 else "user"
        context.append(says(role, *[block(f"t{number} b{n}", mark) for n, mark in enumerate(turn)]))
        request = context.prepare()
        assert check(request.messages, dialect="anthropic") == []
        if requests:
            before = requests[-1].messages
            same = sum(1 for _ in iter_same(before, request.messages))
            assert request.stable_until == same
            moves += same < len(before)
        requests.append(request)
    total = sum(mark is not None for turn in turns for mark in turn)
    assert moves <= max(0, total - 4), "no move without a marker too many"


def iter_same(before: list[Wire], after: list[Wire]) -> Any:
    """The leading messages that are the same in both."""
    for old, new in zip(before, after, strict=False):
        if old != new:
            return
        yield old


def test_a_marker_on_each_message_moves_the_others_every_second_time() -> None:
    context = Context(dialect="anthropic", window=100_000, max_output_tokens=0)
    requests: list[Request] = []
    for number in range(20):
        context.append(says("assistant" if number % 2 else "user", block(f"b{number}", MARK)))
        requests.append(context.prepare())
    moved = sum(1 for a, b in pairwise(requests) if b.messages[: len(a.messages)] != a.messages)
    assert marks(requests[-1].messages) <= 4
    assert moved <= 7


def chat(*roles: str) -> list[Wire]:
    return [{"role": role, "content": f"{role} {n}"} for n, role in enumerate(roles)]


def test_between_neighbours_the_other_side_says_a_word_and_later_system_text_is_the_users() -> None:
    wires = chat("user", "user", "system", "assistant", "assistant")
    out = alternate_roles(wires)
    between = [{"role": "assistant", "content": SEPARATOR}, {"role": "user", "content": SEPARATOR}]
    told = {"role": "user", "content": "system 2"}
    assert out == [wires[0], between[0], wires[1], between[0], told, wires[3], between[1], wires[4]]
    assert check(out, alternating=True) == []


def test_what_is_in_turn_is_left_and_what_comes_later_changes_nothing() -> None:
    alone = chat("system", "user", "assistant", "user")
    assert all(a is b for a, b in zip(alternate_roles(alone), alone, strict=True))
    more = [*alone, *chat("user", "system")]
    assert alternate_roles(more)[: len(alone)] == alone


def test_what_tool_messages_keep_apart_gets_a_word_between() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    wires = [
        *chat("user"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        *chat("user"),
    ]
    out = alternate_roles(wires)
    assert out[3] == {"role": "assistant", "content": SEPARATOR}
    assert check(out, alternating=True) == []


@dear
@given(st.lists(st.sampled_from(["user", "assistant", "system", "calls"]), min_size=1, max_size=20))
def test_after_a_server_said_that_roles_must_alternate_they_do(kinds: list[str]) -> None:
    context = Context(window=100_000, max_output_tokens=0)
    words = "Conversation roles must alternate user/assistant/user/assistant/..."
    requests: list[Request] = []
    for number, kind in enumerate(kinds):
        if kind == "calls":
            call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            context.append({"role": "assistant", "content": None, "tool_calls": [call]})
            context.append({"role": "tool", "tool_call_id": f"c{number}", "content": "r"})
        else:
            context.append({"role": kind, "content": f"{kind} {number}"})
        request = context.prepare()
        if list(role_faults(request.messages)):
            assert context.recover(classify(500, {"error": {"message": words}})).retry
            request = context.prepare()
            requests.clear()
        if any(message["role"] != "system" for message in request.messages):
            assert list(role_faults(request.messages)) == []
            assert check(request.messages, alternating=True) == []
        if requests:
            assert request.stable_until == sum(1 for _ in iter_same(requests[-1].messages, request.messages))
        requests.append(request)
    for number, kind in enumerate(kinds):
        if kind != "calls":
            assert any(f"{kind} {number}" in str(message["content"]) for message in requests[-1].messages)


def test_another_model_has_its_own_limits_and_the_same_one_keeps_what_was_learned() -> None:
    context = Context(dialect="anthropic", model="claude-3-5-sonnet-20241022", max_output_tokens=1_000)
    engine = context._engine
    engine.caps = engine.caps.learned(max_images=50)
    context.switch_model("claude-3-5-sonnet-20241022", context.limits)
    assert engine.caps.max_media == 50
    context.switch_model("claude-3-5-haiku-20241022", context.limits)
    assert engine.caps.max_media == 100


def test_markers_are_counted_right_when_others_have_looked_at_the_view_between_two_requests() -> None:
    context = Context(dialect="anthropic", window=100_000, max_output_tokens=0)
    for number in range(12):
        mark = {"cache_control": {"type": "ephemeral"}}
        block = {"type": "text", "text": f"message {number}"} | mark
        context.append({"role": "user" if number % 2 == 0 else "assistant", "content": [block]})
        context.view.wires()
        request = context.prepare()
        assert check(request.messages, dialect="anthropic") == []
    again = Context.replay(context.events, dialect="anthropic", window=100_000, max_output_tokens=0)
    assert check(again.prepare().messages, dialect="anthropic") == []


def listed(tools: Any, system: Any, messages: Any = ()) -> list[str]:
    return list(markers(tools, system, messages))


def tool(name: str, mark: Wire | None = None) -> Wire:
    return {"name": name, "input_schema": {"type": "object"}, **(mark or {})}


def test_of_too_many_markers_in_system_text_the_last_stay() -> None:
    system = [block(f"s{n}", MARK) for n in range(6)]
    wires = [says("user", block("hi"))]
    out = fit(wires, max_tokens=10_000, dialect="anthropic", system=system)
    assert out.system == [block(f"s{n}", MARK if n > 1 else None) for n in range(6)]
    assert out.messages == wires
    assert out.messages[0] is wires[0]
    assert [repair.rule for repair in out.repairs] == ["cache-count"]
    assert check(out.messages, dialect="anthropic", system=out.system) == []


def test_the_newest_message_keeps_a_marker_beside_too_many_in_system_text() -> None:
    system = [block(f"s{n}", MARK) for n in range(5)]
    wires = [says("user", block("a", MARK)), says("assistant", block("b")), says("user", block("c", MARK))]
    out = fit(wires, max_tokens=10_000, dialect="anthropic", system=system)
    assert listed(None, out.system) == ["5m"] * 3
    assert [len(list(markers(None, None, [wire]))) for wire in out.messages] == [0, 0, 1]


def test_the_tools_stay_as_they_came_where_the_system_text_has_markers_to_spare() -> None:
    tools, system = [tool("a", MARK), tool("b", MARK)], [block(f"s{n}", MARK) for n in range(3)]
    out = fit([says("user", block("hi"))], max_tokens=10_000, dialect="anthropic", system=system, tools=tools)
    assert out.tools is tools
    assert out.system == [block("s0"), block("s1", MARK), block("s2", MARK)]


def test_tools_with_too_many_markers_lose_the_first_ones() -> None:
    tools = [tool(f"t{n}", MARK) for n in range(7)]
    out = fit(
        [says("user", block("hi"))], max_tokens=10_000, dialect="anthropic", system=[block("s", MARK)], tools=tools
    )
    assert out.tools == [tool(f"t{n}", MARK if n > 3 else None) for n in range(7)]
    assert out.system == [block("s", MARK)]
    assert check(out.messages, dialect="anthropic", system=out.system, tools=out.tools) == []


def test_an_hour_behind_five_minutes_beside_the_messages_becomes_five_minutes() -> None:
    tools, system = [tool("a", MARK)], [block("s", HOUR)]
    out = fit([says("user", block("hi", HOUR))], max_tokens=10_000, dialect="anthropic", system=system, tools=tools)
    assert listed(out.tools, out.system, out.messages) == ["5m"] * 3
    assert out.tools is tools
    assert {repair.rule for repair in out.repairs} == {"cache-order"}
    assert check(out.messages, dialect="anthropic", system=out.system, tools=out.tools) == []


marks_of = st.lists(st.sampled_from([None, MARK, HOUR]), max_size=7)


@dear
@given(tools=marks_of, system=marks_of, turns=st.lists(marks_of.filter(bool), min_size=1, max_size=6))
def test_wherever_the_markers_stand_the_request_is_taken_and_stays_as_it_is(
    tools: list[Any], system: list[Any], turns: list[list[Any]]
) -> None:
    given_tools = [tool(f"t{n}", mark) for n, mark in enumerate(tools)]
    given_system = [block(f"s{n}", mark) for n, mark in enumerate(system)]
    context = Context(
        dialect="anthropic", window=100_000, max_output_tokens=0, system=given_system or None, tools=given_tools or None
    )
    before: Request | None = None
    for number, turn in enumerate(turns):
        role = "assistant" if number % 2 else "user"
        context.append(says(role, *[block(f"t{number} b{n}", mark) for n, mark in enumerate(turn)]))
        request = context.prepare()
        assert check(request.messages, dialect="anthropic", system=request.system, tools=request.tools) == []
        if sum(mark is not None for mark in (*tools, *system)) <= 4 and not request.repairs:
            assert (request.system or [], request.tools or []) == (given_system, given_tools)
        again = context.prepare()
        assert (again.messages, again.system, again.tools) == (request.messages, request.system, request.tools)
        if before is not None and (request.system, request.tools) != (before.system, before.tools):
            assert request.stable_until == 0
        before = request


# --- what comes next --------------------------------------------------------------------------------------------------

MASKING = replace(POLICIES["balanced"], guard=(), always=(Mask(keep_first=0, keep_last=3),))


def requests_of(policy: Policy | str, rounds: int, window: int = 16_000, *, clock: bool = False) -> Iterator[Request]:
    """The requests of a session of calls; with `clock` each has another system text."""
    context = Context(dialect="anthropic", policy=policy, window=window, max_output_tokens=0)
    for number, wire in enumerate(session(rounds, result="This line is in order. " * 40, dialect="anthropic")):
        if wire["role"] == "assistant":
            if clock:
                context.set_system_and_tools(system=f"It is {number} o'clock.", tools=None)
            yield context.prepare()
        context.append(wire)


def test_a_session_without_folds_is_expected_to_go_on_as_it_is() -> None:
    for request in requests_of("balanced", 8):
        assert request.lasts_until is None
        assert request.breaks_at == ()


def test_where_the_prefix_moves_on_at_each_request_its_next_break_is_named() -> None:
    requests = list(requests_of(MASKING, 20))
    for before, after in list(pairwise(requests))[6:]:
        assert after.stable_until < len(before.messages)
        assert 0 <= after.stable_until - before.breaks_at[0] <= 2


def test_a_tail_that_never_came_again_is_expected_to_leave_only_by_experience() -> None:
    requests = list(requests_of(MASKING, 20))
    assert all(request.lasts_until is None for request in requests[:9])
    for before, after in list(pairwise(requests))[14:]:
        assert before.lasts_until is not None
        assert before.stable_until <= before.lasts_until <= after.stable_until < len(before.messages)


def test_folds_in_batches_leave_a_tail_that_is_expected_to_stay() -> None:
    requests = list(requests_of("balanced", 60, 6_000))
    breaks = [pair for pair in pairwise(requests) if pair[1].stable_until < len(pair[0].messages)]
    assert len(breaks) > 1
    assert all(request.lasts_until is None for request in requests)
    assert all(0 < end < len(request.messages) for request in requests for end in request.breaks_at)


def test_behind_a_system_text_that_always_changes_nothing_is_expected_to_stay() -> None:
    requests = list(requests_of("balanced", 10, clock=True))
    assert requests[0].lasts_until is None
    assert requests[-1].lasts_until == 0


def test_a_system_text_that_stays_from_now_on_is_found_out() -> None:
    context = Context(dialect="anthropic", window=100_000)
    found: list[int | None] = []
    for number in range(40):
        context.append(says("assistant" if number % 2 else "user", block(f"t{number}")))
        context.set_system_and_tools(system=f"Number {min(number, 12)}.", tools=None)
        found.append(context.prepare().lasts_until)
    assert found[0] is None
    assert found[12] == 0
    assert found[-1] is None


def test_a_request_that_is_prepared_once_more_has_the_same_forecast() -> None:
    context = Context(dialect="anthropic", policy=MASKING, window=16_000, max_output_tokens=0)
    for wire in session(20, result="This line is in order. " * 40, dialect="anthropic"):
        if wire["role"] == "assistant":
            first, again = context.prepare(), context.prepare()
            assert (first.breaks_at, first.lasts_until) == (again.breaks_at, again.lasts_until)
        context.append(wire)
    assert again.lasts_until is not None


def test_what_a_caller_does_to_the_messages_changes_no_forecast() -> None:
    kept, spoilt = list(requests_of(MASKING, 14)), []
    for request in requests_of(MASKING, 14):
        spoilt.append((request.breaks_at, request.lasts_until))
        request.messages.clear()
    assert spoilt == [(request.breaks_at, request.lasts_until) for request in kept]
