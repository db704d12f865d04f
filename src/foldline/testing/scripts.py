"""A summariser that answers from a script, and sessions made to order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from foldline.engine.context import Completion
from foldline.reducers.summarize import CONTINUED_MARK

__all__ = ["Call", "ScriptedModel", "asks_for_summary", "session"]

Reply: TypeAlias = str | Completion | Exception | Callable[[list[dict[str, str]], int], str]


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request of any dialect asks for a summary: by a prompt of its own, which has no tools, or by a question
    behind the session itself. For fakes of a model that has tools in all other requests. O(newest message).
    """
    said = body.get("messages") or body.get("input") or body.get("contents") or ()
    return not body.get("tools") or CONTINUED_MARK in json.dumps(said[-1] if said else "")


@dataclass(frozen=True, slots=True)
class Call:
    """One thing a ScriptedModel was asked."""

    messages: list[dict[str, str]]
    max_output_tokens: int

    @property
    def text(self) -> str:
        """All that was sent, as one text."""
        return "\n".join(message["content"] for message in self.messages)


@dataclass
class ScriptedModel:
    """A summariser that answers from a script: texts, `Completion`s, exceptions (raised), or functions of the request.

    With `repeat` the last reply answers everything after it; else an exhausted script raises AssertionError, loudly, so
    that a test notices a call it did not expect. `calls` keeps what was asked.
    """

    replies: Iterable[Reply]
    repeat: bool = False
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
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
    """A legal session: a task, then `rounds` rounds of one tool call and its result, in the dialect's own JSON."""
    if dialect == "anthropic":
        out: list[Mapping[str, Any]] = [{"role": "user", "content": task}]
        for r in range(rounds):
            call = {"type": "tool_use", "id": f"call_{r}", "name": "read_file", "input": {"path": f"src/{r}.py"}}
            out.append({"role": "assistant", "content": [{"type": "text", "text": f"Step {r}."}, call]})
            out.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{r}", "content": result}]}
            )
        return out
    if dialect == "gemini":
        out = [{"role": "user", "parts": [{"text": task}]}]
        for r in range(rounds):
            call = {"id": f"call_{r}", "name": "read_file", "args": {"path": f"src/{r}.py"}}
            signed = {"functionCall": call, "thoughtSignature": "c2lnbmVk"}
            response = {"id": f"call_{r}", "name": "read_file", "response": {"output": result}}
            out.append({"role": "model", "parts": [{"text": f"Step {r}."}, signed]})
            out.append({"role": "user", "parts": [{"functionResponse": response}]})
        return out
    arguments = [json.dumps({"path": f"src/{r}.py"}) for r in range(rounds)]
    if dialect == "openai-responses":
        out = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": task}]}]
        for r in range(rounds):
            out.append(
                {
                    "type": "function_call",
                    "id": f"fc_{r}",
                    "call_id": f"call_{r}",
                    "name": "read_file",
                    "arguments": arguments[r],
                }
            )
            out.append({"type": "function_call_output", "call_id": f"call_{r}", "output": result})
        return out
    out = [{"role": "user", "content": task}]
    for r in range(rounds):
        function = {"name": "read_file", "arguments": arguments[r]}
        out.append(
            {
                "role": "assistant",
                "content": f"Step {r}.",
                "tool_calls": [{"id": f"call_{r}", "type": "function", "function": function}],
            }
        )
        out.append({"role": "tool", "tool_call_id": f"call_{r}", "content": result})
    return out
