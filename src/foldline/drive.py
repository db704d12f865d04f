"""The two drivers of an engine: they pay for what it asks. The only code that exists twice, sync and async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from foldline.engine import Steps
from foldline.errors import SummaryError
from foldline.reducers.base import Ask

__all__ = ["AsyncSummarize", "Completion", "SummarizeWith", "drive", "drive_async"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a summariser may return instead of plain text: with `finish_reason` a cut-off or refused text is known."""

    text: str
    finish_reason: str = "stop"


SummarizeWith: TypeAlias = Callable[[list[dict[str, str]], int], str | Completion]
AsyncSummarize: TypeAlias = Callable[[list[dict[str, str]], int], Awaitable[str | Completion] | str | Completion]


def _text_of(answer: object) -> str:
    """The text of a summariser's answer. Raises SummaryError for one that was cut off, refused, or is no text."""
    if isinstance(answer, str):
        return answer
    text, reason = getattr(answer, "text", None), getattr(answer, "finish_reason", "stop")
    if not isinstance(text, str):
        raise SummaryError(f"the summariser returned {type(answer).__name__}, not text")
    if reason in ("length", "max_tokens"):
        raise SummaryError("the summary was cut off")
    if reason in ("refusal", "content_filter"):
        raise SummaryError("the model refused to summarise")
    return text


def drive(steps: Steps[T], summarize: SummarizeWith | None) -> T:
    """Run steps to their end, paying for each ask."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = _text_of(summarize(_prompt(ask), ask.max_output_tokens)) if summarize else ""
            except SummaryError as error:
                ask = steps.throw(error)
            except Exception as error:  # noqa: BLE001 - a user's summariser may raise anything; prepare goes on without it
                ask = steps.throw(_failed(error))
            else:
                ask = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


async def drive_async(steps: Steps[T], summarize: AsyncSummarize | None) -> T:
    """Run steps to their end, awaiting each ask. The async twin of `drive`."""
    try:
        ask = next(steps)
        while True:
            try:
                reply = summarize(_prompt(ask), ask.max_output_tokens) if summarize else ""
                answer = _text_of(await reply if inspect.isawaitable(reply) else reply)
            except SummaryError as error:
                ask = steps.throw(error)
            except Exception as error:  # noqa: BLE001 - as above; a cancellation is no Exception and propagates
                ask = steps.throw(_failed(error))
            else:
                ask = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


def _prompt(ask: Ask) -> list[dict[str, str]]:
    return [dict(message) for message in ask.prompt]


def _failed(error: Exception) -> SummaryError:
    wrapped = SummaryError(f"the summariser failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
