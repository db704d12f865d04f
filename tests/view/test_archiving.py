"""What a fold hides goes into the archive, each original once."""

from __future__ import annotations

import json

from foldline.engine.context import Context
from foldline.testing import session
from foldline.view.archive import MemoryArchive, encode, key_of, unbundle
from foldline.view.archiving import Originals
from foldline.view.transcript import Fold
from foldline.view.view import View


def view_of(rounds: int = 4) -> View:
    context = Context(window=100_000)
    context.extend([*session(rounds), {"role": "user", "content": "next"}])
    return context.view


def fold_of(view: View, start: int, stop: int, reducer: str = "test") -> Fold:
    note = view.codec.note("short", kind="summary")
    return Fold(start=start, stop=stop, shown=(note,), tokens=view.count(note), reducer=reducer, reason="because")


def test_the_original_of_one_entry_is_its_json_as_it_came() -> None:
    archive, view = MemoryArchive(), view_of()
    key = Originals(archive).keep(view, fold_of(view, 2, 3), form=True)
    assert json.loads(archive.get(key)) == view.entries[2].recorded


def test_the_originals_of_a_span_are_a_bundle_in_order() -> None:
    archive, view = MemoryArchive(), view_of()
    key = Originals(archive).keep(view, fold_of(view, 1, 7), form=False)
    assert [json.loads(data) for data in unbundle(archive, key)] == [view.entries[seq].recorded for seq in range(1, 7)]


def test_a_fold_over_a_fold_points_to_it() -> None:
    archive, view = MemoryArchive(), view_of()
    originals = Originals(archive)
    inner = fold_of(view, 1, 7)
    key = originals.keep(view, inner, form=False)
    view.commit(Fold(start=1, stop=7, shown=inner.shown, tokens=inner.tokens, reducer="r", reason="w", archive=key))
    outer = originals.keep(view, fold_of(view, 0, 9), form=False)
    assert [key, 1] in json.loads(archive.get(outer))
    assert len(unbundle(archive, outer)) == 9


def test_a_spilled_output_is_kept_as_text_under_its_own_key() -> None:
    archive, view = MemoryArchive(), view_of()
    Originals(archive).keep(view, fold_of(view, 2, 3, reducer="spill"), form=True)
    assert archive.get(key_of(b"ok")) == b"ok"
    assert key_of(encode(view.entries[2].recorded)) in archive


def test_keeping_the_same_again_keeps_no_second_copy() -> None:
    class Counting(MemoryArchive):
        puts = 0

        def put(self, data: bytes, /) -> str:
            Counting.puts += 1
            return super().put(data)

    view = view_of()
    originals = Originals(Counting())
    originals.keep(view, fold_of(view, 1, 7), form=False)
    first = Counting.puts
    originals.keep(view, fold_of(view, 1, 7), form=False)
    assert Counting.puts == first + 1, "the bundle only"
