"""How an MCP server is started or reached, as settings have it.

Needs no extra, so that settings can be read where `mcp` is not installed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["McpServer"]

# For the start of a server, and for each call: most servers are started by a package runner that may load them.
TIMEOUT_SECONDS: Final = 60.0

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")  # leaves half of a tool's 64 characters to the server's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: a `command` with `args` and `env` that is run, or the `url` of one that runs, with `headers`.

    Its tools are asked for at each call unless `allow` is set. `env` is added to a small safe environment (PATH, HOME
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
