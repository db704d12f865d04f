"""`foldline sessions repair`: a session whose log is damaged in the middle, made fit to be opened."""

from __future__ import annotations

import click

from foldline.errors import InvalidInput
from foldline.interfaces.cli_files import json_out
from foldline.interfaces.session_choice import Where, choose, where_option

__all__ = ["repair"]


@click.command()
@click.argument("session", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@where_option("--store")
def repair(*, session: str, as_json: bool, where: Where) -> None:
    """Make a session whose log is damaged fit to be opened.

    What can be read stays; a message that cannot is replaced by a line that says so, and the old log is kept beside the
    new one. The session must not be open in another process. In a database nothing can be torn: only folders are
    repaired.
    """
    from foldline.store.folders import FileStore

    chosen = choose(where.store, session)
    if not isinstance(chosen.store, FileStore):
        why = "a database has no torn log: it writes a record whole or not at all, so there is nothing to repair here"
        raise InvalidInput(why, place=chosen.store.place)
    done = chosen.store.repair(chosen.id)
    if as_json:
        found = (
            {} if done is None else {"lines": done.lines, "lost_messages": done.lost_messages, "kept": str(done.kept)}
        )
        json_out({"session": chosen.name, "damaged": done is not None, **found})
        return
    click.echo("nothing is damaged" if done is None else str(done))
