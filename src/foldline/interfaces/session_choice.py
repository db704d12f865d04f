"""Which session a command means: an id, the beginning of one, "latest", and the sub-agents' sessions in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from foldline.errors import InvalidInput

if TYPE_CHECKING:
    from foldline.store.folders import FileStore
    from foldline.store.recording import Recording

__all__ = [
    "AGENTS",
    "Chosen",
    "agent_count",
    "choose",
    "home_environ",
    "home_option",
    "store_of",
    "sub_agents",
    "with_agents",
]

AGENTS: Final = "agents"
"""The folder in that of a session in which the sessions of its sub-agents are kept."""

_DEEPEST: Final = 16
"""Sub-agents of sub-agents: settings allow far fewer; a folder that links to itself ends here."""

Command = TypeVar("Command", bound=Callable[..., Any])

_HOME: Final = click.option(
    "--home", metavar="DIR", type=click.Path(), help="Where Foldline keeps its files, instead of FOLDLINE_HOME."
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One session: where it is, its id, and the name under which a command finds it (ID, or ID/agents/ID)."""

    store: FileStore
    id: str
    name: str

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.store.root / self.id

    def read(self) -> Recording:
        """What its log holds, without taking it. Raises InvalidInput."""
        return self.store.read(self.id)


def home_option(command: Command) -> Command:
    """The option that says where sessions are kept; a fault of that disk becomes one line (InvalidInput)."""
    return _HOME(_in_one_line(command))


def _in_one_line(command: Command) -> Command:
    @wraps(command)
    def run(*given: Any, **named: Any) -> Any:
        try:
            return command(*given, **named)
        except BrokenPipeError:
            raise  # to be met where all commands meet it (cli.py)
        except OSError as error:
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error

    return cast(Command, run)


def home_environ(home: str | None) -> dict[str, str] | None:
    """The environment in which `--home` holds; None for the real one."""
    from foldline.store.places import HOME

    return None if home is None else {HOME: home}


def store_of(home: str | None) -> FileStore:
    """The sessions of the user, or those under `home`."""
    from foldline.store.folders import FileStore
    from foldline.store.places import sessions_path

    return FileStore(sessions_path(home_environ(home)))


def sub_agents(chosen: Chosen) -> FileStore:
    """The sessions of the sub-agents of a session."""
    from foldline.store.folders import FileStore

    return FileStore(chosen.folder / AGENTS)


def choose(home: str | None, named: str) -> Chosen:
    """The session that `named` means; names of sub-agents follow after slashes. Writes nothing. Raises InvalidInput."""
    store, name, found = store_of(home), "", None
    parts = [part for part in named.split("/") if part != AGENTS]
    for part in parts:
        if found is not None:
            store, name = sub_agents(found), f"{name}/{AGENTS}/"
        one = store.find(part)
        name += one
        found = Chosen(store, one, name)
    if found is None:
        raise InvalidInput("say which one: an id, the beginning of one, or latest", place="session")
    return found


def agent_count(chosen: Chosen) -> int:
    """How many sub-agents it started whose sessions are kept."""
    return len(sub_agents(chosen).names())


def with_agents(chosen: Chosen, depth: int = 0) -> list[Chosen]:
    """A session and those of its sub-agents, theirs too."""
    found = [chosen]
    if depth < _DEEPEST:
        store = sub_agents(chosen)
        for one in store.names():
            found += with_agents(Chosen(store, one, f"{chosen.name}/{AGENTS}/{one}"), depth + 1)
    return found
