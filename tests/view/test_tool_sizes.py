"""How much each tool definition takes."""

from __future__ import annotations

from typing import Any

from foldline import Context
from foldline.tokens import ESTIMATE
from foldline.tokens.sizes import tools_tokens
from foldline.view.tool_sizes import ToolSize, by_server, tool_sizes

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT = [
    {"type": "function", "function": {"name": name, "description": "Reads.", "parameters": SCHEMA}}
    for name in ("bash", "mcp__docs__search", "docs__open")
]
ANTHROPIC: list[dict[str, Any]] = [
    {"name": "bash", "description": "Runs.", "input_schema": SCHEMA},
    {"type": "web_search_20250305", "name": "web_search"},
]
GEMINI: list[dict[str, Any]] = [
    {"functionDeclarations": [{"name": "bash", "parameters": SCHEMA}, {"name": "open"}]},
    {"googleSearch": {}},
]


def test_each_tool_has_its_size_and_its_server() -> None:
    sizes = tool_sizes(CHAT, ESTIMATE)
    assert [(size.name, size.server) for size in sizes] == [
        ("bash", ""), ("mcp__docs__search", "docs"), ("docs__open", "docs"),
    ]  # fmt: skip
    assert sum(size.tokens for size in sizes) == tools_tokens(CHAT, ESTIMATE)


def test_tools_of_every_dialect_are_named() -> None:
    assert [size.name for size in tool_sizes(ANTHROPIC, ESTIMATE)] == ["bash", "web_search"]
    assert [size.name for size in tool_sizes(GEMINI, ESTIMATE)] == ["bash", "open", "tool"]
    assert tool_sizes(None, ESTIMATE) == ()


def test_servers_are_summed_the_largest_first() -> None:
    sizes = [ToolSize("a", 5), ToolSize("x", 40, "docs"), ToolSize("y", 2, "docs")]
    assert by_server(sizes) == [("docs", 2, 42), ("", 1, 5)]


def test_a_context_counts_them_anew_when_they_change() -> None:
    context = Context(tools=CHAT, window=8_000)
    assert len(context.tool_sizes) == 3
    assert context.tool_sizes is context.tool_sizes
    context.set_system_and_tools(system=None, tools=CHAT[:1])
    assert [size.name for size in context.tool_sizes] == ["bash"]
