"""One line for each event, without repetition."""

from __future__ import annotations

import pytest

from foldline.agent.events import ToolFinished, ToolStarted
from foldline.doors.chat.event_lines import call_text, failure_text, result_text


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("read_file", '{"path": "a.py"}', "read_file a.py"),
        ("read_file", '{"path": "a.py", "start_line": 3, "end_line": 9}', "read_file a.py:3-9"),
        ("search_files", '{"pattern": "def ", "path": "src"}', "search_files def in src"),
        ("list_files", '{"path": "src"}', "list_files src"),
        ("list_files", "{}", "list_files"),
        ("run_command", '{"command": "ls\\n-la", "seconds": 9}', "run_command ls -la"),
        ("spawn_agent", '{"name": "reader", "task": "Read."}', "spawn_agent Read."),
        ("of_a_server", '{"other": {"x": 1}}', 'of_a_server {"x": 1}'),
        ("read_file", '{"path": ', 'read_file {"path":'),
        ("read_file", "[1]", "read_file"),
    ],
)
def test_a_call_is_its_tool_and_what_says_most(tool: str, arguments: str, line: str) -> None:
    assert call_text(ToolStarted("1", tool, arguments)) == line


def ended(text: str, *, is_error: bool = False, seconds: float = 0.0) -> ToolFinished:
    return ToolFinished(call_id="1", tool="t", text=text, is_error=is_error, tokens=1, seconds=seconds)


def test_a_time_is_told_where_a_person_notices_it() -> None:
    assert result_text(ended("abc", seconds=0.09)) == "3 bytes"
    assert result_text(ended("abc", seconds=0.1)) == "3 bytes, 0.1 s"
    assert result_text(ended("abc", seconds=125.0)) == "3 bytes, 2 min 5 s"


def test_an_error_does_not_say_again_what_the_call_says() -> None:
    assert result_text(ended("a/b.py: there is no such file", is_error=True), "read_file a/b.py") == (
        "there is no such file"
    )
    assert result_text(ended("path: leaves the workspace", is_error=True), "read_file /etc") == (
        "path: leaves the workspace"
    )
    assert result_text(ended("\n \n", is_error=True), "read_file a") == "failed"


def test_a_failure_without_a_kind_names_none() -> None:
    assert failure_text("other: http://x: cannot connect") == "http://x: cannot connect"
    assert failure_text("auth: no such key\nat all") == "auth: no such key at all"
