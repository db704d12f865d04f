"""The command `foldline wrap`: a client behind a proxy of its own, for one run."""

from __future__ import annotations

import os
import sys
from collections import deque
from importlib.util import find_spec
from typing import Any, Final

import click

from foldline.cli.options import needs_extra, window_and_policy
from foldline.cli.proxy import PROXY_PACKAGES
from foldline.errors import InvalidInput, MissingExtra
from foldline.hosting.session_choice import STORE, in_one_line, store_place
from foldline.text.formatting import plain_line

__all__ = ["wrap"]

# Notices of a proxy that are shown once the client has left the terminal.
_MAX_NOTICES: Final = 5
_NOTICE_CHARS: Final = 300


class _SplitCommand(click.Command):
    """A command that leaves everything after the first "--" alone, and knows whether a name stood before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before "--"; the rest is the parameter `after`, None without one."""
        at = args.index("--") if "--" in args else len(args)
        try:
            rest = super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if at < len(args) or isinstance(error, click.BadParameter):
                raise
            reason = error.message.rstrip(".")
            raise click.UsageError(f"{reason}: the client's own arguments come after --", ctx) from None
        ctx.params["after"] = None if at == len(args) else tuple(args[at + 1 :])
        return rest


@click.command(cls=_SplitCommand, options_metavar="[OPTIONS]", epilog="Clients: docs/clients.md, and --list.")
@needs_extra("proxy", "the proxy", PROXY_PACKAGES)
@click.argument("client", required=False)
@click.option(
    "--upstream", metavar="URL", help="The API to forward to; by default the one that the client is set up for."
)
@window_and_policy
@click.option("--ahead/--no-ahead", default=None, help="Write summaries before their fold is due.")
@click.option("--summaries/--no-summaries", default=True, help="Let the upstream's model write summaries.")
@click.option("--summary-model", metavar="NAME", help="The model that writes them, instead of the client's.")
@click.option("--store", metavar="PLACE", help=f"Where folds are kept: a folder, sqlite:///…, postgresql://…; {STORE}.")
@click.option("--no-store", is_flag=True, help="Keep conversations in memory only.")
@click.option(
    "--mcp/--no-mcp", default=None, help="Register the MCP server where the client takes one for a run; if installed."
)
@click.option("--quiet", is_flag=True, help="Say nothing at the end.")
@click.option("--list", "listed", is_flag=True, help="List the clients that are known.")
@in_one_line
def wrap(
    *,
    client: str | None,
    after: tuple[str, ...] | None,
    store: str | None,
    no_store: bool,
    quiet: bool,
    listed: bool,
    upstream: str | None,
    mcp: bool | None,
    **options: Any,
) -> int:
    """Run CLIENT behind a proxy of its own: foldline wrap CLIENT -- ARGUMENTS.

    The proxy listens on a free port of this machine and ends with the client. The client's own files are not changed.
    `foldline wrap -- COMMAND` runs any command with OPENAI_BASE_URL, ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL set.
    The exit code is the client's. What was saved is said on standard error.
    """
    import asyncio

    from foldline.doors.proxy.server import loop_factory
    from foldline.doors.proxy.startup import ProxySettings
    from foldline.doors.wrap.clients import CLIENTS, any_command, client_named
    from foldline.doors.wrap.run import ClientRun, program_of, wrap_client
    from foldline.store.paths import conversations_path

    if listed:
        for one in CLIENTS.values():
            click.echo(f"{one.name:<16} {one.program:<10} {one.install}")
        return 0
    if client is None and not after:
        raise click.UsageError("a client or a command is missing: foldline wrap CLIENT, foldline wrap -- COMMAND")
    if no_store and store is not None:
        raise InvalidInput("names a store, which --no-store does without", place="--store")
    row = client_named(client) if client is not None else any_command((after or ("",))[0])
    program_of(row, os.environ)  # before a store is made
    place = None if no_store else store_place(store, os.environ, usual=conversations_path)
    settings = ProxySettings(
        upstream="",  # of each API its own
        store=None if place is None else str(place),
        **{name: value for name, value in options.items() if value is not None},
    )
    arguments = tuple(after or ()) if client is not None else tuple(after or ())[1:]
    # Shown at the end: the terminal is the client's until then.
    notices: deque[str] = deque(maxlen=_MAX_NOTICES)
    wrapped = ClientRun(
        client=row,
        arguments=arguments,
        environ=os.environ,
        settings=settings,
        upstream=upstream,
        mcp=_registers_mcp(row.takes_mcp, mcp),
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        running = wrap_client(wrapped, notice=notices.append, started=lambda address: _show_page(address, quiet))
        code, figures = runner.run(running)
    if not quiet:
        for line in (*notices, *figures.lines()):
            click.echo(f"foldline: {plain_line(line, _NOTICE_CHARS)}", err=True)
    return code


def _show_page(address: str, quiet: bool) -> None:
    # To a person alone: a script has what it needs in its variables.
    if not quiet and sys.stderr.isatty():
        click.echo(f"foldline: {address}/foldline shows what is folded", err=True)


def _registers_mcp(taken: bool, wanted: bool | None) -> bool:
    """Whether to register the MCP server. Raises MissingExtra and InvalidInput if it is asked for and cannot be."""
    if wanted is False or (wanted is None and not taken):
        return False
    if not taken:
        raise InvalidInput(
            "this client takes no MCP server for one run: docs/clients.md says how to add it", place="--mcp"
        )
    if find_spec("mcp") is not None:
        return True
    if wanted is None:
        return False
    raise MissingExtra("mcp", "an MCP server")
