"""The store that a command works on, and the session that it names: an id, a prefix, "latest", or a sub-agent's."""

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
"""The part of a name between the id of an agent's session and that of a sub-agent."""

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
    """The store a command works on, and the environment that locates everything else (None: the real one)."""

    store: Store
    environ: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """One session: its store, its id, and the name that commands accept for it (ID, or ID/agents/ID)."""

    store: Store
    id: str
    name: str

    @property
    def folder(self) -> Path | None:
        """Its folder; None in a database."""
        from foldline.store.folders import FileStore

        return self.store.root / self.id if isinstance(self.store, FileStore) else None

    @property
    def archive(self) -> Archive:
        """The originals of its folds, for reading."""
        return self.store.archive(self.id)

    def read(self) -> Recording:
        """Read its log without taking the session. Raises InvalidInput."""
        return self.store.read(self.id)

    def records(self, recording: Recording) -> list[Record]:
        """The records behind a recording, in written order. O(log)."""
        # A session may be written meanwhile: later records would not match the recording.
        count = 1 + len(recording.events) + len(recording.other)  # one names the session
        return list(self.store.records(self.id, stop=count))


def store_options(*names: str) -> Callable[[Command], Command]:
    """Add the options that locate the store. The command receives `where`, which is closed after it.

    An error of the disk or database becomes one line (InvalidInput). A missing database is refused: it holds no
    session.
    """
    about = f"Where sessions are kept: a folder, sqlite:///FILE or postgresql://…; without it {STORE}, else a folder."
    option = click.option(*names, "store", metavar="PLACE", help=about)

    def with_options(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, store: str | None, home: str | None, **kwargs: Any) -> Any:
            from foldline.store.addresses import open_store
            from foldline.store.paths import HOME

            environ = None if home is None else {HOME: home}
            place = store_place(store, os.environ if environ is None else environ)
            _refuse_missing(place)
            with closing(open_store(place)) as opened:
                return command(*args, source=OpenedStore(opened, environ), **kwargs)

        return option(_HOME(in_one_line(cast(Command, run))))

    return with_options


def in_one_line(command: Command) -> Command:
    """Wrap a command so that errors of the disk or a database become one line (InvalidInput)."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            raise  # a reader that has seen enough (`| head`) is no error; the command line handles it for all commands
        except OSError as error:
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error

    return cast(Command, run)


def store_place(
    requested: str | None,
    environ: Mapping[str, str],
    *,
    option: str = "--store",
    usual: Callable[[Mapping[str, str]], Path] | None = None,
) -> str | Path:
    """The place for `open_store`: the given one, else that of the environment, else `usual`.

    `usual` is the user's folder of sessions by default. Raises InvalidInput for a name that cannot be a place.
    """
    from foldline.store.addresses import is_address
    from foldline.store.paths import sessions_path

    # An empty option is a mistake in a script (an unset variable), an empty variable means that none is set.
    place = environ.get(STORE) if requested is None else requested
    if requested is not None and not requested:
        raise InvalidInput("is empty: it takes a folder, or the address of a database", place=option)
    if not place:
        return (usual or sessions_path)(environ)
    # SQLite files are often given as plain paths. Opened as a folder, one would only fail with "not a directory".
    if not is_address(place) and os.path.isfile(os.path.expanduser(place)):
        raise InvalidInput(f"is a file and no folder; a database in it would be sqlite:///{place}", place=place)
    return place


def _refuse_missing(place: str | Path) -> None:
    """Raise InvalidInput for a missing database file: opening it would create it."""
    scheme, _, path = str(place).partition(":///")
    if scheme.partition("+")[0] == "sqlite" and path and not os.path.exists(os.path.expanduser(path)):
        raise InvalidInput("there is no such database, and so no session in it", place=str(place))


def sub_agents(selected: SelectedSession) -> Store:
    """The sessions of a session's sub-agents. Raises InvalidInput if it no longer exists."""
    from foldline.store.folders import FileStore

    if selected.folder is None:
        return selected.store.agents(selected.id)
    # By path, without opening the session: it may be damaged while its sub-agents are not.
    return FileStore(selected.folder / AGENTS)


def select_session(store: Store, requested: str) -> SelectedSession:
    """Find the session that `requested` names; sub-agents follow after slashes. Writes nothing. Raises InvalidInput."""
    name, found = "", None
    # "agents" in a name is optional: ID/ID and ID/agents/ID mean the same.
    parts = [part for part in requested.split("/") if part != AGENTS]
    for part in parts:
        if found is not None:
            store, name = sub_agents(found), f"{name}/{AGENTS}/"
        one = store.find(part)
        name += one
        found = SelectedSession(store, one, name)
    if found is None:
        raise InvalidInput("say which one: an id, the beginning of one, or latest", place="session")
    return found


def agent_count(selected: SelectedSession) -> int:
    """The number of stored sub-agent sessions."""
    return len(sub_agents(selected).names())


def with_agents(selected: SelectedSession, depth: int = 0) -> list[SelectedSession]:
    """A session and the sessions of its sub-agents, at any depth."""
    found = [selected]
    if depth < _DEEPEST:
        store = sub_agents(selected)
        for one in store.names():
            found += with_agents(SelectedSession(store, one, f"{selected.name}/{AGENTS}/{one}"), depth + 1)
    return found
