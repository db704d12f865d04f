"""The command `foldline serve`: sessions over HTTP, and the page that shows them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import log
from foldline.cli.options import agent_options, needs_extra, store_option, yes_option
from foldline.doors.access import TOKEN, names_of, token_of
from foldline.hosting.session_choice import in_one_line

if TYPE_CHECKING:
    import socket

    from foldline.doors.http.guard import GuardRules
    from foldline.doors.http.state import ServerLimits
    from foldline.hosting.runtime import Options
    from foldline.hosting.session_actor import ActorLimits

__all__ = ["serve"]

_NEEDED: Final = ("httpx", "platformdirs", "prometheus_client", "pydantic", "starlette", "uvicorn", "yaml")


@click.command()
@needs_extra("serve", "the server", _NEEDED)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8791, show_default=True, help="0 takes a free one.")
@click.option(
    "--token-file", metavar="FILE", type=click.Path(), help=f"The token that clients must show; else that of {TOKEN}."
)
@click.option(
    "--allow-host", metavar="NAME", multiple=True, help="A host name that a reverse proxy uses for this server."
)
@store_option
@agent_options
@yes_option
@click.option("--max-body-bytes", type=click.IntRange(1_024, 2**30), default=2**20, show_default=True, metavar="BYTES")
@click.option("--rate", type=click.IntRange(0), default=6_000, show_default=True, help="Requests a minute; 0: any.")
@click.option("--turns", type=click.IntRange(1), metavar="N", help="Most turns at the same time; 64.")
@click.option("--warm", type=click.IntRange(0), metavar="N", help="Idle sessions to keep in memory; 64.")
@click.option(
    "--idle-seconds", type=click.FloatRange(0, min_open=True), metavar="S", help="How long to keep them; 300."
)
@click.option("--turn-seconds", type=click.FloatRange(0, min_open=True), metavar="S", help="The longest turn; 3600.")
@click.option(
    "--grace-seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Time for turns to finish."
)
@click.option("--no-page", is_flag=True, help="Serve the API alone, without the page.")
@in_one_line
def serve(
    *,
    host: str,
    port: int,
    token_file: str | None,
    allow_host: tuple[str, ...],
    store: str | None,
    options: Options,
    workspace: str,
    yes: bool,
    max_body_bytes: int,
    rate: int,
    grace_seconds: float,
    no_page: bool,
    **limit_options: Any,
) -> None:
    """Serve sessions over HTTP, with a page that shows what the model sees.

    Addresses other than loopback need a token. After SIGTERM or Ctrl-C, turns have --grace-seconds to finish, and are
    paused then; a second signal stops at once. What was accepted is on disk in any case.
    """
    import asyncio

    from foldline.doors.http.guard import GuardRules
    from foldline.doors.http.requests import BodyLimits
    from foldline.doors.http.server import listen
    from foldline.doors.http.state import ServerLimits
    from foldline.hosting.session_actor import ActorLimits

    token = token_of(token_file, os.environ)
    rules = GuardRules(token=token, hosts=names_of(host, token, allow_host), rate=rate)
    # Options without a value keep the defaults of `ActorLimits`, which are stated there alone.
    limits = ActorLimits(**{name: value for name, value in limit_options.items() if value is not None})
    own = ServerLimits(body=BodyLimits(max_bytes=max_body_bytes))
    with listen(host, port) as bound:
        work = _serving(
            bound,
            options,
            host=host,
            rules=rules,
            limits=limits,
            own=own,
            workspace=workspace,
            store=store,
            yes=yes,
            grace=grace_seconds,
            page=not no_page,
        )
        asyncio.run(work)


async def _serving(
    bound: socket.socket,
    options: Options,
    *,
    host: str,
    rules: GuardRules,
    limits: ActorLimits,
    own: ServerLimits,
    workspace: str,
    store: str | None,
    yes: bool,
    grace: float,
    page: bool,
) -> None:
    from importlib.metadata import version

    from foldline.doors.http.app import app_of
    from foldline.doors.http.server import run
    from foldline.doors.http.state import ServerState
    from foldline.doors.schedule.clock import run_schedule
    from foldline.hosting.process import set_pace
    from foldline.hosting.session_pool import open_pool

    # Commands that the model runs inherit the environment, and must not see the token.
    os.environ.pop(TOKEN, None)
    where = f"[{host}]" if ":" in host else host
    async with open_pool(
        options, os.environ, workspace=Path(workspace), store=store, yes=yes, limits=limits, notice=log
    ) as pool:
        state = ServerState(pool, version=version("foldline"), limits=own, page=page)
        # After imports and before the first request: objects of startup are frozen out of garbage collection.
        set_pace()
        # Before the lines below: a client that reads them and connects at once has to wait, but is not refused.
        bound.listen()
        click.echo(
            f"foldline serve: http://{where}:{bound.getsockname()[1]}/{'' if rules.token is None else ' (token)'}"
        )
        click.echo(f"model  {pool.runtime.picked.line}")
        for note in pool.runtime.picked.notes:
            log(note)
        click.echo(f"store  {pool.store.place}")
        async with run_schedule(pool, notice=log, grace_seconds=grace) as plan:
            # A second signal must reach the deliveries of the schedule too, which run outside any request.
            stops = () if plan is None else (plan.stop,)
            await run(app_of(state, rules), state, bound, stops=stops, grace_seconds=grace, notice=log)
