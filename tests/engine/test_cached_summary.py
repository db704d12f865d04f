"""Summaries that are asked for by going on from the request that was sent last: when, with what, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from foldline import Completion, Context, ProviderError, Request, SummaryError, check
from foldline.catalog.models import CACHE_RULES
from foldline.engine.events import ContextEvent, FoldFinished
from foldline.engine.presets import checkpoint, policy
from foldline.engine.settings import CheckpointSettings
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.reducers.mask import Mask
from foldline.testing.scripted_model import session
from foldline.view.budget import TokenLimits
from foldline.view.origins import OURS
from foldline.view.transcript import Usage

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
CHECKPOINT = "Goal: fix the test. Done: the files were read. Facts: the port is 8443."
SYSTEM = "You are terse."


@dataclass
class Model:
    """A summariser that can go on, and remembers how it was asked."""

    dialect: str = "openai-chat"
    model: str = "m"
    answer: Any = CHECKPOINT
    requests: list[Request] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str:
        self.prompts.append("\n".join(message["content"] for message in messages))
        return CHECKPOINT

    def continued(self, request: Request, /) -> Any:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


def context(dialect: str = "openai-chat", **given: Any) -> Context:
    """A session whose policy summarises before it does anything else."""
    usual = {
        "dialect": dialect,
        "model": "m",
        "policy": "sliding",
        "window": 16_000,
        "max_output_tokens": 500,
        "system": SYSTEM,
    }
    return Context(**{**usual, "cache_rule": CACHE_RULES["anthropic"], **given})


def go_on(
    ctx: Context, model: Any, rounds: int = 40, *, sent: Callable[[Context], object] | None = None, **given: Any
) -> None:
    """Rounds of calls whose results fill the window; a request after each."""
    messages = session(rounds, result="This line is in order. " * 110, dialect=ctx.dialect)
    for at in range(1, len(messages), 2):
        if at == 1:
            ctx.append(messages[0])
        ctx.extend(messages[at : at + 2])
        ctx.prepare(model, **given)
        if sent is not None:
            sent(ctx)


def text_of(request: Request) -> str:
    return str(request.messages[-1])


@every_dialect
def test_a_question_is_the_request_before_it_and_one_message(dialect: str) -> None:
    model, ctx = Model(dialect), context(dialect)
    pairs: list[tuple[Request, Request]] = []
    before: Request | None = None
    for at, wire in enumerate(session(40, result="This line is in order. " * 110, dialect=dialect)):
        ctx.append(wire)
        if at % 2 == 0:
            asked = len(model.requests)
            now = ctx.prepare(model)
            if len(model.requests) > asked and before is not None:
                pairs.append((before, model.requests[-1]))
            before = now
    assert len(pairs) >= 2
    assert not model.prompts
    for before, question in pairs:
        assert question.messages[:-1] == before.messages
        assert question.origins == (*before.origins, OURS)
        assert all(one is two for one, two in zip(question.messages, before.messages, strict=False))
        assert (question.system, question.tools, question.once) == (before.system, before.tools, 1)
        assert question.tokens > before.tokens
        assert not check(question.messages, dialect=dialect, system=question.system)


def test_no_question_follows_a_call_that_the_provider_still_runs() -> None:
    """Code that calls tools goes on in the same turn: the API refuses words of the user before its result."""
    model, ctx = Model("anthropic"), context("anthropic")
    go_on(ctx, model, 15)
    assert model.requests == []
    code = {"type": "server_tool_use", "id": "srv", "name": "code_execution", "input": {"code": "query(0)"}}
    caller = {"type": "code_execution_20250825", "tool_id": "srv"}
    call = {"type": "tool_use", "id": "t", "name": "query", "input": {"step": 0}, "caller": caller}
    ctx.append({"role": "assistant", "content": [code, call]})
    ctx.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "0 rows"}]})
    assert not ctx.prepare(model).folds
    done = {"type": "code_execution_result", "stdout": "row " * 1_500, "stderr": "", "return_code": 0, "content": []}
    result = {"type": "code_execution_tool_result", "tool_use_id": "srv", "content": done}
    ctx.append({"role": "assistant", "content": [result, {"type": "text", "text": "There are no rows."}]})
    ctx.append({"role": "user", "content": "And yesterday?"})
    assert ctx.prepare(model).folds
    assert model.prompts
    assert model.requests == []


def test_an_earlier_checkpoint_is_updated_and_wishes_are_told() -> None:
    model, ctx = Model(), context(facts=("port is 8443",))
    go_on(ctx, model)
    first, second = map(text_of, model.requests[:2])
    assert "checkpoint so far" not in first
    assert "checkpoint so far" in second
    assert CHECKPOINT in str(model.requests[1].messages)
    assert all("port is 8443" in asked for asked in (first, second))
    for request in model.requests:
        assert 0 < request.kept < len(request.messages)
        assert f"newest {request.kept} messages stay" in text_of(request)


@every_dialect
def test_the_whole_session_is_asked_when_a_compaction_comes_after_the_reply(dialect: str) -> None:
    model, ctx = Model(dialect), context(dialect, window=64_000)
    go_on(ctx, model, 12)
    last = ctx.prepare(model)
    role = {"role": "assistant", "content": "The port is 8443. All is done."}
    ctx.append({"type": "message", **role} if dialect == "openai-responses" else role)
    ctx.compact("the port", summarize=model)
    (request,) = model.requests
    assert request.messages[: -request.once] == last.messages
    assert (request.once, request.kept) == (2, 0)
    assert "8443" in str(request.messages[-2])
    assert "special attention to this: the port" in text_of(request)
    assert CHECKPOINT in str(ctx.prepare().messages)


@pytest.mark.parametrize(
    "given",
    [
        {"cache_rule": CACHE_RULES["none"]},
        {"cache_rule": replace(CACHE_RULES["openai"], read_ratio=1.0)},
        {"cache_rule": replace(CACHE_RULES["openai"], minimum_tokens=20_000)},
        {"model": "another"},
    ],
    ids=["no cache", "no cheaper", "prefix too short", "another model"],
)
def test_where_it_would_not_be_cheaper_a_prompt_of_its_own_asks(given: dict[str, Any]) -> None:
    model, ctx = Model(), context(**given)
    go_on(ctx, model)
    assert model.prompts
    assert not model.requests


def test_what_leaves_no_room_for_a_checkpoint_is_not_gone_on_from() -> None:
    model, ctx = Model(), context()
    ctx.fold_only_over_limit(TokenLimits(16_000, 0, None, 0.0))
    go_on(ctx, model)
    assert model.prompts
    assert not model.requests


def test_a_question_fits_though_its_count_is_three_percent_short() -> None:
    model, ctx = Model(), context()
    ctx.fold_only_over_limit(TokenLimits(16_000, 2_000, None, 0.0))
    go_on(ctx, model)
    assert model.requests
    assert all(request.max_output_tokens < 2_048 for request in model.requests)  # what is left of the window decides
    assert all(1.03 * request.tokens + request.max_output_tokens <= 16_001 for request in model.requests)


def test_a_cache_that_is_cold_is_not_gone_on_from() -> None:
    model, ctx = Model(), context()
    go_on(ctx, model, idle_seconds=300.0)
    assert model.prompts
    assert not model.requests


def test_a_compaction_after_a_pause_is_not_either() -> None:
    model, ctx = Model(), context(window=64_000)
    go_on(ctx, model, 12)
    ctx.compact(summarize=model, idle_seconds=300.0)
    assert model.prompts
    assert not model.requests


@pytest.mark.parametrize(("cached", "continues"), [(0, False), (2_000, True)])
def test_what_the_provider_reports_says_whether_there_is_a_cache(cached: int, continues: bool) -> None:
    model, ctx = Model(), context()
    go_on(ctx, model, sent=lambda ctx: ctx.observe(Usage(input_tokens=ctx.view.tokens, cached_tokens=cached)))
    assert bool(model.requests) is continues
    assert bool(model.prompts) is not continues


def test_a_prompt_that_shortens_results_much_is_the_cheaper_one() -> None:
    """Half the price for all of a request is more than the whole price for a tenth of it."""
    model, ctx = Model(), context(cache_rule=replace(CACHE_RULES["openai"], read_ratio=0.5), window=64_000)
    messages = session(12, result="This line is in order. " * 1_000)
    for at in range(len(messages)):
        ctx.append(messages[at])
        if at % 2 == 0:
            ctx.prepare(model)
    assert model.prompts
    assert not model.requests


@pytest.mark.parametrize(("read_ratio", "questions", "prompts"), [(0.5, 2, 0), (0.6, 0, 2)])
@pytest.mark.parametrize("counted", [1.0, 1.3])
def test_both_ways_are_weighed_in_the_tokens_that_the_provider_counts(
    counted: float, read_ratio: float, questions: int, prompts: int
) -> None:
    """A provider that counts 1.3 times as much does so for a prompt of its own as well."""
    rule = replace(CACHE_RULES["openai"], read_ratio=read_ratio)
    model, ctx = Model(), context(cache_rule=rule, window=round(counted * 16_000))

    def report(ctx: Context) -> None:
        ctx.observe(Usage(input_tokens=round(counted * ctx.view.estimated_tokens), cached_tokens=1_000))

    go_on(ctx, model, 30, sent=report)
    assert (len(model.requests), len(model.prompts)) == (questions, prompts)


def test_reasoning_that_a_question_would_cut_off_from_the_cache_is_not_taken_for_cached() -> None:
    thinking = {"type": "thinking", "thinking": "So.", "signature": "c2ln"}
    messages = session(40, result="This line is in order. " * 110, dialect="anthropic")
    model, ctx = Model("anthropic"), context("anthropic")
    for at, wire in enumerate(messages):
        ctx.append({**wire, "content": [thinking, *wire["content"]]} if wire["role"] == "assistant" else wire)
        if at % 2 == 0:
            ctx.prepare(model)
    assert not model.requests, "the running loop is nearly all there is"
    assert model.prompts


@pytest.mark.parametrize(("rule", "continues"), [("anthropic", False), ("openai", True)])
def test_an_end_that_was_not_worth_a_cache_point_is_not_taken_for_cached(rule: str, continues: bool) -> None:
    moving = replace(policy("sliding"), always=(Mask(keep_first=0, keep_last=3),))
    model, ctx = Model(), context(policy=moving, cache_rule=CACHE_RULES[rule])
    go_on(ctx, None, 24)
    assert ctx.prepare().lasts_until is not None
    ctx.compact(summarize=model)
    assert (bool(model.requests), bool(model.prompts)) == (continues, not continues)


def fork(ctx: Context) -> None:
    ctx.sync([entry.recorded for entry in ctx.view.entries.values()][:-2])


def other_tools(ctx: Context) -> None:
    ctx.set_system_and_tools(system=SYSTEM, tools=[{"type": "function", "function": {"name": "x", "parameters": {}}}])


def other_system(ctx: Context) -> None:
    ctx.set_system_and_tools(system="You are wordy.", tools=None)


def other_model(ctx: Context) -> None:
    ctx.switch_model("n", ctx.limits)
    ctx.switch_model("m", ctx.limits)


def other_leading(ctx: Context) -> None:
    for text in ("It is 9 o'clock.", "It is 8 o'clock."):  # as it stood in the request that was sent, then another
        ctx.set_system_and_tools(system=SYSTEM, tools=None, leading=[{"role": "system", "content": text}])


def refused(ctx: Context) -> None:
    ctx.recover(Failure("prompt_overflow", limit=14_000, limit_of="window"))


@pytest.mark.parametrize("change", [fork, other_tools, other_system, other_leading, other_model, refused])
def test_what_was_sent_is_forgotten_once_the_cache_does_not_have_it(change: Callable[[Context], None]) -> None:
    model, ctx = Model(), context(window=64_000)
    go_on(ctx, model, 12)
    change(ctx)
    ctx.compact(summarize=model)
    assert not model.requests
    assert model.prompts


def test_folds_that_were_taken_back_are_summed_up_from_what_is_shown_again() -> None:
    model, ctx = Model(), context(window=64_000)
    go_on(ctx, model, 12)
    ctx.compact(summarize=model)
    ctx.prepare(model)
    assert ctx.undo()
    ctx.compact(summarize=model)
    assert len(model.prompts) == 1, "the request that was sent shows a summary in place of what is folded now"


def test_only_the_first_of_several_spans_is_asked_for_so() -> None:
    model, ctx = Model(), context(window=64_000)
    for wire in session(6, result="This line is in order. " * 110):
        ctx.append(wire)
    ctx.append({"role": "user", "content": "Never touch main."}, pinned=True)
    go_on(ctx, model, 6)
    ctx.compact(summarize=model)
    assert (len(model.requests), len(model.prompts)) == (1, 1)
    assert "Never touch main" in str(ctx.prepare().messages)


def test_a_checkpoint_that_stays_is_not_asked_for_again() -> None:
    model, ctx = Model(), context(window=64_000)
    go_on(ctx, model, 6)
    ctx.append({"role": "assistant", "content": "Done."})
    ctx.compact(summarize=model)
    ctx.append({"role": "user", "content": "Never touch main."}, pinned=True)
    go_on(ctx, model, 12)
    ctx.compact(summarize=model)
    assert not model.prompts
    assert "stays in view as it is: do not repeat it" in text_of(model.requests[-1])
    assert str(ctx.prepare().messages).count("8443") == 2


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot do that.",
        Completion("", "tool_calls"),
        ProviderError(Failure("malformed", status=400)),
    ],
)
def test_where_it_brings_no_summary_a_prompt_does_and_the_view_is_as_if_nothing_had_been(answer: Any) -> None:
    one, other = (Model(answer=answer), context()), (Model(model="n"), context())
    for model, ctx in (one, other):
        go_on(ctx, model)
    assert len(one[0].requests) == 1
    assert one[0].prompts == other[0].prompts
    assert one[1].prepare().messages == other[1].prepare().messages


TOO_LONG = [Completion("Goal: fix", "length"), "word " * 9_000]
too_long = pytest.mark.parametrize("answer", TOO_LONG, ids=["cut off", "larger than asked for"])


@too_long
def test_a_summary_that_is_too_long_once_does_not_end_it(answer: Any) -> None:
    answers = iter([answer, CHECKPOINT, answer])
    model, ctx = Model(answer=lambda: next(answers, CHECKPOINT)), context()
    go_on(ctx, model, 80)
    assert len(model.requests) > 3
    assert len(model.prompts) == 2


@too_long
def test_two_summaries_in_a_row_that_are_too_long_do(answer: Any) -> None:
    model, ctx = Model(answer=answer), context()
    go_on(ctx, model, 80)
    assert len(model.requests) == 2
    assert len(model.prompts) > 2


@pytest.mark.parametrize("answer", [ConnectionError("gone"), ProviderError(Failure("auth", status=401))])
def test_a_summariser_that_cannot_be_reached_is_not_asked_again_at_once(answer: Exception) -> None:
    model, ctx = Model(answer=answer), context(window=64_000)
    go_on(ctx, model, 12)
    before = ctx.view.wires()[0]
    with pytest.raises(SummaryError):
        ctx.compact(summarize=model)
    assert (len(model.requests), model.prompts) == (1, [])
    assert ctx.view.wires()[0] == before


def fails(*answers: Any) -> Callable[[], Any]:
    """Answers with these one after the other, then with a checkpoint."""
    waiting = iter(answers)

    def answer() -> Any:
        now = next(waiting, CHECKPOINT)
        if isinstance(now, Exception):
            raise now
        return now

    return answer


def fault(status: int, body: bytes = b"") -> ProviderError:
    return ProviderError(classify(status, body))


INTERNAL = b'{"error":{"message":"internal"}}'


@pytest.mark.parametrize("error", [fault(500, INTERNAL), fault(504), fault(408), fault(529), fault(502, b"<html>")])
def test_a_fault_of_the_server_ends_neither_this_nor_asks_it_at_once_again(error: ProviderError) -> None:
    model, ctx = Model(answer=fails(error)), context()
    go_on(ctx, model, 90)
    assert len(model.requests) > 3
    assert not model.prompts


def test_faults_in_a_row_are_met_by_a_prompt_of_its_own_until_they_end() -> None:
    """There are servers that say 500 of a form that they do not take: then a summary comes by the other way."""
    model, ctx = Model(answer=fails(*[fault(500, INTERNAL)] * 3)), context()
    go_on(ctx, model, 90)
    assert len(model.prompts) == 2, "the second and the third"
    assert len(model.requests) > 4


def test_a_question_that_was_too_large_is_put_plainly_this_once() -> None:
    model, ctx = Model(answer=fails(ProviderError(Failure("prompt_overflow", status=400)))), context()
    go_on(ctx, model, 90)
    assert len(model.prompts) == 1
    assert len(model.requests) > 3


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_form_that_is_refused_is_not_tried_again(status: int) -> None:
    model, ctx = Model(answer=fault(status, b'{"error":{"message":"no such thing"}}')), context()
    go_on(ctx, model, 90)
    assert len(model.requests) == 1
    assert len(model.prompts) > 3


def test_another_model_is_asked_so_whatever_the_one_before_answered() -> None:
    model, ctx = Model(answer=fails(Completion("", "tool_calls"))), context()
    go_on(ctx, model, 20, sent=lambda ctx: ctx.observe(Usage(input_tokens=ctx.view.tokens, cached_tokens=2_000)))
    assert (len(model.requests), bool(model.prompts)) == (1, True)
    ctx.switch_model("n", ctx.limits)
    model.model = "n"
    go_on(ctx, model, 20)
    assert len(model.requests) > 1


def test_a_session_that_changes_meanwhile_is_not_asked_about_any_more() -> None:
    ctx = context(window=64_000)

    def changing() -> str:
        fork(ctx)
        return CHECKPOINT

    model = Model(answer=changing)
    go_on(ctx, model, 12)
    with pytest.raises(SummaryError, match="changed under"):
        ctx.compact(summarize=model)
    assert not model.prompts


def test_what_was_reported_for_summaries_is_told_with_the_folding() -> None:
    heard: list[ContextEvent] = []
    usage = Usage(input_tokens=9_000, cached_tokens=8_700, output_tokens=90)
    model, ctx = Model(answer=Completion(CHECKPOINT, usage=usage)), context(on_event=heard.append)
    go_on(ctx, model)
    asked = [event.asked for event in heard if isinstance(event, FoldFinished)]
    assert asked == [(usage,)] * len(model.requests)


def test_the_async_twin_goes_on_too() -> None:
    class Later(Model):
        async def continued(self, request: Request, /) -> str:
            await asyncio.sleep(0)
            return str(super().continued(request))

    async def work() -> Later:
        model, ctx = Later(), context()
        for at, wire in enumerate(session(40, result="This line is in order. " * 110)):
            ctx.append(wire)
            if at % 2 == 0:
                await ctx.prepare_async(model)
        return model

    model = asyncio.run(work())
    assert model.requests
    assert not model.prompts


def test_every_call_of_a_model_is_told_also_those_before_any_folding() -> None:
    """Tool results are archived before each request, which is no folding: what a model wrote for them is paid too."""
    calls = 0

    def summarize(messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        nonlocal calls
        calls += 1
        return Completion("Looked at some files.", usage=Usage(input_tokens=100 + calls, output_tokens=7))

    policy = checkpoint(CheckpointSettings(tool_call_cutoff=2, tool_summary_strategy="llm"))
    context = Context(policy=policy, window=40_000, max_output_tokens=0)
    told: list[Usage] = []
    for wire in session(20, result="word " * 300):
        context.append(wire)
        if wire["role"] != "assistant":
            told += context.prepare(summarize).asked
    assert calls > 1
    assert [usage.input_tokens for usage in told] == [100 + call for call in range(1, calls + 1)]


@pytest.mark.parametrize(
    ("dialect", "tool", "continues"),
    [
        ("anthropic", {"name": "look", "input_schema": {"type": "object"}}, True),
        ("anthropic", {"type": "bash_20250124", "name": "bash"}, True),
        ("anthropic", {"type": "web_search_20250305", "name": "web_search"}, False),
        ("openai-responses", {"type": "function", "name": "look", "parameters": {"type": "object"}}, True),
        ("openai-responses", {"type": "mcp", "server_label": "files", "require_approval": "never"}, False),
    ],
)
def test_no_question_is_put_where_the_provider_runs_tools_itself(
    dialect: str, tool: dict[str, Any], continues: bool
) -> None:
    """Nobody sees that call, and the text of tools stands before it: it must not be able to act."""
    model = Model(dialect)
    go_on(context(dialect, tools=[tool]), model)
    assert bool(model.requests) is continues
    assert bool(model.prompts) is not continues
