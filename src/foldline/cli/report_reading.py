"""Reads sessions for the report: kept ones from a store with their recorded calls, others by a replay."""

from __future__ import annotations

import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from foldline.catalog.models import lookup
from foldline.cli.files import log, terminal
from foldline.engine.policy import POLICIES
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import Chosen, Where, choose, with_agents
from foldline.recorded.sessions import Session
from foldline.replay import Recording
from foldline.report.account import Account
from foldline.report.recorded import recorded_account
from foldline.report.sessions_page import DETAILED, LeftOut
from foldline.text.printable import plain_line
from foldline.view.transcript import active

if TYPE_CHECKING:
    from foldline.store.calls import RecordedCall

__all__ = ["Reading", "Replayed", "Wanted", "replayed_account"]

_MANY: Final = 20
"""Sessions from which on reading them takes seconds."""

_WINDOW: Final = 128_000
"""What `foldline replay` takes where nothing is said."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a session is replayed; without a window it is that of the model, without a model the recorded one."""

    policy: str
    window: int | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which sessions of a store: the named ones, else all, those of sub-agents too, written at `since` or later.

    `model` prices them as another one. `store_named` and `home` say what commands need to be told to find the store.
    """

    named: tuple[str, ...]
    since: datetime | None
    model: str | None
    store_named: bool
    home: str | None


def replayed_account(session: Session, place: str, how: Replayed, *, updated: str = "") -> Account:
    """The account of a session of which only the messages are known. Raises InvalidInput."""
    known = lookup(how.model or session.model)
    return recorded_account(
        Recording(session),
        file=place,
        policy=how.policy,
        window=how.window or (known.window_tokens if known.known else _WINDOW),
        model=how.model,
        updated=updated,
    )


class Reading:
    """Reads the sessions of a store one by one; what cannot be read is left out, unless it was named."""

    def __init__(self, wanted: Wanted, accounts: list[Account], left_out: list[LeftOut]) -> None:
        self._wanted, self._accounts, self._left_out = wanted, accounts, left_out
        self._options = ""

    def read(self, *, where: Where) -> None:
        """Add the accounts of the wanted sessions, and what is left out. Raises InvalidInput. O(their logs)."""
        wanted = self._wanted
        chosen = [choose(where.store, name) for name in wanted.named] or list(self._all(where))
        if not chosen and not self._left_out:
            when = "" if wanted.since is None else f" written since {wanted.since:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(f"there is no session{when}", place=where.store.place)
        self._options = _options(wanted, where)
        calls = _calls(where, [one.id for one in chosen])
        for one in _with_progress(chosen):
            try:
                account = self._account(one, calls.get(one.id, []))
            except InvalidInput as error:
                if wanted.named:
                    raise
                self._leave(one.name, str(error))
                continue
            if account is None:
                self._leave(one.name, "no model has answered in it")
            else:
                self._accounts.append(account)

    def _leave(self, name: str, reason: str) -> None:
        self._left_out.append(LeftOut(name, reason))
        log(f"{plain_line(name)} is left out: {plain_line(reason, 300)}")

    def _all(self, where: Where) -> Iterator[Chosen]:
        since = self._wanted.since
        for listed in where.store.sessions(keep=False):
            if listed.snapshot is None:
                self._leave(listed.id, listed.damage)
            elif since is None or datetime.fromisoformat(listed.snapshot.updated) >= since:
                yield from with_agents(Chosen(where.store, listed.id, listed.id))

    def _account(self, chosen: Chosen, calls: Sequence[RecordedCall]) -> Account | None:
        from foldline.report.kept import kept_account
        from foldline.store.recording import followed

        log_rows = followed(chosen.store.records(chosen.id), lambda number: f"{chosen.name}, record {number}")
        archive = chosen.archive
        account = kept_account(
            log_rows,
            calls,
            name=chosen.name,
            options=self._options,
            model=self._wanted.model,
            archived=lambda key: key in archive,
            listing=len(self._accounts) < DETAILED,
        )
        return account or self._unreported(chosen)

    def _unreported(self, chosen: Chosen) -> Account | None:
        """A session of which no usage is known is replayed under its own policy; None when no model answered in it."""
        recording = chosen.read()
        header = recording.header
        messages = tuple(entry.recorded for entry in active(recording.events) if not entry.hidden)
        session = Session(name=chosen.name, dialect=header.dialect, messages=messages, model=header.model)
        how = Replayed(header.policy if header.policy in POLICIES else "balanced", header.window, self._wanted.model)
        account = replayed_account(session, f"session {chosen.name}", how, updated=recording.tally.updated)
        return account if account.sent.requests else None


def _options(wanted: Wanted, where: Where) -> str:
    """What a command needs beside the name of a session, from wherever it is called. A password is not in it."""
    given = [("--store", where.store.place)] if wanted.store_named else []
    given += [("--home", os.path.abspath(wanted.home))] if wanted.home is not None else []
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given)


def _with_progress(chosen: list[Chosen]) -> Iterable[Chosen]:
    """The sessions, with a bar on a terminal where there are many."""
    if len(chosen) < _MANY or not sys.stderr.isatty():
        return chosen
    from rich.progress import track

    return track(chosen, "reading sessions", console=terminal(to_stderr=True), transient=True)


def _calls(where: Where, ids: Sequence[str]) -> dict[str, list[RecordedCall]]:
    """The recorded calls of these sessions; none where there is no record, or it cannot be read."""
    from foldline.store.calls import read_calls
    from foldline.store.paths import calls_path

    out: dict[str, list[RecordedCall]] = defaultdict(list)
    try:
        for call in read_calls(calls_path(where.environ), session_id=ids[0] if len(ids) == 1 else None):
            out[call.session_id].append(call)
    except FileNotFoundError:
        pass  # calls are recorded where an agent runs: a copy of a store has none
    except (FoldlineError, OSError) as error:
        log(f"the record of calls cannot be read: {error}")
    return out
