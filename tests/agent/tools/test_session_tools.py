from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.agent.tools.support import scope

from foldline import Context
from foldline.agent.tools.base import ToolOutcome
from foldline.agent.tools.session_tools import GREP_CHARS, RecallTool
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


def recalled(history: Context | None, **arguments: Any) -> ToolOutcome:
    call = ToolCall("1", "recall", json.dumps(arguments))
    return asyncio.run(Toolbox([RecallTool()]).run(call, scope(history=history)))


def test_what_the_model_no_longer_sees_is_found_and_read() -> None:
    session = context()
    sent = json.dumps(list(session.prepare().messages))
    assert "FAULT 42" not in sent
    found = recalled(session, action="grep", pattern="FAULT \\d+")
    assert found == ToolOutcome(
        "1 lines of the conversation match 'FAULT \\\\d+':\nentry 2, line 4000: line 4000 FAULT 42"
    )
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
    assert len(text) < GREP_CHARS + 300
    assert "more lines match; narrow the pattern" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
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
def test_a_wrong_question_says_what_is_wrong(arguments: dict[str, Any], expected: str) -> None:
    outcome = recalled(context(), **arguments)
    assert outcome.is_error
    assert expected in outcome.text


def test_without_a_conversation_there_is_nothing_to_look_into() -> None:
    assert recalled(None, action="grep", pattern="a") == ToolOutcome(
        "there is no conversation to look into here", is_error=True
    )


def test_a_long_line_is_read_on_from_a_character() -> None:
    session = Context(dialect="openai-chat", window=8_000)
    session.append({"role": "user", "content": "".join(f"<{number:05}>" for number in range(5_000))})
    first = recalled(session, action="peek", entry=0)
    assert first.text.endswith("… [15,000 more characters in this line]")
    rest = recalled(session, action="peek", entry=0, start_char=34_994)
    assert rest.text == "[entry 0, from line 1, character 34994]\n<04999>"
    beyond = recalled(session, action="peek", entry=0, start_char=40_000)
    assert beyond == ToolOutcome("start_char: line 1 has 35,000 characters", is_error=True)


def test_a_saved_output_is_read_where_one_can_be_saved_and_not_beside_an_entry() -> None:
    nothing = recalled(context(), action="peek", saved="ab" * 32)
    assert nothing == ToolOutcome("saved: nothing is saved here", is_error=True)
    both = recalled(context(), action="grep", pattern="x", saved="ab" * 32, entry=1)
    assert both.is_error
    assert "give one of them" in both.text
