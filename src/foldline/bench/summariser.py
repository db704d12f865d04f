"""A summariser that is the same for every system and every run: it writes down the first line of each message.

A real model's summaries differ from run to run, so that a difference between two systems would say little. Whatever
calls it, the call is noted with its tokens: its price is the system's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from time import process_time
from typing import Any, Final

from foldline.replay import Asked
from foldline.request import Request
from foldline.tokens import ESTIMATE, Counter

__all__ = ["MODEL", "SUMMARY_TOKENS", "GoingOn", "Summariser"]

SUMMARY_TOKENS: Final = 800
"""Size of a summary, if the caller leaves so much room: what models write when asked for a summary of a session."""

MODEL: Final = "recorded"
"""The name of the model that writes, for a context that is to go on from its own requests."""

_LINE_CHARS: Final = 200
_SPEAKER: Final = re.compile(r"^\W{0,4}(?:human|user|assistant|ai|tool|system|model)\b[^\n]{0,40}:", re.IGNORECASE)


class Summariser:
    """Writes summaries, and notes each call and the time it took.

    `counter` counts the prompt and cuts the summary.
    """

    def __init__(self, counter: Counter = ESTIMATE) -> None:
        self._counter = counter
        self._asked: list[Asked] = []
        self._seconds = 0.0

    def summarize(self, messages: Sequence[Mapping[str, Any]], max_output_tokens: int = SUMMARY_TOKENS) -> str:
        """A summary of messages in the Chat Completions dialect (of texts alone, too): the first line of each.

        It has the form of the summariser that a `Context` asks. O(size).
        """
        return self.answer("\n\n".join(_lines(messages)), max_output_tokens)

    def answer(self, prompt: str, max_output_tokens: int = SUMMARY_TOKENS, *, cached_tokens: int = 0) -> str:
        """A summary for a prompt that is one text: the line in which each speaker begins, or each line if none speaks.

        `cached_tokens` of the prompt began as the request before did. O(size).
        """
        began = process_time()
        written = self._cut(_first_lines(prompt), max_output_tokens)
        self._asked.append(Asked(self._counter.text(prompt), cached_tokens, self._counter.text(written)))
        self._seconds += process_time() - began
        return written

    def continued(self, request: Request) -> str:
        """A summary for a question at the end of a request that was sent before; all but the question is in the cache.

        O(size).
        """
        began = process_time()
        before, question = request.messages[: -request.once], request.messages[-request.once :]
        written = self._cut(_first_lines("\n\n".join(_lines(before))), request.max_output_tokens or SUMMARY_TOKENS)
        asked = sum(self._counter.text(said) for said in _lines(question))
        self._asked.append(Asked(request.tokens, request.tokens - asked, self._counter.text(written)))
        self._seconds += process_time() - began
        return written

    def take(self) -> tuple[Asked, ...]:
        """The calls since this was last asked."""
        asked, self._asked = tuple(self._asked), []
        return asked

    def take_seconds(self) -> float:
        """CPU seconds spent in here since this was last asked: a model would have been waited for, not computed."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _cut(self, lines: Sequence[str], max_output_tokens: int) -> str:
        """As many lines as fit, the newest first to stay; never nothing."""
        kept: list[str] = []
        room = min(max_output_tokens, SUMMARY_TOKENS)
        for line in reversed(lines):
            room -= self._counter.text(line) + 1
            if room < 0 and kept:
                break
            kept.append(line)
        return "\n".join(reversed(kept)) or "Nothing was said."


class GoingOn:
    """A summariser for a context that may go on from the request that it sent last, where that is cheaper."""

    model = MODEL
    dialect = "openai-chat"

    def __init__(self, summariser: Summariser) -> None:
        self._summariser = summariser

    def __call__(self, messages: Sequence[Mapping[str, Any]], max_output_tokens: int) -> str:
        """A summary for a prompt of its own."""
        return self._summariser.summarize(messages, max_output_tokens)

    def continued(self, request: Request) -> str:
        """A summary for a question at the end of a request that was sent before."""
        return self._summariser.continued(request)


def _lines(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
        calls = [call.get("function", {}) for call in message.get("tool_calls") or ()]
        said = "\n".join((content, *(f"{call.get('name')} {call.get('arguments')}" for call in calls))).strip()
        yield f"{message.get('role', 'user')}: {said}"


def _first_lines(prompt: str) -> list[str]:
    lines = [line.strip() for line in prompt.splitlines()]
    spoken = [line for line in lines if _SPEAKER.match(line)]
    return [line[:_LINE_CHARS] for line in (spoken or lines) if line]
