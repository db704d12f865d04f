"""A result that comes late is shown: beside its call, or in words, whatever was folded meanwhile and wherever it goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.context import Context
from foldline.errors import SummaryError
from foldline.fitting import check
from foldline.pairing import REACH
from foldline.transcript import Entry, Fold
from tests.property.depth import dear
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, text

dialects = st.sampled_from(DIALECTS)
IDS = ("pay", "book")


def asked(dialect: str, count: int) -> list[Wire]:
    """So many calls of one turn that nobody answers yet."""
    turn = BUILDERS[dialect].turn(list(IDS[:count]), [], "the amount of 40412", None)
    return turn


def came(dialect: str, count: int) -> list[Wire]:
    """Their results, each a message of its own, last one first."""
    build = BUILDERS[dialect]
    out: list[Wire] = []
    for name in reversed(IDS[:count]):
        out += build.turn([name], [f"RECEIPT-{name}"], "w", None)[1:]
    return out


def said(dialect: str, count: int, words: str) -> list[Wire]:
    build = BUILDERS[dialect]
    out: list[Wire] = []
    for number in range(count):
        out += [*build.user(f"meanwhile {number} {words}", False), *build.says(f"well {number} {words}", None)]
    return out


def is_shown(sent: list[Any], count: int) -> bool:
    return all(f"RECEIPT-{name}" in str(sent) for name in IDS[:count])


@dear
@given(dialects, st.sampled_from(POLICIES), st.integers(1, 2), st.integers(0, REACH), text(40), st.booleans())
def test_what_comes_late_is_shown_live_replayed_and_synced(
    dialect: str, policy: str, count: int, turns: int, words: str, fold: bool
) -> None:
    wires = [*BUILDERS[dialect].user("pay and book", False), *asked(dialect, count), *said(dialect, turns, words)]
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": 4_000, "max_output_tokens": 0}
    context = Context(**settings)
    context.extend(wires)
    context.prepare()
    if fold:
        try:
            context.compact(summarize=None)
        except SummaryError:
            pass
    context.extend(came(dialect, count))
    request = context.prepare()
    assert check(request.messages, dialect=dialect) == []
    assert is_shown(request.messages, count)
    again = Context.replay(context.events, **settings)
    assert again.prepare().messages == request.messages
    synced = Context(**settings)
    synced.sync(wires)
    synced.prepare()
    synced.sync([*wires, *came(dialect, count)])
    sent = synced.prepare().messages
    assert check(sent, dialect=dialect) == []
    assert is_shown(sent, count)
