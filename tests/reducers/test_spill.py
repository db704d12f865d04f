"""An output too large to cut goes to the archive."""

from __future__ import annotations

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import LINE, applied, call, context_of, folds_of, gave, need_of, result, use, user, view_of

from foldline.engine.presets import POLICIES
from foldline.reducers.spill import Spill, spill_notice
from foldline.view.archive import MemoryArchive, key_of

BIG = "größer 上 👩 " * 4_000


def test_the_notice_has_the_beginning_the_place_and_the_digest() -> None:
    out = spill_notice(BIG, "/tmp/there", head_bytes=100)
    assert out.startswith("größer 上")
    assert "/tmp/there" in out
    assert key_of(BIG.encode()) in out
    assert f"{len(BIG):,} characters" in out
    assert out.encode("utf-8")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_over_the_threshold_leaves_its_beginning(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", False), *build.turn(["a"], [BIG], "w" * 6, None)]
    view = view_of(wires, dialect)
    applied(Spill(threshold_chars=10_000), view)
    assert view.estimated_tokens < 2_000
    assert folds_of(Spill(threshold_chars=10_000), view) == []


@pytest.mark.parametrize(("threshold", "spilled"), [(len(BIG), 0), (len(BIG) - 1, 1)])
def test_the_threshold_has_to_be_passed(threshold: int, spilled: int) -> None:
    view = view_of([user("go"), call("a"), result("a", BIG)])
    assert len(folds_of(Spill(threshold_chars=threshold), view)) == spilled


def test_what_was_sent_before_is_left_alone() -> None:
    view = view_of([user("go"), call("a"), result("a", BIG)])
    assert folds_of(Spill(threshold_chars=100), view, need_of(view, fresh=3)) == []


def test_the_whole_output_is_in_the_archive_under_the_key_in_the_notice() -> None:
    archive = MemoryArchive()
    context = context_of([user("go"), call("a"), result("a", BIG * 10)], policy=POLICIES["checkpoint"], archive=archive)
    shown = context.prepare().messages[2]["content"]
    key = key_of((BIG * 10).encode())
    assert key in shown
    assert archive.get(key).decode() == BIG * 10


def test_every_output_of_a_message_is_kept_under_its_own_key() -> None:
    archive = MemoryArchive()
    blocks = [*use("a")["content"], *use("b")["content"]]
    found = [*gave("a", BIG * 10)["content"], *gave("b", LINE * 9_000)["content"]]
    wires = [user("go"), {"role": "assistant", "content": blocks}, {"role": "user", "content": found}]
    context = context_of(wires, "anthropic", policy=POLICIES["checkpoint"], archive=archive)
    context.prepare()
    assert key_of((BIG * 10).encode()) in archive
    assert key_of((LINE * 9_000).encode()) in archive


def test_an_output_with_half_a_character_is_spilled_too() -> None:
    context = context_of([user("go"), call("a"), result("a", "\ud83d" + "x" * 300_000)], policy=POLICIES["checkpoint"])
    shown = context.prepare().messages[2]["content"]
    assert "SHA-256" in shown
    assert shown.encode("utf-8")
