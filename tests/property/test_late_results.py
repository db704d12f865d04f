"""A result that comes late is shown, beside its call or in words, whatever was folded meanwhile."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.errors import SummaryError
from foldline.view.pairing import REACH
from tests.property.depth import dear
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, text

dialects = st.sampled_from(DIALECTS)
IDS = ("pay", "book")


def asked(dialect: str, count: int) -> list[Wire]:
    """So many calls of one turn that nobody answers yet."""
    return BUILDERS[dialect].turn(list(IDS[:count]), [], "the amount of 40412", None)


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
@given(dialects, st.sampled_from(POLICIES), st.integers(1, 2), st.integers(0, REACH), st.data())
def test_what_comes_late_is_shown_live_replayed_and_synced(
    dialect: str, policy: str, count: int, turns: int, data: st.DataObject
) -> None:
    words = data.draw(text(40))
    wires = [*BUILDERS[dialect].user("pay and book", False), *asked(dialect, count), *said(dialect, turns, words)]
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": 4_000, "max_output_tokens": 0}
    context = Context(**settings)
    context.extend(wires)
    context.prepare()
    if data.draw(st.booleans()):
        with suppress(SummaryError):
            context.compact(summarize=None)
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


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_comes_late_is_not_old_however_much_of_it_there_is(dialect: str, policy: str) -> None:
    build, result = BUILDERS[dialect], " ".join(f"line{n * 7919 % 9973}" for n in range(50))
    context = Context(dialect=dialect, policy=policy, window=6_000, max_output_tokens=0)
    context.extend([*build.user("pay", False), *build.turn(list("abcdef"), [], "w", None)])
    for number in range(12):
        words = " ".join(f"word{(number * 31 + n * 7919) % 9973}" for n in range(200))
        context.extend(build.user(f"meanwhile {number} {words}", False))
        context.prepare()
        context.extend(build.says(f"well {number} {words}", None))
    context.extend(build.turn(list("abcdef"), [f"{name} {result}" for name in "abcdef"], "w", None)[-late(dialect) :])
    request = context.prepare()
    assert check(request.messages, dialect=dialect) == []
    assert all(f"{name} {result}" in str(request.messages) for name in "abcdef")


def late(dialect: str) -> int:
    """In how many messages six results stand."""
    return 1 if dialect in ("anthropic", "gemini") else 6
