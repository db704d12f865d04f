"""Where the messages of requests come from: every entry of the branch is shown or stood for once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from operator import is_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs.openai_chat.roles import OPENING, SEPARATOR
from foldline.engine.context import Context, Request
from foldline.engine.one_shot import fit
from foldline.errors import DoesNotFit, FoldlineError
from foldline.failures.classification import classify
from foldline.testing import session
from foldline.view.origins import OURS, Origin
from foldline.view.tiles import entries_of
from foldline.view.transcript import Entry, active
from tests.property.depth import dear, promise
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, sessions
from tests.remembered import REMEMBERED

policies = st.sampled_from(POLICIES)
windows = st.integers(60, 4_000)

LEFT_OUT = {"orphan-result", "duplicate-result", "late-result", "reasoning-alone"}
"""Repairs that leave out an entry, and name it."""

ROLES = {"error": {"message": "Conversation roles must alternate user/assistant/user/assistant/..."}}


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    """A summariser that answers briefly."""
    return f"Goal: go on. {len(messages)} texts were read."


def away(request: Request) -> Iterator[Origin]:
    """One origin of each fold that stands for entries."""
    seen: set[int] = set()
    for origin in request.origins:
        if origin.stands_for and origin.folds[0].id not in seen:
            seen.add(origin.folds[0].id)
            yield origin


def holds(context: Context, request: Request) -> None:
    """The law, for the request that was just prepared."""
    assert len(request.origins) == len(request.messages)
    # Each entry is in one place: a message (or, where its results answer several turns, more of one block), or a fold.
    shown = [seq for origin in request.origins for seq in set(origin.entries)]
    folded = [seq for origin in away(request) for seq in origin.stands_for]
    assert len(folded) == len(set(folded)) and not set(folded) & set(shown)
    # And they are entries of this branch, all of them, but for those that no message can show.
    branch = {entry.seq: entry for entry in active(context.events)}
    assert {*shown, *folded} <= branch.keys()
    unsaid = {repair.seq for repair in request.repairs if repair.rule in LEFT_OUT}
    tiles = context.view.tiles
    for seq in branch.keys() - {*shown, *folded}:
        entry, tile = context.view.entries[seq], tiles[context.view.index(seq)]
        nothing_shown = tile.fold is not None and not tile.fold.shown
        assert nothing_shown or not entry.message.agent_visible or seq in unsaid, (seq, request.repairs)
    # In order of the log, by the places that the view has: a repair may move results inside of one.
    places = [
        context.view.index((origin.entries or origin.stands_for)[0]) for origin in request.origins if origin != OURS
    ]
    assert places == sorted(places)
    mended = {repair.rule for repair in request.repairs} & {"alternation", "signature", "cache-count", "cache-order"}
    for wire, origin in zip(request.messages, request.origins, strict=True):
        of_whom(context, wire, origin, mended=bool(mended))


def of_whom(context: Context, wire: Any, origin: Origin, *, mended: bool) -> None:
    """What a message holds is what its origin says."""
    for fold in origin.folds:
        assert fold in context.explain(fold.start)
        assert fold.form == bool(origin.entries)
    if origin.stands_for:
        (fold,) = origin.folds
        assert set(origin.stands_for) <= set(range(fold.start, fold.stop))
        assert mended or any(wire == context.view.codec.write(message) for message in fold.shown)
    elif len(origin.entries) == 1 and not origin.folds:
        tile = context.view.tiles[context.view.index(origin.entries[0])]
        if tile.fold is None and not tile.repairs and not mended:
            assert wire is context.view.entries[origin.entries[0]].recorded


@promise
@given(sessions(), policies, windows, st.data())
def test_every_entry_is_shown_or_stood_for_once(
    drawn: tuple[str, list[Wire], bool], policy: str, window: int, data: st.DataObject
) -> None:
    """Through repairs, folds over folds, compactions, undone folds, forks, hidden messages and refusals of roles."""
    dialect, wires, _ = drawn
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, counter=REMEMBERED)
    actions = st.sampled_from(("", "", "prepare", "ask", "compact", "undo", "pin", "fork", "hide", "roles"))
    for number, wire in enumerate(wires):
        action = data.draw(actions)
        context.append(wire, agent_visible=action != "hide")
        with suppress(FoldlineError):
            if action == "compact":
                context.compact(summarize=good)
            elif action == "undo":
                context.undo()
            elif action == "pin":
                context.pin(data.draw(st.sampled_from(list(context.view.entries))))
            elif action == "fork":
                context.sync(
                    [*wires[: data.draw(st.integers(0, number))], *BUILDERS[dialect].user("another way", False)]
                )
            elif action == "roles":
                context.recover(classify(status=400, body=ROLES))
            request = context.prepare(good if action == "ask" else None)
            holds(context, request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_between_folds_only_the_origins_of_new_messages_are_made(dialect: str) -> None:
    """By identity: a request costs what is new in it, however long the session is."""
    context = Context(dialect=dialect, window=1_000_000)
    before: tuple[Origin, ...] = ()
    for number, wire in enumerate(session(12, dialect=dialect)):
        context.append(wire)
        if number % 2 == 0:  # each call has its result by then
            request = context.prepare()
            assert len(request.origins) == number + 1
            assert all(map(is_, before, request.origins))
            before = request.origins


@dear
@given(sessions(), policies, windows)
def test_origins_survive_a_replay_and_a_release(drawn: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    dialect, wires, _ = drawn
    settings: dict[str, Any] = {"dialect": dialect, "policy": policy, "window": window, "max_output_tokens": 0}
    context = Context(**settings, counter=REMEMBERED)
    context.extend(wires)
    try:
        first = context.prepare(good)
    except DoesNotFit:
        return
    again = Context.replay(context.events, **settings, counter=REMEMBERED)
    view = again.view
    view.wires()
    assert [*view.origins()] == [*first.origins]
    covered = {seq for tile in view.tiles for run in tile.covers for seq in run}
    assert covered == {entry.seq for tile in view.tiles if tile.fold for entry in entries_of(tile)}
    context.release()
    assert context.prepare().origins == first.origins
    out = fit(wires, max_tokens=10**6, dialect=dialect)
    assert len(out.origins) == len(out.messages)


def test_the_words_beside_results_keep_their_origin_when_a_log_is_replayed() -> None:
    """A fold over the results shows them; a replay knows what it shows, and not what the policy had asked for."""
    settings: dict[str, Any] = {"dialect": "anthropic", "window": 60, "max_output_tokens": 0}
    context, build = Context(**settings), BUILDERS["anthropic"]
    context.extend(build.user("Read it.", False))
    for number in range(3):
        context.extend(build.turn([f"c{number}"], ["a result of many words " * 12], "words", None))
    context.extend(build.says("It is done.", None))
    request = context.prepare()
    assert [[*origin.entries] for origin in request.origins if origin.entries] == [[6]]  # and its results are folded
    again = Context.replay(context.events, **settings)
    again.view.wires()
    assert again.view.origins() == request.origins
    holds(context, request)


def test_words_between_roles_are_of_nobody_and_the_rest_keeps_its_origins() -> None:
    context = Context(window=10_000, system="Be brief.")
    for words in ("one", "two", "three"):
        context.append({"role": "user", "content": words})
    context.append({"role": "assistant", "content": "yes"})
    context.prepare()
    assert context.recover(classify(status=400, body=ROLES)).retry
    request = context.prepare()
    told = [
        (wire["content"], [*origin.entries]) for wire, origin in zip(request.messages, request.origins, strict=True)
    ]
    assert [entries for words, entries in told if words in (SEPARATOR, OPENING)] == [[], []]
    assert [pair for pair in told if pair[1]] == [("one", [0]), ("two", [1]), ("three", [2]), ("yes", [3])]
    holds(context, request)


def test_entries_are_named_by_their_numbers_in_the_log() -> None:
    context = Context(window=10_000)
    entry = context.append({"role": "user", "content": "one"})
    assert isinstance(entry, Entry)
    assert context.prepare().origins == (Origin((entry.seq,)),)
