"""Which result answers which call, and what is made of what does not answer or is not answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.property.sessions import BUILDERS, DIALECTS, Wire

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.messages import Message
from foldline.testing import session
from foldline.view.pairing import NO_RESULT, REACH, Pairing, Placement, arrange, is_reasoning
from foldline.view.transcript import Repair

CHAT, ANTHROPIC, RESPONSES = codec("openai-chat"), codec("anthropic"), codec("openai-responses")


def user(words: str = "hello") -> Wire:
    return {"role": "user", "content": words}


def calls(*ids: str, words: str | None = None) -> Wire:
    function = {"name": "read", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": words,
        "tool_calls": [{"id": i, "type": "function", "function": function} for i in ids],
    }


def result(call_id: str, words: str = "ok") -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def use(*ids: str) -> Wire:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids],
    }


def gave(*ids: str, words: str | None = None) -> Wire:
    blocks: list[Wire] = [{"type": "tool_result", "tool_use_id": i, "content": f"of {i}"} for i in ids]
    return {"role": "user", "content": [*blocks, *([{"type": "text", "text": words}] if words else [])]}


def placed(wires: Sequence[Wire], dialect: str = "openai-chat") -> list[Placement]:
    pairing = Pairing(codec(dialect))
    return [pairing.place(seq, codec(dialect).read(wire)) for seq, wire in enumerate(wires)]


def arranged(wires: Sequence[Wire], dialect: str = "openai-chat") -> tuple[tuple[Message, ...], tuple[Repair, ...]]:
    messages, _, repairs = arrange(codec(dialect), [(seq, codec(dialect).read(wire)) for seq, wire in enumerate(wires)])
    return messages, repairs


def sent(wires: Sequence[Wire], dialect: str = "openai-chat") -> list[Wire]:
    return [dict(codec(dialect).write(message)) for message in arranged(wires, dialect)[0]]


def rules(wires: Sequence[Wire], dialect: str = "openai-chat") -> list[str]:
    return [repair.rule for repair in arranged(wires, dialect)[1]]


# --- grouping ---------------------------------------------------------------------------------------------------------


def test_a_call_and_its_results_are_one_group() -> None:
    assert [p.group for p in placed([user(), calls("a"), result("a"), user()])] == [0, 1, 1, 3]


def test_parallel_results_belong_to_the_call_whatever_their_order() -> None:
    assert [p.group for p in placed([calls("a", "b"), result("b"), result("a")])] == [0, 0, 0]


def test_pairing_is_by_id_and_not_by_neighbourhood() -> None:
    # juspay/neurolink PR#1280: A[a], A[b], R(a), R(b) was taken for broken.
    assert [p.group for p in placed([calls("a"), calls("b"), result("a"), result("b")])] == [0, 1, 0, 1]


def test_a_result_answers_the_latest_open_call_with_its_id() -> None:
    wires = [calls("x"), result("x"), calls("x"), result("x")]
    assert [p.group for p in placed(wires)] == [0, 0, 2, 2]


def test_a_message_with_results_of_two_calls_joins_the_earlier_one() -> None:
    found = placed([use("a"), use("b"), gave("a", "b")], "anthropic")
    assert found[2].joins == 0


def test_a_result_without_a_call_is_its_own_group() -> None:
    assert placed([user(), result("nobody")])[1] == Placement(CHAT.read(result("nobody")), 1, None)


def test_items_of_one_model_turn_are_one_group_in_the_itemised_dialect() -> None:
    wires = BUILDERS["openai-responses"].turn(["a", "b"], ["one", "two"], "words", "a thought")
    assert [p.group for p in placed([*wires, *wires[:0]], "openai-responses")] == [0, 0, 0, 0, 0]


def test_a_user_item_ends_the_model_turn() -> None:
    build = BUILDERS["openai-responses"]
    wires = [*build.says("one", None), *build.user("next", False), *build.says("two", None)]
    assert [p.group for p in placed(wires, "openai-responses")] == [0, 1, 2]


def test_a_stray_call_does_not_tie_the_session_together() -> None:
    # adk-python#7236: one call without a result kept everything after it from being folded.
    wires = [calls("stray"), *(user(str(n)) for n in range(REACH + 1)), result("stray")]
    assert placed(wires)[-1].joins is None


def test_a_late_result_within_reach_joins_its_call() -> None:
    wires = [calls("slow"), *(user(str(n)) for n in range(REACH - 2)), result("slow")]
    assert placed(wires)[-1].joins == 0


def test_open_calls_do_not_pile_up() -> None:
    pairing = Pairing(CHAT)
    for seq in range(4 * REACH):
        pairing.place(seq, CHAT.read(calls(f"never-{seq}")))
    assert not pairing.waits(0) or pairing.waits(2 * REACH)
    assert pairing.place(4 * REACH, CHAT.read(result("never-0"))).joins is None


def test_waits_tells_whether_a_call_is_open() -> None:
    pairing = Pairing(CHAT)
    pairing.place(0, CHAT.read(calls("a", "b")))
    pairing.place(1, CHAT.read(result("a")))
    assert pairing.waits(0)
    assert not pairing.waits(1)
    pairing.place(2, CHAT.read(result("b")))
    assert not pairing.waits(0)


def test_a_folded_call_is_waited_for_no_longer() -> None:
    pairing = Pairing(CHAT)
    pairing.place(0, CHAT.read(calls("a")))
    pairing.close(0, 1)
    assert not pairing.waits(0)
    assert pairing.place(1, CHAT.read(result("a"))).joins is None


def test_hidden_messages_open_and_answer_nothing() -> None:
    pairing = Pairing(CHAT)
    hidden = Message("assistant", CHAT.read(calls("a")).parts, wire=calls("a"), agent_visible=False)
    pairing.place(0, hidden)
    assert not pairing.waits(0)


def test_a_hidden_item_does_not_take_its_id_from_one_that_is_sent() -> None:
    pairing = Pairing(RESPONSES)
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": "hi"}
    pairing.place(0, replace(RESPONSES.read(item), agent_visible=False))
    assert pairing.place(1, RESPONSES.read(item)).message.wire is item


# --- ids that a provider takes once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_a_call_id_used_again_is_renamed_and_its_result_follows(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [
        *build.user("go", False),
        *build.turn(["x"], ["one"], "words", None),
        *build.turn(["x"], ["two"], "w", None),
    ]
    for wire in wires:
        wire.pop("id", None)
    found = placed(wires, dialect)
    assert [result.call_id for p in found for result in p.message.results] == ["x", "x-2"]
    assert [call.id for p in found for call in p.message.calls] == ["x", "x-2"]
    assert any("was used before" in fault for p in found for fault in p.faults)


def test_a_renamed_id_never_meets_one_that_is_in_use() -> None:
    found = placed([use("x"), gave("x"), use("x-2"), gave("x-2"), use("x"), gave("x")], "anthropic")
    ids = [call.id for p in found for call in p.message.calls]
    assert ids == ["x", "x-2", "x-3"]


def test_an_id_given_away_to_a_renamed_call_is_not_used_twice_later() -> None:
    found = placed([use("x"), gave("x"), use("x"), gave("x"), use("x-2"), gave("x-2")], "anthropic")
    ids = [call.id for p in found for call in p.message.calls]
    assert len(set(ids)) == 3
    assert [r.call_id for p in found for r in p.message.results] == ids


def test_chat_completions_may_use_an_id_again() -> None:
    found = placed([calls("x"), result("x"), calls("x"), result("x")])
    assert [call.id for p in found for call in p.message.calls] == ["x", "x"]
    assert not any(p.faults for p in found)


def test_a_second_item_with_an_id_is_sent_without_it() -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": "hi"}
    found = placed([item, item], "openai-responses")
    assert found[0].message.wire is item
    assert found[1].message.wire == {"type": "message", "role": "assistant", "content": "hi"}
    assert found[1].faults == ("second item with the id 'msg_1'",)


def test_a_second_reasoning_item_with_an_id_is_not_sent() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "R"}
    assert [p.message.agent_visible for p in placed([item, item], "openai-responses")] == [True, False]


def test_a_second_item_with_an_id_keeps_what_the_session_knows_of_it() -> None:
    # Without its kind a notice was the newest user message, and the person's own was folded unasked.
    item = {"type": "message", "id": "msg_1", "role": "user", "content": "hi"}
    pairing = Pairing(RESPONSES)
    pairing.place(0, RESPONSES.read(item))
    second = replace(RESPONSES.read(item), kind="notice", pinned=True, user_visible=False)
    message = pairing.place(1, second).message
    assert (message.kind, message.pinned, message.user_visible) == ("notice", True, False)


@pytest.mark.parametrize("kind", ["mcp_approval_request", "item_reference"])
def test_an_item_that_is_nothing_without_its_id_stands_once(kind: str) -> None:
    item = {"type": kind, "id": "m_1", "name": "deploy", "arguments": "{}"}
    assert [p.message.agent_visible for p in placed([item, item], "openai-responses")] == [True, False]


def several(dialect: str, ids: Sequence[Any]) -> list[Wire]:
    """One turn that calls a tool for each of these ids, the n-th with the argument n."""
    if dialect == "openai-chat":
        calls_ = [
            {"id": i, "type": "function", "function": {"name": f"f{n}", "arguments": "{}"}} for n, i in enumerate(ids)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": calls_}]
    if dialect == "anthropic":
        return [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": i, "name": f"f{n}", "input": {}} for n, i in enumerate(ids)],
            }
        ]
    return [{"type": "function_call", "call_id": i, "name": f"f{n}", "arguments": "{}"} for n, i in enumerate(ids)]


def answers(dialect: str, given: Sequence[tuple[Any, str]]) -> list[Wire]:
    if dialect == "openai-chat":
        return [{"role": "tool", "tool_call_id": i, "content": words} for i, words in given]
    if dialect == "anthropic":
        blocks = [{"type": "tool_result", "tool_use_id": i, "content": words} for i, words in given]
        return [{"role": "user", "content": blocks}]
    return [{"type": "function_call_output", "call_id": i, "output": words} for i, words in given]


def pairs_of(wires: Sequence[Any], dialect: str) -> dict[str, str]:
    """The words that each tool brought, by its name, as the provider would pair them."""
    messages = [codec(dialect).read(wire) for wire in wires]
    words = {r.call_id: r.text for message in messages for r in message.results}
    return {call.name: words[call.id] for message in messages for call in message.calls}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])  # Gemini's calls have no ids
@pytest.mark.parametrize(
    ("ids", "order"),
    [
        (["x", "x"], [0, 1]),
        (["x", "x", "x"], [0, 1, 2]),
        (["a", "a", "b"], [0, 1, 2]),
        (["a", "a", "b"], [2, 0, 1]),
        (["a", "b", "a"], [1, 0, 2]),
        (["a", "b", "a"], [0, 2, 1]),
        (["", ""], [0, 1]),
        ([None, None], [0, 1]),
        (["", None], [0, 1]),
        (["", None], [1, 0]),
        (["a", "a", "a-2"], [2, 0, 1]),
        (["c" * 64, "c" * 64], [0, 1]),
        (["f:0", "f:0", "f.0"], [0, 1, 2]),
    ],
)
def test_of_calls_with_one_id_the_nth_result_answers_the_nth(dialect: str, ids: list[Any], order: list[int]) -> None:
    # camel-ai/camel#3027: Gemini's compatible endpoint gives all parallel calls the id "".
    wires = [
        user(),
        *several(dialect, ids),
        *answers(dialect, [(ids[n], f"result {n}") for n in order]),
        user("and again"),
        *several(dialect, ids),
        *answers(dialect, [(ids[n], f"again {n}") for n in order]),
    ]
    context = Context(dialect=dialect, window=100_000)
    middle = len(wires) // 2
    context.extend(wires[:middle])
    first = context.prepare().messages
    context.extend(wires[middle:])
    sent_ = context.prepare().messages
    assert sent_[: len(first)] == first, "an id that was sent stays"
    assert check(sent_, dialect=dialect) == []
    half = next(at for at, wire in enumerate(sent_) if "and again" in str(wire))
    assert pairs_of(sent_[:half], dialect) == {f"f{n}": f"result {n}" for n in range(len(ids))}
    assert pairs_of(sent_[half:], dialect) == {f"f{n}": f"again {n}" for n in range(len(ids))}
    ids_sent = [call.id for wire in sent_ for call in codec(dialect).read(wire).calls]
    assert all(len(call_id) <= 64 for call_id in ids_sent)
    assert any(repair.rule == "message" for repair in context.view.repairs)
    assert Context.replay(context.events, dialect=dialect, window=100_000).prepare().messages == sent_
    synced = Context(dialect=dialect, window=100_000)
    synced.sync(wires[:middle])
    synced.sync(wires)
    assert synced.prepare().messages == sent_


# --- arranging --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_legal_block_is_returned_as_it_is(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = build.turn(["a", "b", "c"], ["one", "two", "three"], "words", "thought")
    messages, repairs = arranged(wires, dialect)
    assert [message.wire for message in messages] == wires
    assert all(message.wire is wire for message, wire in zip(messages, wires, strict=True))
    assert repairs == ()


def test_crossed_turns_get_their_own_results_and_lose_none() -> None:
    # juspay/neurolink PR#1280: a placeholder stood over a real result.
    out = sent([calls("a"), calls("b"), result("a", "of a"), result("b", "of b")])
    assert out == [calls("a"), result("a", "of a"), calls("b"), result("b", "of b")]


def test_moving_results_is_reported_as_a_repair() -> None:
    assert rules([calls("a"), calls("b"), result("a"), result("b")]) == ["pairing"]


def test_one_result_per_call_the_first_is_kept() -> None:
    # bastani-inc/atomic#2051: results persisted twice.
    wires = [calls("a", "b"), result("a", "first"), result("b"), result("a", "second"), result("b")]
    assert sent(wires) == [calls("a", "b"), result("a", "first"), result("b")]
    assert rules(wires) == ["duplicate-result", "duplicate-result"]


def test_a_result_without_its_call_goes_and_is_reported() -> None:
    # openclaw/openclaw#4739: the call was summarised, its result survived.
    assert sent([user(), result("gone"), user("next")]) == [user(), user("next")]
    assert rules([user(), result("gone")]) == ["orphan-result"]


def test_text_beside_a_result_without_its_call_stays() -> None:
    # Hmbown/Codewhale#6119: a message of text and a result was kept or dropped as one.
    out = sent([gave("gone", words="and keep this")], "anthropic")
    assert out == [{"role": "user", "content": [{"type": "text", "text": "and keep this"}]}]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    # HKUDS/OpenHarness#191, anomalyco/opencode#27594: an open call at the end made every later request a 400.
    out = sent([calls("a", "b"), result("a")])
    assert out[1:] == [result("a"), result("b", NO_RESULT)]
    assert rules([calls("a", "b"), result("a")]) == ["missing-result"]


def test_the_synthetic_result_stands_before_what_follows() -> None:
    out = sent([calls("a"), user("never mind")])
    assert [wire["role"] for wire in out] == ["assistant", "tool", "user"]


def test_split_results_are_joined_where_the_dialect_wants_one_message() -> None:
    # sudoprivacy/sudocode PR#546: parallel results as two user messages are refused.
    out = sent([use("a", "b"), gave("a"), gave("b")], "anthropic")
    assert len(out) == 2
    assert [block["tool_use_id"] for block in out[1]["content"]] == ["a", "b"]
    assert rules([use("a", "b"), gave("a"), gave("b")], "anthropic") == ["split-results"]


def test_a_missing_result_joins_the_ones_that_came() -> None:
    out = sent([use("a", "b"), gave("b", words="go on")], "anthropic")
    assert [block.get("tool_use_id") for block in out[1]["content"]] == ["b", "a", None]
    assert check([user(), *out], dialect="anthropic") == []


def test_results_of_two_turns_in_one_message_are_shared_out() -> None:
    out = sent([use("a"), use("b"), gave("a", "b", words="both")], "anthropic")
    assert [wire["role"] for wire in out] == ["assistant", "user", "assistant", "user"]
    assert out[3]["content"][-1] == {"type": "text", "text": "both"}
    assert check([user(), *out], dialect="anthropic") == []


def test_reasoning_that_leads_nowhere_is_not_sent() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "R"}
    assert is_reasoning(RESPONSES.read(thought))
    assert rules([thought], "openai-responses") == ["reasoning-alone"]
    assert sent([thought], "openai-responses") == []


def test_an_id_called_again_before_its_result_came_leaves_no_call_open() -> None:
    wires = [calls("x"), calls("x"), result("x", "one")]
    out = sent(wires)
    assert [wire["role"] for wire in out] == ["assistant", "tool", "assistant", "tool"]
    assert check([user(), *out]) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_history_of_only_results_is_repaired_to_a_request_that_passes(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [wire for n in range(3) for wire in build.turn([f"c{n}"], [f"result {n}"], "w" * 6, None)[1:]]
    out = fit(wires, max_tokens=1_000, dialect=dialect)
    assert check(out.messages, dialect=dialect) == []
    assert len([repair for repair in out.repairs if repair.rule == "orphan-result"]) == 3
    left = len(out.messages)  # a content of Gemini's may not be empty: a note stands for each, and joints between them
    assert left == (5 if dialect == "gemini" else 1)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_losing_any_one_message_of_a_session_leaves_a_valid_request(dialect: str) -> None:
    wires = session(4, dialect=dialect)
    for at in range(len(wires)):
        out = fit([*wires[:at], *wires[at + 1 :]], max_tokens=10_000, dialect=dialect)
        assert check(out.messages, dialect=dialect) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_doubling_any_one_message_of_a_session_leaves_a_valid_request(dialect: str) -> None:
    wires = session(4, dialect=dialect)
    for at in range(len(wires)):
        out = fit([*wires[: at + 1], *wires[at:]], max_tokens=10_000, dialect=dialect)
        assert check(out.messages, dialect=dialect) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_told_backwards_leaves_a_valid_request(dialect: str) -> None:
    out = fit(session(5, dialect=dialect)[::-1], max_tokens=10_000, dialect=dialect)
    assert check(out.messages, dialect=dialect) == []


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "openai-responses"])
def test_a_turn_of_many_calls_keeps_every_result(dialect: str) -> None:
    ids = [f"c{number}" for number in range(3 * REACH)]
    build = BUILDERS[dialect]
    wires = [*build.user("go", False), *build.turn(ids, [f"result {i}" for i in ids], "words", None)]
    out = fit(wires, max_tokens=10**6, dialect=dialect)
    assert out.messages == wires
    assert not out.repairs


def test_results_that_move_to_their_calls_leave_the_next_calls_a_turn_to_join() -> None:
    """Gemini takes calls only after the user or after results: moved, these no longer stand before the next calls."""

    def model(*parts: Wire) -> Wire:
        return {"role": "model", "parts": list(parts)}

    called = model({"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"})
    answered = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "a"}}}]}
    wires = [
        {"role": "user", "parts": [{"text": "go on"}]},
        called,
        model({"text": "words"}),
        answered,
        called,
        answered,
    ]
    fitted = fit(wires, max_tokens=10_000, dialect="gemini")
    assert check(fitted.messages, dialect="gemini") == []
    assert [wire["role"] for wire in fitted.messages] == ["user", "model", "user", "model", "user"]
    assert [repair.rule for repair in fitted.repairs] == ["call-place"]


def test_calls_join_all_turns_of_the_model_before_them() -> None:
    words = [{"role": "model", "parts": [{"text": text}]} for text in ("one", "two", "three")]
    called = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}]}
    answered = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "a"}}}]}
    wires = [{"role": "user", "parts": [{"text": "go on"}]}, *words, called, answered]
    fitted = fit(wires, max_tokens=10_000, dialect="gemini")
    assert check(fitted.messages, dialect="gemini") == []
    assert [wire["role"] for wire in fitted.messages] == ["user", "model", "user"]
    assert [part.get("text") for part in fitted.messages[1]["parts"][:3]] == ["one", "two", "three"]
