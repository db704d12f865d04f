"""The command `foldline proxy`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.files import log
from foldline.doors.access import TOKEN, names_of, token_of
from foldline.errors import InvalidInput, MissingExtra
from foldline.hosting.session_choice import STORE, in_one_line, store_place

if TYPE_CHECKING:
    import socket

    from foldline.doors.proxy.gate import GateRules
    from foldline.doors.proxy.startup import ProxySettings

__all__ = ["proxy"]

_NEEDED: Final = ("aiohttp", "httptools", "httpx", "platformdirs", "prometheus_client", "starlette", "uvicorn")
_MIB: Final = 2**20


@click.command()
@click.option(
    "--upstream",
    metavar="URL",
    envvar="FOLDLINE_UPSTREAM",
    required=True,
    help="The API that is asked: https://api.openai.com, https://api.anthropic.com, http://localhost:11434, …",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8790, show_default=True, help="0 takes a free one.")
@click.option("--token-file", metavar="FILE", type=click.Path(), help=f"What clients must show; without it {TOKEN}.")
@click.option("--allow-host", metavar="NAME", multiple=True, help="A name under which a balancer passes requests on.")
@click.option("--window", type=click.IntRange(1), metavar="TOKENS", help="The window of every model; else it is asked.")
@click.option("--policy", metavar="NAME", help="How conversations are folded (balanced, cost, quality, …).")
@click.option("--summaries/--no-summaries", default=True, help="Let the upstream's model write summaries.")
@click.option("--summary-model", metavar="NAME", help="The model that writes them, in place of the one that is asked.")
@click.option("--dry-run", is_flag=True, help="Change nothing: only say what would be done.")
@click.option("--strict", is_flag=True, help="Change nothing: refuse what does not fit, with figures.")
@click.option("--store", metavar="PLACE", help=f"Where folds are kept: a folder, sqlite:///…, postgresql://…; {STORE}.")
@click.option("--no-store", is_flag=True, help="Keep conversations in memory only.")
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="What conversations may take of memory; 256.")
@click.option("--max-request-bytes", type=click.IntRange(1_024), metavar="BYTES", help="The largest request; 64 MiB.")
@click.option("--connect-seconds", type=click.FloatRange(0, min_open=True), metavar="S", help="To reach it in; 10.")
@click.option(
    "--silence-seconds", type=click.FloatRange(0, min_open=True), metavar="S", help="It may say nothing; 600."
)
@click.option("--grace-seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="To end answers in.")
@click.option("--otel", is_flag=True, help="Tell OpenTelemetry of each request (settings: OTEL_*).")
@in_one_line
def proxy(
    *,
    upstream: str,
    host: str,
    port: int,
    token_file: str | None,
    allow_host: tuple[str, ...],
    dry_run: bool,
    strict: bool,
    store: str | None,
    no_store: bool,
    memory: int | None,
    grace_seconds: float,
    **given: Any,
) -> None:
    """Keep any OpenAI or Anthropic client inside its window: set its base URL to this proxy, and nothing else.

    Requests that fit pass through byte for byte; others are folded, per conversation. What was done stands in the
    headers X-Foldline-…, and live on the page /foldline. On another address than loopback a token is needed: the header
    X-Foldline-Token, or a base URL of http://HOST:PORT/~TOKEN. SIGTERM and Ctrl-C let answers end, for --grace-seconds;
    a second one stops at once.
    """
    import asyncio
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra("proxy", "the proxy")
    from foldline.doors.proxy.gate import GateRules
    from foldline.doors.proxy.server import listen, loop_factory
    from foldline.doors.proxy.startup import ProxySettings
    from foldline.store.paths import conversations_path

    if dry_run and strict:
        raise InvalidInput("is of no use with --dry-run, which refuses nothing", place="--strict")
    token = token_of(token_file, os.environ)
    # Before anything is opened: an unsafe address must not listen even for a moment.
    rules = GateRules(token=token, hosts=names_of(host, token, allow_host))
    if no_store and store is not None:
        raise InvalidInput("names a store, which --no-store does without", place="--store")
    # Conversations of the proxy have a folder of their own: they are no sessions of the agent.
    place = None if no_store else store_place(store, os.environ, usual=conversations_path)
    if memory is not None:
        given["memory_bytes"] = memory * _MIB
    settings = ProxySettings(
        upstream=upstream,
        mode="dry-run" if dry_run else "strict" if strict else "normal",
        store=None if place is None else str(place),
        **{name: value for name, value in given.items() if value is not None},
    )
    with listen(host, port) as at, asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serving(at, host, settings, rules, grace_seconds))


async def _serving(
    at: socket.socket, host: str, settings: ProxySettings, rules: GateRules, grace_seconds: float
) -> None:
    from foldline.doors.proxy.server import run
    from foldline.doors.proxy.startup import open_proxy
    from foldline.hosting.process import set_pace

    address = f"http://{f'[{host}]' if ':' in host else host}:{at.getsockname()[1]}"
    set_pace()
    async with open_proxy(settings, rules, os.environ, notice=log) as opened:
        at.listen()  # who reads these lines and asks at once waits for the server instead of being refused
        click.echo(f"foldline proxy: {address}/{'' if rules.token is None else ' (token)'}")
        click.echo(f"upstream  {settings.upstream}{'' if settings.mode == 'normal' else f'  ({settings.mode})'}")
        click.echo(f"page      {address}/foldline")
        click.echo(f"store     {'none: in memory only' if settings.store is None else _shown(settings.store)}")
        ends = {"stopping": opened.stopping, "cutting": opened.cutting}
        await run(opened.app, at, grace_seconds=grace_seconds, notice=log, **ends)


def _shown(place: str) -> str:
    """A place without the login and parameters that an address may hold."""
    scheme, mark, rest = place.partition("://")
    return f"{scheme}{mark}{rest.partition('?')[0].rpartition('@')[2]}" if mark else place
