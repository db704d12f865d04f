"""How sessions are named, found by a name, and put in order: the same in every store."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from itertools import chain
from typing import Final

from foldline.errors import InvalidInput
from foldline.store.base import Listed
from foldline.store.recording import Clock, Header, header_of, stamp
from foldline.store.records import Record

__all__ = ["ID", "LATEST", "first_header", "latest_of", "meant", "named_by", "newest_first"]

LATEST: Final = "latest"
"""What names the session that was written last."""

ID: Final = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
"""Time, then chance: names sort by age, and hold nothing that a path or a pattern could be made of."""

_PREFIX = re.compile(r"[0-9a-f-]{1,24}")


def first_header(
    clock: Clock,
    *,
    dialect: str,
    model: str | None,
    policy: str,
    window: int | None,
    title: str,
    parent: str | None,
) -> Header:
    """The header of a session that begins now, with a name that it has by time and chance."""
    moment = clock().astimezone(UTC)
    return Header(
        id=f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
        created=stamp(lambda: moment),
        dialect=dialect,
        model=model,
        policy=policy,
        window=window,
        title=title,
        parent=parent,
    )


def named_by(records: Iterable[Record]) -> tuple[str, Iterator[Record]]:
    """The id in the first record of a log, and all its records. Raises InvalidInput."""
    given = iter(records)
    first = next(given, None)
    if first is None:
        raise InvalidInput("the log is empty", place="records")
    name = header_of(first).id
    if not ID.fullmatch(name):
        raise InvalidInput(f"is no id of a session: {name[:80]!r}", place="id")
    return name, chain([first], given)


def newest_first(found: Iterable[Listed]) -> list[Listed]:
    """The one written last first; what cannot be read last."""
    return sorted(found, key=lambda one: (one.snapshot.updated if one.snapshot else "", one.id), reverse=True)


def latest_of(listed: Iterable[Listed]) -> str:
    """The id of the first that can be read. Raises InvalidInput when there is none."""
    damaged = ""
    for one in listed:
        if one.snapshot is not None:
            return one.id
        damaged = damaged or f"no session can be read; {one.id}: {one.damage}"
    raise InvalidInput(damaged or "there is no session yet", place="session")


def meant(name: str, beginning: Callable[[str], Iterable[str]]) -> str:
    """The id that is a name, or the only one that begins with it. Raises InvalidInput.

    `beginning` gives the ids that begin with a text, which it is asked for only when that may begin one: hexadecimal
    digits and dashes.
    """
    found = sorted(beginning(name)) if _PREFIX.fullmatch(name) else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidInput(f"there is no session {name[:80]!r}", place="session")
    raise InvalidInput(f"{len(found)} sessions begin with {name!r}: {', '.join(found[:5])}", place="session")
