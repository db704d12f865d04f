from __future__ import annotations

import asyncio

import pytest
from tests.agent.tools.support import Person, scope

from foldline.agent.tools.base import PermissionRequest, is_allowed, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -l", "ls -l"),
        ("echo Grüße 你好", "echo Grüße 你好"),
        ("ls\nrm -r .", "ls\\nrm -r ."),
        ("ls\r\x1b[2Krm", "ls\\r\\x1b[2Krm"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
    ],
)
def test_what_is_asked_is_one_line_that_hides_nothing(text: str, shown: str) -> None:
    person = Person()
    assert asyncio.run(is_allowed(scope(person), "run_command", text))
    assert person.asked == [PermissionRequest("run_command", shown)]


def test_a_long_command_is_shown_to_its_end() -> None:
    assert one_line("x" * 100_000 + "; rm").endswith("; rm")
