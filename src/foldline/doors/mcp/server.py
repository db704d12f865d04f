"""The MCP server, on standard input and output, by the official `mcp` package (extra `mcp`)."""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from typing import Any, Final

from foldline.conversations.recall import TOOLS
from foldline.doors.mcp.sources import ConversationSource
from foldline.errors import MissingExtra

try:
    import mcp.types as wire
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
except ImportError as error:
    raise MissingExtra("mcp", "an MCP server") from error

__all__ = ["serve", "server_of"]

_INSTRUCTIONS: Final = (
    "This conversation passes through Foldline, which keeps it inside the context window: old messages may be "
    "shortened, summarised or left out of what you see. recall reads them back word for word."
)
# Standard output is the protocol's; a warning of the package belongs nowhere.
logging.getLogger("mcp").addHandler(logging.NullHandler())


def server_of(source: ConversationSource) -> Server[Any]:
    """A server whose tools look into this conversation."""

    async def list_tools(context: Any, params: Any) -> wire.ListToolsResult:
        del context, params
        listed = [
            wire.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=dict(tool.parameters),
                # compact changes what is sent, and nothing that is kept.
                annotations=wire.ToolAnnotations(read_only_hint=tool.name != "compact", destructive_hint=False),
            )
            for tool in TOOLS
        ]
        return wire.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        del context
        outcome = await source.call(params.name, json.dumps(params.arguments or {}))
        text = wire.TextContent(type="text", text=outcome.text)
        return wire.CallToolResult(content=[text], is_error=outcome.is_error)

    return Server(
        "foldline",
        version=version("foldline"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(source: ConversationSource) -> None:
    """Serve until standard input ends."""
    server = server_of(source)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
