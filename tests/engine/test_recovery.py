"""What is done after a provider refused a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.events import ContextEvent, LimitLearned
from foldline.engine.one_shot import check
from foldline.engine.recovery import Recovery
from foldline.errors import DoesNotFit
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.messages import Wire
from foldline.testing import ScriptedModel, session
from foldline.view.transcript import Fold, Usage

DIALECTS = ("openai-chat", "openai-responses", "anthropic")


def filled(rounds: int = 30, window: int = 100_000, dialect: str = "openai-chat", **settings: Any) -> Context:
    settings = {"max_output_tokens": 0, **settings}
    context = Context(window=window, dialect=dialect, **settings)
    context.extend(session(rounds, result="a line of a result that was read\n" * 12, dialect=dialect))
    context.prepare()
    return context


def overflow(limit: int | None = None, requested: int | None = None) -> Failure:
    return Failure("prompt_overflow", limit=limit, limit_of="window" if limit else None, requested=requested)


def sent(context: Context) -> str:
    return json.dumps(context.view.wires()[0])


# --- what is not about size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rate", "quota", "auth", "malformed", "ambiguous", "other"])
def test_what_is_not_about_size_changes_nothing(kind: Any) -> None:
    # anomalyco/opencode#13015: a daily quota was taken for an overflow, and history was lost.
    context = filled()
    before, size = sent(context), context.view.tokens
    assert context.recover(Failure(kind, limit=1_000, limit_of="window")) == Recovery(
        action="none", retry=False, tokens_before=size, tokens_after=size
    )
    assert sent(context) == before
    assert context.limits.window_tokens == 100_000


def test_an_empty_400_on_a_small_request_changes_nothing() -> None:
    # earendil-works/pi#4940: every empty 400 triggered a compaction.
    context = filled(2)
    failure = classify(400, None, estimate=context.view.tokens, window=100_000)
    assert context.recover(failure).action == "none"


def test_an_empty_400_near_the_window_is_an_overflow() -> None:
    context = filled(30, 4_400)
    failure = classify(400, None, estimate=4_200, window=4_400)
    assert context.recover(failure).action == "fold"


# --- the output is at fault -------------------------------------------------------------------------------------------


def test_an_output_that_does_not_fit_beside_the_input_is_lowered_and_history_stays() -> None:
    # earendil-works/pi#8061: input at 78 % was refused because the output shares the window.
    context = filled(900, 60_000, max_output_tokens=20_000)
    before = sent(context)
    failure = Failure(
        "output_overflow", limit=60_000, limit_of="window", requested=68_000, input_tokens=48_000, output_tokens=20_000
    )
    done = context.recover(failure)
    assert (done.action, done.retry) == ("lower_output", True)
    assert sent(context) == before
    request = context.prepare()
    assert 0 < request.max_output_tokens <= 12_000
    assert request.folds == ()


def test_an_output_as_large_as_the_window_is_lowered_and_never_folds() -> None:
    # OpenHands/OpenHands#9937: window = max output = 131,072 condensed for ever.
    context = filled(60, 131_072, max_output_tokens=120_000)
    body = (
        "This model's maximum context length is 131072 tokens. However, you requested 138956 tokens "
        "(7884 in the messages, 131072 in the completion). Please reduce the length of the messages or completion."
    )
    failure = classify(400, {"error": {"message": body}})
    assert failure.kind == "output_overflow"
    before = context.events
    assert context.recover(failure).action == "lower_output"
    assert not [event for event in context.events[len(before) :] if isinstance(event, Fold)]


def test_at_least_figures_are_lower_bounds_and_lower_the_output() -> None:
    # AIDotNet/OpenCowork#82: "at least" is the window plus one; cutting by the difference freed one token a try.
    body = (
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and "
        "your prompt contains at least 134145 input tokens, for a total of at least 262145 tokens."
    )
    failure = classify(400, {"error": {"message": body}}, estimate=30_000, window=262_144)
    assert failure.lower_bound
    context = filled(60, 262_144, max_output_tokens=128_000)
    before = sent(context)
    assert context.recover(failure).action == "lower_output"
    assert sent(context) == before


def test_the_cap_that_the_error_names_is_taken() -> None:
    context = filled(3, max_output_tokens=64_000)
    done = context.recover(Failure("output_overflow", limit=8_192, limit_of="output"))
    assert done.action == "lower_output"
    assert context.limits.max_output_tokens == 8_192
    assert done.limit is None, "an output cap is no window"


def test_lowering_the_output_ends() -> None:
    context = filled(3, max_output_tokens=64_000)
    caps = [context.limits.max_output_tokens]
    for _ in range(40):
        try:
            context.recover(Failure("output_overflow"))
        except DoesNotFit:
            break
        caps.append(context.limits.max_output_tokens)
    else:
        pytest.fail("it goes on for ever")
    assert caps[:6] == sorted(caps[:6], reverse=True)


def test_switched_off_the_output_is_lowered_all_the_same() -> None:
    context = filled(3, max_output_tokens=64_000, auto=False)
    assert context.recover(Failure("output_overflow", limit=8_192, limit_of="output")).action == "lower_output"


# --- the input is at fault --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_recovery_sends_less_and_in_the_end_the_floor_is_named(dialect: str) -> None:
    # strands-agents/harness-sdk#3338: 965 refused calls, because nothing checked that anything shrank.
    # aaif-goose/goose PR#10500: the same oversized prompt was sent five times.
    context = filled(40, 100_000, dialect)
    sizes = [context.view.tokens]
    for _ in range(60):
        try:
            done = context.recover(overflow())
        except DoesNotFit:
            break
        assert done.retry
        assert done.tokens_before == sizes[-1]
        request = context.prepare()
        assert request.tokens == done.tokens_after < sizes[-1]
        assert check(request.messages, dialect=dialect) == []
        sizes.append(request.tokens)
    else:
        pytest.fail("it goes on for ever")
    assert len(sizes) <= 25
    assert sizes[-1] < 0.1 * sizes[0]


def test_protected_messages_that_exceed_the_window_end_at_once() -> None:
    context = Context(window=100_000, max_output_tokens=0)
    for number in range(10):
        context.append({"role": "user", "content": f"{number} " + "words " * 200}, pinned=True)
    context.prepare()
    with pytest.raises(DoesNotFit, match="nothing more can be reduced"):
        context.recover(overflow())


def test_the_numbers_of_the_error_say_how_much_has_to_go() -> None:
    context = filled(60, 100_000)
    size = context.view.tokens
    done = context.recover(overflow(limit=size // 2, requested=size))
    assert done.tokens_after <= 0.9 * size / 2
    assert context.limits.window_tokens == size // 2


def test_without_numbers_a_quarter_goes() -> None:
    context = filled(60)
    done = context.recover(overflow())
    assert done.tokens_after <= 0.75 * done.tokens_before


def test_the_newest_request_survives_every_rung() -> None:
    context = filled(20)
    context.append({"role": "assistant", "content": "done"})
    context.append({"role": "user", "content": "and what about port 40412?"})
    context.prepare()
    for _ in range(60):
        try:
            context.recover(overflow())
        except DoesNotFit:
            break
        assert context.prepare().messages[-1] == {"role": "user", "content": "and what about port 40412?"}


def test_the_largest_result_is_shortened_before_turns_are_dropped() -> None:
    # strands-agents/harness-sdk#4341: only the oldest result was tried; the huge newer one stayed, and turns were lost.
    context = Context(window=200_000, max_output_tokens=0, policy="confirm")
    wires = session(3, result="small " * 50)
    wires[-1] = {**wires[-1], "content": "huge " * 60_000}
    context.extend(wires)
    context.recover(overflow())
    request = context.prepare()
    assert request.tokens <= 0.75 * 60_000 + 1_000
    assert request.messages[:-1] == wires[:-1]


def test_recovery_asks_no_model_and_is_undone_as_one() -> None:
    context = filled(40)
    before = sent(context)
    context.recover(overflow())
    assert sent(context) != before
    context.undo()
    assert sent(context) == before


def test_folds_of_a_recovery_are_reported_with_the_next_request() -> None:
    context = filled(40)
    context.recover(overflow())
    folds = context.prepare().folds
    assert folds
    assert context.prepare().folds == ()


def test_a_request_too_large_for_a_rate_is_shrunk_below_it() -> None:
    # Aider-AI/aider#1880, continuedev/continue#10218: retried as a rate limit, it could never succeed.
    context = filled(300, 100_000)
    assert context.view.tokens > 9_000
    message = "Request too large for gpt-4 on tokens per min (TPM): Limit 8000, Requested 16278."
    failure = classify(429, {"error": {"message": message, "code": "rate_limit_exceeded"}})
    done = context.recover(failure)
    assert (done.action, done.limit) == ("fold", 8_000)
    assert context.prepare().tokens <= 7_200
    assert context.limits.window_tokens == 100_000


# --- learning ---------------------------------------------------------------------------------------------------------


def test_a_limit_is_learned_per_endpoint_and_model_and_told() -> None:
    heard: list[ContextEvent] = []
    learned: dict[tuple[str, str], int] = {}
    context = filled(
        300, 100_000, endpoint="here", model="gpt-4o", learned=learned, on_event=heard.append, max_output_tokens=100
    )
    body = "This model's maximum context length is 8192 tokens. However, your messages resulted in 11000 tokens."
    context.recover(classify(400, {"error": {"message": body}}))
    assert learned == {("here", "gpt-4o"): 8_192}
    assert [event for event in heard if isinstance(event, LimitLearned)] == [LimitLearned(8_192, "window", "here")]
    assert context.prepare().tokens <= 0.9 * 8_192
    assert Context(endpoint="here", model="gpt-4o", learned=learned).limits.window_tokens == 8_192


@pytest.mark.parametrize("limit", [1, 100, 255])
def test_an_implausible_limit_is_a_misread_number(limit: int) -> None:
    # openai/codex#26783: wrong window metadata compacted every turn.
    learned: dict[tuple[str, str], int] = {}
    context = filled(learned=learned)
    assert context.recover(overflow(limit=limit, requested=10_000)).limit is None
    assert context.limits.window_tokens == 100_000
    assert learned == {}


def test_a_report_that_can_be_read_in_two_ways_does_not_speak_against_a_limit() -> None:
    # More tokens are cached than there are: read with these beside the input, more was answered than the window holds.
    context = filled(60)
    tokens = context.prepare().tokens
    read = context.observe(Usage(input_tokens=int(0.3 * tokens), cached_tokens=int(0.68 * tokens)))
    assert read.input_tokens > 0.9 * tokens
    limit = int(0.78 * tokens)
    assert context.recover(overflow(limit=limit, requested=tokens)).limit == limit
    assert context.limits.window_tokens == limit


def test_a_rate_is_not_learned_as_a_window() -> None:
    learned: dict[tuple[str, str], int] = {}
    context = filled(60, learned=learned)
    context.recover(Failure("request_too_large_for_rate", limit=3_000, requested=9_000))
    context.recover(Failure("request_too_large_for_rate", limit=2_000, limit_of="rate", requested=9_000))
    assert learned == {}


def test_a_limit_above_the_window_does_not_raise_it() -> None:
    context = filled(60, 10_000)
    context.recover(overflow(limit=200_000, requested=210_000))
    assert context.limits.window_tokens == 10_000


def test_a_learned_limit_below_the_output_cap_leaves_room_for_input() -> None:
    context = filled(30, 100_000, max_output_tokens=16_000)
    context.recover(overflow(limit=8_000, requested=20_000))
    assert context.limits.max_output_tokens <= 4_000
    assert context.prepare().tokens <= context.limits.input_tokens


# --- images and bytes -------------------------------------------------------------------------------------------------


def pictures(count: int) -> list[Wire]:
    out: list[Wire] = []
    for number in range(count):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000}}
        out.append({"role": "user", "content": [{"type": "text", "text": f"picture {number}"}, image]})
        out.append({"role": "assistant", "content": "I see"})
    return out


def test_too_many_bytes_cost_the_old_images_and_no_text() -> None:
    # docker/docker-agent PR#2819: a 413 was answered by a compaction that sent the same bytes again.
    context = Context(window=1_000_000)
    context.extend(pictures(5))
    before = len(json.dumps(context.prepare().messages))
    done = context.recover(classify(413, "Request Entity Too Large", estimate=4_000, window=1_000_000))
    assert done.action == "images"
    request = context.prepare()
    assert len(json.dumps(request.messages)) < before - 2_500
    assert all(f"picture {number}" in json.dumps(request.messages) for number in range(5))
    assert "image_url" in json.dumps(request.messages[-2]), "the newest stays"


def test_too_many_bytes_without_images_fold_text() -> None:
    context = filled(40)
    done = context.recover(Failure("bytes_overflow"))
    assert done.action == "fold"
    assert done.tokens_after < done.tokens_before


def test_too_many_bytes_in_the_newest_request_are_said() -> None:
    context = Context(window=10_000_000)
    context.append({"role": "user", "content": "x " * 100_000})
    context.prepare()
    with pytest.raises(DoesNotFit):
        context.recover(Failure("bytes_overflow"))


def test_bytes_recoveries_end() -> None:
    context = Context(window=1_000_000)
    context.extend([*pictures(4), *session(10)])
    context.prepare()
    for _ in range(60):
        try:
            done = context.recover(Failure("bytes_overflow"))
        except DoesNotFit:
            break
        assert done.tokens_after < done.tokens_before
    else:
        pytest.fail("it goes on for ever")


def test_a_refused_image_leaves_and_then_nothing_more_can_be_done() -> None:
    context = Context(window=1_000_000)
    context.extend([*pictures(2), {"role": "user", "content": "so?"}])
    context.prepare()
    failure = Failure("image")
    assert context.recover(failure).action == "images"
    assert sent(context).count('"image_url": {') == 1, "the newest stays for now"
    assert context.recover(failure).action == "images"
    assert "image_url" not in sent(context)
    with pytest.raises(DoesNotFit, match="no image may be removed"):
        context.recover(failure)


def test_the_image_of_the_newest_request_gives_way_to_a_line_and_its_words_stay() -> None:
    context = Context(window=1_000_000)
    context.extend(pictures(1)[:1])
    context.prepare()
    assert context.recover(Failure("image")).retry
    [message] = context.prepare().messages
    assert [block["text"] for block in message["content"]] == ["picture 0", "[image removed: the provider refused it]"]


# --- limits that contradict what was taken ----------------------------------------------------------------------------


def test_a_limit_far_below_what_was_taken_counts_for_one_request_alone() -> None:
    learned: dict[tuple[str, str], int] = {}
    context = filled(60, learned=learned)
    size = context.view.tokens
    context.observe({"prompt_tokens": size, "completion_tokens": 5, "total_tokens": size + 5})
    context.append({"role": "assistant", "content": "done"})
    context.append({"role": "user", "content": "and now?"})
    context.prepare()
    done = context.recover(overflow(limit=size // 3, requested=size))
    assert (done.retry, done.limit) == (True, None)
    assert context.limits.window_tokens == 100_000
    assert learned == {}
    assert done.tokens_after <= size // 3
    again = context.prepare().tokens
    context.observe({"prompt_tokens": again, "completion_tokens": 5, "total_tokens": again + 5})
    assert context.recover(overflow(limit=size // 3, requested=size)).limit == size // 3, (
        "nothing larger was taken since"
    )


# --- with a policy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", ["autopilot", "sliding", "checkpoint", "layered", "confirm", "balanced", "economical"]
)
def test_every_policy_recovers(policy: str) -> None:
    context = filled(40, policy=policy)
    done = context.recover(overflow())
    assert done.tokens_after < done.tokens_before
    assert check(context.prepare(ScriptedModel(["Goal: go on."], repeat=True)).messages) == []
