"""Running the tool calls of one reply beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

from foldline.agent.events import Listener, ToolFinished, ToolStarted
from foldline.agent.session import INTERRUPTED
from foldline.agent.tools.base import Outcome, Scope
from foldline.agent.tools.toolbox import Toolbox
from foldline.messages import ToolCall
from foldline.tokens import ESTIMATE

__all__ = ["run_calls"]


async def run_calls(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    scope: Scope,
    tell: Listener,
    record: Callable[[Sequence[tuple[ToolCall, str, bool]]], object],
) -> list[Outcome]:
    """Run calls beside each other; what they brought is recorded in their order, all of it at once.

    A cancellation stops those that still run; their results say so, the others are kept. It propagates.
    """
    tasks = [asyncio.create_task(_run(call, toolbox, scope, tell)) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cut_off = Outcome(INTERRUPTED, is_error=True)
        outcomes = [cut_off if task.cancelled() else task.result() for task in tasks]
        pairs = zip(calls, outcomes, strict=True)
        record([(call, outcome.text, outcome.is_error) for call, outcome in pairs])
    return outcomes


async def _run(call: ToolCall, toolbox: Toolbox, scope: Scope, tell: Listener) -> Outcome:
    tell(ToolStarted(call.id, call.name, call.arguments))
    start = perf_counter()
    outcome = await toolbox.run(call, scope)
    tell(
        ToolFinished(
            call_id=call.id,
            tool=call.name,
            text=outcome.text,
            is_error=outcome.is_error,
            tokens=ESTIMATE.text(outcome.text),
            seconds=perf_counter() - start,
        )
    )
    return outcome
