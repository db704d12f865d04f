"""A summariser that is the same for every system and every run: it writes the first line of each message.

Summaries of a real model differ from run to run, so that a difference between two systems would say little. Each call
is recorded with its tokens, as its price is the system's.

Each system writes the messages into a prompt in its own way, amid instructions. It pays for the whole prompt, but only
the messages are summarised, so that no system is judged by its instructions. Every line of an earlier summary stays, as
a model keeps what it is given to update.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import process_time
from typing import Any, Final

from foldline.replay import SummaryCall
from foldline.tokens import ESTIMATE, Counter
from foldline.view.request import Request

__all__ = ["MODEL", "SUMMARY_TOKENS", "ContinuedSummariser", "FixedSummariser"]

SUMMARY_TOKENS: Final = 800
"""Size of a summary, if the caller leaves so much room: what models write for the summary of a session."""

MODEL: Final = "recorded"
"""The name of the model that writes, for a context that continues its own requests."""

_LINE_CHARS: Final = 200
_SPEAKER: Final = re.compile(r"^\W{0,4}(?:human|user|assistant|ai|tool|system|model)\b[^\n]{0,40}:", re.IGNORECASE)
_MARKED: Final = re.compile(r"^<<<(?P<mark>record|checkpoint)\n(?P<body>.*?)\n(?P=mark)>>>$", re.DOTALL | re.MULTILINE)
_TOLD: Final = re.compile(r"^(?P<who>user|assistant|call [^\s:]+|result(?: \(failed\))?): ", re.MULTILINE)


class FixedSummariser:
    """Writes summaries, and records each call and its time.

    `counter` counts the prompt and cuts the summary.
    """

    def __init__(self, counter: Counter = ESTIMATE) -> None:
        self._counter = counter
        self._calls: list[SummaryCall] = []
        self._seconds = 0.0
        self._written: set[str] = set()

    def summarize(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_output_tokens: int = SUMMARY_TOKENS,
        *,
        said: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """A summary for a prompt of messages in the Chat Completions dialect (of texts alone, too).

        It is the first line of each message of `said`, the messages that the prompt is about: without it, those in the
        record of a prompt of `Summarize`, or else all. A `Context` asks its summariser in this form, too. O(size).
        """
        began = process_time()
        prompt = "\n\n".join(map(_as_text, messages))
        if said is None:
            said = [told for message in messages for told in _record(_text(message))] or messages
        return self._write(said, max_output_tokens, SummaryCall(self._counter.text(prompt), 0, 0), began)

    def answer(self, prompt: str, max_output_tokens: int = SUMMARY_TOKENS, *, cached_tokens: int = 0) -> str:
        """A summary for a prompt that is one text: the line in which each speaker begins, or each line if none speaks.

        `cached_tokens` of the prompt began as the request before did. O(size).
        """
        began = process_time()
        call = SummaryCall(self._counter.text(prompt), cached_tokens, 0)
        return self._finish(_first_lines(prompt), max_output_tokens, call, began)

    def continued(self, request: Request) -> str:
        """A summary for a question at the end of a request that was sent before; all but the question is in the cache.

        It is of the messages that do not stay in view beside it. O(size).
        """
        began = process_time()
        said = request.messages[: len(request.messages) - 1 - request.kept]  # the question is the last message
        call = sum(self._counter.text(_as_text(message)) for message in request.messages[-request.once :])
        usage = SummaryCall(request.tokens, request.tokens - call, 0)
        return self._write(said, request.max_output_tokens or SUMMARY_TOKENS, usage, began)

    def _write(self, said: Sequence[Mapping[str, Any]], max_output_tokens: int, call: SummaryCall, began: float) -> str:
        lines = [line for message in said for line in self._lines(message)]
        return self._finish(lines, max_output_tokens, call, began)

    def _finish(self, lines: Sequence[str], max_output_tokens: int, call: SummaryCall, began: float) -> str:
        written = self._cut(lines, max_output_tokens)
        self._written.update(written.splitlines())
        self._calls.append(replace(call, output_tokens=self._counter.text(written)))
        self._seconds += process_time() - began
        return written

    def _lines(self, message: Mapping[str, Any]) -> Iterator[str]:
        """The first line of a message, and each line of a summary in it."""
        lines = [line for line in map(str.strip, _text(message).splitlines()) if line]
        if lines and lines[0] not in self._written:
            first = f"{message.get('role', 'user')}: {lines.pop(0)}"[:_LINE_CHARS].rstrip()
            yield from () if first in lines else (first,)  # words around a summary, which has them already
        yield from (line for line in lines if line in self._written)

    def pop_calls(self) -> tuple[SummaryCall, ...]:
        """Return the calls since the last time, and forget them."""
        call, self._calls = tuple(self._calls), []
        return call

    def pop_seconds(self) -> float:
        """Return the CPU seconds spent here since the last time: a real model computes elsewhere."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _cut(self, lines: Sequence[str], max_output_tokens: int) -> str:
        """Return as many lines as fit, newest first; at least one."""
        kept: list[str] = []
        room = min(max_output_tokens, SUMMARY_TOKENS)
        for line in reversed(lines):
            room -= self._counter.text(line) + 1
            if room < 0 and kept:
                break
            kept.append(line)
        return "\n".join(reversed(kept)) or "Nothing was said."


class ContinuedSummariser:
    """A summariser for a context that may go on from the request that it sent last, where that is cheaper."""

    model = MODEL
    dialect = "openai-chat"

    def __init__(self, summariser: FixedSummariser) -> None:
        self._summariser = summariser

    def __call__(self, messages: Sequence[Mapping[str, Any]], max_output_tokens: int) -> str:
        """A summary for a prompt of its own."""
        return self._summariser.summarize(messages, max_output_tokens)

    def continued(self, request: Request) -> str:
        """A summary for a question at the end of a request that was sent before."""
        return self._summariser.continued(request)


def _as_text(message: Mapping[str, Any]) -> str:
    return f"{message.get('role', 'user')}: {_text(message)}"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    calls = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    return "\n".join((content, *(f"{call.get('name')} {call.get('arguments')}" for call in calls))).strip()


def _record(prompt: str) -> Iterator[dict[str, str]]:
    """The messages between the marks of a prompt of `Summarize`, the checkpoint so far before them.

    What an assistant says and the calls that it makes with it are one message, as they are for every other system.
    """
    for match in _MARKED.finditer(prompt):
        if match["mark"] == "checkpoint":
            yield {"role": "user", "content": match["body"]}
            continue
        heads = [*_TOLD.finditer(match["body"])]
        stops = [*(head.start() for head in heads[1:]), len(match["body"])]
        before = ""
        for head, stop in zip(heads, stops, strict=False):
            goes_on, before = head["who"].startswith("call ") and before.startswith(("assistant", "call ")), head["who"]
            if goes_on:
                continue
            yield {"role": head["who"], "content": match["body"][head.end() : stop]}


def _first_lines(prompt: str) -> list[str]:
    lines = [line.strip() for line in prompt.splitlines()]
    spoken = [line for line in lines if _SPEAKER.match(line)]
    return [line[:_LINE_CHARS].rstrip() for line in (spoken or lines) if line]
