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

    A cancellation stops those that still run; their results say so, the others are kept. It propagates, and so does
    what a listener raises. A second cancellation waits no longer for tools that do not stop.
    """
    tasks = [asyncio.create_task(_run(call, toolbox, scope, tell)) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        try:
            await _stopped([task for task in tasks if not task.done()])
        finally:
            outcomes = [_outcome(task) for task in tasks]
            pairs = zip(calls, outcomes, strict=True)
            record([(call, outcome.text, outcome.is_error) for call, outcome in pairs])
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return outcomes


async def _stopped(running: Sequence[asyncio.Task[Outcome]]) -> None:
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    """What a call came to, as far as it came."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return Outcome(INTERRUPTED, is_error=True)
    return task.result()


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
