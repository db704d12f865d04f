"""`fit`, `check` and `count`: one call for a history that lives somewhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.engine.wires import says, user
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire

from foldline.catalog.models import lookup
from foldline.engine.context import Context
from foldline.engine.one_shot import Fit, check, count, fit
from foldline.errors import DoesNotFit, InvalidInput
from foldline.testing import ScriptedModel, session

SUMMARY = "Goal: fix the test. Open: go on."


# --- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_fits_is_returned_as_the_very_objects(dialect: str, policy: str) -> None:
    # BerriAI/litellm#8261: trailing results were lost on the early return.
    wires = session(8, dialect=dialect, result="a result " * 20)
    out = fit(wires, max_tokens=100_000, dialect=dialect, policy=policy)
    assert all(a is b for a, b in zip(out.messages, wires, strict=True))
    assert (out.folds, out.repairs) == ((), ())


def test_a_message_just_below_its_limit_is_left_alone() -> None:
    wires = session(10, result="words " * 40)
    size = count(wires)
    assert fit(wires, max_tokens=size).folds == ()
    assert fit(wires, max_tokens=size - 1).folds


def test_unknown_fields_pass_through() -> None:
    wires = [{**user("hi"), "name": "ann", "x-trace": {"id": 7}, "cache_control": {"type": "ephemeral"}}]
    assert fit(wires, max_tokens=1_000).messages == wires


def test_a_tuple_of_messages_will_do() -> None:
    assert fit((user("hi"),), max_tokens=100).messages == [user("hi")]


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_does_not_fit_is_folded_until_it_does(dialect: str, policy: str) -> None:
    wires = session(40, dialect=dialect, result="a line of a long result\n" * 30)
    out = fit(wires, max_tokens=2_500, dialect=dialect, policy=policy)
    assert out.tokens <= 2_500
    assert out.tokens == count(out.messages, dialect=dialect)
    assert check(out.messages, dialect=dialect) == []
    assert out.folds


def test_room_for_the_reply_is_left() -> None:
    wires = session(40, result="words " * 60)
    assert fit(wires, max_tokens=4_000, max_output_tokens=1_500).tokens <= 2_500


def test_the_given_list_is_never_changed() -> None:
    wires = session(30, result="words " * 60)
    before = json.dumps(wires)
    fit(wires, max_tokens=1_000)
    assert json.dumps(wires) == before


def test_fitting_what_was_fitted_changes_nothing() -> None:
    out = fit(session(40, result="words " * 60), max_tokens=1_500)
    again = fit(out.messages, max_tokens=1_500)
    assert again.messages == out.messages
    assert again.folds == ()


@pytest.mark.parametrize("limit", [0, -5, 1.5, True, None, "1000"])
def test_a_limit_that_is_no_number_of_tokens_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidInput, match="max_tokens"):
        fit([user("hi")], max_tokens=limit)


@pytest.mark.parametrize("output", [-1, 100, 500])
def test_a_reply_as_large_as_the_limit_is_refused(output: int) -> None:
    with pytest.raises(InvalidInput, match="max_output_tokens"):
        fit([user("hi")], max_tokens=100, max_output_tokens=output)


@pytest.mark.parametrize("messages", [None, "hi", b"hi", 7, {"role": "user"}])
def test_what_is_no_list_of_messages_is_refused(messages: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: fit(messages, max_tokens=9),
        lambda: check(messages),
        lambda: count(messages),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="messages"):
            call()


def test_the_message_at_fault_is_named() -> None:
    for junk in ({"content": "no role"}, "text", None):
        with pytest.raises(InvalidInput, match="message 1"):
            fit([user("hi"), junk], max_tokens=100)  # type: ignore[list-item]
        with pytest.raises(InvalidInput, match="message 1"):
            count([user("hi"), junk])  # type: ignore[list-item]


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no messages"):
        fit([], max_tokens=100)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_if_repair_leaves_nothing_one_reported_user_message_stands(dialect: str) -> None:
    stray: Wire = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    if dialect == "anthropic":
        stray = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "x"}]}
    if dialect == "openai-responses":
        stray = {"type": "function_call_output", "call_id": "gone", "output": "x"}
    if dialect == "gemini":
        stray = {"role": "user", "parts": [{"functionResponse": {"name": "gone", "response": {"output": "x"}}}]}
    out = fit([stray], max_tokens=200, dialect=dialect)
    assert check(out.messages, dialect=dialect) == []
    assert len(out.messages) == 1
    assert {repair.rule for repair in out.repairs} - {"user-first"} == {"orphan-result"}


# --- the floor --------------------------------------------------------------------------------------------------------


def floor_of(wires: Sequence[Any], **settings: Any) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as info:
        fit(wires, max_tokens=1, **settings)
    return info.value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_floor_is_true_and_can_be_reached(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*session(10, dialect=dialect, result="words " * 60), *build.user("the newest request", False)]
    floor = floor_of(wires, dialect=dialect, system="Be brief.")
    out = fit(wires, max_tokens=floor.floor_tokens, dialect=dialect, system="Be brief.")
    assert out.tokens <= floor.floor_tokens
    assert "the newest request" in json.dumps(out.messages)
    with pytest.raises(DoesNotFit):
        fit(wires, max_tokens=floor.floor_tokens - 1, dialect=dialect, system="Be brief.")


def test_the_floor_names_its_parts_largest_first() -> None:
    floor = floor_of([*session(5), user("the newest " * 50)], system="rules " * 200, tools=[{"name": "f"}])
    assert floor.limit == 1
    sizes = [part.tokens for part in floor.parts]
    assert sizes == sorted(sizes, reverse=True)
    assert [part.name for part in floor.parts[:2]] == ["system and tools", "newest user message"]
    assert "system and tools" in str(floor)


def test_an_open_call_is_part_of_the_floor() -> None:
    wires = [*session(3), session(4)[-2]]
    assert any("waits" in part.name for part in floor_of(wires).parts)


def test_the_limit_in_the_error_is_what_is_left_for_input() -> None:
    with pytest.raises(DoesNotFit) as info:
        fit([user("words " * 500)], max_tokens=200, max_output_tokens=150)
    assert info.value.limit == 50


def test_a_system_prompt_over_the_limit_is_named() -> None:
    # run-llama/llama_index#11637: an exception that said neither which part nor by how much.
    with pytest.raises(DoesNotFit) as info:
        fit([user("hi")], max_tokens=100, system="rules " * 500)
    assert info.value.parts[0].name == "system and tools"
    assert info.value.floor_tokens > 400


def test_the_newest_user_message_is_never_lost() -> None:
    # langchain-ai/langchain trim_messages, microsoft/autogen: only the system prompt, or nothing, came out.
    with pytest.raises(DoesNotFit) as info:
        fit([{"role": "system", "content": "s"}, user("x " * 50_000)], max_tokens=100)
    assert "newest user message" in [part.name for part in info.value.parts]


def test_no_model_is_asked_below_the_floor() -> None:
    with pytest.raises(DoesNotFit):
        fit(session(30), max_tokens=5, summarize=ScriptedModel([]))


# --- cases from the field ---------------------------------------------------------------------------------------------


def test_content_in_blocks_is_shortened_too() -> None:
    # BerriAI/litellm#16567: a list as content threw, and the untrimmed history went out.
    wires = [{"role": "user", "content": [{"type": "text", "text": "old words " * 3_000}]}, says("ok"), user("next")]
    out = fit(wires, max_tokens=500)
    assert out.tokens <= 500
    assert out.messages[-1] is wires[-1]


def test_a_result_without_any_call_is_not_sent() -> None:
    # langchain-ai/langchain#38352 (two reports): an orphan result in the kept window.
    call = session(1)[1]
    wires = [user("go"), call, session(1)[2], {"role": "tool", "tool_call_id": "nobody", "content": "x"}, user("next")]
    out = fit(wires, max_tokens=1_000)
    assert out.messages == [*wires[:3], wires[4]]
    assert [repair.rule for repair in out.repairs] == ["orphan-result"]


@pytest.mark.parametrize("limit", range(40, 400, 9))
def test_parallel_calls_and_their_results_leave_together(limit: int) -> None:
    # omnigent-ai/omnigent#2448, langchain-ai/langmem#126: one call went with one of its results.
    build = BUILDERS["openai-chat"]
    wires: list[Wire] = [user("go")]
    for n in range(4):
        wires += build.turn([f"a{n}", f"b{n}"], ["first " * 30, "second " * 30], "args " * 20, None)
    wires.append(user("and now?"))
    try:
        out = fit(wires, max_tokens=limit)
    except DoesNotFit as no:
        assert no.floor_tokens > limit
        return
    assert check(out.messages) == []
    assert out.tokens <= limit


def test_the_newest_result_alone_over_the_limit_is_shortened() -> None:
    out = fit(session(1, result="huge " * 100_000), max_tokens=1_000)
    assert out.tokens <= 1_000
    assert len(out.messages) == 3


def test_a_cut_text_is_sendable() -> None:
    # vertesia/llumiverse PR#462: a cut inside an emoji was refused.
    for limit in range(150, 190):
        out = fit(session(3, result="👩‍👩‍👧‍👦é上" * 300), max_tokens=limit)
        assert json.dumps(out.messages, ensure_ascii=False).encode("utf-8")


def test_lone_surrogates_are_repaired_and_reported() -> None:
    out = fit([user("broken \ud83d here"), says("ok"), user("next")], max_tokens=100)
    assert check(out.messages) == []
    assert out.repairs


def test_the_image_of_the_newest_request_stays_and_older_ones_give_way() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000, "detail": "high"}}
    look = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    wires = [look, says("nice"), look, says("nice"), look]
    size = count([look])
    out = fit(wires, max_tokens=int(1.5 * size))
    assert out.messages[-1] is look
    assert "image_url" not in json.dumps(out.messages[:-1])


def test_an_image_in_a_result_gives_way_and_the_result_stays() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 4_000}
    wires: list[Wire] = [user("go")]
    for n in range(4):
        wires.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "shot", "input": {"n": n}}]}
        )
        content = [{"type": "text", "text": f"shot {n}"}, {"type": "image", "source": source}]
        wires.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": content}]})
    out = fit(wires, max_tokens=count(wires, dialect="anthropic") - 100, dialect="anthropic")
    assert check(out.messages, dialect="anthropic") == []
    assert all(f"shot {n}" in json.dumps(out.messages) for n in range(4))
    shown = ['"image"' in json.dumps(message) for message in out.messages[2::2]]
    assert shown == sorted(shown), "the oldest gave way first"
    assert (shown[0], shown[-1]) == (False, True)


def test_a_thinking_loop_is_folded_whole_or_cut_before_thinking() -> None:
    wires: list[Wire] = [user("go")]
    for n in range(12):
        thought = [{"type": "thinking", "thinking": "hm " * 40, "signature": f"sig{n}"}] if n % 3 == 0 else []
        use = {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"n": n}}
        wires.append({"role": "assistant", "content": [*thought, use]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": "words " * 60}
        wires.append({"role": "user", "content": [result]})
    for limit in range(100, 1_200, 37):
        out = fit(wires, max_tokens=limit, dialect="anthropic")
        assert check(out.messages, dialect="anthropic") == []
        thoughts = [
            block
            for m in out.messages
            for block in m["content"]
            if isinstance(block, dict) and block["type"] == "thinking"
        ]
        originals = [
            block for m in wires for block in m["content"] if isinstance(block, dict) and block["type"] == "thinking"
        ]
        assert all(thought in originals for thought in thoughts), "a signed block is kept byte for byte or not at all"


def test_reasoning_items_stay_with_what_they_led_to() -> None:
    wires: list[Wire] = list(BUILDERS["openai-responses"].user("go", False))
    for n in range(12):
        wires += BUILDERS["openai-responses"].turn([f"a{n}", f"b{n}"], ["words " * 30] * 2, "args", f"thought {n}")
    for limit in range(120, 1_500, 53):
        out = fit(wires, max_tokens=limit, dialect="openai-responses")
        assert check(out.messages, dialect="openai-responses") == []


def test_a_summary_is_asked_for_and_used() -> None:
    model = ScriptedModel([SUMMARY], repeat=True)
    out = fit(session(60, result="words " * 60), max_tokens=3_000, policy="sliding", summarize=model)
    assert model.calls
    assert SUMMARY in json.dumps(out.messages)
    assert any(fold.reducer == "summarize" for fold in out.folds)


def test_the_summary_request_is_plain_text_in_every_dialect() -> None:
    # anomalyco/opencode#31188, sudoprivacy/sudocode PR#546: the summary request itself was refused.
    for dialect in DIALECTS:
        model = ScriptedModel([SUMMARY], repeat=True)
        wires: list[Wire] = list(BUILDERS[dialect].user("go", False))
        for n in range(20):
            wires += BUILDERS[dialect].turn([f"a{n}", f"b{n}"], ["words " * 40] * 2, "args", f"thought {n}")
        fit(wires, max_tokens=2_500, dialect=dialect, policy="sliding", summarize=model)
        assert model.calls
        for call in model.calls:
            assert [message["role"] for message in call.messages] == ["system", "user"]
            assert all(isinstance(message["content"], str) for message in call.messages)
            assert "thought 1" not in call.text


# --- check and count --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_legal_session_passes_the_check(dialect: str) -> None:
    assert check(session(3, dialect=dialect), dialect=dialect) == []


def test_a_violation_says_where_and_by_which_source() -> None:
    found = check([user("hi"), *session(1)[2:]])
    assert [(v.index, v.rule) for v in found] == [(1, "result-without-call")]
    assert found[0].source
    assert "message 1" in str(found[0])


def test_an_empty_request_is_a_violation_and_no_error() -> None:
    assert [violation.rule for violation in check([])] == ["empty-request"]


@pytest.mark.parametrize("call", [check, count])
def test_an_unknown_dialect_is_refused(call: Callable[..., object]) -> None:
    with pytest.raises(InvalidInput, match="dialect"):
        call([user("hi")], dialect="esperanto")


def test_the_count_is_the_sum_of_its_parts() -> None:
    wires = session(3)
    tools = [{"type": "function", "function": {"name": "f", "description": "does f"}}]
    whole = count(wires, system="Be brief.", tools=tools)
    assert whole == sum(count([wire]) for wire in wires) + count([], system="Be brief.") + count([], tools=tools)
    assert count([]) == 0


def test_a_counter_of_ones_own_is_used() -> None:
    class Letters:
        name = "letters"

        def text(self, text: str, /) -> int:
            return len(text)

    letters = Letters()
    wires = [user("x" * 1_000)]
    assert count(wires, counter=letters) >= 1_000
    out: Fit = fit([*wires, says("y" * 1_000), user("z")], max_tokens=600, counter=letters)
    assert out.tokens == count(out.messages, counter=letters) <= 600


def test_a_counter_only_sees_legal_order() -> None:
    # langchain-ai/langchain#29637: a counter was asked about a reversed list. Here it sees texts, one at a time.
    seen: list[str] = []

    class Noting:
        name = "noting"

        def text(self, text: str, /) -> int:
            seen.append(text)
            return len(text) // 4

    fit(session(3), max_tokens=10_000, counter=Noting())
    steps = [text for text in seen if text.startswith("Step")]
    assert steps == ["Step 0.", "Step 1.", "Step 2."]


def test_the_catalogue_knows_the_model_that_a_count_is_for() -> None:
    assert count([user("hi")], model=lookup("gpt-4o").name) == count([user("hi")])


def test_bytes_are_a_limit_of_their_own() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}}
    look = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    wires = [look, says("nice"), look, says("nice"), user("thanks")]
    out = fit(wires, max_tokens=100_000, max_request_bytes=12_000)
    assert len(json.dumps({"messages": out.messages}, separators=(",", ":"))) <= 12_000
    assert json.dumps(out.messages).count("image_url") == 2, "one of the two, named twice in its JSON"


@pytest.mark.parametrize("blocks", [["found", "use", "text"], ["use", "found", "use", "text"], ["found", "use"]])
def test_a_use_is_closed_only_by_a_result_behind_it(blocks: list[str]) -> None:
    made: dict[str, Any] = {
        "use": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        "found": {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        "text": {"type": "text", "text": "So it is."},
    }
    history: list[Any] = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": [made[name] for name in blocks]},
        {"role": "user", "content": "And now?"},
    ]
    fitted = fit(history, max_tokens=1_000, dialect="anthropic")
    assert check(fitted.messages, dialect="anthropic") == []
    assert fitted.repairs


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("turns", [2, 3, 4])
def test_a_late_result_does_not_hold_together_the_long_turns_before_it(dialect: str, turns: int) -> None:
    build = BUILDERS[dialect]
    *call, result = build.turn(["c1"], ["PAID-12"], "Paying.", None)
    between = [
        wire
        for turn in range(turns)
        for wire in (
            *build.user(f"Question {turn}. " + "a long word " * 200, False),
            *build.says(f"Answer {turn}. " + "so it is " * 200, None),
        )
    ]
    history = [*build.user("Pay the bill.", False), *call, *between, result]
    fitted = fit(history, max_tokens=count(history, dialect=dialect) * 2 // 3, dialect=dialect)
    assert check(fitted.messages, dialect=dialect) == []
    assert "PAID-12" in str(fitted.messages)


@pytest.mark.parametrize("result_id", ["", None, "another", "srvtoolu_1"])
@pytest.mark.parametrize("use_id", ["", None, "srvtoolu_1"])
def test_a_call_of_the_provider_without_an_id_still_has_its_result(use_id: str | None, result_id: str | None) -> None:
    """Where the ids do not meet, the call gets a result that says so, and the other result goes."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": use_id, "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": result_id, "content": []},
                {"type": "text", "text": "found"},
            ],
        },
        {"role": "user", "content": "go on"},
    ]
    fitted = fit(messages, max_tokens=10_000, dialect="anthropic")
    assert check(fitted.messages, dialect="anthropic") == []
    kinds = [block["type"] for block in fitted.messages[1]["content"]]
    assert "server_tool_use" in kinds
    if use_id != result_id or not use_id:
        assert fitted.repairs
        assert check(messages, dialect="anthropic")


def test_what_comes_late_stands_before_a_turn_that_was_paused_twice() -> None:
    def search(number: int) -> dict[str, Any]:
        return {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "q"}}

    def found(number: int) -> dict[str, Any]:
        return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": []}

    context = Context(dialect="anthropic", window=100_000, max_output_tokens=0)
    paused = [
        {"role": "assistant", "content": [{"type": "text", "text": "first"}, search(1)]},
        {"role": "assistant", "content": [found(1), search(2)]},
    ]
    context.extend(
        [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "edit", "input": {}}]},
            {"role": "user", "content": "words " * 2_000},
            *paused,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "came late"}]},
        ]
    )
    request = context.prepare()
    assert check(request.messages, dialect="anthropic") == []
    assert request.messages[-2:] == paused
    assert "came late" in str(request.messages)
