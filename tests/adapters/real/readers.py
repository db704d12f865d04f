"""The model of the conversations: asks for three parts of the log at once, then answers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foldline.testing import FakeReply

__all__ = ["PARTS_IN_A_TURN", "ParallelReader", "StepReader"]

PARTS_IN_A_TURN: Final = 3
_CODE: Final = "<code>\n{}\n</code>"


class ParallelReader:
    """Goes by what the request ends with."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        """The reply to a request, in any dialect."""
        items = body.get("messages") or body.get("input") or body.get("contents") or [{}]
        last = items[-1]
        inner = last.get("content") if isinstance(last.get("content"), list) else last.get("parts") or []
        answers = last.get("role") == "tool" or last.get("type") == "function_call_output"
        if answers or any(block.get("type") == "tool_result" or "functionResponse" in block for block in inner):
            return FakeReply(self.answer)
        if not body.get("tools"):
            return FakeReply("Nothing to read with.")
        return FakeReply("Reading.", calls=[("read_part", {"part": part}) for part in self.next_parts()])

    @property
    def answer(self) -> str:
        """The answer to a question."""
        return f"Nothing unusual in the {self.read} parts so far."

    def next_parts(self) -> range:
        """The parts to ask for."""
        self.read += PARTS_IN_A_TURN
        return range(self.read - PARTS_IN_A_TURN + 1, self.read + 1)


class StepReader(ParallelReader):
    """The same for smolagents: its results are texts of the user, and an answer is a call, or code."""

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        """The reply to a request of Chat Completions; code where it brings no tools."""
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
        coded = not body.get("tools")
        if text.rfind("Observation:\n") > text.rfind("New task:\n"):
            code = f"final_answer({self.answer!r})"
            return (
                FakeReply(_CODE.format(code)) if coded else FakeReply(calls=[("final_answer", {"answer": self.answer})])
            )
        parts = self.next_parts()
        if coded:
            return FakeReply("Reading.\n" + _CODE.format(f"for part in {list(parts)}:\n    print(read_part(part))"))
        return FakeReply("Reading.", calls=[("read_part", {"part": part}) for part in parts])
