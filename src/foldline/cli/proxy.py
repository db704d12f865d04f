"""The command `foldline proxy`: a server between clients and a provider."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import log
from foldline.cli.options import needs_extra, window_and_policy
from foldline.doors.access import TOKEN, names_of, token_of
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import STORE, in_one_line, store_place

if TYPE_CHECKING:
    import socket

    from foldline.doors.proxy.gate import GateRules
    from foldline.doors.proxy.startup import ProxySettings

__all__ = ["PROXY_PACKAGES", "proxy"]

PROXY_PACKAGES: Final = (
    "aiohttp",
    "httptools",
    "httpx",
    "platformdirs",
    "prometheus_client",
    "pydantic",
    "starlette",
    "uvicorn",
)
"""What the extra `proxy` brings."""
_MIB: Final = 2**20


@click.command()
@needs_extra("proxy", "the proxy", PROXY_PACKAGES)
@click.option(
    "--upstream",
    metavar="URL",
    envvar="FOLDLINE_UPSTREAM",
    required=True,
    help="The API to forward to: https://api.openai.com, https://api.anthropic.com, http://localhost:11434, …",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8790, show_default=True, help="0 takes a free one.")
@click.option(
    "--token-file", metavar="FILE", type=click.Path(), help=f"The token that clients must show; else that of {TOKEN}."
)
@click.option(
    "--allow-host", metavar="NAME", multiple=True, help="A host name that a load balancer uses for this proxy."
)
@window_and_policy
@click.option("--summaries/--no-summaries", default=True, help="Let the upstream's model write summaries.")
@click.option("--ahead/--no-ahead", default=True, help="Write them after a response, before their fold is due.")
@click.option(
    "--summary-model", metavar="NAME", help="The model that writes them, instead of the one that a request names."
)
@click.option(
    "--compaction",
    type=click.Choice(["auto", "foldline", "upstream"]),
    help="Who compacts where a client asks for it; auto: the upstream if it can.",
)
@click.option(
    "--compaction-key", metavar="FILE", type=click.Path(), help="The key that signs compactions, for several proxies."
)
@click.option("--dry-run", is_flag=True, help="Change nothing; only report what would be done.")
@click.option("--strict", is_flag=True, help="Change nothing; refuse what does not fit, with figures.")
@click.option("--store", metavar="PLACE", help=f"Where folds are kept: a folder, sqlite:///…, postgresql://…; {STORE}.")
@click.option("--no-store", is_flag=True, help="Keep conversations in memory only.")
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="Memory for conversations; 256.")
@click.option("--max-request-bytes", type=click.IntRange(1_024), metavar="BYTES", help="The largest request; 64 MiB.")
@click.option(
    "--connect-seconds", type=click.FloatRange(0, min_open=True), metavar="S", help="Longest time to connect; 10."
)
@click.option(
    "--silence-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Longest silence of the upstream; 600.",
)
@click.option(
    "--grace-seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Time for answers to finish."
)
@click.option(
    "--short-tools",
    type=click.IntRange(0),
    metavar="TOKENS",
    help="Cut descriptions of tools until all definitions take so many tokens.",
)
@click.option("--otel", is_flag=True, help="Report each request to OpenTelemetry (settings: OTEL_*).")
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
    **options: Any,
) -> None:
    """Keep any client of OpenAI, Anthropic or Gemini inside its window. The client only sets its base URL.

    Requests that fit pass through byte for byte; others are folded, per conversation. The headers X-Foldline-… and the
    page /foldline show what was done. Addresses other than loopback need a token: the header X-Foldline-Token, or a
    base URL of http://HOST:PORT/~TOKEN. After SIGTERM or Ctrl-C, answers have --grace-seconds to finish; a second
    signal stops at once.
    """
    import asyncio

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
    # A folder of its own: `foldline sessions` must not list conversations of other people's clients.
    place = None if no_store else store_place(store, os.environ, usual=conversations_path)
    if memory is not None:
        options["memory_bytes"] = memory * _MIB
    settings = ProxySettings(
        upstream=upstream,
        mode="dry-run" if dry_run else "strict" if strict else "normal",
        store=None if place is None else str(place),
        # Options without a value keep the defaults of ProxySettings, which are stated there alone.
        **{name: value for name, value in options.items() if value is not None},
    )
    # The port is taken before the store is opened: a second proxy on the port fails without touching the first one's.
    with listen(host, port) as at, asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serving(at, host, settings, rules, grace_seconds))
        except InvalidInput as error:
            # An endpoint names its own field; a user knows the option.
            if error.place != "base_url":
                raise
            raise InvalidInput(error.reason, place="--upstream") from None


async def _serving(
    at: socket.socket, host: str, settings: ProxySettings, rules: GateRules, grace_seconds: float
) -> None:
    from foldline.doors.proxy.server import run
    from foldline.doors.proxy.startup import open_proxy
    from foldline.hosting.process import set_pace

    address = f"http://{f'[{host}]' if ':' in host else host}:{at.getsockname()[1]}"
    set_pace()
    async with open_proxy(settings, rules, os.environ, notice=log) as opened:
        # Before the lines below: a client that reads them and connects at once has to wait, but is not refused.
        at.listen()
        click.echo(f"foldline proxy: {address}/{'' if rules.token is None else ' (token)'}")
        click.echo(f"upstream  {settings.upstream}{'' if settings.mode == 'normal' else f'  ({settings.mode})'}")
        click.echo(f"page      {address}/foldline")
        click.echo(f"store     {'none: in memory only' if settings.store is None else _shown(settings.store)}")
        await run(
            opened.app,
            at,
            grace_seconds=grace_seconds,
            notice=log,
            stopping=opened.stopping,
            cutting=opened.cutting,
        )


def _shown(place: str) -> str:
    """Return a place without the login and parameters that an address may hold: a terminal is often recorded."""
    scheme, mark, rest = place.partition("://")
    return f"{scheme}{mark}{rest.partition('?')[0].rpartition('@')[2]}" if mark else place
