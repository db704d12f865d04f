"""The tool calls of one reply: run concurrently, their results as messages of the dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from foldline.agent.events import Listener, ToolFinished, ToolStarted
from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.toolbox import Toolbox
from foldline.codecs import Codec, dialect_named
from foldline.codecs import codec as codec_for
from foldline.engine.context import Context
from foldline.messages import Message, ToolCall, ToolResult, Wire
from foldline.tokens import ESTIMATE

__all__ = ["INTERRUPTED", "open_calls", "result_messages", "run_calls"]

INTERRUPTED = "[stopped before it was finished]"
"""The result of a call that was cut off."""


async def run_calls(
    calls: Sequence[ToolCall],
    toolbox: Toolbox,
    scope: CallScope,
    emit: Listener,
    record: Callable[[Sequence[tuple[ToolCall, str, bool]]], object],
) -> list[ToolOutcome]:
    """Run calls concurrently, and record their results in the order of the calls, in one write.

    A cancellation stops the running calls; their results say so, finished ones are recorded as usual. It propagates,
    and so does what a listener raises. A second cancellation no longer waits for tools that do not stop.
    """
    tasks = [asyncio.create_task(_run(call, toolbox, scope, emit)) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        # Also when cancelled: providers refuse a history in which a call has no result, now and at every later request.
        try:
            await _cancel([task for task in tasks if not task.done()])
        finally:
            outcomes = [_outcome(task) for task in tasks]
            pairs = zip(calls, outcomes, strict=True)
            record([(call, outcome.text, outcome.is_error) for call, outcome in pairs])
    # Raised only now, after all results are recorded: a faulty listener must not cost the turn its results.
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return outcomes


async def _cancel(running: Sequence[asyncio.Task[ToolOutcome]]) -> None:
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _outcome(task: asyncio.Task[ToolOutcome]) -> ToolOutcome:
    """Return the outcome of a call; of an unfinished one, that it was interrupted."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return ToolOutcome(INTERRUPTED, is_error=True)
    return task.result()


async def _run(call: ToolCall, toolbox: Toolbox, scope: CallScope, emit: Listener) -> ToolOutcome:
    emit(ToolStarted(call.id, call.name, call.arguments))
    start = perf_counter()
    outcome = await toolbox.run(call, scope)
    emit(
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


def result_messages(dialect: str, results: Sequence[tuple[ToolCall, str, bool]]) -> list[Wire]:
    """Return the messages that carry results: one for each, or one for all (Anthropic)."""
    codec = codec_for(dialect)
    # A codec that cannot merge returns None: its dialect has one message for each result (OpenAI chat completions).
    messages = [_marked(codec, codec.answer(call, text), is_error) for call, text, is_error in results]
    merged = codec.merge(messages) if len(messages) > 1 else None
    return [codec.write(merged)] if merged is not None else [codec.write(message) for message in messages]


def _marked(codec: Codec, message: Message, is_error: bool) -> Message:
    """Return the message, with `is_error` on its result if the dialect has such a field (Anthropic)."""
    if not is_error or not dialect_named(codec.dialect).failed_results:
        return message
    # `revise`, not a new message: fields that the codec does not know must survive.
    parts = [replace(part, is_error=True) if isinstance(part, ToolResult) else part for part in message.parts]
    return codec.revise(message, parts)


def open_calls(context: Context) -> tuple[ToolCall, ...]:
    """Return the calls of the newest turn that have no result. O(newest group)."""
    # The newest group only: older ones were answered, or the next user message would not have been recorded.
    tile = next((tile for tile in reversed(context.view.tiles) if tile.entries or tile.fold is not None), None)
    if tile is None or tile.fold is not None:
        return ()
    answered = {result.call_id for entry in tile.entries for result in entry.message.results}
    calls = (call for entry in tile.entries for call in entry.message.calls)
    return tuple(call for call in calls if call.id not in answered)
