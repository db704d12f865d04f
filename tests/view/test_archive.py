"""Originals by the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from foldline.engine.context import Context
from foldline.messages import Text
from foldline.store.files import FileArchive
from foldline.testing import session
from foldline.view.archive import Archive, MemoryArchive, Originals, bundle, encode, key_of, unbundle
from foldline.view.transcript import Fold
from foldline.view.view import View

KINDS: list[Callable[[Path], Archive]] = [lambda _: MemoryArchive(), FileArchive]


@pytest.mark.parametrize("make", KINDS)
def test_what_is_put_can_be_read_under_its_key(make: Callable[[Path], Archive], tmp_path: Path) -> None:
    archive = make(tmp_path)
    key = archive.put(b"an output")
    assert archive.get(key) == b"an output"
    assert key in archive
    assert key == hashlib.sha256(b"an output").hexdigest() == key_of(b"an output")


@pytest.mark.parametrize("make", KINDS)
def test_putting_twice_keeps_one_object(make: Callable[[Path], Archive], tmp_path: Path) -> None:
    archive = make(tmp_path)
    assert archive.put(b"") == archive.put(b"")
    assert archive.get(key_of(b"")) == b""


@pytest.mark.parametrize("make", KINDS)
def test_an_unknown_key_is_a_key_error(make: Callable[[Path], Archive], tmp_path: Path) -> None:
    archive = make(tmp_path)
    assert key_of(b"nothing") not in archive
    with pytest.raises(KeyError):
        archive.get(key_of(b"nothing"))


@pytest.mark.parametrize("make", KINDS)
def test_the_place_of_an_object_is_known_before_it_is_there(make: Callable[[Path], Archive], tmp_path: Path) -> None:
    archive = make(tmp_path)
    key = key_of(b"later")
    assert archive.where(key) == archive.where(key)
    assert key[:16] in archive.where(key)
    assert key not in archive


def test_equal_values_are_equal_bytes_whatever_the_order_of_keys() -> None:
    assert encode({"b": 1, "a": [1, "ü"]}) == encode({"a": [1, "ü"], "b": 1})
    assert encode({"a": 1}) != encode({"a": 1.5})


@pytest.mark.parametrize(
    "text", ["", "größer", "上下文", "👩‍👩‍👧‍👦", "broken \ud83d here", "\x00\x1b", 'quote " back \\']
)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    assert json.loads(encode({"text": text})) == {"text": text}


def test_a_bundle_opens_to_its_originals_in_order() -> None:
    archive = MemoryArchive()
    keys = [archive.put(data) for data in (b"one", b"two", b"three")]
    inner = archive.put(bundle([(keys[0], False), (keys[1], False)]))
    outer = archive.put(bundle([(inner, True), (keys[2], False), (inner, True)]))
    assert unbundle(archive, outer) == [b"one", b"two", b"three", b"one", b"two"]


def test_a_bundle_of_bundles_holds_keys_and_no_second_copy() -> None:
    archive = MemoryArchive()
    key = archive.put(bundle([(archive.put(b"x" * 100_000), False)]))
    for _ in range(20):
        key = archive.put(bundle([(key, True)]))
    assert len(archive.get(key)) < 200
    assert unbundle(archive, key) == [b"x" * 100_000]


def test_bundles_may_be_nested_as_deep_as_a_session_is_long() -> None:
    archive = MemoryArchive()
    key = archive.put(bundle([(archive.put(b"the first"), False)]))
    for number in range(3_000):
        key = archive.put(bundle([(key, True), (archive.put(b"%d" % number), False)]))
    originals = unbundle(archive, key)
    assert originals[0] == b"the first"
    assert originals[-1] == b"2999"
    assert len(originals) == 3_001


def test_a_text_that_looks_like_a_bundle_stays_a_text() -> None:
    archive = MemoryArchive()
    secret = archive.put(b"secret")
    lookalike = archive.put(bundle([(secret, False)]))
    assert unbundle(archive, archive.put(bundle([(lookalike, False)]))) == [bundle([(secret, False)])]


def test_an_original_that_is_gone_is_a_key_error() -> None:
    archive = MemoryArchive()
    with pytest.raises(KeyError):
        unbundle(archive, archive.put(bundle([(key_of(b"lost"), False)])))


def view_of(rounds: int = 4) -> View:
    context = Context(window=100_000)
    context.extend([*session(rounds), {"role": "user", "content": "next"}])
    return context.view


def fold_of(view: View, start: int, stop: int, reducer: str = "test") -> Fold:
    note = view.codec.note("short", kind="summary")
    return Fold(start=start, stop=stop, shown=(note,), tokens=view.count(note), reducer=reducer, reason="because")


def test_the_original_of_one_entry_is_its_json_as_it_came() -> None:
    archive, view = MemoryArchive(), view_of()
    key = Originals(archive).store(view, fold_of(view, 2, 3), form=True)
    assert json.loads(archive.get(key)) == view.entries[2].recorded


def test_the_originals_of_a_span_are_a_bundle_in_order() -> None:
    archive, view = MemoryArchive(), view_of()
    key = Originals(archive).store(view, fold_of(view, 1, 7), form=False)
    assert [json.loads(data) for data in unbundle(archive, key)] == [view.entries[seq].recorded for seq in range(1, 7)]


def test_a_fold_over_a_fold_points_to_it() -> None:
    archive, view = MemoryArchive(), view_of()
    originals = Originals(archive)
    inner = fold_of(view, 1, 7)
    key = originals.store(view, inner, form=False)
    view.commit(Fold(start=1, stop=7, shown=inner.shown, tokens=inner.tokens, reducer="r", reason="w", archive=key))
    outer = originals.store(view, fold_of(view, 0, 9), form=False)
    assert [key, 1] in json.loads(archive.get(outer))
    assert len(unbundle(archive, outer)) == 9


@pytest.mark.parametrize("reducer", ["spill", "a user's own"])
def test_the_text_of_a_result_whose_key_a_fold_shows_is_kept_under_that_key(reducer: str) -> None:
    archive, view = MemoryArchive(), view_of()
    entry = view.entries[2]
    [result] = entry.message.results
    key = key_of(result.text.encode())

    def form(text: str) -> Fold:
        shown = view.codec.revise(entry.message, [replace(result, parts=(Text(text),))])
        return replace(fold_of(view, 2, 3, reducer=reducer), shown=(shown,))

    Originals(archive).store(view, form(f"[saved as {'0' * 64}]"), form=True)
    assert key not in archive
    Originals(archive).store(view, form(f"[saved as {key}]"), form=True)
    assert archive.get(key) == result.text.encode()
    assert key_of(encode(entry.recorded)) in archive


def test_keeping_the_same_again_keeps_no_second_copy() -> None:
    class Counting(MemoryArchive):
        puts = 0

        def put(self, data: bytes, /) -> str:
            Counting.puts += 1
            return super().put(data)

    view = view_of()
    originals = Originals(Counting())
    originals.store(view, fold_of(view, 1, 7), form=False)
    first = Counting.puts
    originals.store(view, fold_of(view, 1, 7), form=False)
    assert Counting.puts == first + 1, "the bundle only"
