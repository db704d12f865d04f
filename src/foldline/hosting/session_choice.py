"""Where sessions are kept, and which one a command means: an id, the beginning of one, "latest"; sub-agents' in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from foldline.errors import InvalidInput

if TYPE_CHECKING:
    from foldline.store.base import Store
    from foldline.store.recording import Recording
    from foldline.store.records import Record
    from foldline.view.archive import Archive

__all__ = [
    "AGENTS",
    "STORE",
    "OpenedStore",
    "SelectedSession",
    "agent_count",
    "in_one_line",
    "select_session",
    "store_options",
    "store_place",
    "sub_agents",
    "with_agents",
]

AGENTS: Final = "agents"
"""What stands between the id of an agent's session and that of a sub-agent."""

STORE: Final = "FOLDLINE_STORE"
"""The environment variable that says where sessions are kept: a password in it is in no list of processes."""

# Sub-agents of sub-agents: settings allow far fewer; a folder that links to itself ends here.
_DEEPEST: Final = 16

Command = TypeVar("Command", bound=Callable[..., Any])

_HOME: Final = click.option(
    "--home", metavar="DIR", type=click.Path(), help="Where Foldline keeps its files, instead of FOLDLINE_HOME."
)


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """The sessions that a command is about, and the environment that says where the rest is (None: the real one)."""

    store: Store
    environ: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """One session: where it is, its id, and the name under which a command finds it (ID, or ID/agents/ID)."""

    store: Store
    id: str
    name: str

    @property
    def folder(self) -> Path | None:
        """Its folder; None where a database keeps it."""
        from foldline.store.folders import FileStore

        return self.store.root / self.id if isinstance(self.store, FileStore) else None

    @property
    def archive(self) -> Archive:
        """The originals of what was folded, to be read."""
        return self.store.archive(self.id)

    def read(self) -> Recording:
        """What its log holds, without taking it. Raises InvalidInput."""
        return self.store.read(self.id)

    def records(self, recording: Recording) -> list[Record]:
        """The records that a recording was read from, in the order in which they were written. O(log)."""
        count = 1 + len(recording.events) + len(recording.other)  # one names the session
        return list(self.store.records(self.id, stop=count))


def store_options(*names: str) -> Callable[[Command], Command]:
    """The options that say where sessions are kept; the command gets `where`, closed after it.

    A fault of that disk or database becomes one line (InvalidInput). A database that is not there yet is refused: it
    holds no session.
    """
    means = f"Where sessions are kept: a folder, sqlite:///FILE or postgresql://…; without it {STORE}, else a folder."
    option = click.option(*names, "store", metavar="PLACE", help=means)

    def with_options(command: Command) -> Command:
        @wraps(command)
        def run(*given: Any, store: str | None, home: str | None, **named: Any) -> Any:
            from foldline.store.addresses import open_store
            from foldline.store.paths import HOME

            environ = None if home is None else {HOME: home}
            place = store_place(store, os.environ if environ is None else environ)
            _refuse_missing(place)
            with closing(open_store(place)) as opened:
                return command(*given, where=OpenedStore(opened, environ), **named)

        return option(_HOME(in_one_line(cast(Command, run))))

    return with_options


def in_one_line(command: Command) -> Command:
    """The command, with faults of the disk or of a database as one line (InvalidInput)."""

    @wraps(command)
    def run(*given: Any, **named: Any) -> Any:
        try:
            return command(*given, **named)
        except BrokenPipeError:
            raise  # to be met where all commands meet it (cli.py)
        except OSError as error:
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error

    return cast(Command, run)


def store_place(
    named: str | None,
    environ: Mapping[str, str],
    *,
    option: str = "--store",
    usual: Callable[[Mapping[str, str]], Path] | None = None,
) -> str | Path:
    """The place that `open_store` takes: the one that was named, else that of the environment, else the `usual` one.

    That is the folder of the user's sessions where nothing else is said.

    Raises InvalidInput for a name that can be no place.
    """
    from foldline.store.addresses import is_address
    from foldline.store.paths import sessions_path

    place = environ.get(STORE) if named is None else named
    if named is not None and not named:
        raise InvalidInput("is empty: it takes a folder, or the address of a database", place=option)
    if not place:
        return (usual or sessions_path)(environ)
    if not is_address(place) and os.path.isfile(os.path.expanduser(place)):
        raise InvalidInput(f"is a file and no folder; a database in it would be sqlite:///{place}", place=place)
    return place


def _refuse_missing(place: str | Path) -> None:
    """Raise InvalidInput for a database in a file that is not there: to read it would be to make it."""
    scheme, _, path = str(place).partition(":///")
    if scheme.partition("+")[0] == "sqlite" and path and not os.path.exists(os.path.expanduser(path)):
        raise InvalidInput("there is no such database, and so no session in it", place=str(place))


def sub_agents(chosen: SelectedSession) -> Store:
    """The sessions of the sub-agents of a session. Raises InvalidInput when it is no longer there."""
    from foldline.store.folders import FileStore

    if chosen.folder is None:
        return chosen.store.agents(chosen.id)
    return FileStore(chosen.folder / AGENTS)  # without a look at the session: it may be damaged, and they not


def select_session(store: Store, named: str) -> SelectedSession:
    """The session that `named` means; names of sub-agents follow after slashes. Writes nothing. Raises InvalidInput."""
    name, found = "", None
    parts = [part for part in named.split("/") if part != AGENTS]
    for part in parts:
        if found is not None:
            store, name = sub_agents(found), f"{name}/{AGENTS}/"
        one = store.find(part)
        name += one
        found = SelectedSession(store, one, name)
    if found is None:
        raise InvalidInput("say which one: an id, the beginning of one, or latest", place="session")
    return found


def agent_count(chosen: SelectedSession) -> int:
    """How many sub-agents it started whose sessions are kept."""
    return len(sub_agents(chosen).names())


def with_agents(chosen: SelectedSession, depth: int = 0) -> list[SelectedSession]:
    """A session and those of its sub-agents, theirs too."""
    found = [chosen]
    if depth < _DEEPEST:
        store = sub_agents(chosen)
        for one in store.names():
            found += with_agents(SelectedSession(store, one, f"{chosen.name}/{AGENTS}/{one}"), depth + 1)
    return found
