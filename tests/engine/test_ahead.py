"""A summary that is written ahead: when it is due, what it costs a turn, and when it is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.engine.wires import says, user

from foldline import Ask, Completion, Context, InvalidInput, SummaryError, check
from foldline.engine.events import ContextEvent, FoldFailed, SummaryWritten
from foldline.engine.presets import policy
from foldline.testing import ScriptedModel, session
from foldline.view.transcript import Fold, Usage

DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini")
CHECKPOINT = "Goal: fix the test. Done: the files were read. Facts: the port is 8443."
SLIDING = replace(policy("sliding"), trigger=replace(policy("sliding").trigger, fraction=1.0)).with_window(64_000)


def grown(
    until: Callable[[Context], bool], dialect: str = "openai-chat", **given: Any
) -> tuple[Context, list[ContextEvent], list[Any]]:
    """A session up to where `until` holds, prepared at each step without a model; and the messages still to come."""
    events: list[ContextEvent] = []
    usual: dict[str, Any] = {"policy": SLIDING, "window": 16_000, "max_output_tokens": 500}
    ctx = Context(dialect=dialect, on_event=events.append, **{**usual, **given})
    wires = session(200, result="This line is in order. " * 60, dialect=dialect)
    ctx.append(wires[0])
    for at in range(1, len(wires), 2):
        ctx.extend(wires[at : at + 2])
        ctx.prepare()
        if until(ctx):
            return ctx, events, wires[at + 2 :]
    raise AssertionError("it never came to that")


def state(ctx: Context) -> str:
    return ctx.ahead.state


def due(ctx: Context) -> bool:
    return ctx.ahead.due


def to_its_fold(ctx: Context, rest: list[Any], model: Any = None) -> Fold:
    """Go on until something is folded; that fold."""
    for at in range(0, len(rest), 2):
        ctx.extend(rest[at : at + 2])
        request = ctx.prepare(model)
        folds = [fold for fold in request.folds if isinstance(fold, Fold)]
        if folds:
            assert not check(request.messages, dialect=ctx.dialect, system=request.system)
            return folds[0]
    raise AssertionError("nothing was folded")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_fold_puts_in_what_was_written_ahead_and_asks_nobody(dialect: str) -> None:
    ctx, events, rest = grown(due, dialect)
    limit = ctx.limits.input_tokens
    assert 0.85 * limit <= ctx.view.tokens < limit
    before = ctx.prepare().messages
    assert ctx.ahead.write(ScriptedModel([CHECKPOINT]))
    assert state(ctx) == "ready"
    assert ctx.prepare().messages == before
    (written,) = (event for event in events if isinstance(event, SummaryWritten))
    fold = to_its_fold(ctx, rest, ScriptedModel([]))
    assert (fold.start, fold.stop) == (written.start, written.stop)
    assert CHECKPOINT in fold.shown[0].text
    assert state(ctx) == "none"
    assert ctx.view.tokens < 0.75 * limit
    ctx.undo()
    assert not ctx.explain(fold.start)


def test_the_tail_that_is_still_to_come_counts_as_a_part_of_the_tail() -> None:
    """What stays whole at the fold is about what would have stayed whole without a summary written ahead."""
    plain, _, rest = grown(lambda ctx: ctx.view.tokens > 0.9 * ctx.limits.input_tokens)
    at_once = to_its_fold(plain, rest, ScriptedModel([CHECKPOINT], repeat=True))
    ctx, _, rest = grown(due)
    ctx.ahead.write(ScriptedModel([CHECKPOINT]))
    ahead = to_its_fold(ctx, rest)
    assert abs(at_once.stop - ahead.stop) <= 6
    assert abs(plain.view.tokens - ctx.view.tokens) <= 0.06 * ctx.limits.input_tokens


def test_asks_are_values_and_a_text_is_supplied() -> None:
    ctx, _, rest = grown(due)
    ask = ctx.ahead.ask()
    assert isinstance(ask, Ask)
    assert state(ctx) == "writing"
    assert ctx.ahead.ask() is None
    ctx.extend(rest[:2])
    ctx.prepare()
    assert ctx.ahead.supply(CHECKPOINT) is None
    assert state(ctx) == "ready"
    with pytest.raises(InvalidInput, match="no summary was asked for"):
        ctx.ahead.supply(CHECKPOINT)
    assert to_its_fold(ctx, rest[2:]).start == ask.start


def test_a_long_record_is_asked_for_in_pieces() -> None:
    ctx, _, rest = grown(due, policy=SLIDING.with_window(2_500))
    pieces, ask = 0, ctx.ahead.ask()
    while ask is not None:
        pieces, ask = pieces + 1, ctx.ahead.supply(CHECKPOINT)
    assert pieces > 2
    assert CHECKPOINT in to_its_fold(ctx, rest).shown[0].text


def test_the_question_goes_to_the_session_where_its_prefix_is_warm() -> None:
    ctx, _, _ = grown(due, model="gpt-5")
    request = ctx.prepare()
    ask = ctx.ahead.ask(continues=True)
    assert ask is not None and ask.request is not None
    assert ask.request.messages[:-1] == request.messages
    ctx.ahead.drop()
    assert state(ctx) == "due"
    cold = ctx.ahead.ask(continues=True, idle_seconds=1e6)
    assert cold is not None and cold.request is None


@pytest.mark.parametrize("answer", ["", SummaryError("no model today"), Completion("half of", "length")])
def test_a_failure_is_told_once_and_the_ordinary_path_goes_on(answer: Any) -> None:
    ctx, events, rest = grown(due)
    shown = ctx.view.shown()
    assert ctx.ahead.ask() is not None
    assert ctx.ahead.supply(answer) is None
    assert ctx.view.shown() == shown
    assert state(ctx) == "none"
    assert len([event for event in events if isinstance(event, FoldFailed)]) == 1
    assert to_its_fold(ctx, rest).stop


def test_what_it_cost_is_counted_also_where_it_came_to_nothing() -> None:
    ctx, events, _ = grown(due)
    spent = Usage(input_tokens=900, output_tokens=40)
    assert ctx.ahead.write(ScriptedModel([Completion(CHECKPOINT, usage=spent)]))
    assert next(event for event in events if isinstance(event, SummaryWritten)).asked == (spent,)
    assert ctx.prepare().asked == (spent,)
    ctx, _, _ = grown(due)
    assert not ctx.ahead.write(ScriptedModel([Completion("half of", "length", spent)]))
    assert ctx.prepare().asked == (spent,)


def changes() -> dict[str, Callable[[Context], object]]:
    def left(ctx: Context) -> None:
        wires = [event.recorded for event in ctx.events if hasattr(event, "recorded")]
        ctx.sync([*wires[:5], user("Do it in another way.")])

    return {
        "the branch was left": left,
        "compacted": lambda ctx: ctx.compact(summarize=None),
        "pinned": lambda ctx: ctx.pin(3),
    }


@pytest.mark.parametrize("change", changes().values(), ids=changes().keys())
@pytest.mark.parametrize("early", [True, False], ids=["while it was written", "after it was written"])
def test_it_is_dropped_where_what_it_covers_has_changed(change: Callable[[Context], object], early: bool) -> None:
    ctx, _, rest = grown(due)
    assert ctx.ahead.ask() is not None
    if early:
        change(ctx)
        ctx.ahead.supply(CHECKPOINT)
    else:
        ctx.ahead.supply(CHECKPOINT)
        change(ctx)
    assert state(ctx) in ("none", "due")
    fold = to_its_fold(ctx, rest)
    assert all(CHECKPOINT not in message.text for message in fold.shown)
    assert not any(CHECKPOINT in str(wire) for wire in ctx.prepare().messages)


def test_a_fork_behind_it_leaves_it_as_it_is() -> None:
    """A framework that repeats its last step forks at the end: what was summarised long before is the same."""
    ctx, _, rest = grown(due)
    ctx.ahead.write(ScriptedModel([CHECKPOINT]))
    wires = [event.recorded for event in ctx.events if hasattr(event, "recorded")]
    ctx.sync([*wires[:-2], *rest[:2]])
    assert state(ctx) == "ready"
    assert CHECKPOINT in to_its_fold(ctx, rest[2:]).shown[0].text


def test_a_turn_waits_for_it_only_with_a_full_window() -> None:
    """The fold waits while it is being written, as long as the request fits; then the turn waits for it."""

    async def run() -> tuple[Context, list[int], int]:
        early = replace(SLIDING, trigger=replace(SLIDING.trigger, fraction=0.8))
        ctx, _, rest = grown(due, policy=early)
        gate, sizes = asyncio.Event(), []

        async def slow(messages: list[dict[str, str]], most: int) -> str:
            await gate.wait()
            return CHECKPOINT

        def impatient(messages: list[dict[str, str]], most: int) -> str:
            raise AssertionError("it has been asked already")

        task = asyncio.create_task(ctx.ahead.write_async(slow))
        waited = 0

        async def wait() -> None:
            nonlocal waited
            waited += 1
            gate.set()
            await task

        ctx.ahead.wait = wait
        await asyncio.sleep(0)
        assert state(ctx) == "writing"
        for at in range(0, len(rest), 2):
            ctx.extend(rest[at : at + 2])
            request = await ctx.prepare_async(impatient)
            sizes.append(request.tokens)
            if request.folds:
                return ctx, sizes, waited
        raise AssertionError("nothing was folded")

    ctx, sizes, waited = asyncio.run(run())
    limit = ctx.limits.input_tokens
    assert waited == 1
    assert sizes[-2] > 0.9 * limit > sizes[-1]
    assert any(CHECKPOINT in str(message) for message in ctx.view.shown())


def test_a_size_that_a_policy_promises_is_kept_while_it_is_being_written() -> None:
    ctx, _, rest = grown(
        due, policy=replace(policy("sliding"), trigger=replace(SLIDING.trigger, fraction=None, tokens=9_000))
    )
    assert ctx.ahead.ask() is not None
    to_its_fold(ctx, rest)
    assert ctx.view.tokens < 9_000


def test_a_cancellation_leaves_everything_as_it_was() -> None:
    async def run() -> Context:
        ctx, _, _ = grown(due)

        async def never(messages: list[dict[str, str]], most: int) -> str:
            await asyncio.Event().wait()
            raise AssertionError

        task = asyncio.create_task(ctx.ahead.write_async(never))
        await asyncio.sleep(0)
        assert state(ctx) == "writing"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ctx

    ctx = asyncio.run(run())
    assert state(ctx) == "due"
    assert ctx.ahead.write(ScriptedModel([CHECKPOINT]))


def test_none_is_written_where_folding_lands_without_a_model() -> None:
    """Old results that can be shortened are enough: nobody pays for a summary that would not have been asked for."""
    ctx = Context(policy="balanced", window=16_000, max_output_tokens=500)
    wires = session(60, result="This line is in order. " * 150)
    ctx.append(wires[0])
    for at in range(1, len(wires), 2):
        ctx.extend(wires[at : at + 2])
        ctx.prepare()
        assert not ctx.ahead.write(ScriptedModel([]))
        if ctx.explain(2):
            break
    assert ctx.explain(2)


def test_a_conversation_of_words_is_written_ahead_under_every_policy_that_summarises() -> None:
    for name in ("balanced", "cost", "quality", "economical", "sliding"):
        ctx = Context(policy=name, window=24_000, max_output_tokens=500)
        model = ScriptedModel([CHECKPOINT], repeat=True)
        for number in range(300):
            ctx.extend([user(f"{number} {'and then what? ' * 30}"), says(f"{number} {'this is so. ' * 30}")])
            ctx.append(user("And?"))
            ctx.prepare()
            if ctx.ahead.write(model):
                break
            ctx.append(says("So."))
        assert state(ctx) == "ready", name
        assert ctx.view.tokens <= ctx.limits.input_tokens


def test_off_is_off() -> None:
    for given in ({"auto": False}, {"policy": replace(SLIDING, ahead=0.0)}, {"policy": replace(SLIDING, auto=False)}):
        usual: dict[str, Any] = {"policy": SLIDING, "window": 16_000, "max_output_tokens": 500}
        ctx = Context(**{**usual, **given})
        ctx.extend(session(40, result="This line is in order. " * 60))
        assert state(ctx) == "none"


def test_looking_costs_nothing_between_two_folds() -> None:
    """What `due` looks at does not grow with the session."""
    ctx, _, _ = grown(due)
    ctx.ahead.write(ScriptedModel([CHECKPOINT]))
    looked: list[int] = []
    assert state(ctx) == "ready"

    class Counted(list):  # type: ignore[type-arg]
        def __getitem__(self, at: Any) -> Any:
            looked.append(1)
            return super().__getitem__(at)

    ctx.view.tiles = Counted(ctx.view.tiles)
    for _ in range(50):
        assert state(ctx) == "ready"
    assert looked == []
