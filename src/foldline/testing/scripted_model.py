"""A summariser that answers from a script, and sessions of any length."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from foldline.engine.context import Completion
from foldline.reducers.summarize import CONTINUED_MARK
from foldline.testing.forms.base import form_of

__all__ = ["Call", "ScriptedModel", "asks_for_summary", "session"]

Reply: TypeAlias = str | Completion | Exception | Callable[[list[dict[str, str]], int], str]


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request of any dialect asks for a summary, for fakes of a model that has tools in all other requests.

    A summary is requested by a prompt of its own, without tools, or by a question after the session. O(newest message).
    """
    messages = body.get("messages") or body.get("input") or body.get("contents") or ()
    return not body.get("tools") or CONTINUED_MARK in json.dumps(messages[-1] if messages else "")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a ScriptedModel."""

    messages: list[dict[str, str]]
    max_output_tokens: int

    @property
    def text(self) -> str:
        """The whole request as one text."""
        return "\n".join(message["content"] for message in self.messages)


@dataclass
class ScriptedModel:
    """A summariser that answers from a script: texts, `Completion`s, exceptions (raised), or functions of the request.

    With `repeat` the last reply answers everything after it. Without, an exhausted script raises AssertionError, so
    that a test notices an unexpected call. `calls` has all requests.
    """

    replies: Iterable[Reply]
    repeat: bool = False
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A copy, so that a script can be shared between models, and an iterator can be used at all.
        self.replies = list(self.replies)

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int) -> str | Completion:
        """The next reply of the script."""
        script: Sequence[Reply] = list(self.replies)
        number = len(self.calls)
        self.calls.append(Call([dict(message) for message in messages], max_output_tokens))
        if number >= len(script) and not (self.repeat and script):
            raise AssertionError(f"ScriptedModel was asked {number + 1} times, its script has {len(script)} replies")
        reply = script[min(number, len(script) - 1)]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str | Completion):
            return reply
        return reply(messages, max_output_tokens)

    async def acall(self, messages: list[dict[str, str]], max_output_tokens: int) -> str | Completion:
        """The next reply, for `prepare_async` and `compact_async`."""
        return self(messages, max_output_tokens)


def session(
    rounds: int, *, result: str = "ok", dialect: str = "openai-chat", task: str = "Fix the failing test."
) -> list[Mapping[str, Any]]:
    """Return a valid session: a task, then `rounds` rounds of one tool call and its result, in the dialect's JSON."""
    return form_of(dialect).session(rounds, result, task)
