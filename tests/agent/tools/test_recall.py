from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.agent.tools.people import scope

from foldline import Context
from foldline.agent.tools.base import Outcome
from foldline.agent.tools.recall import FOUND_CHARS, Recall
from foldline.agent.tools.toolbox import Toolbox
from foldline.messages import ToolCall


def context() -> Context:
    """A session whose only result has 5,000 lines, and is shortened in the view."""
    made = Context(dialect="openai-chat", window=8_000, max_output_tokens=0)
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.log"}'}}
    made.append({"role": "user", "content": "Find the fault."})
    made.append({"role": "assistant", "content": None, "tool_calls": [call]})
    lines = "\n".join(f"line {n} " + ("FAULT 42" if n == 4_000 else "as usual") for n in range(1, 5_001))
    made.append({"role": "tool", "tool_call_id": "c1", "content": lines})
    return made


def recalled(history: Context | None, **arguments: Any) -> Outcome:
    call = ToolCall("1", "recall", json.dumps(arguments))
    return asyncio.run(Toolbox([Recall()]).run(call, scope(history=history)))


def test_what_the_model_no_longer_sees_is_found_and_read() -> None:
    session = context()
    sent = json.dumps(list(session.prepare().messages))
    assert "FAULT 42" not in sent
    found = recalled(session, action="grep", pattern="FAULT \\d+")
    assert found == Outcome("1 lines of the conversation match 'FAULT \\\\d+':\nentry 2, line 4000: line 4000 FAULT 42")
    read = recalled(session, action="peek", entry=2, start_line=3_999, lines=2)
    assert read.text.splitlines()[:3] == [
        "[entry 2, from line 3999]",
        "line 3999 as usual",
        "line 4000 FAULT 42",
    ]


def test_a_call_is_read_by_its_id() -> None:
    assert recalled(context(), action="peek", entry=1, call_id="c1").text.splitlines() == [
        "[entry 1, call c1, from line 1]",
        'read_file {"path": "a.log"}',
    ]


def test_a_search_can_be_kept_to_one_entry_and_may_find_nothing() -> None:
    assert recalled(context(), action="grep", pattern="fault", entry=0).text.endswith(
        "entry 0, line 1: Find the fault."
    )
    assert recalled(context(), action="grep", pattern="FAULT", entry=0).text == "No line of entry 0 matches 'FAULT'."


def test_the_answer_to_a_search_is_bounded() -> None:
    session = context()
    wide = "\n".join("usual " + "x" * 390 for _ in range(200))
    session.append({"role": "user", "content": wide})
    text = recalled(session, action="grep", pattern="usual", entry=3).text
    assert len(text) < FOUND_CHARS + 300
    assert "more lines match; narrow the pattern" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'action' is missing"),
        ({"action": "look"}, 'action: must be one of "peek", "grep"'),
        ({"action": "peek"}, "entry: peek needs the number of an entry"),
        ({"action": "grep"}, "pattern: grep needs a pattern"),
        ({"action": "peek", "entry": 99}, "no entry 99"),
        ({"action": "peek", "entry": "2"}, "entry: must be an integer"),
        ({"action": "peek", "entry": 2, "start_line": 9_000}, "start_line: entry 2 has 5,000 lines"),
        ({"action": "peek", "entry": 2, "call_id": "zz"}, "neither a call nor a result 'zz'"),
        ({"action": "grep", "pattern": "("}, "pattern: is not a regular expression"),
        ({"action": "grep", "pattern": "a", "entry": 99}, "no entry 99"),
    ],
)
def test_a_wrong_question_says_what_is_wrong(arguments: dict[str, Any], told: str) -> None:
    outcome = recalled(context(), **arguments)
    assert outcome.is_error
    assert told in outcome.text


def test_without_a_conversation_there_is_nothing_to_look_into() -> None:
    assert recalled(None, action="grep", pattern="a") == Outcome(
        "there is no conversation to look into here", is_error=True
    )
