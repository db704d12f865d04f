from __future__ import annotations

from typing import Any

import pytest

from foldline.agent.tools.mcp.server import McpServer
from foldline.errors import InvalidInput


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "two words", "command": "x"}, "'two words': name: must have 1 to 32"),
        ({"name": "", "command": "x"}, "name: must have 1 to 32"),
        ({"name": "a"}, "a: needs either a command or a url"),
        ({"name": "a", "command": "x", "url": "http://y"}, "a: needs either a command or a url"),
        ({"name": "a", "url": "ftp://y"}, "a: url: must be an http or https address"),
        ({"name": "a", "url": "http://y", "args": ("-x",)}, "a: args and env belong to a command"),
        ({"name": "a", "url": "http://y", "env": {"X": "1"}}, "a: args and env belong to a command"),
        ({"name": "a", "command": "x", "headers": {"X": "1"}}, "a: headers belong to a url"),
        ({"name": "a", "command": "x", "timeout_seconds": 0}, "a: timeout_seconds: must be a positive number"),
        ({"name": "a", "command": "x", "timeout_seconds": float("nan")}, "a: timeout_seconds"),
    ],
)
def test_a_wrong_setting_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        McpServer(**fields)
    assert told in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "s3cret" not in repr(McpServer(name="a", url="https://example.com", headers={"Authorization": "s3cret"}))
    assert "s3cret" not in repr(McpServer(name="a", command="x", env={"TOKEN": "s3cret"}))
