"""Tools of MCP servers, by the official `mcp` package.

Importing this module needs the extra `mcp`, so the doors import it only when a server is set. Of a server only its
tools have an effect: its instructions, annotations, logging and requests (sampling, elicitation, roots) are neither
shown to the model nor answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.base import CONSENT_NEEDED, CallScope, Tool, ToolOutcome, is_allowed
from foldline.agent.tools.run_command import ProcessOutput, reading
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json
from foldline.text.shorten import first_line

try:
    import httpx2
    import mcp.types as wire
    from mcp import Client, MCPError, StdioServerParameters, stdio_client
    from mcp.client import Transport
    from mcp.client.streamable_http import streamable_http_client
except ImportError as error:
    raise MissingExtra("mcp", "an MCP server") from error

__all__ = ["McpServer", "mcp_tools"]

# Pages of a list of tools: an endless list must not hang the start.
MAX_PAGES: Final = 100
# Bytes kept of a server's stderr, to report why it ended.
STDERR_BYTES: Final = 8 * 1024
NAME_CHARS: Final = 64

# Without a handler, `logging` would print the warnings of the package on the screen of the chat.
logging.getLogger("mcp").addHandler(logging.NullHandler())

# For the start of a server, and for each call: most servers are started by a package runner that may load them.
TIMEOUT_SECONDS: Final = 60.0

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")  # leaves half of a tool's 64 characters to the server's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: a `command` to start with `args` and `env`, or the `url` of a running one with `headers`.

    A person allows each call of its tools unless `allow` is set. `env` is added to a small safe environment (PATH, HOME
    and the like): a server gets no key that is not named here. Values of `env` and `headers` are never shown. Raises
    InvalidInput, which names the field.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInput('must have 1 to 32 letters, digits, "_" and "-"', place=f"{self.name[:80]!r}: name")
        if bool(self.command) == bool(self.url):
            raise InvalidInput("needs either a command or a url", place=self.name)
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InvalidInput("must be an http or https address", place=f"{self.name}: url")
        if self.url and (self.args or self.env):
            raise InvalidInput("args and env belong to a command, not to a url", place=self.name)
        if self.command and self.headers:
            raise InvalidInput("headers belong to a url, not to a command", place=self.name)
        if not (math.isfinite(self.timeout_seconds) and self.timeout_seconds > 0):
            raise InvalidInput("must be a positive number of seconds", place=f"{self.name}: timeout_seconds")


@asynccontextmanager
async def mcp_tools(name: str, config: McpServer) -> AsyncIterator[tuple[Tool, ...]]:
    """Connect to a server during the block. Yields its tools, named `{name}_{tool}`.

    Raises InvalidInput, with a reason of one line, if the server does not start.
    """
    link = _Connection(name, config)
    await link.start()
    try:
        yield tuple(_named(name, link))
    finally:
        await link.stop()


class _Connection:
    """The connection to one server, in a task of its own.

    When a connection breaks, the package cancels the task that opened it, which must not be the agent's.
    """

    def __init__(self, name: str, config: McpServer) -> None:
        self.name = name
        self.config = config
        self.tools: tuple[wire.Tool, ...] = ()
        self._client: Client | None = None
        self._errors = ProcessOutput(STDERR_BYTES)
        self._ready = asyncio.Event()
        self._done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and list its tools. Raises InvalidInput."""
        self._task = asyncio.create_task(self._run(), name=f"mcp {self.name}")
        ready = asyncio.create_task(self._ready.wait())
        try:
            # Whichever is first: a server that fails to start never becomes ready.
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            ready.cancel()
        if self._task.done():
            raise InvalidInput(f"did not start: {self._failure_reason(self._task)}", place=f"MCP server {self.name}")

    async def stop(self) -> None:
        """Stop the server, or its start. Errors on its way out are ignored."""
        self._done.set()
        if self._task is None:
            return
        # A start may hang for its whole time limit; once ready, the task ends by itself and closes the server.
        if not self._ready.is_set():
            self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # retrieved, or asyncio logs it

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> wire.CallToolResult:
        """Call a tool. Raises InvalidInput if the server has ended, refuses, or takes too long."""
        if self._client is None or self._task is None or self._task.done():
            raise InvalidInput(self._ended())
        call = asyncio.create_task(
            self._client.call_tool(tool, dict(arguments), read_timeout_seconds=self.config.timeout_seconds)
        )
        try:
            # The connection is awaited as well: once it has ended, the call would only wait for its time-out.
            await asyncio.wait({call, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise InvalidInput(self._ended())
            return call.result()
        except MCPError as error:
            # Servers use the same number for errors of their own; the words are the package's.
            if (error.code, error.message) == (wire.CONNECTION_CLOSED, "Connection closed"):
                raise InvalidInput(self._ended()) from None
            raise InvalidInput(f"the call to the MCP server {self.name} failed: {error.message}") from None
        finally:
            call.cancel()

    async def _run(self) -> None:
        """Connect, list the tools, and keep the connection until `stop`."""
        # In one task: anyio's cancel scopes, which the package uses, must be left by the task that entered them.
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.config.timeout_seconds):
                transport = await self._transport(stack)
                # No cache: the list of tools is read once.
                client = await stack.enter_async_context(Client(transport, cache=None))
                self.tools = await _list_tools(client)
            self._client = client
            self._ready.set()
            await self._done.wait()

    async def _transport(self, stack: AsyncExitStack) -> Transport:
        config = self.config
        if config.url:
            # The times are those of the package's own client, whose answers may come in a stream that stays open.
            web = httpx2.AsyncClient(headers=dict(config.headers), timeout=httpx2.Timeout(30.0, read=300.0))
            return streamable_http_client(config.url, http_client=await stack.enter_async_context(web))
        write_end = await stack.enter_async_context(reading(self._errors))
        errors = stack.enter_context(os.fdopen(write_end, "w"))
        server = StdioServerParameters(command=config.command or "", args=list(config.args), env=dict(config.env))
        return stdio_client(server, errlog=errors)

    def _failure_reason(self, task: asyncio.Task[None]) -> str:
        """Return in one line why the connection ended: the error, and the last line of the server's stderr."""
        found = None if task.cancelled() else task.exception()
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found, TimeoutError):
            reason = f"no answer within {self.config.timeout_seconds:g} seconds"
        elif found is None:
            reason = "it ended"
        else:
            reason = first_line(str(found)) or type(found).__name__
        return f"{reason}{self._last_line()}"

    def _ended(self) -> str:
        return f"the MCP server {self.name} has ended, and its tools with it{self._last_line()}"

    def _last_line(self) -> str:
        lines = [line.strip() for line in self._errors.text.splitlines() if line.strip()]
        return f" (it wrote: {lines[-1][:200]})" if lines else ""


async def _list_tools(client: Client) -> tuple[wire.Tool, ...]:
    tools: dict[str, wire.Tool] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        # By name: a later page may repeat a tool.
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools.values())


@dataclass(frozen=True, slots=True)
class _McpTool:
    """A tool of a server."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    own_name: str
    link: _Connection = field(repr=False)

    @property
    def server(self) -> str:
        """The name of the server."""
        return self.link.name

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Ask, unless settings allow it, and call. Raises InvalidInput if the server has ended or refuses."""
        if not self.link.config.allow:
            shown = json.dumps(arguments, ensure_ascii=False)
            if not await is_allowed(scope, self.name, f"{self.own_name} of MCP server {self.link.name}: {shown}"):
                return ToolOutcome(CONSENT_NEEDED, is_error=True)
        result = await self.link.call(self.own_name, arguments)
        return ToolOutcome(_text(result), is_error=bool(result.is_error))


def _named(server: str, link: _Connection) -> list[Tool]:
    """Give the tools of a server names that every provider accepts; equal ones get a mark each."""
    plain = [_legal(f"{server}_{tool.name}") for tool in link.tools]
    tools: list[Tool] = []
    for name, tool in zip(plain, link.tools, strict=True):
        # Both of two equal names get a mark: which came first depends on the server, and names are in cached prefixes.
        clear = len(name) <= NAME_CHARS and plain.count(name) == 1
        tools.append(
            _McpTool(
                name=name if clear else _marked(name, tool.name),
                description=(tool.description or tool.title or tool.name).strip(),
                # The type may be missing, and providers want it.
                parameters=tool.input_schema | {"type": "object"},
                own_name=tool.name,
                link=link,
            )
        )
    return tools


def _legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _marked(name: str, own_name: str) -> str:
    """Return the name, cut, with six digits of the hash of the server's own name for the tool."""
    mark = hashlib.sha256(own_name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{name[: NAME_CHARS - 7]}_{mark}"


def _text(result: wire.CallToolResult) -> str:
    """Return a result as text. Structured content counts only without text: servers send both (MCP, "Tools")."""
    pieces = [_block(block) for block in result.content]
    if result.structured_content is not None and not any(isinstance(b, wire.TextContent) for b in result.content):
        pieces.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(pieces) or "[an empty result]"


def _block(block: wire.ContentBlock) -> str:
    match block:
        case wire.TextContent():
            return block.text
        case wire.ImageContent() | wire.AudioContent():
            return f"[{block.type}: {block.mime_type}, {_size_bytes(block.data):,} bytes; not shown]"
        case wire.EmbeddedResource(resource=inside):
            head = f"[resource {inside.uri}"
            if isinstance(inside, wire.TextResourceContents):
                return f"{head}]\n{inside.text}"
            return f"{head}: {inside.mime_type}, {_size_bytes(inside.blob):,} bytes; not shown]"
        case wire.ResourceLink():
            return f"[link to resource {block.uri}: {block.name}]"


def _size_bytes(base64_text: str) -> int:
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")
