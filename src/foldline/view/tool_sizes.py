"""How much of the window each tool definition takes, and the server that it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.codecs.limits import tool_names
from foldline.tokens import Counter
from foldline.tokens.sizes import json_tokens

__all__ = ["ToolSize", "by_server", "tool_sizes"]

# Clients name the tools of an MCP server `mcp__SERVER__TOOL` (Claude Code, Codex) or `SERVER__TOOL`.
_MCP: Final = "mcp__"
_BETWEEN: Final = "__"


@dataclass(frozen=True, slots=True)
class ToolSize:
    """One tool of a request: its name, the tokens of its definition, and its MCP server ("" for none, or unknown)."""

    name: str
    tokens: int
    server: str = ""


def tool_sizes(tools: Sequence[Mapping[str, Any]] | None, counter: Counter) -> tuple[ToolSize, ...]:
    """The tools of a request in any dialect, in their order. O(size of the definitions)."""
    return tuple(_sizes(tools or (), counter))


def _sizes(tools: Iterable[Mapping[str, Any]], counter: Counter) -> Iterator[ToolSize]:
    for tool in tools:
        listed = tool.get("functionDeclarations") or tool.get("function_declarations")
        if isinstance(listed, list | tuple):  # Gemini lists the functions inside one tool
            yield from _sizes((each for each in listed if isinstance(each, Mapping)), counter)
            continue
        name = next(iter(tool_names([tool])), "")
        # A tool of the provider's own has a type and no name: its definition is written at the provider.
        yield ToolSize(name or str(tool.get("type", "tool")), json_tokens(tool, counter), _server(name))


def _server(name: str) -> str:
    rest = name.removeprefix(_MCP)
    server, between, tool = rest.partition(_BETWEEN)
    return server if between and server and tool else ""


def by_server(sizes: Iterable[ToolSize]) -> list[tuple[str, int, int]]:
    """(server, number of its tools, their tokens), the largest first; tools without a server are one row, ""."""
    found: dict[str, tuple[int, int]] = {}
    for size in sizes:
        count, tokens = found.get(size.server, (0, 0))
        found[size.server] = count + 1, tokens + size.tokens
    return sorted(((server, *sums) for server, sums in found.items()), key=lambda row: -row[2])
