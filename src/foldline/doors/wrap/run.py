"""One run of a client behind proxies of its own: they start before it and end with it, in this process."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from foldline.doors.mcp.sources import LINK, RunLink
from foldline.doors.proxy.gate import GateRules
from foldline.doors.proxy.server import listen, run
from foldline.doors.proxy.startup import ProxySettings, open_proxy
from foldline.doors.proxy.windows import versioned
from foldline.doors.wrap.child import run_in_terminal
from foldline.doors.wrap.clients import APIS, ProviderApi, WrappedClient, filled, upstream_variables
from foldline.doors.wrap.figures import RunFigures
from foldline.doors.wrap.own_settings import ClientSettings
from foldline.errors import InvalidInput
from foldline.hosting.process import is_running_process
from foldline.store.files import make_private_folder
from foldline.store.paths import state_folder

__all__ = ["ApiUpstream", "ClientRun", "program_of", "upstream_of", "version_of", "wrap_client"]

_HOST: Final = "127.0.0.1"
_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# The client has ended: an answer that is still under way is for nobody.
_GRACE_SECONDS: Final = 2.0

_LINK_FILE: Final = "link.json"
_HTTP_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRun:
    """A client with its arguments, and the environment and settings of its proxies.

    `upstream` is asked for every API; without it each goes where the client would have sent it. With `mcp` the MCP
    server is registered, if the client takes one for a run.
    """

    client: WrappedClient
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    settings: ProxySettings
    upstream: str | None = None
    mcp: bool = False


class ApiUpstream(NamedTuple):
    """An address, and where it comes from: "--upstream", a variable, or a client's own settings; "" for the usual."""

    address: str
    source: str


def program_of(client: WrappedClient, environ: Mapping[str, str]) -> str:
    """The path of a client's program. Raises InvalidInput with the line that installs it."""
    found = shutil.which(client.program, path=environ.get("PATH"))
    if found is None:
        install = f": {client.install}" if client.install else ""
        raise InvalidInput(f"is not installed, or not in PATH{install}", place=client.program[:200])
    return found


async def wrap_client(
    wrapped: ClientRun, *, notice: Callable[[str], None], started: Callable[[str], None] = lambda address: None
) -> tuple[int, RunFigures]:
    """Run a client behind its proxies. Returns its exit code, and what they did. Raises InvalidInput and OSError.

    `started` is told the address of each proxy before the client starts.
    """
    client, figures, owner = wrapped.client, RunFigures(), secrets.token_urlsafe(32)
    program = program_of(client, wrapped.environ)
    own = client.settings(wrapped.environ) if client.settings is not None else ClientSettings()
    upstreams = {name: upstream_of(wrapped, APIS[name], own) for name in client.apis}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(_folder(wrapped.environ))
        roots: dict[str, str] = {}
        for upstream in upstreams.values():
            if upstream.address not in roots:
                proxy = _proxy(wrapped, upstream, figures, owner, notice)
                roots[upstream.address] = await stack.enter_async_context(proxy)
        values = {**_addresses(upstreams, roots), **_mcp_values(folder), **own.values, "folder": str(folder)}
        _write(folder / _LINK_FILE, RunLink(tuple(roots.values()), owner).text())
        for name, text in {**client.files, **(client.mcp_files if wrapped.mcp else {})}.items():
            _write(folder / name, filled(text, values))
        added = (*client.arguments, *own.arguments, *(client.mcp_arguments if wrapped.mcp else ()))
        if client.bare.intersection(wrapped.arguments[:1]):
            added = ()
        command = [program, *(filled(one, values) for one in added), *wrapped.arguments]
        for root in roots.values():
            started(root)
        code = await run_in_terminal(command, _environ(wrapped, values))
    if own.hint and not figures.requests:
        notice(own.hint)
    return code, figures


@contextmanager
def _folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """A folder for the files of this run, removed at its end; those of runs that were killed are removed now.

    Not in the system's folder for temporary files: a client may read no settings from where others can write (Gemini
    CLI does not).
    """
    parent = state_folder(environ) / "wrap"
    make_private_folder(parent)
    for left in parent.iterdir():
        pid = left.name.partition("-")[0]
        if pid.isdecimal() and not is_running_process(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{os.getpid()}-", dir=parent) as made:
        yield Path(made)


@asynccontextmanager
async def _proxy(
    wrapped: ClientRun, upstream: ApiUpstream, figures: RunFigures, owner: str, notice: Callable[[str], None]
) -> AsyncIterator[str]:
    """A proxy on a free port until the end of the block. Yields its address."""
    settings = replace(wrapped.settings, upstream=upstream.address)
    rules, ended = GateRules(hosts=_NAMES), asyncio.Event()
    with listen(_HOST, 0) as bound:
        try:
            opening = open_proxy(settings, rules, wrapped.environ, notice=notice, listeners=(figures,), owner=owner)
            async with opening as opened:
                # Before the client starts: one that connects at once has to wait, but is not refused.
                bound.listen()
                ends = {"stopping": opened.stopping, "cutting": opened.cutting}
                serving = run(opened.app, bound, grace_seconds=_GRACE_SECONDS, notice=_nothing, until=ended, **ends)
                server = asyncio.create_task(serving)
                try:
                    yield f"http://{_HOST}:{bound.getsockname()[1]}"
                finally:
                    ended.set()
                    await server
        except InvalidInput as error:
            # An endpoint names its own field; a user knows where the address comes from.
            if error.place != "base_url":
                raise
            raise InvalidInput(error.reason, place=upstream.source) from None


def _nothing(line: str) -> None:
    """Say nothing of answers that are cut off when the client has ended."""
    del line


# --- addresses and environment ----------------------------------------------------------------------------------------


def upstream_of(wrapped: ClientRun, api: ProviderApi, own: ClientSettings | None = None) -> ApiUpstream:
    """Where the requests of an API go: the first of the option, the client's settings, its variables, the usual."""
    if wrapped.upstream is not None:
        return ApiUpstream(wrapped.upstream, "--upstream")
    if own is not None and api.name in own.upstreams:
        return ApiUpstream(own.upstreams[api.name], f"the settings of {wrapped.client.name}")
    for variable in upstream_variables(wrapped.client, api):
        if address := wrapped.environ.get(variable, "").strip():
            return ApiUpstream(address, variable)
    return ApiUpstream(api.usual, "")


def version_of(api: ProviderApi, upstream: ApiUpstream) -> str:
    """The path that a client's base URL needs, so that the upstream is asked at the path it would have been asked at.

    The proxy appends a request's path to the upstream, but for a `/v1` that both have.
    """
    address = upstream.address.rstrip("/")
    if not api.version or address.endswith(api.version):
        return api.version
    # A variable holds exactly what the client would have used; the option also takes an address without a version.
    return api.version if upstream.source == "--upstream" and versioned(address) != address else ""


def _addresses(upstreams: Mapping[str, ApiUpstream], roots: Mapping[str, str]) -> dict[str, str]:
    """The proxies' addresses for the templates of a client."""
    found: dict[str, str] = {}
    for name, upstream in upstreams.items():
        root = roots[upstream.address]
        found |= {f"{name}_host": root, name: root + version_of(APIS[name], upstream)}
    return found


def _mcp_values(folder: Path) -> dict[str, str]:
    """The command of the MCP server for the templates of a client, as JSON, which is TOML too.

    It names the file with the proxies: some clients pass no variables on to their servers (Codex).
    """
    arguments = ["-m", "foldline", "mcp", "--link", str(folder / _LINK_FILE)]
    return {
        "mcp_program": json.dumps(sys.executable),
        "mcp_arguments": json.dumps(arguments),
        "mcp_command": json.dumps([sys.executable, *arguments]),
    }


def _environ(wrapped: ClientRun, values: Mapping[str, str]) -> dict[str, str]:
    """The environment of the client."""
    environ, client = wrapped.environ, wrapped.client
    templates = {**client.environ, **(client.mcp_environ if wrapped.mcp else {})}
    found = {**environ, **{name: filled(text, values) for name, text in templates.items()}}
    found[LINK] = str(Path(values["folder"]) / _LINK_FILE)
    # Behind an HTTP proxy for the outside, an address of this machine must not be sent there.
    if any(name.lower() in _HTTP_PROXIES for name in environ):
        for name in ("no_proxy", "NO_PROXY"):
            found[name] = ",".join(filter(None, (environ.get(name, ""), _HOST, "localhost")))
    return found


def _write(path: Path, text: str) -> None:
    """Write a new file for this user alone."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
