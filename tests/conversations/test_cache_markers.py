"""Cache markers of a client: corrected where they are too many or out of order, else its own, byte for byte.

A client without any gets some in folded requests once it has come back for a cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations.clients import sent_messages, steps, turns, under
from tests.property.depth import dear

from foldline.codecs.anthropic.cache_markers import markers
from foldline.conversations.conversation import Conversation
from foldline.conversations.incoming_request import with_valid_markers
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.conversations.request_plan import RequestPlan, limits_for
from foldline.engine.one_shot import check
from foldline.failures.failure import Failure
from foldline.store.clock import IdleTimer
from foldline.testing.token_counts import PromptCache, breakpoints, count_body
from foldline.view.archive import MemoryArchive

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(words: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": words, **(mark or {})}


def body_of(**fields: Any) -> RequestBody:
    return read_body(FORMS["anthropic"], json.dumps({"model": "m", "max_tokens": 9, **fields}, indent=1).encode())


def says(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_a_request_with_as_many_as_are_taken_is_the_clients() -> None:
    messages = [says("user", *[block(f"b{n}", MARK) for n in range(3)])]
    assert with_valid_markers(body_of(system=[block("s", HOUR)], messages=messages)) is None
    assert (
        with_valid_markers(body_of(system="cache_control" * 9, messages=[says("user", block('"cache_control"'))]))
        is None
    )
    chat = read_body(FORMS["openai-chat"], json.dumps({"messages": [says("user", *[block("b", MARK)] * 6)]}).encode())
    assert with_valid_markers(chat) is None


def test_only_what_loses_a_marker_is_written_anew() -> None:
    messages = [says("user", block("a", MARK)), says("assistant", block("b")), says("user", block("c", MARK))]
    body = body_of(system=[block(f"s{n}", MARK) for n in range(3)], messages=messages, metadata={"user_id": "me"})
    taken = with_valid_markers(body)
    assert taken is not None
    assert list(taken.messages) == [says("user", block("a")), *messages[1:]]
    assert [taken.item(at) for at in (1, 2)] == [body.item(at) for at in (1, 2)]
    assert taken.text[: taken.spans["messages"][0]] == body.text[: body.spans["messages"][0]]
    assert taken.text[taken.spans["messages"][1] :] == body.text[body.spans["messages"][1] :]


def test_a_marker_for_the_whole_request_is_one_of_the_four() -> None:
    messages = [says("user", *[block(f"b{n}", MARK) for n in range(4)])]
    taken = with_valid_markers(body_of(cache_control={"type": "ephemeral"}, messages=messages))
    assert taken is not None
    assert len(list(markers(None, None, taken.messages))) == 3


def test_thinking_loses_its_marker_and_the_others_stay() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s", **MARK}
    messages = [says("user", block("a", MARK)), says("assistant", thinking, block("b", MARK)), says("user", block("c"))]
    taken = with_valid_markers(body_of(messages=messages))
    assert taken is not None
    plain = {key: value for key, value in thinking.items() if key != "cache_control"}
    assert list(taken.messages) == [messages[0], says("assistant", plain, block("b", MARK)), messages[2]]


marks_of = st.lists(st.sampled_from([None, MARK, HOUR]), max_size=6)


@dear
@given(tools=marks_of, system=marks_of, turns=st.lists(marks_of.filter(bool), min_size=1, max_size=5))
def test_whatever_is_marked_the_request_is_taken_and_settling_again_changes_nothing(
    tools: list[Any], system: list[Any], turns: list[list[Any]]
) -> None:
    body = body_of(
        tools=[{"name": f"t{n}", "input_schema": {}, **(mark or {})} for n, mark in enumerate(tools)],
        system=[block(f"s{n}", mark) for n, mark in enumerate(system)],
        messages=[
            says("assistant" if at % 2 else "user", *[block(f"{at} {n}", mark) for n, mark in enumerate(turn)])
            for at, turn in enumerate(turns)
        ],
    )
    taken = with_valid_markers(body) or body
    assert check(taken.messages, dialect="anthropic", system=taken.system, tools=taken.tools) == []
    assert with_valid_markers(taken) is None
    given_count = len(list(markers(body.tools, body.system, body.messages)))
    assert len(list(markers(taken.tools, taken.system, taken.messages))) == min(4, given_count)


# --- a conversation that is folded ------------------------------------------------------------------------------------

CLAUDE = "claude-sonnet-4-5"
WINDOW = 8_000


def plans(
    *, moving: bool = False, pause: float = 1.0, rounds: int = 40, **fields: Any
) -> Iterator[tuple[RequestBody, RequestPlan, Conversation]]:
    """Each request of a client that waits before it; with `moving` it marks its system text and two newest messages."""
    wires = turns("anthropic", rounds)
    clock = [0.0]
    conversation: Conversation | None = None
    for stop in steps(wires):
        sent, more = wires[:stop], {"model": CLAUDE, "system": "Be brief.", "max_tokens": 500, **fields}
        if moving:
            sent = [marked(wire) if at in (stop - 3, stop - 1) else wire for at, wire in enumerate(sent)]
            more["system"] = [block("Be brief.", HOUR)]
        body = body_of(messages=sent, **more)
        limits = limits_for(body, WINDOW)
        if conversation is None:
            conversation = Conversation("c", body, under(), limits, archive=MemoryArchive())
            conversation.idle = IdleTimer(clock=lambda: clock[0])
        clock[0] += pause
        conversation.append(body)
        yield body, conversation.plan(body, limits), conversation


def marked(wire: dict[str, Any]) -> dict[str, Any]:
    content = wire["content"]
    *before, last = [block(content)] if isinstance(content, str) else content
    return {**wire, "content": [*before, {**last, **MARK}]}


def found(plan: RequestPlan) -> int:
    return breakpoints(json.loads(plan.data))


def test_a_client_that_sets_none_and_comes_back_gets_some_once_it_is_folded() -> None:
    given = list(plans())
    folded = [(body, plan) for body, plan, _ in given if plan.folds]
    assert folded
    for body, plan, _ in given:
        if plan.folds:
            assert 2 <= found(plan) <= 4
            assert check(sent_messages(plan.data, "anthropic"), dialect="anthropic") == []
        else:
            assert plan.data == body.raw
    for body, plan in folded:
        items = read_body(FORMS["anthropic"], plan.data)
        own = {body.item(at) for at in range(len(body.item_spans))}
        written = [text for text in map(items.item, range(len(items.item_spans))) if text not in own]
        assert len(written) <= 4 + plan.folds
        assert {name: value for name, value in items.fields.items() if name not in ("messages", "system")} == {
            name: value for name, value in body.fields.items() if name not in ("messages", "system")
        }


def test_a_client_that_sends_its_whole_history_once_gets_none() -> None:
    body = body_of(model=CLAUDE, messages=turns("anthropic", 40)[:-1])
    conversation = Conversation("c", body, under(), limits_for(body, WINDOW), archive=MemoryArchive())
    conversation.append(body)
    plan = conversation.plan(body, limits_for(body, WINDOW))
    assert plan.folds
    assert found(plan) == 0


@pytest.mark.parametrize(
    "changes", [{"pause": 400.0}, {"model": "some-model"}, {"cache_control": {"type": "ephemeral"}}]
)
def test_a_cold_client_an_unknown_model_and_one_that_caches_by_itself_get_none(changes: dict[str, Any]) -> None:
    folded = [(body, plan) for body, plan, _ in plans(**changes) if plan.folds]
    assert folded
    assert all(found(plan) == bool(body.fields.get("cache_control")) for body, plan in folded)


def test_a_clients_own_markers_stay_byte_for_byte_however_the_folds_shift() -> None:
    shifts = 0
    for body, plan, _ in plans(moving=True, rounds=60):
        if not plan.folds:
            assert plan.data == body.raw
            continue
        sent = read_body(FORMS["anthropic"], plan.data)
        assert sent.text[slice(*sent.spans["system"])] == body.text[slice(*body.spans["system"])]
        theirs = [text for text in map(body.item, range(len(body.item_spans))) if "cache_control" in text]
        ours = [text for text in map(sent.item, range(len(sent.item_spans))) if "cache_control" in text]
        assert ours == theirs
        assert len(ours) == 2
        shifts += bool(plan.new_folds)
    assert shifts > 2


def test_an_upstream_that_refuses_ours_gets_the_request_without() -> None:
    *_, (body, plan, conversation) = (each for each in plans() if each[1].folds)
    assert found(plan)
    again = conversation.recover(plan, Failure("malformed"))
    assert again is not None
    assert again.folds
    assert found(again) == 0
    assert found(conversation.plan(body, limits_for(body, WINDOW))) == 0


def test_the_folded_part_of_such_a_conversation_costs_half_or_less() -> None:
    cache, plain_tokens, paid = PromptCache(), 0, 0.0
    for _, plan, _ in plans():
        if plan.folds:
            body = json.loads(plan.data)
            tokens = count_body(body)
            read = cache.by_breakpoint(body, tokens)
            plain_tokens += tokens
            paid += tokens - 0.9 * read.read_tokens + 0.25 * read.written_tokens
    assert paid < 0.5 * plain_tokens
