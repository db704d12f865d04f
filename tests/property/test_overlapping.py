"""Calls that overlap: whatever order their models answer, fail or are cancelled in, the log tells all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.engine.presets import policy as preset
from foldline.errors import DoesNotFit, FoldlineError, SummaryError
from foldline.failures.classification import classify
from foldline.messages import ToolResult
from foldline.view.request import Request
from foldline.view.transcript import Entry, Event, active
from foldline.view.user_words import own_words
from tests.property.depth import dear
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, text

OVERFLOW = classify(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
ANSWERS = ("Goal: go on. Something was read.", "", "words that do not fit " * 400)
MOST_PENDING = 4


class Overlapping(RuleBasedStateMachine):
    """A session whose calls wait for models that answer in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tasks: list[asyncio.Task[Any]] = []
        self.waiting: list[asyncio.Future[str]] = []
        self.written: list[Event] = []
        self.writer: asyncio.Task[bool] | None = None
        self.calls = 0

    @initialize(
        dialect=st.sampled_from(DIALECTS),
        policy=st.sampled_from(POLICIES),
        window=st.integers(300, 2_000),
        words=text(30),
        rounds=st.integers(0, 30),
    )
    def begin(self, dialect: str, policy: str, window: int, words: str, rounds: int) -> None:
        self.settings: dict[str, Any] = {
            "dialect": dialect,
            "policy": replace(preset(policy), ahead=0.4),
            "window": window,
            "max_output_tokens": 0,
        }
        self.build = BUILDERS[dialect]
        self.context = Context(**self.settings)
        self.context.ahead.wait = self._wait
        self.recorded: list[Mapping[str, Any]] = []
        for number in range(rounds):
            self._append(self.build.turn([f"first_{number}"], [f"{number} {words} was found"], "look", None))
            if number % 4 == 3:
                self._append(self.build.says(f"{number} of it is done", None))
                self._append(self.build.user(f"go on after {number}, {words}", False))
        if rounds == 0:
            self._append(self.build.user(words, False))

    def teardown(self) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            self.loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))
        self.loop.close()

    # --- what happens ------------------------------------------------------------------------------------------------

    def _append(self, wires: list[Wire]) -> None:
        self.context.extend(wires)
        self.recorded += wires

    @rule(words=text(60))
    def user_speaks(self, words: str) -> None:
        self._append(self.build.user(words, False))

    @rule(words=text(60), thinks=st.booleans())
    def agent_answers(self, words: str, thinks: bool) -> None:
        self._append(self.build.says(words, "thought about it" if thinks else None))

    @rule(results=st.lists(text(100), min_size=1, max_size=2), missing=st.integers(0, 1), thinks=st.booleans())
    def agent_calls(self, results: list[str], missing: int, thinks: bool) -> None:
        ids = [f"call_{self.calls + number}" for number in range(len(results))]
        self.calls += len(ids)
        shown = results[: len(results) - missing]
        self._append(self.build.turn(ids, shown, "look", "thought about it" if thinks else None))

    async def _answer(self, messages: list[dict[str, str]], max_output_tokens: int) -> str:
        future: asyncio.Future[str] = self.loop.create_future()
        self.waiting.append(future)
        return await future

    async def _wait(self) -> None:
        if self.writer is not None:
            await asyncio.wait([self.writer])

    def _go_on(self) -> None:
        """Let every task run as far as it gets without an answer, and look at what those that ended have brought."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        self.waiting = [future for future in self.waiting if not future.done()]
        done = [task for task in self.tasks if task.done()]
        self.tasks = [task for task in self.tasks if not task.done()]
        for task in done:
            if task.cancelled() or isinstance(task.exception(), DoesNotFit | SummaryError):
                continue
            self._judge(task.result())

    def _judge(self, outcome: object) -> None:
        if not isinstance(outcome, Request):
            return
        limits = self.context.limits
        assert outcome.tokens <= limits.input_tokens
        assert check(outcome.messages, dialect=self.settings["dialect"], system=outcome.system) == []

    def _run(self, act: Callable[[], object]) -> object:
        try:
            return act()
        except FoldlineError:
            return None

    @rule(ask=st.booleans())
    def prepare(self, ask: bool) -> None:
        answer = (lambda messages, most: ANSWERS[0]) if ask else None
        self._judge(self._run(lambda: self.context.prepare(answer)))

    @precondition(lambda self: len(self.tasks) < MOST_PENDING)
    @rule()
    def prepare_meanwhile(self) -> None:
        self.tasks.append(self.loop.create_task(self.context.prepare_async(self._answer)))
        self._go_on()

    @precondition(lambda self: self.writer is None or self.writer.done())
    @rule()
    def write_ahead_meanwhile(self) -> None:
        self.writer = self.loop.create_task(self.context.ahead.write_async(self._answer))
        self.tasks.append(self.writer)
        self._go_on()

    @rule(words=st.sampled_from(ANSWERS))
    def write_ahead(self, words: str) -> None:
        shown = self.context.view.shown()
        self.context.ahead.write(lambda messages, most: words)
        assert self.context.view.shown() == shown

    @precondition(lambda self: len(self.tasks) < MOST_PENDING)
    @rule()
    def compact_meanwhile(self) -> None:
        self.tasks.append(self.loop.create_task(self.context.compact_async(summarize=self._answer)))
        self._go_on()

    @precondition(lambda self: len(self.tasks) < MOST_PENDING)
    @rule()
    def recover_meanwhile(self) -> None:
        self.tasks.append(self.loop.create_task(self.context.recover_async(OVERFLOW, self._answer)))
        self._go_on()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), words=st.sampled_from(ANSWERS))
    def model_answers(self, data: st.DataObject, words: str) -> None:
        self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))).set_result(words)
        self._go_on()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def model_fails(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.waiting) - 1))
        self.waiting.pop(at).set_exception(OSError("no connection"))
        self._go_on()

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.tasks)).cancel()
        self._go_on()

    @rule(tokens=st.integers(0, 6_000))
    def report(self, tokens: int) -> None:
        self.context.observe({"input_tokens": tokens, "output_tokens": 5})

    @rule(share=st.floats(0.8, 1.3))
    def report_the_truth(self, share: float) -> None:
        self.context.observe({"input_tokens": int(share * self.context.view.estimated_tokens), "output_tokens": 5})

    @rule(data=st.data(), pinned=st.booleans())
    def pin(self, data: st.DataObject, pinned: bool) -> None:
        seq = data.draw(st.integers(0, len(self.recorded) - 1))
        self._run(lambda: self.context.pin(seq, pinned=pinned))

    @rule()
    def compact(self) -> None:
        self._run(lambda: self.context.compact(summarize=lambda messages, most: ANSWERS[0]))

    @rule()
    def recover(self) -> None:
        self._run(lambda: self.context.recover(OVERFLOW))

    @rule(data=st.data(), words=text(20))
    def fork(self, data: st.DataObject, words: str) -> None:
        if self.context.released:
            return
        path = [entry.recorded for entry in active(self.context.events)]
        kept = path[: data.draw(st.integers(0, len(path)))]
        self.recorded += [entry.recorded for entry in self.context.sync([*kept, *self.build.user(words, False)])]

    @rule()
    def undo(self) -> None:
        again = self._again()
        if self.context.released:
            before = self.context.view.shown()
            self._run(self.context.undo)
            assert self.context.view.shown() == before
            return
        taken = self.context.undo()
        assert again.undo() == taken
        assert again.view.shown() == self.context.view.shown()

    @rule()
    def release(self) -> None:
        self.written += self.context.events_after(len(self.written))
        self.context.release()

    # --- what holds --------------------------------------------------------------------------------------------------

    def _again(self) -> Context:
        self.written += self.context.events_after(len(self.written))
        return Context.replay(self.written, **self.settings)

    @invariant()
    def the_log_repeated_is_the_session(self) -> None:
        if not hasattr(self, "context"):
            return
        again, live = self._again(), self.context
        assert again.view.shown() == live.view.shown()
        assert again.view.tokens == live.view.tokens
        assert again.view.estimated_tokens == live.view.estimated_tokens
        assert again.figures == live.figures
        if not live.released:
            assert folds_in(again) == folds_in(live)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "context"):
            return
        log = [*self.written, *self.context.events_after(len(self.written))]
        assert [event.recorded for event in log if isinstance(event, Entry)] == self.recorded

    @invariant()
    def what_is_shown_is_valid_and_covers_the_log(self) -> None:
        if not hasattr(self, "context"):
            return
        view = self.context.view
        assert check(view.shown(), dialect=self.settings["dialect"]) == []
        at = 0
        for tile in view.tiles:
            assert tile.start == at < tile.stop
            at = tile.stop
        assert at == len(self.recorded)

    @invariant()
    def the_newest_user_is_heard(self) -> None:
        if not hasattr(self, "context") or (seq := self.context.view.newest_user) is None:
            return
        view = self.context.view
        if seq in view._folded_users:
            return  # by a compaction that was asked for, when it was answered
        said = json.dumps(view.shown(), ensure_ascii=False)
        for part in own_words(view.entries[seq].message):
            assert not isinstance(part, ToolResult)
            assert json.dumps(getattr(part, "text", ""), ensure_ascii=False)[1:-1] in said


def folds_in(context: Context) -> dict[int, list[int]]:
    """The folds in effect by the call that made them."""
    out: dict[int, list[int]] = {}
    for seq in context.view.entries:
        for fold in context.explain(seq):
            out.setdefault(fold.batch, []).append(fold.id)
    return {batch: sorted(set(ids)) for batch, ids in sorted(out.items())}


Overlapping.TestCase.settings = settings(dear, stateful_step_count=40, phases=[Phase.generate])
test_calls_that_overlap_are_one_session = Overlapping.TestCase
