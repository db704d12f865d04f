"""One conversation: the room for the reply, the token counts, and the splicing into the client's bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations.clients import Wire, array, body_of, sent_messages, steps, turns, under
from tests.property.depth import dear
from tests.property.pairs import HISTORIES, halves, history

from foldline.conversations.conversation import Conversation, folds_in
from foldline.conversations.conversation_finder import events_before
from foldline.conversations.request_body import FORMS, RequestBody, read_body, title_of
from foldline.conversations.request_plan import RequestPlan, folds_by_share_only, limits_for
from foldline.engine.one_shot import check, count
from foldline.engine.presets import policy
from foldline.errors import DoesNotFit
from foldline.failures.failure import Failure
from foldline.view.archive import MemoryArchive
from foldline.view.budget import Trigger
from foldline.view.transcript import Entry, Fold, Unfold

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
CAPS = {"openai-chat": "max_tokens", "openai-responses": "max_output_tokens", "anthropic": "max_tokens"}


def begun(body: RequestBody, window_tokens: int, **changes: Any) -> Conversation:
    limits = limits_for(body, window_tokens)
    return Conversation("c", body, under(**changes), limits, archive=MemoryArchive())


def planned(body: RequestBody, window_tokens: int, **changes: Any) -> tuple[Conversation, RequestPlan]:
    """What comes of the first request of a conversation."""
    conversation = begun(body, window_tokens, **changes)
    conversation.append(body)
    return conversation, conversation.plan(body, limits_for(body, window_tokens))


# --- the reply --------------------------------------------------------------------------------------------------------


@given(st.one_of(st.none(), st.integers(1, 300_000)), st.integers(256, 200_000), st.sampled_from(DIALECTS))
def test_at_most_a_quarter_is_kept_for_the_reply(cap: int | None, window_tokens: int, dialect: str) -> None:
    fields: dict[str, Any] = {} if cap is None else {CAPS[dialect]: cap}
    limits = limits_for(body_of(dialect, turns(dialect, 1)[:1], **fields), window_tokens)
    assert limits.window_tokens == window_tokens
    assert limits.max_output_tokens <= window_tokens // 4
    if cap is not None:
        assert limits.max_output_tokens == min(cap, window_tokens // 4)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("cap", [200, 3_000, 64_000])
def test_a_cap_that_does_not_fit_beside_the_messages_is_lowered(dialect: str, cap: int) -> None:
    wires = turns(dialect, 24)
    for stop in steps(wires)[::8]:
        fields: dict[str, Any] = {CAPS[dialect]: cap}
        body = body_of(dialect, wires[:stop], **fields)
        _, plan = planned(body, 4_000)
        sent = json.loads(plan.data)
        tokens = count(sent[body.form.messages], dialect=dialect)
        assert 16 <= sent[CAPS[dialect]] <= cap
        assert tokens + sent[CAPS[dialect]] <= 4_000
        assert sent[CAPS[dialect]] == cap or sent[CAPS[dialect]] >= 1_000 - 1, "lowered more than it need be"
        if not plan.folds and sent[CAPS[dialect]] == cap:
            assert plan.data == body.raw and not plan.changed


def test_only_the_cap_is_changed_where_that_is_enough() -> None:
    body = body_of("openai-chat", turns("openai-chat", 2)[:5], max_tokens=4_000, temperature=0.5)
    conversation, plan = planned(body, 4_000)
    assert plan.changed and not plan.folds and not conversation.folded
    start, stop = body.spans["max_tokens"]
    cap = json.loads(plan.data)["max_tokens"]
    assert plan.data.decode() == f"{body.text[:start]}{cap}{body.text[stop:]}"


@pytest.mark.parametrize("budget", [1_024, 2_000, 16_000])
def test_thinking_stays_below_a_lowered_cap(budget: int) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget, "x-new": [1]}
    body = body_of("anthropic", turns("anthropic", 1)[:3], max_tokens=max(20_000, budget + 1), thinking=thinking)
    _, plan = planned(body, 8_000)
    sent = json.loads(plan.data)
    assert sent["max_tokens"] < 8_000
    assert 1_024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]
    assert {**sent["thinking"], "budget_tokens": budget} == thinking
    if budget < sent["max_tokens"]:
        assert sent["thinking"] == thinking


@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "adaptive"}, None, "on"])
def test_thinking_without_a_budget_is_left_as_it_is(thinking: Any) -> None:
    body = body_of("anthropic", turns("anthropic", 1)[:3], max_tokens=20_000, thinking=thinking)
    _, plan = planned(body, 8_000)
    assert json.loads(plan.data)["thinking"] == thinking


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_lowered_output_is_said_to_a_server_that_was_told_none(dialect: str) -> None:
    """The server has a cap of its own that does not fit: the same request again would be refused again."""
    body = body_of(dialect, turns(dialect, 2)[:5])
    conversation, plan = planned(body, 8_000)
    assert plan.data == body.raw
    again = conversation.recover(plan, Failure("output_overflow"))
    assert again is not None and again.data != plan.data
    assert json.loads(again.data)[CAPS[dialect]] < 8_000


# --- the bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_folded_request_keeps_every_byte_beside_the_messages(dialect: str) -> None:
    body = body_of(dialect, turns(dialect, 30), write=lambda value: json.dumps(value, indent=2), user="é")
    conversation, plan = planned(body, 3_000)
    assert plan.folds and plan.new_folds and plan.changed and conversation.folded
    start, stop = body.spans[body.form.messages]
    sent = plan.data.decode()
    assert sent.startswith(body.text[:start]) and sent.endswith(body.text[stop:])
    assert plan.tokens < plan.given_tokens
    assert plan.tokens == count(sent_messages(plan.data, dialect), dialect=dialect)
    assert plan.given_tokens == count(list(body.messages), dialect=dialect)


def test_system_text_among_the_messages_goes_where_it_may_stand_once_it_is_folded() -> None:
    wires = turns("anthropic", 20)
    wires.insert(8, {"role": "system", "content": "Answer in French."})
    small, large = body_of("anthropic", wires[:9], system="Be brief."), body_of("anthropic", wires, system="Be brief.")
    conversation, plan = planned(small, 3_000)
    assert plan.data == small.raw
    conversation.append(large)
    sent = json.loads(conversation.plan(large, limits_for(large, 3_000)).data)
    assert sent["system"] == "Be brief.\n\nAnswer in French."
    assert all(message["role"] != "system" for message in sent["messages"])


def test_system_text_that_was_moved_stands_in_what_is_counted_too() -> None:
    wires = turns("anthropic", 20)
    wires.insert(8, {"role": "system", "content": "Answer in French."})
    body = body_of("anthropic", wires, system="Be brief.")
    conversation, plan = planned(body, 3_000)
    assert conversation.current_body(body) == plan.data
    more = body_of("anthropic", [*wires, {"role": "user", "content": "And?"}], system="Be brief.")
    stands = json.loads(conversation.current_body(more))
    assert stands["system"] == "Be brief.\n\nAnswer in French."
    assert stands["messages"][-1] == {"role": "user", "content": "And?"}
    assert conversation.plan(body, limits_for(body, 3_000)).data == plan.data


def test_a_marker_is_put_on_the_newest_block_when_all_are_folded_away() -> None:
    wires = turns("anthropic", 20)[:-1]
    wires[0] = {"role": "user", "content": [{"type": "text", "text": "Go.", "cache_control": {"type": "ephemeral"}}]}
    body = body_of("anthropic", [*wires, wires[-1]][:-1])
    _, plan = planned(body, 3_000)
    shown = sent_messages(plan.data, "anthropic")
    marked = [at for at, wire in enumerate(shown) if "cache_control" in json.dumps(wire)]
    assert len(marked) == 1
    if shown[0].get("content") != wires[0]["content"]:
        assert marked == [len(shown) - 1]
        assert shown[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def test_a_request_without_markers_gets_none() -> None:
    _, plan = planned(body_of("anthropic", turns("anthropic", 20)), 3_000)
    assert plan.folds and b"cache_control" not in plan.data


def test_words_about_markers_are_no_markers() -> None:
    wires = turns("anthropic", 20)
    wires[-2]["content"][0]["content"] = 'set "cache_control": {"type": "ephemeral"} on it'
    _, plan = planned(body_of("anthropic", wires), 3_000)
    assert plan.folds
    assert all("cache_control" not in block for wire in sent_messages(plan.data, "anthropic") for block in wire)


def test_a_text_for_one_message_is_written_as_a_list_once_it_is_folded() -> None:
    long = "The log says: line of the build failed. " * 1_500
    body = read_body(FORMS["openai-responses"], json.dumps({"input": long, "model": "m"}).encode())
    with pytest.raises(DoesNotFit):
        planned(body, 4_000)
    _, plan = planned(body, 40_000)
    assert plan.data == body.raw


# --- what is told -----------------------------------------------------------------------------------------------------


def test_what_stands_is_the_request_as_it_would_be_sent() -> None:
    body = body_of("openai-chat", turns("openai-chat", 20))
    conversation, plan = planned(body, 3_000)
    assert conversation.current_body(body) == plan.data
    small = body_of("openai-chat", turns("openai-chat", 1))
    other = begun(small, 3_000)
    other.append(small)
    assert other.current_body(small) is small.raw


def test_versions_tell_requests_apart() -> None:
    body = body_of("openai-chat", turns("openai-chat", 2))
    conversation, first = planned(body, 8_000)
    second = conversation.plan(body, limits_for(body, 8_000))
    assert second.version > first.version
    third = conversation.unchanged_plan(body, limits_for(body, 8_000))
    assert third.version > second.version and not third.changed


def test_no_fold_is_expected_far_from_the_limit_alone() -> None:
    body = body_of("openai-chat", turns("openai-chat", 6))
    for window_tokens, calm in ((100_000, True), (3_000, False)):
        conversation = begun(body, window_tokens)
        conversation.append(body)
        assert conversation.has_headroom(limits_for(body, window_tokens)) is calm
    for name in ("economical", "sliding", "checkpoint", "layered", "autopilot"):
        conversation = begun(body, 100_000, policy=policy(name))
        conversation.append(body)
        if conversation.has_headroom(limits_for(body, 100_000)):
            assert not conversation.plan(body, limits_for(body, 100_000)).new_folds


@pytest.mark.parametrize(
    ("trigger", "counted"),
    [
        (Trigger(fraction=0.85), False),
        (Trigger(), False),
        (Trigger(messages=5), True),
        (Trigger(fraction=0.85, tokens=100), True),
        (Trigger(turns=3), True),
        (Trigger(bytes=3), True),
    ],
)
def test_a_policy_that_counts_may_fold_at_any_size(trigger: Trigger, counted: bool) -> None:
    assert folds_by_share_only(replace(policy("balanced"), trigger=trigger)) is not counted


@pytest.mark.parametrize(
    ("wires", "title"),
    [
        ([{"role": "user", "content": "  Mend\n the build. "}], "Mend the build."),
        ([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "U"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "See."}]}], "See."),
        ([{"role": "user", "content": []}, {"role": "user", "content": "second"}], "second"),
        ([{"role": "user", "content": None}, {"role": "assistant", "content": "A"}], ""),
        ([{"role": "user", "content": [5, {"text": 7}]}], ""),
        ([{"role": "user", "content": "x" * 100}], "x" * 79 + "…"),
    ],
)
def test_a_title_is_what_the_user_said_first(wires: list[Wire], title: str) -> None:
    assert title_of(wires) == title


def test_letting_go_keeps_what_is_sent() -> None:
    wires = turns("anthropic", 30)
    body = body_of("anthropic", wires)
    conversation, plan = planned(body, 3_000)
    heavy = conversation.weight_bytes
    assert conversation.release() > 0
    assert conversation.weight_bytes < heavy
    again = conversation.plan(body, limits_for(body, 3_000))
    assert again.data == plan.data and not again.new_folds
    assert again.given_tokens == plan.given_tokens and folds_in(conversation.context) == plan.folds


# --- branches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_branch_begins_with_is_about_its_messages_alone(dialect: str) -> None:
    wires = turns(dialect, 24)
    conversation = begun(body_of(dialect, wires[:1]), 2_500)
    for stop in steps(wires):
        body = body_of(dialect, wires[:stop])
        conversation.append(body)
        conversation.plan(body, limits_for(body, 2_500))
    events = conversation.context.events
    for keep in range(0, len(wires), 5):
        kept = events_before(events, keep)
        assert [event.recorded for event in kept if isinstance(event, Entry)] == wires[:keep]
        assert all(event.stop <= keep for event in kept if isinstance(event, Fold))
        ids = {event.id for event in kept if isinstance(event, Fold)}
        assert all(event.fold in ids for event in kept if isinstance(event, Unfold))
        body = body_of(dialect, wires[: max(1, keep)])
        branch = Conversation("b", body, under(), limits_for(body, 2_500), archive=MemoryArchive(), events=kept)
        # A fold that ends where the branch does would hide its newest message: it is not taken over.
        reaching = {event.id for event in kept if isinstance(event, Fold) and event.stop == keep}
        assert branch.count == keep and branch.folded == bool(ids - reaching)
        branch.append(body)
        plan = branch.plan(body, limits_for(body, 2_500))
        assert not {fold.id for fold in plan.new_folds} & ids, "folds that it began with are no news"
        assert array(plan.data, dialect) == array(body.raw, dialect) or plan.folds


@pytest.mark.parametrize(("ttl", "folds"), [(None, True), ("5m", True), ("1h", False)])
def test_a_cache_that_the_client_keeps_for_an_hour_is_not_cold_after_ten_minutes(ttl: str | None, folds: bool) -> None:
    """In a cold cache a fold is free; in one that still holds all, it is paid for."""
    point = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    messages: list[Wire] = [{"role": "user", "content": [{"type": "text", "text": "Find out why. " * 200}]}]
    for number in range(30):
        call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": f"f{number}.py"}}
        text = f"def fun_{number}(): return value_{number}\n" * 60
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": text}]}
        )
    marked = {**messages[-1], "content": [{**messages[-1]["content"][-1], "cache_control": point}]}
    fields = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "messages": [*messages[:-1], marked]}
    body = read_body(FORMS["anthropic"], json.dumps(fields).encode())
    limits = limits_for(body, 40_000)
    settings = under(policy=policy("economical"))
    conversation = Conversation("c", body, settings, limits, archive=MemoryArchive(), idle_seconds=600.0)
    conversation.append(body)
    conversation.plan(body, limits)
    rent = conversation.context._engine.rent
    assert rent is not None
    assert (rent.paid == 0) is folds, "the rent ends with a fold"


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_result_that_comes_after_its_call_was_folded_reaches_the_model(dialect: str) -> None:
    pay = turns(dialect, 1, mark="pay")
    call, result = pay[1], pay[2]
    wires = [*turns(dialect, 2), pay[0], call, *turns(dialect, 14, mark="m"), pay[0]]
    conversation, plan = planned(body_of(dialect, wires), 4_000)
    assert plan.folds
    later = body_of(dialect, [*wires, result])
    conversation.append(later)
    plan = conversation.plan(later, limits_for(later, 4_000))
    sent = sent_messages(plan.data, dialect)
    assert check(sent, dialect=dialect) == []
    assert "Result [pay0]" in str(sent[-1])
    assert "src/pay0.py" in str(sent[-1])


@dear
@given(
    st.sampled_from(sorted(HISTORIES)).flatmap(lambda dialect: st.tuples(st.just(dialect), history(dialect, most=10))),
    st.integers(600, 3_000),
)
def test_no_request_of_a_client_has_a_half_of_a_pair(case: tuple[str, list[Wire]], window_tokens: int) -> None:
    dialect, wires = case
    stops = [at for at in range(1, len(wires) + 1) if check(wires[:at], dialect=dialect) == []]
    conversation: Conversation | None = None
    for stop in stops:
        body = body_of(dialect, wires[:stop])
        if conversation is None:
            conversation = begun(body, window_tokens)
        conversation.append(body)
        try:
            plan = conversation.plan(body, limits_for(body, window_tokens))
        except DoesNotFit:
            continue
        sent = sent_messages(plan.data, dialect)
        assert check(sent, dialect=dialect) == []
        opened, closed = halves(wires[:stop])
        shown, answered = halves(sent)
        assert not [pair for pair in opened.keys() & closed.keys() if (pair in shown) != (pair in answered)]
