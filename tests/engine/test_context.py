"""One session inside its window, as agents drive it."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.wires import says, user
from tests.joints import unjoined
from tests.property.sessions import BUILDERS, DIALECTS, Wire

from foldline.engine.context import Completion, Context, Request
from foldline.engine.events import (
    ContextEvent,
    FoldFailed,
    FoldFinished,
    FoldStarted,
    Repaired,
    SilentTruncation,
    ThresholdReached,
    UsageDoubted,
)
from foldline.engine.one_shot import check, count
from foldline.engine.presets import POLICIES
from foldline.errors import DoesNotFit, FoldRefused, InvalidInput, SummaryError
from foldline.failures.classification import classify
from foldline.messages import Wire as AnyWire
from foldline.reducers.summarize import Summarize
from foldline.store.files import FileArchive
from foldline.testing import ScriptedModel, session
from foldline.view.archive import MemoryArchive
from foldline.view.transcript import Branch, Entry, Fold, Unfold, Usage

LINES = "a line of the result that was read\n" * 12
SUMMARY = "Goal: fix the test. Done: src/0.py was read. Open: go on."


def long_session(rounds: int = 30, dialect: str = "openai-chat") -> list[AnyWire]:
    return session(rounds, result=LINES, dialect=dialect)


def sent(request: Request) -> str:
    return json.dumps(request.messages, ensure_ascii=False)


def filled(window: int = 4_000, **settings: Any) -> Context:
    context = Context(window=window, max_output_tokens=0, **settings)
    context.extend(long_session())
    return context


class Heard(list[ContextEvent]):
    """What `on_event` was told."""

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, -1, True, 1.5, "8192"])
def test_a_window_that_is_no_number_of_tokens_is_refused(window: Any) -> None:
    with pytest.raises(InvalidInput, match="window"):
        Context(window=window)


@pytest.mark.parametrize("output", [-1, 1_000, 2_000])
def test_a_reply_as_large_as_the_window_is_refused(output: int) -> None:
    with pytest.raises(InvalidInput, match="max_output_tokens"):
        Context(window=1_000, max_output_tokens=output)


@pytest.mark.parametrize("settings", [{"dialect": "esperanto"}, {"policy": "reckless"}])
def test_unknown_names_are_refused_with_the_known_ones(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"balanced|openai-chat"):
        Context(window=1_000, **settings)


def test_the_window_of_a_known_model_is_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Context(model="gpt-4o").limits.window_tokens == 128_000


def test_an_unknown_model_gets_a_default_with_a_warning() -> None:
    # openai/codex#26783, pydantic-ai-harness#463: a wrong or unknown window must not pass unnoticed.
    with pytest.warns(UserWarning, match="its window is taken to be 128,000"):
        context = Context(model="nobody-knows-it")
    assert context.limits.window_tokens == 128_000


def test_the_users_window_goes_before_a_learned_one_and_that_before_the_catalogue() -> None:
    learned = {("here", "gpt-4o"): 60_000}
    assert Context(model="gpt-4o", endpoint="here", learned=learned, window=50_000).limits.window_tokens == 50_000
    assert Context(model="gpt-4o", endpoint="here", learned=learned).limits.window_tokens == 60_000
    assert Context(model="gpt-4o", endpoint="there", learned=learned).limits.window_tokens == 128_000


def test_an_empty_session_has_no_request() -> None:
    with pytest.raises(InvalidInput, match="no messages"):
        Context(window=1_000).prepare()


def test_usage_alone_makes_no_request() -> None:
    context = Context(window=1_000)
    context.observe({"prompt_tokens": 5})
    with pytest.raises(InvalidInput, match="no messages"):
        context.prepare()


def test_a_message_that_is_none_is_refused_and_nothing_is_recorded() -> None:
    context = Context(window=1_000)
    for junk in ({}, {"content": "no role"}, "text", None, 7):
        with pytest.raises(InvalidInput):
            context.append(junk)  # type: ignore[arg-type]
    assert context.events == ()


# --- counting ---------------------------------------------------------------------------------------------------------


def test_system_text_and_tools_are_counted() -> None:
    # langchain-ai/langchain#34664: tools and system prompt were not counted.
    tools = [{"type": "function", "function": {"name": "f", "description": "words " * 400}}]
    context = Context(window=100_000, system="rules " * 300, tools=tools)
    context.append(user("hi"))
    request = context.prepare()
    assert request.tokens == count(request.messages, system=request.system, tools=tools)
    assert request.tokens > 700


def test_large_tool_schemas_bring_the_trigger_nearer() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "words " * 2_000}}]
    with_tools = Context(window=6_000, max_output_tokens=0, tools=tools)
    without = Context(window=6_000, max_output_tokens=0)
    for context in (with_tools, without):
        context.extend(session(30, result="a line of the result\n" * 15))
    assert with_tools.prepare().folds
    assert not without.prepare().folds
    assert with_tools.view.tokens <= 0.9 * 6_000


def test_an_image_is_counted_by_its_area_and_not_as_text() -> None:
    # justrach/codegraff#260, endolith/open-interpreter#293: base64 counted as text compacted a new chat.
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
    context = Context(window=8_000, max_output_tokens=0)
    context.append({"role": "user", "content": [{"type": "text", "text": "what is this?"}, image]})
    request = context.prepare()
    assert request.tokens < 3_000
    assert not request.folds


def test_scripts_without_blanks_reach_the_trigger_in_time() -> None:
    # langchain-ai/langchain#39754: four characters per token counted Chinese two to three times too low.
    context = Context(window=1_000_000)
    context.append(user("上下文窗口管理" * 1_000))
    assert context.prepare().tokens > 5_000


def test_unknown_parts_are_counted_and_passed_on() -> None:
    # pydantic/pydantic-ai-harness#577, headroomlabs-ai/headroom#1806: unknown blocks crashed estimator or proxy.
    wires = [
        user("search"),
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s", "name": "web", "input": {"q": "x" * 400}},
                {"type": "web_tool_result", "tool_use_id": "s", "content": []},
                {"type": "from_the_future"},
            ],
        },
        user("thanks"),
    ]
    context = Context(dialect="anthropic", window=10_000)
    context.extend(wires)
    request = context.prepare()
    assert request.messages == wires
    assert request.tokens > 50


# --- stable prefix ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_between_folds_each_request_is_the_one_before_and_what_is_new(dialect: str) -> None:
    # headroomlabs-ai/headroom#2438: a rewritten prefix cost two to seven times as much.
    context = Context(dialect=dialect, window=6_000, max_output_tokens=0)
    before: list[AnyWire] = []
    folds = 0
    for number, wire in enumerate(long_session(60, dialect)):
        context.append(wire)
        if number % 2:
            continue
        request = context.prepare()
        assert request.messages[: request.stable_until] == before[: request.stable_until]
        if not request.folds:
            assert request.stable_until == len(before)
        folds += bool(request.folds)
        before = request.messages
    assert 1 <= folds <= 12, "folds come in batches"


@pytest.mark.parametrize("policy", ["balanced", "cost", "quality", "economical", "sliding", "layered"])
def test_preparing_again_sends_the_same(policy: str) -> None:
    # langchain-ai/langchain#37815: clearing edited a copy only and fired again on every call.
    context = filled(policy=policy)
    first = context.prepare()
    second = context.prepare()
    assert second.messages == first.messages
    assert second.folds == ()
    assert second.stable_until == len(first.messages)


def test_a_fold_lands_well_below_its_trigger() -> None:
    # HCF-STUDIOS/openhermit PR#229: a fold that lands on its trigger fires on every message.
    context = filled()
    assert context.prepare().folds
    for number in range(4):
        context.extend([says(f"step {number}"), user("go on")])
        assert not context.prepare().folds


def test_masking_moves_in_batches() -> None:
    # anomalyco/opencode#32515: masking one more result each turn zeroed the prompt cache.
    context = Context(window=8_000, max_output_tokens=0, policy="balanced")
    moved = 0
    for number, wire in enumerate(long_session(80)):
        context.append(wire)
        if number % 2 == 0:
            moved += bool(context.prepare().folds)
    assert moved <= 12


def test_a_long_tool_loop_is_checked_before_every_call() -> None:
    # aaif-goose/goose#11072: a tool loop was never checked again after it began.
    context = Context(window=3_000, max_output_tokens=0)
    for number, wire in enumerate(long_session(30)):
        context.append(wire)
        if number % 2 == 0:
            assert context.prepare().tokens <= 2_700


def test_nothing_foldable_asks_no_model() -> None:
    # MoonshotAI/kimi-code#2325: an overhead above the trigger compacted an empty chat in a loop.
    model = ScriptedModel([])
    context = Context(window=4_000, max_output_tokens=0, system="rules " * 2_900)
    context.append(user("hi"))
    for _ in range(3):
        assert context.prepare(model).folds == ()
    assert model.calls == []


@pytest.mark.parametrize("policy", ["balanced", "cost", "quality", "economical", "sliding"])
@pytest.mark.parametrize(("words", "most"), [(6_000, 12), (7_000, 20), (7_500, 50)])
def test_a_fixed_part_near_the_trigger_does_not_fold_at_every_step(policy: str, words: int, most: int) -> None:
    # anomalyco/opencode#48828: an irreducible floor above the trigger compacted after each step.
    model = ScriptedModel([SUMMARY], repeat=True)
    context = Context(window=10_000, max_output_tokens=0, system="rules " * words, policy=policy)
    folded = 0
    for wire in session(100, result="word " * 30):
        context.append(wire)
        folded += bool(context.prepare(model).folds)
    assert folded <= most
    assert len(model.calls) <= most


def test_a_floor_above_the_limit_is_said_at_once_and_no_model_is_asked() -> None:
    # OpenHands/OpenHands#10873, run-llama/llama_index#11637: a window smaller than what must stay.
    model = ScriptedModel([])
    context = Context(window=2_000, max_output_tokens=0, system="rules " * 3_000)
    context.extend(long_session())
    with pytest.raises(DoesNotFit) as info:
        context.prepare(model)
    assert info.value.parts[0].name == "system and tools"
    assert info.value.floor_tokens > info.value.limit == 1_800
    assert model.calls == []


def test_the_newest_user_message_alone_over_the_limit_is_named() -> None:
    # cline/cline#5668, microsoft/autogen, langchain trim_messages: it looped, or an empty list came out.
    context = Context(window=1_000, max_output_tokens=0)
    context.append(user("a very long request " * 1_000))
    with pytest.raises(DoesNotFit) as info:
        context.prepare()
    assert (info.value.parts[0].name, info.value.parts[0].seq) == ("newest user message", 0)
    assert context.view.wires()[0] == [user("a very long request " * 1_000)]


@pytest.mark.parametrize("window", [1, 2, 7, 20])
def test_a_window_of_a_few_tokens_is_refused_with_the_floor(window: int) -> None:
    context = Context(window=window, max_output_tokens=0)
    context.extend(session(2))
    with pytest.raises(DoesNotFit):
        context.prepare()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_huge_user_text_in_the_middle_gives_way(dialect: str) -> None:
    build = BUILDERS[dialect]
    context = Context(dialect=dialect, window=2_000, max_output_tokens=0)
    for words in ("first", "pasted log line 42 went wrong\n" * 2_000, "and the third"):
        context.extend([*build.user(words, False), *build.says("I see", None)])
    context.extend(build.user("so what now?", False))
    request = context.prepare()
    assert request.tokens <= 1_800
    assert "so what now?" in sent(request)
    assert check(request.messages, dialect=dialect) == []


# --- folding switched off ---------------------------------------------------------------------------------------------


def test_switched_off_nothing_is_folded_and_what_does_not_fit_is_said() -> None:
    # earendil-works/pi#6472, RooCodeInc/Roo-Code#7953: compaction ran although it was off.
    context = filled(auto=False)
    before = context.view.wires()[0]
    with pytest.raises(DoesNotFit, match="switched off"):
        context.prepare(ScriptedModel([]))
    assert context.view.wires()[0] == before
    assert not [event for event in context.events if isinstance(event, Fold)]


def test_switched_off_what_fits_is_sent_as_it_is() -> None:
    wires = session(3)
    context = Context(window=100_000, auto=False)
    context.extend(wires)
    assert context.prepare().messages == wires


def test_switched_off_recovery_does_not_fold_either() -> None:
    # anomalyco/opencode#30664: auto:false was bypassed when the overflow was caused by media bytes.
    context = Context(window=100_000, auto=False)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}}
    context.extend([{"role": "user", "content": [picture]}, says("nice"), *session(3)])
    context.prepare()
    for failure in (classify(413, "Payload too large"), classify(400, "prompt is too long: 9 tokens > 5 maximum")):
        with pytest.raises(DoesNotFit, match="switched off"):
            context.recover(failure)
    assert not [event for event in context.events if isinstance(event, Fold)]


def test_switched_off_a_compaction_that_is_asked_for_still_runs() -> None:
    context = filled(auto=False)
    assert context.compact(summarize=ScriptedModel([SUMMARY], repeat=True))
    assert "[Previous conversation summary]" in sent(context.prepare())


# --- usage ------------------------------------------------------------------------------------------------------------


def test_reported_usage_is_the_size_from_then_on() -> None:
    context = Context(window=100_000)
    context.extend(long_session(10))
    request = context.prepare()
    context.observe({"prompt_tokens": request.tokens + 250, "completion_tokens": 3})
    assert context.view.tokens == request.tokens + 250
    assert context.prepare().tokens == request.tokens + 250


def test_usage_from_before_a_fold_does_not_start_the_next_one() -> None:
    # earendil-works/pi#1860: usage 95 % before the compaction retriggered it on the next prompt.
    context = filled()
    request = context.prepare()
    folded = context.compact(summarize=ScriptedModel([SUMMARY], repeat=True))
    context.observe({"prompt_tokens": 3_560})
    assert context.view.tokens < 0.6 * request.tokens
    context.append(user("thanks"))
    assert context.prepare().folds == folded


def test_usage_from_before_an_undo_says_nothing_about_what_is_shown_again() -> None:
    context = Context(window=100_000)
    context.extend([user("a request " * 2_000), says("an answer " * 2_000)])
    whole = context.prepare().tokens
    context.compact(summarize=ScriptedModel([SUMMARY]))
    small = context.prepare().tokens
    context.undo()
    context.observe({"prompt_tokens": small + 700})
    assert context.view.tokens == whole


def test_usage_without_a_request_is_recorded_only() -> None:
    context = Context(window=100_000)
    context.append(user("hi"))
    size = context.view.tokens
    assert context.observe({"prompt_tokens": 5_000}) == Usage(input_tokens=5_000)
    assert context.view.tokens == size


def test_a_higher_count_of_the_provider_brings_the_trigger_nearer() -> None:
    context = Context(window=10_000, max_output_tokens=0)
    context.extend(session(40, result="a result of one line that was read " * 18))
    request = context.prepare()
    assert not request.folds
    context.observe({"prompt_tokens": 9_500})
    context.append(user("go on"))
    after = context.prepare()
    assert after.folds
    assert after.tokens <= 9_000


def test_a_silent_truncation_is_reported_and_not_believed() -> None:
    # itayinbarr/little-coder#128: the server cut the prompt and reported the count of what was left.
    heard = Heard()
    context = Context(window=100_000, on_event=heard.append)
    context.extend(long_session(60))
    request = context.prepare()
    context.observe({"prompt_tokens": request.tokens // 3, "completion_tokens": 10})
    assert len(heard.of(SilentTruncation)) == 1
    assert context.view.tokens == request.tokens


def test_bad_usage_is_refused_and_changes_nothing() -> None:
    context = filled(window=100_000)
    size = context.prepare().tokens
    with pytest.raises(InvalidInput):
        context.observe({"prompt_tokens": -5})
    assert context.view.tokens == size


# --- sync -------------------------------------------------------------------------------------------------------------


def test_sync_takes_up_only_what_is_new() -> None:
    wires = session(3)
    context = Context(window=10_000)
    assert [entry.seq for entry in context.sync(wires[:3])] == [0, 1, 2]
    assert context.sync(wires[:3]) == []
    assert [entry.seq for entry in context.sync(wires)] == [3, 4, 5, 6]
    assert context.prepare().messages == wires


def test_sync_compares_values_and_not_objects() -> None:
    wires = session(3)
    context = Context(window=10_000)
    context.sync(wires)
    assert context.sync(json.loads(json.dumps(wires))) == []


def test_sync_goes_on_from_where_the_history_differs() -> None:
    context = Context(window=10_000)
    context.sync([user("a"), says("b"), user("c"), says("d")])
    context.prepare()
    context.sync([user("a"), says("b"), user("other")])
    request = context.prepare()
    assert request.messages == [user("a"), says("b"), user("other")]
    assert request.stable_until == 2
    assert [e for e in context.events if isinstance(e, Branch)] == [Branch(2, 4)]
    recorded = [event.recorded for event in context.events if isinstance(event, Entry)]
    assert user("c") in recorded, "what was left stays in the log"


def test_sync_with_a_shorter_history_leaves_the_rest() -> None:
    context = Context(window=10_000)
    context.sync([user("a"), says("b"), user("c")])
    context.sync([user("a")])
    assert context.prepare().messages == [user("a")]
    context.sync([user("a"), says("again")])
    assert context.prepare().messages == [user("a"), says("again")]


def test_sync_with_nothing_leaves_everything() -> None:
    context = Context(window=10_000)
    context.sync([user("a"), says("b")])
    context.sync([])
    context.sync([user("new")])
    assert context.prepare().messages == [user("new")]


def test_sequence_numbers_are_never_used_again() -> None:
    context = Context(window=10_000)
    context.sync([user("a"), says("b")])
    context.sync([user("a"), says("c")])
    seqs = [event.seq for event in context.events if isinstance(event, Entry)]
    assert seqs == [0, 1, 2]


def test_folds_across_the_place_of_the_fork_are_taken_back() -> None:
    wires = long_session(20)
    context = Context(window=100_000)
    context.sync(wires)
    folds = context.compact(summarize=ScriptedModel([SUMMARY]))
    context.prepare()
    context.sync([*wires[:9], user("another way")])
    request = context.prepare()
    assert Unfold(folds[0].id) in request.folds
    assert request.messages == [*wires[:9], user("another way")]
    assert context.explain(3) == ()


def test_folds_before_the_place_of_the_fork_stay() -> None:
    wires = [*long_session(20), says("done"), user("next"), says("ok")]
    context = Context(window=100_000)
    context.sync(wires[:42])
    context.compact(summarize=ScriptedModel([SUMMARY]))
    context.sync(wires)
    before = context.prepare()
    context.sync([*wires[:-1], says("other")])
    request = context.prepare()
    assert request.folds == ()
    assert request.messages[:-1] == before.messages[:-1]


def test_a_fork_in_a_group_leaves_a_valid_request() -> None:
    wires = BUILDERS["openai-chat"].turn(["a", "b"], ["one", "two"], "words", None)
    context = Context(window=10_000)
    context.sync([user("go"), *wires, user("next")])
    context.sync([user("go"), *wires[:2], user("cut short")])
    request = context.prepare()
    assert check(request.messages) == []
    assert "cut short" in sent(request)


def test_system_text_of_a_branch_that_was_left_is_no_longer_sent() -> None:
    context = Context(dialect="anthropic", window=10_000, system="Be brief.")
    context.sync([user("a"), {"role": "system", "content": "OLD RULE"}, says("x")])
    with_rule = context.prepare()
    context.sync([user("a"), says("y")])
    without = context.prepare()
    assert "OLD RULE" in str(with_rule.system)
    assert without.system == "Be brief."
    assert without.tokens == count(without.messages, dialect="anthropic", system=without.system)


# --- system text in the wrong place -----------------------------------------------------------------------------------


def test_anthropic_system_text_among_the_messages_moves_out_and_is_reported() -> None:
    heard = Heard()
    context = Context(dialect="anthropic", window=10_000, system="Be brief.", on_event=heard.append)
    context.extend([user("hi"), {"role": "system", "content": "Answer in French."}, says("salut")])
    request = context.prepare()
    assert request.messages == [user("hi"), says("salut")]
    assert request.system == "Be brief.\n\nAnswer in French."
    assert request.tokens >= count(request.messages, dialect="anthropic", system=request.system) - 4
    assert any("system text" in event.repair.detail for event in heard.of(Repaired))
    assert check(request.messages, dialect="anthropic", system=request.system) == []


def test_moved_system_text_joins_blocks_as_a_block() -> None:
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    context = Context(dialect="anthropic", window=10_000, system=blocks)
    context.extend([{"role": "system", "content": "Answer in French."}, user("hi")])
    request = context.prepare()
    assert request.system == [*blocks, {"type": "text", "text": "Answer in French."}]
    assert request.messages == [user("hi")]


def test_moved_system_text_is_all_there_is_without_system_text() -> None:
    context = Context(dialect="anthropic", window=10_000)
    context.extend([{"role": "system", "content": "Answer in French."}, user("hi")])
    assert context.prepare().system == "Answer in French."


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_other_dialects_keep_system_text_where_it_stands(dialect: str) -> None:
    # microsoft/semantic-kernel#12612: truncation dropped the system prompt.
    context = Context(dialect=dialect, window=2_500, max_output_tokens=0)
    wires = [*BUILDERS[dialect].system("Answer in French."), *long_session(30, dialect)]
    context.extend(wires)
    request = context.prepare()
    assert request.messages[0] is wires[0]


# --- compact, undo, explain, pin --------------------------------------------------------------------------------------


def test_compact_keeps_system_text_and_replaces_the_rest() -> None:
    context = Context(window=10_000)
    context.extend([{"role": "system", "content": "Be brief."}, *long_session(5), says("done")])
    folds = context.compact(summarize=ScriptedModel([SUMMARY]))
    request = context.prepare()
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.messages[1]["content"] == f"[Previous conversation summary]\n{SUMMARY}"
    assert request.folds == folds
    assert context.prepare().folds == (), "each fold is reported once"


def test_compact_does_not_fold_an_unanswered_request() -> None:
    # NousResearch/hermes-agent#11475, codegraff2#155: the last user message governs.
    context = Context(window=10_000)
    context.extend([*long_session(5), says("done"), user("now a new topic")])
    context.compact(summarize=ScriptedModel([SUMMARY]))
    assert context.prepare().messages[-1] == user("now a new topic")


def test_compact_passes_on_what_to_keep() -> None:
    model = ScriptedModel([SUMMARY], repeat=True)
    context = filled()
    folds = context.compact("the port numbers", summarize=model)
    assert all("the port numbers" in call.text for call in model.calls)
    assert "the port numbers" in folds[0].reason


def test_compact_with_nothing_to_fold_says_so() -> None:
    # openclaw/openclaw#120663: with nothing to fold a blank skeleton replaced the summary.
    context = Context(window=10_000)
    context.append(user("hi"))
    with pytest.raises(SummaryError, match="nothing to fold"):
        context.compact(summarize=ScriptedModel([]))
    context.extend(long_session(5)[1:])
    context.append(says("done"))
    context.compact(summarize=ScriptedModel([SUMMARY]))
    before = sent(context.prepare())
    with pytest.raises(SummaryError):
        context.compact(summarize=ScriptedModel([]))
    assert sent(context.prepare()) == before


BAD = {
    "empty": "",
    "blank": " \n\t ",
    "too large": "words " * 5_000,
    "refused": "I'm sorry, but I cannot help with that.",
    "cut off": Completion("Goal: to", "length"),
    "cut off, Anthropic": Completion("Goal: to", "max_tokens"),
    "filtered": Completion("Goal: to", "content_filter"),
    "raised": RuntimeError("no connection"),
    "overflow": ValueError("prompt is too long"),
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD.keys())
def test_a_bad_summary_leaves_every_byte_as_it_was(reply: Any) -> None:
    # hermes-agent PR#41438, pi#8845, langchain#38867: bad summaries, or error texts, replaced the history.
    heard = Heard()
    context = Context(window=10_000, on_event=heard.append)
    context.extend([*long_session(10), says("done")])
    context.compact(summarize=ScriptedModel([SUMMARY]))
    context.extend([user("next"), *long_session(10)[1:]])
    before = context.prepare()
    with pytest.raises(SummaryError):
        context.compact(summarize=ScriptedModel([reply]))
    after = context.prepare()
    assert sent(after) == sent(before)
    assert after.folds == ()
    assert heard.of(FoldFailed)


def test_the_cause_of_a_failed_summary_is_kept() -> None:
    context = filled()
    with pytest.raises(SummaryError) as info:
        context.compact(summarize=ScriptedModel([RuntimeError("no connection")]))
    assert isinstance(info.value.__cause__, RuntimeError)


@pytest.mark.parametrize("answer", [None, 7, b"bytes", ["list"]])
def test_an_answer_that_is_no_text_is_rejected(answer: Any) -> None:
    context = filled()
    with pytest.raises(SummaryError, match="not text"):
        context.compact(summarize=lambda messages, most: answer)


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD.keys())
def test_prepare_goes_on_without_a_bad_summary(reply: Any) -> None:
    context = filled()
    request = context.prepare(ScriptedModel([reply], repeat=True))
    assert request.tokens <= 3_600
    assert check(request.messages) == []
    assert not [fold for fold in request.folds if isinstance(fold, Fold) and fold.reducer == "summarize"]


def test_a_rejected_summary_is_not_asked_for_again_at_once() -> None:
    model = ScriptedModel([""], repeat=True)
    context = Context(window=4_000, max_output_tokens=0, policy="sliding")
    asked = []
    for wire in long_session(60):
        context.append(wire)
        context.prepare(model)
        asked.append(len(model.calls))
    assert 1 <= asked[-1] <= 12


def test_a_keyboard_interrupt_in_the_summariser_comes_through_and_changes_nothing() -> None:
    def interrupted(messages: list[dict[str, str]], most: int) -> str:
        raise KeyboardInterrupt

    context = filled(window=100_000)
    before = sent(context.prepare())
    with pytest.raises(KeyboardInterrupt):
        context.compact(summarize=interrupted)
    assert sent(context.prepare()) == before
    assert context.compact(summarize=ScriptedModel([SUMMARY]))


def test_undo_gives_back_every_byte() -> None:
    context = filled(window=100_000)
    before = context.prepare()
    folds = context.compact(summarize=ScriptedModel([SUMMARY]))
    assert context.undo() == tuple(Unfold(fold.id) for fold in folds)
    after = context.prepare()
    assert sent(after) == sent(before)
    assert after.tokens == before.tokens
    assert after.folds == (*folds, *(Unfold(fold.id) for fold in folds))


def test_undo_of_nested_folds_goes_back_one_by_one() -> None:
    context = Context(window=100_000)
    context.extend([*long_session(6), says("done")])
    plain = sent(context.prepare())
    context.compact(summarize=ScriptedModel([SUMMARY]))
    once = sent(context.prepare())
    context.extend([user("next"), *long_session(6)[1:], says("done again")])
    middle = sent(context.prepare())
    context.compact(summarize=ScriptedModel(["Goal: both."]))
    assert len(context.prepare().messages) == 1
    context.undo()
    assert sent(context.prepare()) == middle
    context.undo()
    again = context.prepare().messages
    assert json.dumps(again[:14], ensure_ascii=False) == plain
    assert once not in sent(context.prepare())
    assert context.undo() == ()


def test_undo_without_folds_does_nothing() -> None:
    context = filled(window=100_000)
    assert context.undo() == ()
    assert context.prepare().folds == ()


def test_explain_names_inner_and_outer_folds() -> None:
    context = Context(window=100_000)
    context.extend([*long_session(6), says("done")])
    (inner,) = context.compact(summarize=ScriptedModel([SUMMARY]))
    context.extend([user("next"), *long_session(6)[1:], says("done again")])
    (outer,) = context.compact(summarize=ScriptedModel(["Goal: both."]))
    assert context.explain(2) == (inner, outer)
    assert context.explain(20) == (outer,)
    assert (outer.start, outer.stop) == (0, 28)
    with pytest.raises(InvalidInput, match="no entry"):
        context.explain(1_000_000)


def test_every_fold_says_why_and_keeps_its_original() -> None:
    context = filled()
    entries = [event for event in context.events if isinstance(event, Entry)]
    folds = [fold for fold in context.prepare().folds if isinstance(fold, Fold)]
    assert folds
    for fold in folds:
        assert fold.reducer
        assert fold.reason
        assert fold.tokens < fold.before_tokens
        assert fold.archive
        assert [json.loads(data) for data in context.original(fold)] == [
            entry.recorded for entry in entries[fold.start : fold.stop]
        ]


def test_pinned_groups_survive_folding_and_compaction() -> None:
    context = Context(window=3_000, max_output_tokens=0)
    context.append(user("the plan: port 40412 stays open"), pinned=True)
    context.extend(long_session(40))
    context.prepare()
    context.append(says("done"))
    context.compact(summarize=ScriptedModel([SUMMARY] * 3))
    assert context.prepare().messages[0] == user("the plan: port 40412 stays open")


def test_a_pin_on_what_is_folded_is_refused() -> None:
    context = filled(window=100_000)
    context.compact(summarize=ScriptedModel([SUMMARY]))
    with pytest.raises(FoldRefused):
        context.pin(3)
    context.undo()
    context.pin(3)


@pytest.mark.parametrize("seq", [-1, 999])
def test_a_pin_on_nothing_is_refused(seq: int) -> None:
    with pytest.raises(InvalidInput):
        filled().pin(seq)


# --- facts ------------------------------------------------------------------------------------------------------------

FACT = "ticket QX-4471"


def remembering(words: str = f"remember {FACT} please. " + "and some more words " * 60, **settings: Any) -> Context:
    context = Context(window=20_000, facts=(FACT,), max_output_tokens=0, **settings)
    context.extend([user(words), says("I will"), *long_session(4)[1:], says("done")])
    return context


def test_a_fact_that_the_summary_misses_is_added_word_for_word() -> None:
    context = remembering()
    model = ScriptedModel([SUMMARY])
    context.compact(summarize=model)
    assert FACT in model.calls[0].text
    assert FACT in sent(context.prepare())


def test_a_fact_that_the_summary_holds_is_not_added_again() -> None:
    context = remembering()
    context.compact(summarize=ScriptedModel([f"Goal: solve {FACT}."]))
    assert sent(context.prepare()).count(FACT) == 1


def test_a_fact_that_was_never_said_is_not_added() -> None:
    context = remembering("nothing to remember. " * 60)
    context.compact(summarize=ScriptedModel([SUMMARY]))
    assert FACT not in sent(context.prepare())


def test_facts_are_kept_when_the_policy_summarises_too() -> None:
    context = Context(window=3_000, facts=(FACT,), max_output_tokens=0, policy="sliding")
    model = ScriptedModel([SUMMARY], repeat=True)
    context.append(user(f"remember {FACT} please. " + "and some more words " * 60))
    for number in range(20):
        context.extend([says("words " * 60), user(f"{number} " + "words " * 60)])
        context.prepare(model)
    assert model.calls
    assert FACT in sent(context.prepare())


def test_facts_outlive_a_second_compaction() -> None:
    # earendil-works/pi#2608: what the first compaction kept vanished at the second.
    context = remembering()
    for _ in range(3):
        context.compact(summarize=ScriptedModel([SUMMARY]))
        assert FACT in sent(context.prepare())
        context.extend([user("something else " * 40), says("yes " * 100)])


def test_a_fact_in_the_middle_of_a_long_result_is_kept() -> None:
    context = Context(window=20_000, facts=(FACT,), max_output_tokens=0, policy="confirm")
    context.extend(session(1, result="before " * 600 + FACT + " after" * 600))
    context.append(says("done"))
    context.compact(summarize=ScriptedModel([SUMMARY]))
    assert FACT in sent(context.prepare())


# --- what was kept outside a summary ----------------------------------------------------------------------------------


def test_the_second_summary_holds_what_the_first_left_standing() -> None:
    # earendil-works/pi#2608: u2..a3 were neither kept nor in the second summary.
    context = Context(window=3_000, max_output_tokens=0, policy="sliding")
    model = ScriptedModel([lambda messages, most: "Goal: " + str(len(messages[1]["content"]))], repeat=True)
    for number in range(40):
        context.extend(
            [user(f"request number {number} " + "words " * 40), says(f"answer number {number} " + "words " * 40)]
        )
        context.prepare(model)
    told = "\n".join(call.text for call in model.calls)
    shown = sent(context.prepare(model))
    for number in range(39):
        assert f"request number {number} " in told or f"request number {number} " in shown


def test_an_earlier_summary_is_updated_and_not_summarised_again() -> None:
    model = ScriptedModel([SUMMARY, "Goal: updated."])
    context = Context(window=20_000)
    context.extend([*long_session(4), says("done")])
    context.compact(summarize=model)
    context.extend([user("next " * 60), says("yes " * 100)])
    context.compact(summarize=model)
    second = model.calls[1].text
    assert "checkpoint so far" in second
    assert second.count(SUMMARY) == 1
    assert "[Previous conversation summary]" not in second
    assert "Fix the failing test." not in second.split("record", 1)[1], "the old messages are not sent again"
    assert [message["content"] for message in context.prepare().messages] == [
        "[Previous conversation summary]\nGoal: updated."
    ]


def test_three_compactions_the_last_inside_a_tool_loop_leave_a_valid_request() -> None:
    # earendil-works/pi#6832: after several compactions the kept part began with a result of a call from before.
    context = Context(window=100_000)
    context.extend([*long_session(6), says("done"), user("next")])
    for number in range(3):
        context.extend(session(6, result=LINES)[1:-1] if number == 2 else [*session(6, result=LINES)[1:], says("ok")])
        context.compact(summarize=ScriptedModel([f"Goal: number {number}."] * 3))
        request = context.prepare()
        assert check(request.messages) == []
        context.append(user("go on") if number < 2 else session(6, result="the last result")[-1])
    request = context.prepare()
    assert check(request.messages) == []
    assert "the last result" in sent(request), "the call that waited got its result"


def test_keeping_the_newest_message_keeps_the_call_that_it_answers() -> None:
    # pydantic/pydantic-ai#2050: a processor that kept messages[-1:] cut the call of the result.
    policy = replace(POLICIES["confirm"], compactor=Summarize(keep_messages=1, least_tokens=16))
    context = Context(window=100_000, policy=policy)
    context.extend(long_session(6))
    context.compact(summarize=ScriptedModel([SUMMARY]))
    request = context.prepare()
    assert [message["role"] for message in request.messages] == ["user", "assistant", "user", "assistant", "tool"]
    assert check(request.messages) == []


# --- events -----------------------------------------------------------------------------------------------------------


def test_folding_is_told_from_start_to_end_with_the_figures() -> None:
    heard = Heard()
    context = filled(on_event=heard.append)
    before = context.view.message_count
    request = context.prepare()
    (started,), (finished,) = heard.of(FoldStarted), heard.of(FoldFinished)
    assert started.messages == before
    assert started.tokens > finished.tokens == request.tokens
    assert finished.folds == request.folds[-len(finished.folds) :]


def test_compaction_is_told_with_its_failure() -> None:
    heard = Heard()
    context = filled(window=100_000, on_event=heard.append)
    with pytest.raises(SummaryError):
        context.compact(summarize=ScriptedModel([""]))
    assert [event.name for event in heard] == ["fold_started", "fold_failed", "fold_finished"]
    (finished,) = heard.of(FoldFinished)
    assert (finished.folds, finished.error) == ((), "the summary is empty")
    assert finished.tokens == finished.tokens_before == context.view.tokens


def test_the_threshold_is_reported_after_each_reply_and_nothing_is_folded() -> None:
    heard = Heard()
    context = Context(window=10_000, max_output_tokens=0, policy="confirm", on_event=heard.append)
    context.append(user("go on. " * 1_000))
    while context.view.tokens < 8_700:
        context.extend([says("words " * 20), user("and?")])
    for turn in range(1, 4):
        assert context.prepare().folds == ()
        assert len(heard.of(ThresholdReached)) == turn
        context.extend([says("ok"), user("and?")])
    event = heard.of(ThresholdReached)[0]
    assert event.utilization == event.used_tokens / event.window_tokens > 0.85


# --- async ------------------------------------------------------------------------------------------------------------


def run(steps: Any) -> Any:
    return asyncio.run(steps)


def test_the_async_twins_do_the_same() -> None:
    async def both() -> tuple[str, str]:
        one, two = filled(), filled()
        model = ScriptedModel([SUMMARY], repeat=True)
        first = await one.prepare_async(model.acall)
        second = two.prepare(ScriptedModel([SUMMARY], repeat=True))
        await one.compact_async("ports", summarize=model.acall)
        two.compact("ports", summarize=ScriptedModel([SUMMARY], repeat=True))
        assert sent(first) == sent(second)
        return sent(one.prepare()), sent(two.prepare())

    first, second = run(both())
    assert first == second


def test_a_plain_function_will_do_for_the_async_twins() -> None:
    async def go() -> tuple[Fold, ...]:
        return await filled(window=100_000).compact_async(summarize=ScriptedModel([SUMMARY]))

    assert len(run(go())) == 1


def test_what_is_appended_while_a_summary_is_written_stays() -> None:
    # openai/codex#13946: items recorded during the summary call were overwritten.
    async def go() -> Request:
        context = Context(window=100_000)
        context.extend([*long_session(10), says("done")])

        async def slow(messages: list[dict[str, str]], most: int) -> str:
            context.append(user("by the way"))
            return SUMMARY

        await context.compact_async(summarize=slow)
        return context.prepare()

    request = run(go())
    assert request.messages[-1] == user("by the way")
    assert "[Previous conversation summary]" in sent(request)
    assert check(request.messages) == []


def test_what_is_appended_in_the_summariser_stays_in_the_sync_form_too() -> None:
    context = filled(policy="sliding")

    def summarise(messages: list[dict[str, str]], most: int) -> str:
        context.append(user("by the way"))
        return SUMMARY

    request = context.prepare(summarise)
    assert "by the way" in sent(request)
    assert request.tokens <= 3_600
    assert check(request.messages) == []


def test_a_late_result_that_arrives_meanwhile_is_not_lost() -> None:
    async def go() -> tuple[Request, Context]:
        context = Context(window=100_000)
        turn = BUILDERS["openai-chat"].turn(["slow"], ["the late result"], "words", None)
        context.extend([*long_session(10), says("done"), user("start"), turn[0], user("and?"), says("wait " * 100)])

        async def slow(messages: list[dict[str, str]], most: int) -> str:
            context.append(turn[1])
            return SUMMARY

        try:
            await context.compact_async(summarize=slow)
        except SummaryError:
            assert "[Previous conversation summary]" not in sent(context.prepare())
        return context.prepare(), context

    request, context = run(go())
    assert check(request.messages) == []
    assert "the late result" in str([e.recorded for e in context.events if isinstance(e, Entry)])


@pytest.mark.parametrize("call", ["compact", "prepare"])
def test_a_cancelled_summary_leaves_every_byte_as_it_was(call: str) -> None:
    # NousResearch/hermes-agent#79391: an interrupted compaction deleted earlier history.
    async def go() -> tuple[str, str, Context]:
        context = Context(window=100_000 if call == "compact" else 4_000, max_output_tokens=0, policy="sliding")
        context.extend([*long_session(12), says("done")])
        context.compact(summarize=ScriptedModel([SUMMARY], repeat=True))
        context.extend([user("next"), *long_session(26)[1:]])
        before = json.dumps(context.view.wires()[0])
        started = asyncio.Event()

        async def never(messages: list[dict[str, str]], most: int) -> str:
            started.set()
            await asyncio.sleep(3_600)
            return SUMMARY

        steps = context.compact_async(summarize=never) if call == "compact" else context.prepare_async(never)
        task = asyncio.ensure_future(steps)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return before, json.dumps(context.view.wires()[0]), context

    before, after, context = run(go())
    assert after == before
    assert context.prepare().tokens <= context.limits.input_tokens


def test_a_compaction_that_fails_beside_a_waiting_prepare_breaks_neither() -> None:
    async def go() -> tuple[Context, Request]:
        context = Context(window=4_000, max_output_tokens=0, policy="sliding")
        context.extend([*long_session(30), says("done")])
        gate, started = asyncio.Event(), asyncio.Event()

        async def slow(messages: list[dict[str, str]], most: int) -> str:
            started.set()
            await gate.wait()
            return SUMMARY

        task = asyncio.create_task(context.prepare_async(slow))
        await started.wait()
        with pytest.raises(SummaryError):
            context.compact(summarize=ScriptedModel([""]))
        gate.set()
        return context, await task

    context, request = run(go())
    assert "[Previous conversation summary]" in sent(request)
    assert len(context.undo()) == len(request.folds)


def test_two_prepares_at_once_lose_nothing() -> None:
    async def go() -> tuple[Context, Request, Request]:
        context = Context(window=4_000, max_output_tokens=0, policy="sliding")
        context.extend([*long_session(30), user("and now?")])

        async def slow(messages: list[dict[str, str]], most: int) -> str:
            await asyncio.sleep(0)
            return SUMMARY

        one, two = await asyncio.gather(context.prepare_async(slow), context.prepare_async(slow))
        return context, one, two

    context, one, two = run(go())
    for request in (one, two):
        assert check(request.messages) == []
        assert request.tokens <= 3_600
        assert request.messages[-1] == user("and now?")
    assert len([event for event in context.events if isinstance(event, Entry)]) == 62


# --- bytes ------------------------------------------------------------------------------------------------------------


def shots(rounds: int, size: int = 4_000) -> list[Wire]:
    url = "data:image/png;base64," + "A" * size
    out = [user("watch the page")]
    for n in range(rounds):
        function = {"name": "screenshot", "arguments": json.dumps({"n": n})}
        out.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            }
        )
        image = [{"type": "text", "text": f"shot {n}"}, {"type": "image_url", "image_url": {"url": url}}]
        out.append({"role": "tool", "tool_call_id": f"c{n}", "content": image})
    return out


def test_a_byte_budget_evicts_the_oldest_images() -> None:
    # openai/codex#41338: ten screenshots of 4 MB passed the token meter and failed by size.
    context = Context(window=1_000_000, max_request_bytes=20_000)
    context.extend(shots(10))
    request = context.prepare()
    assert len(json.dumps(request.messages, separators=(",", ":"))) <= 20_000
    assert "image_url" in sent(request).rsplit("shot 9", 1)[1], "the newest stays"
    assert "image_url" not in sent(request).split("shot 1", 1)[0]
    assert {fold.reducer for fold in request.folds if isinstance(fold, Fold)} == {"images"}
    assert check(request.messages) == []


def test_a_byte_budget_counts_system_text_tools_and_commas() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 900}}]
    for limit in range(3_000, 3_400, 23):
        context = Context(window=1_000_000, max_request_bytes=limit, system="s" * 700, tools=tools)
        context.extend([part for n in range(60) for part in (user(f"hello {n}"), says("hi"))])
        context.append(user("last"))
        request = context.prepare()
        body = {"system": request.system, "tools": request.tools, "messages": request.messages}
        assert len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()) <= limit


def test_a_byte_budget_below_what_must_stay_says_so_in_bytes() -> None:
    # docker/docker-agent PR#2819: a 413 was handled by compaction that sent the same bytes again.
    context = Context(window=10_000_000, max_request_bytes=5_000)
    context.append(user("x" * 20_000))
    with pytest.raises(DoesNotFit) as info:
        context.prepare(ScriptedModel([]))
    assert info.value.unit == "bytes"
    assert info.value.limit == 5_000
    assert info.value.floor_tokens > 20_000


# --- archives ---------------------------------------------------------------------------------------------------------


def in_memory(_: Path) -> MemoryArchive:
    return MemoryArchive()


@pytest.mark.parametrize("make", [in_memory, FileArchive])
def test_any_archive_keeps_the_originals(make: Callable[[Path], Any], tmp_path: Path) -> None:
    archive = make(tmp_path)
    context = filled(archive=archive)
    for fold in context.prepare().folds:
        assert isinstance(fold, Fold)
        assert fold.archive in archive
        assert len(context.original(fold)) == fold.stop - fold.start


@pytest.mark.parametrize("make", [in_memory, FileArchive])
def test_a_spilled_output_is_read_by_the_key_in_its_notice(make: Callable[[Path], Any], tmp_path: Path) -> None:
    archive = make(tmp_path)
    output = "".join(f"line {n} of the größer output\n" for n in range(12_000))
    context = Context(window=1_000_000, policy="checkpoint", archive=archive)
    context.extend(session(1, result=output))
    shown = context.prepare().messages[2]["content"]
    key = shown.split("SHA-256 ", 1)[1][:64]
    assert archive.where(key) in shown
    assert archive.get(key).decode() == output
    assert len(shown) < 4_000


# --- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_log_leads_to_the_same_state(dialect: str) -> None:
    settings: dict[str, Any] = {"dialect": dialect, "window": 4_000, "max_output_tokens": 0}
    context = Context(**settings)
    wires = long_session(30, dialect)
    context.extend(wires)
    context.prepare()
    context.undo()
    context.pin(2)
    context.sync([*wires[:40], *BUILDERS[dialect].user("another way", False)])
    context.prepare()
    context.observe({"input_tokens": 3_000})
    again = Context.replay(context.events, **settings)
    assert again.view.wires()[0] == context.view.wires()[0]
    assert again.view.entries_and_folds == context.view.entries_and_folds
    assert again.events == context.events


def test_a_replayed_session_names_no_fold_again_that_was_in_a_request() -> None:
    """The log of calls counts the folds of each request: a session that is resumed has not made them all anew."""
    context = Context(window=4_000, max_output_tokens=0)
    context.extend(long_session(30, "openai-chat"))
    assert context.prepare().folds
    context.observe({"input_tokens": 2_000, "output_tokens": 5})
    again = Context.replay(context.events, window=4_000, max_output_tokens=0)
    again.append(user("go on"))
    context.append(user("go on"))
    assert again.prepare().folds == context.prepare().folds == ()


class Alike:
    """A counter to which all texts are of one size."""

    scaled = True

    def text(self, text: str) -> int:
        return 3


def test_a_fold_that_was_made_holds_whatever_the_counter_of_now_says() -> None:
    """Settings may choose another counter for a session that is resumed: what was decided stays decided."""
    context = Context(window=4_000, max_output_tokens=0)
    context.extend(long_session(30, "openai-chat"))
    context.prepare()
    folds = [event for event in context.events if isinstance(event, Fold)]
    again = Context.replay(context.events, window=4_000, max_output_tokens=0, counter=Alike())
    assert folds
    assert [event.id for event in again.events if isinstance(event, Fold)] == [fold.id for fold in folds]
    assert again.view.wires()[0] == context.view.wires()[0]
    assert again.undo() == context.undo()


def test_hidden_messages_are_hidden_after_a_replay() -> None:
    context = Context(window=10_000)
    context.append(user("seen"))
    context.append(user("hidden"), agent_visible=False)
    context.append(user("for the agent"), user_visible=False, kind="notice")
    again = Context.replay(context.events, window=10_000)
    assert again.view.wires()[0] == context.view.wires()[0]
    assert unjoined(context.view.wires()[0]) == [user("seen"), user("for the agent")]
    assert [e.message for e in again.events if isinstance(e, Entry)] == [
        e.message for e in context.events if isinstance(e, Entry)
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_broken_message_that_was_hidden_is_hidden_after_a_replay(dialect: str) -> None:
    broken = {**BUILDERS[dialect].user("a secret", False)[0], "role": "critic"}
    context = Context(dialect=dialect, window=10_000)
    context.extend(BUILDERS[dialect].user("seen", False))
    context.append(broken, agent_visible=False)
    again = Context.replay(context.events, dialect=dialect, window=10_000)
    assert again.view.wires()[0] == context.view.wires()[0]
    assert "a secret" not in str(again.view.wires()[0])


def test_the_caller_keeps_a_log_that_only_grows() -> None:
    context = filled()
    seen: Sequence[object] = ()
    for step in (context.prepare, context.undo, context.prepare):
        step()
        assert context.events[: len(seen)] == seen
        seen = context.events


def test_released_entries_leave_memory_and_their_events_stay_countable() -> None:
    context = Context(window=2_000, max_output_tokens=0, policy="balanced")
    context.append({"role": "user", "content": "Read the files."})
    written: list[object] = []
    for number in range(200):
        context.append({"role": "assistant", "content": f"Step {number}: " + "word " * 40})
        context.append({"role": "user", "content": f"Go on with {number}."})
        context.prepare()
        written += context.events_after(len(written))
        context.release()
    assert len(context.view.entries) < 60
    assert len(context.events) < 100
    assert context.event_count == len(written) > 400
    with pytest.raises(InvalidInput, match="released"):
        context.sync([{"role": "user", "content": "something else"}])
    with pytest.raises(InvalidInput, match="from"):
        context.events_after(0)


def test_compacting_without_a_model_puts_a_digest_in_place() -> None:
    context = Context(window=4_000, max_output_tokens=0)
    for number in range(20):
        context.append({"role": "user", "content": f"Question {number} about the parser in src/parse.py"})
        context.append({"role": "assistant", "content": f"Answer {number}: " + "detail " * 30})
    context.prepare()
    context.observe({"prompt_tokens": 900, "completion_tokens": 9})
    before = context.view.tokens
    folds = context.compact(summarize=None)
    assert [fold.shown[0].kind for fold in folds] == ["digest"]
    assert context.figures.total_prompt_tokens == context.figures.last_prompt_tokens == 0
    assert context.view.tokens < before / 2
    assert "Question 19" in str(context.prepare().messages)


def test_limits_that_were_learned_are_in_the_log() -> None:
    context = Context(window=100_000, max_output_tokens=1_000)
    context.extend([{"role": "user", "content": "word " * 9_000}, {"role": "assistant", "content": "ok"}])
    context.append({"role": "user", "content": "go on"})
    context.prepare()
    body = {"error": {"code": "context_length_exceeded", "message": "maximum context length is 8192 tokens"}}
    context.recover(classify(400, body))
    assert context.limits.window_tokens == 8_192
    again = Context.replay(context.events, window=100_000, max_output_tokens=1_000)
    assert again.limits == context.limits


def test_economical_folds_when_the_cache_has_gone_cold() -> None:
    """Then everything is written again anyway: a fold breaks nothing. Within the lifetime of 300 s it waits."""

    def folds(idle_seconds: float) -> int:
        context = Context(dialect="anthropic", policy="economical", window=60_000, max_output_tokens=0)
        context.extend(session(40, result="word " * 400, dialect="anthropic"))
        assert not context.prepare().folds
        context.append({"role": "assistant", "content": "Done."})
        context.append({"role": "user", "content": "And now?"})
        return len(context.prepare(idle_seconds=idle_seconds).folds)

    assert folds(299) == 0
    assert folds(300) > 0


# --- reports and listeners that are wrong -----------------------------------------------------------------------------


def test_a_report_that_cannot_be_true_is_told_once_in_a_row_and_changes_nothing() -> None:
    heard = Heard()
    context = Context(window=100_000, on_event=heard.append)
    context.extend(long_session(60))
    size = context.prepare().tokens
    for reported in (0, 10 * size, size, 1):
        found = context.observe({"prompt_tokens": reported, "completion_tokens": 10})
        assert bool(found.doubt) == (reported != size)
        assert context.view.tokens == size
    assert [event.reported_tokens for event in heard.of(UsageDoubted)] == [0]
    assert [event.reported_tokens for event in heard.of(SilentTruncation)] == [1]
    again = Context.replay(context.events, window=100_000)
    assert again.view.tokens == size


def test_requests_go_on_being_numbered_after_a_replay() -> None:
    context = Context(window=100_000)
    context.extend(long_session(10))
    for _ in range(3):
        size = context.prepare().tokens
        context.observe({"prompt_tokens": size})
    again = Context.replay(context.events, window=100_000)
    again.prepare()
    assert again.observe({"prompt_tokens": size}).request == 4


def test_a_listener_that_raises_breaks_nothing_and_is_told_of_once() -> None:
    def deaf(event: ContextEvent) -> None:
        raise RuntimeError("no ears")

    def act(context: Context) -> Context:
        context.append({"role": "tool", "tool_call_id": "stray", "content": "of no call"})
        context.extend([*long_session(60), user("and now?")])
        request = context.prepare(ScriptedModel([SUMMARY], repeat=True))
        context.observe({"prompt_tokens": 10 * request.tokens})
        context.compact(summarize=ScriptedModel([SUMMARY[:-1]], repeat=True))
        return context

    with pytest.warns(RuntimeWarning, match="on_event raised RuntimeError: no ears") as warned:
        context = act(Context(window=4_000, max_output_tokens=0, on_event=deaf))
    assert len(warned) == 1
    assert context.events == act(Context(window=4_000, max_output_tokens=0)).events


def test_an_interrupt_in_a_listener_goes_on() -> None:
    def stop(event: ContextEvent) -> None:
        raise KeyboardInterrupt

    context = Context(window=4_000, on_event=stop)
    context.extend([*long_session(60), user("and now?")])
    with pytest.raises(KeyboardInterrupt):
        context.prepare()
