"""The command `foldline mcp`: an MCP server by which a model looks into its own conversation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from foldline.cli.options import needs_extra
from foldline.doors.access import TOKEN, token_of
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import STORE, in_one_line, store_place

__all__ = ["mcp"]

_USUAL: Final = "http://127.0.0.1:8790"


@click.command()
@needs_extra("mcp", "an MCP server", ("mcp", "httpx", "pydantic"))
@needs_extra("proxy", "the proxy's side of the MCP server", ("aiohttp", "starlette"))
@click.option("--proxy", metavar="URL", help=f"The proxy; without it that of `foldline wrap`, else {_USUAL}.")
@click.option(
    "--token-file", metavar="FILE", type=click.Path(), help=f"The proxy's token, if it has one; else {TOKEN}."
)
@click.option("--session", metavar="NAME", help="The client's own name for its conversation (X-Foldline-Session).")
@click.option("--key-env", metavar="VARIABLE", help="The variable of the client's key; else the usual ones are tried.")
@click.option("--store", metavar="PLACE", help=f"Read a stored conversation instead; needs --session. {STORE}.")
@click.option("--link", metavar="FILE", type=click.Path(), help="The proxies of a run of `foldline wrap`.")
@in_one_line
def mcp(
    *,
    proxy: str | None,
    token_file: str | None,
    session: str | None,
    key_env: str | None,
    store: str | None,
    link: str | None,
) -> None:
    """Serve recall, context and compact for the conversation of one client, by MCP on standard input and output.

    The conversation is the newest one under the client's key at a running proxy, or the one that it has named. Under
    `foldline wrap` it is that of the wrapped client. Nothing of other clients can be read.
    """
    import asyncio

    from foldline.doors.mcp.server import serve
    from foldline.doors.mcp.sources import (
        LINK,
        ConversationSource,
        ProxySource,
        StoreSource,
        key_headers_of,
        read_link,
        source_of_link,
    )
    from foldline.providers.endpoint import Endpoint

    source: ConversationSource
    place = link or os.environ.get(LINK, "")
    if store is not None:
        if session is None:
            raise InvalidInput("reads a conversation by its name: --session", place="--store")
        source = StoreSource(str(store_place(store, os.environ)), session, key_headers_of(os.environ, key_env))
    elif proxy is None and place:
        source = source_of_link(read_link(Path(place)), session)
    else:
        try:  # of this dialect, whose clients name an address without a version
            address = Endpoint(name="proxy", dialect="anthropic", base_url=proxy or _USUAL, model="").base_url
        except InvalidInput as error:
            raise InvalidInput(error.reason, place="--proxy") from None
        token = token_of(token_file, os.environ)
        source = ProxySource([address], key_headers_of(os.environ, key_env), token=token, session=session)
    asyncio.run(serve(source))
