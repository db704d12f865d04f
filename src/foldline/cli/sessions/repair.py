"""`foldline sessions repair`: a session whose log is damaged in the middle, made fit to be opened."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.files import json_out
from foldline.hosting.session_choice import Where, choose, where_option

if TYPE_CHECKING:
    from foldline.store.repair import Repaired

__all__ = ["repair"]

_SHOWN: Final = 20
"""Places that are named, one in a line."""


@click.command()
@click.argument("session", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@where_option("--store")
def repair(*, session: str, as_json: bool, where: Where) -> None:
    """Make a session whose log is damaged fit to be opened.

    What is whole stays; a message that is lost is replaced by a line that says so, and the old log is kept: beside the
    new one, or in a database in the archive of the session. The session must not be open in another process.
    """
    chosen = choose(where.store, session)
    done = chosen.store.repair(chosen.id)
    if as_json:
        json_out({"session": chosen.name, "damaged": done is not None, **({} if done is None else _plain(done))})
        return
    if done is None:
        click.echo("nothing is damaged")
        return
    click.echo(str(done))
    for damage in done.damage[:_SHOWN]:
        click.echo(f"  {damage}")
    if len(done.damage) > _SHOWN:
        click.echo(f"  … and {len(done.damage) - _SHOWN:,} more")


def _plain(done: Repaired) -> dict[str, Any]:
    return {
        "lines": done.lines,
        "damage": [asdict(one) for one in done.damage],
        "lost_messages": done.lost_messages,
        "left_out": done.left_out,
        "kept": str(done.kept),
    }
