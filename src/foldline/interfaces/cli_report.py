"""The command that makes a page on sessions: what was sent, folded and hidden, and what it cost."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.catalog.models import lookup
from foldline.errors import FoldlineError, InvalidInput
from foldline.interfaces.chat.plain import plain_line
from foldline.interfaces.cli_files import can_hold, log, read_history
from foldline.interfaces.cli_requests import placed
from foldline.interfaces.session_choice import Chosen, Where, choose, where_option, with_agents
from foldline.policy import POLICIES
from foldline.replay import Recording, policy_named
from foldline.report.account import Account
from foldline.report.recorded import recorded_account
from foldline.report.sessions_page import LeftOut, sessions_page
from foldline.report.words import plural
from foldline.sessions import Session

if TYPE_CHECKING:
    from foldline.store.calls_read import RecordedCall

__all__ = ["report"]

_FILE: Final = "foldline-report.html"
_WINDOW: Final = 128_000
"""What `foldline replay` takes where nothing is said."""

_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".gz")


def _since(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    """A day (from its midnight here) or a time, in ISO 8601; without an offset it is the time of this place."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no day such as 2026-11-28", context, option) from None


def _policy(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        return policy_named(value)
    except InvalidInput as error:
        raise click.BadParameter(error.reason, context, option) from None


@click.command()
@click.argument("sessions", metavar="[SESSION|FILE]...", nargs=-1, type=click.Path())
@click.option("--since", metavar="DATE", callback=_since, help="Only kept sessions that were written on it or later.")
@click.option("--model", metavar="NAME", help="Price all as this model; each session's own by default.")
@click.option(
    "--policy",
    default="balanced",
    show_default=True,
    metavar="NAME",
    callback=_policy,
    help=f"FILEs are replayed under it: none, {', '.join(POLICIES)}.",
)
@click.option("--window", type=click.IntRange(min=1), metavar="N", help="The window of FILEs; the model's by default.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(), default=_FILE, show_default=True)
@click.option("--open", "opened", is_flag=True, help="Show the page in the browser.")
@click.option("--store", metavar="PLACE", help="Where sessions are kept, as for `foldline sessions`.")
@click.option("--home", metavar="DIR", type=click.Path(), help="Where Foldline keeps its files.")
def report(
    *,
    sessions: tuple[str, ...],
    since: datetime | None,
    model: str | None,
    policy: str,
    window: int | None,
    output: str,
    opened: bool,
    store: str | None,
    home: str | None,
) -> None:
    """Write a page on sessions: context over time, folds and why, what is hidden, and the bill with and without.

    SESSION is an id, the beginning of one, "latest", or ID/agents/ID; without any, all that are kept. A FILE is a
    recorded session, as `foldline replay` reads it. The page is one file that only you can read; it needs no network.
    """
    can_hold(output)
    files = [name for name in sessions if _is_file(name)]
    named = [name for name in sessions if name not in files]
    if since is not None and files and not named:
        raise click.UsageError("--since is about kept sessions, and only files are named")
    accounts = [_of_file(file, _Asked(policy, window, model)) for file in files]
    left_out: list[LeftOut] = []
    if named or not files:
        read: Callable[..., None] = where_option("--store")(_Reading(named, since, model, accounts, left_out).read)
        read(store=store, home=home)
    _write(output, sessions_page(accounts, left_out=left_out, made=f"{datetime.now():%Y-%m-%d %H:%M}"))
    log(f"wrote {output}, {plural(len(accounts), 'session')}")
    if opened:
        _show(output)


def _is_file(name: str) -> bool:
    return os.path.isfile(name) or name.endswith(_ENDINGS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """How sessions without a report of usage are replayed."""

    policy: str
    window: int | None
    model: str | None


def _of_file(file: str, asked: _Asked) -> Account:
    session = read_history(file, None)
    try:
        return _replayed(session, file, asked)
    except InvalidInput as error:
        raise placed(error, file) from error


def _replayed(session: Session, place: str, asked: _Asked, updated: str = "") -> Account:
    known = lookup(asked.model or session.model)
    return recorded_account(
        Recording(session),
        file=place,
        policy=asked.policy,
        window=asked.window or (known.window_tokens if known.known else _WINDOW),
        model=asked.model,
        updated=updated,
    )


class _Reading:
    """Reads kept sessions, one by one; what cannot be read is left out, unless it was named."""

    def __init__(
        self,
        named: Sequence[str],
        since: datetime | None,
        model: str | None,
        accounts: list[Account],
        left_out: list[LeftOut],
    ) -> None:
        self._named, self._since, self._model = named, since, model
        self._accounts, self._left_out = accounts, left_out

    def read(self, *, where: Where) -> None:
        """Add the accounts of the sessions of a store."""
        chosen = [choose(where.store, name) for name in self._named] or list(self._all(where))
        if not chosen and not self._left_out:
            when = "" if self._since is None else " that was written since then"
            raise InvalidInput(f"there is no session{when}", place=where.store.place)
        calls = _calls(where, [one.id for one in chosen])
        for one in chosen:
            try:
                account = self._account(one, calls.get(one.id, []))
            except InvalidInput as error:
                if self._named:
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
        for listed in where.store.sessions(keep=False):
            if listed.snapshot is None:
                self._leave(listed.id, listed.damage)
            elif self._since is None or datetime.fromisoformat(listed.snapshot.updated) >= self._since:
                yield from with_agents(Chosen(where.store, listed.id, listed.id))

    def _account(self, chosen: Chosen, calls: Sequence[RecordedCall]) -> Account | None:
        from foldline.report.kept import kept_account
        from foldline.store.recording import followed

        log_rows = list(followed(chosen.store.records(chosen.id), lambda number: f"{chosen.name}, record {number}"))
        archive = chosen.archive
        account = kept_account(
            log_rows, calls, name=chosen.name, model=self._model, archived=lambda key: key in archive
        )
        return account or self._unreported(chosen)

    def _unreported(self, chosen: Chosen) -> Account | None:
        """A session of which no usage is known is replayed under its own policy."""
        from foldline.interfaces.session_words import active

        recording = chosen.read()
        header = recording.header
        messages = tuple(entry.recorded for entry in active(recording.events) if not entry.hidden)
        session = Session(name=chosen.name, dialect=header.dialect, messages=messages, model=header.model)
        policy = header.policy if header.policy in POLICIES else "balanced"
        asked = _Asked(policy, header.window, self._model)
        account = _replayed(session, f"session {chosen.name}", asked, recording.tally.updated)
        return account if account.sent.requests else None


def _calls(where: Where, ids: Sequence[str]) -> dict[str, list[RecordedCall]]:
    """The recorded calls of these sessions; none where there is no record, or it cannot be read."""
    from foldline.store.calls_read import read_calls
    from foldline.store.places import calls_path

    out: dict[str, list[RecordedCall]] = defaultdict(list)
    try:
        for call in read_calls(calls_path(where.environ), session_id=ids[0] if len(ids) == 1 else None):
            out[call.session_id].append(call)
    except FileNotFoundError:
        pass  # calls are recorded where an agent runs: a copy of a store has none
    except (FoldlineError, OSError) as error:
        log(f"the record of calls cannot be read: {error}")
    return out


def _write(path: str, text: str) -> None:
    from foldline.store.files import write_whole

    try:
        write_whole(Path(path), [text.encode()])
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", place=path) from None


def _show(path: str) -> None:
    import webbrowser

    if not webbrowser.open(Path(path).resolve().as_uri()):
        log("no browser could be opened")
