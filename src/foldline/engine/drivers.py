"""The two drivers of an engine, which call the model: the only code that exists twice, sync and async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from foldline.engine.engine import Steps
from foldline.engine.folding import InThread, Reading, Waiting
from foldline.errors import SummaryError
from foldline.reducers.base import Ask
from foldline.view.request import Request
from foldline.view.transcript import Usage

__all__ = [
    "AsyncSummarize",
    "Completion",
    "Continues",
    "SummarizeWith",
    "answer_of",
    "answer_or_error",
    "drive",
    "drive_async",
    "summary_error",
    "text_of",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a summariser may return instead of plain text: `finish_reason` marks a text that was cut off or refused.

    `usage` is what the provider reported for the call, if anything.
    """

    text: str
    finish_reason: str = "stop"
    usage: Usage | None = field(default=None, compare=False)


SummarizeWith: TypeAlias = Callable[[list[dict[str, str]], int], str | Completion]
AsyncSummarize: TypeAlias = Callable[[list[dict[str, str]], int], Awaitable[str | Completion] | str | Completion]


# By its methods and not by a base class: a summariser may be any callable of the user.
@runtime_checkable
class Continues(Protocol):
    """A summariser that can also continue from a request of the session, which its provider has in its cache.

    A context uses `continued` when `model` and `dialect` are its own and that is cheaper; otherwise it calls the object
    like any summariser.
    """

    @property
    def model(self) -> str:
        """The model that writes, as requests name it."""

    @property
    def dialect(self) -> str:
        """The dialect of the requests that it sends."""

    def continued(self, request: Request, /) -> str | Completion | Awaitable[str | Completion]:
        """What the model answers to a request that is sent like any of the session's: same tools, same settings.

        All but its newest `once` messages were part of the last request; its last message is the question. A reply that
        calls a tool has the finish reason "tool_calls". For `prepare_async` and `compact_async` it may be awaitable.
        """


def text_of(answer: object, report: Callable[[Usage], None] | None) -> str:
    """The text of a summariser's answer. Raises SummaryError for one that was cut off, refused, or is no text."""
    if isinstance(answer, str):
        return answer
    text, reason = getattr(answer, "text", None), getattr(answer, "finish_reason", "stop")
    usage = getattr(answer, "usage", None)
    if report is not None and isinstance(usage, Usage):
        report(usage)  # first: the call was paid for, also where its text is rejected below
    if not isinstance(text, str):
        raise SummaryError(f"the summariser returned {type(answer).__name__}, not text")
    # A summary that was cut off reads like a whole one, and nobody misses what it lost: it must not replace anything.
    # `too_long` says that the model did as it was told, at too great a length (`CachedSummary.failed` goes by it).
    if reason in ("length", "max_tokens"):
        raise SummaryError("the summary was cut off", too_long=True)
    if reason in ("refusal", "content_filter"):
        raise SummaryError("the model refused to summarise")
    if reason in ("pause", "malformed_call", "context_window", "failed"):
        raise SummaryError(f"the summary was not finished ({reason})", too_long=reason == "context_window")
    if reason in ("tool_calls", "tool_use"):
        raise SummaryError("the model called a tool instead")
    return text


def drive(steps: Steps[T], summarize: SummarizeWith | None, report: Callable[[Usage], None] | None = None) -> T:
    """Run steps to their end, and call the model for each ask; `report` gets the usage of each call."""
    # One generator and two drivers, rather than an async engine with a sync wrapper: a library that is called from a
    # running event loop cannot start another one. Errors go into the generator, not to the caller: the engine decides
    # whether another reducer takes over.
    try:
        ask = next(steps)
        while True:
            if isinstance(ask, Reading):
                ask = steps.send(ask.work())
                continue
            if isinstance(ask, Waiting):  # only async calls can wait, and only for them is it set
                ask = steps.send(None)
                continue
            try:
                answer = text_of(answer_of(ask, summarize), report) if summarize else ""
            except Exception as error:  # noqa: BLE001 - a user's summariser may raise anything; prepare goes on without it
                ask = steps.throw(summary_error(error))
            else:
                ask = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()  # ends the folding of the engine, also where an interrupt left the loop


async def drive_async(
    steps: Steps[T],
    summarize: AsyncSummarize | None,
    report: Callable[[Usage], None] | None = None,
    in_thread: InThread | None = None,
    begun: Ask | None = None,
) -> T:
    """`drive` with an async model, and with a thread for large views; `begun`: the steps have come to this ask."""
    try:
        ask = begun or next(steps)
        while True:
            if isinstance(ask, Reading):
                ask = steps.send(ask.work() if in_thread is None else await in_thread(ask.work))
                continue
            if isinstance(ask, Waiting):
                ask = steps.send(await ask.until())
                continue
            try:
                # An async driver accepts a plain function as well: one summariser serves both kinds of calls.
                reply = answer_of(ask, summarize) if summarize else ""
                answer = text_of(await reply if inspect.isawaitable(reply) else reply, report)
            except Exception as error:  # noqa: BLE001 - as above; a cancellation is no Exception and propagates
                ask = steps.throw(summary_error(error))
            else:
                ask = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


def answer_of(ask: Ask, summarize: SummarizeWith | AsyncSummarize) -> object:
    """What the model answers, by a request of the session where the engine chose that."""
    if ask.request is not None and isinstance(summarize, Continues):
        return summarize.continued(ask.request)
    # Copies, since a summariser may change the list that it is given.
    return summarize([dict(message) for message in ask.prompt], ask.max_output_tokens)


def answer_or_error(ask: Ask, summarize: SummarizeWith) -> object:
    """What the model answers, or the SummaryError in its place; for `SummariesAhead.supply`."""
    try:
        return answer_of(ask, summarize)
    except Exception as error:  # noqa: BLE001 - as above
        return summary_error(error)


def summary_error(error: Exception) -> SummaryError:
    """What a summariser raised, as the engine takes it; a SummaryError is taken as it is."""
    if isinstance(error, SummaryError):
        return error
    wrapped = SummaryError(f"the summariser failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
