"""What of a long text is looked at when it is shortened: its ends, samples, and what stands out."""

from __future__ import annotations

import pytest

from foldline.text import sampling as module
from foldline.text.identifiers import names
from foldline.text.sampling import FULLY_SCORED_CHARS, passages_of, pieces

SHORT = [f"ok {number}" for number in range(250_000)]
LONG = [f"2026-01-01 12:00:00 INFO svc.module: request {number} took {number % 1_000} ms" for number in range(30_000)]


@pytest.mark.parametrize("lines", [SHORT[:30_000], LONG[:4_000]])
def test_of_a_text_within_the_bound_nothing_is_passed_over(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert len(text) <= FULLY_SCORED_CHARS
    found = pieces(text, {}, ())
    assert "\n".join(piece for _, piece in found) == text
    assert [number for number, _ in found] == list(range(len(found)))


@pytest.mark.parametrize("lines", [SHORT, LONG])
def test_of_a_longer_one_no_more_is_looked_at_however_long_it_is(lines: list[str]) -> None:
    for times in (1, 3):
        text = "\n".join(lines * times)
        found = [piece for _, piece in pieces(text, {}, ())]
        assert FULLY_SCORED_CHARS // 2 < sum(map(len, found)) < 2 * FULLY_SCORED_CHARS
        assert len(found) < 2 * FULLY_SCORED_CHARS // 60
        assert text.startswith(found[0])
        assert text.endswith(found[-1])


@pytest.mark.parametrize(
    "text", ["\n".join(SHORT), "\n".join(LONG), " ".join(f"w{n}" for n in range(250_000))], ids=["short", "long", "one"]
)
def test_samples_come_from_everywhere_in_order_and_gaps_are_told_apart(text: str) -> None:
    found = pieces(text, {}, ())
    at, tenths = 0, set()
    for (before, _), (number, piece) in zip([(-1, ""), *found], found, strict=False):
        place = text.find(piece, at)
        assert place >= 0
        if number == before + 1 and before >= 0:
            assert place - at <= 1  # a line break at most
        tenths.add(10 * place // len(text))
        at = place + len(piece)
    assert tenths == set(range(10))
    assert found[-1][0] >= len(found)


@pytest.mark.parametrize("lines", [SHORT, LONG])
@pytest.mark.parametrize("place", [0.21, 0.5, 0.77])
def test_what_went_wrong_what_was_named_and_what_is_kept_is_found_wherever_it_stands(
    lines: list[str], place: float
) -> None:
    told = ["job 17 FAILED to start", "about ticket-4711", "keep me"]
    at = int(place * len(lines))
    text = "\n".join([*lines[:at], *told, *lines[at:]])
    found = {piece for _, piece in pieces(text, {"ticket-4711": 2}, {"keep me"})}
    assert set(told) <= found


def test_letters_that_become_two_in_small_ones_move_no_place() -> None:
    text = "\n".join(["İİİİ", *SHORT, "a Fatal thing", *SHORT])
    assert "a Fatal thing" in {piece for _, piece in pieces(text, {}, ())}


def test_a_line_without_an_end_is_looked_at_in_parts() -> None:
    text = '{"id": 1, "name": "abc"}, ' * 100_000
    found = pieces(text, {}, ())
    assert max(len(piece) for _, piece in found) <= 400
    assert sum(len(piece) for _, piece in found) < 2 * FULLY_SCORED_CHARS


def test_the_pieces_of_a_text_have_their_names_and_signs() -> None:
    texts = ["def load_rows(path):", "", "all is well", "  12: Failed tests/test_rows.py", "see load_rows"]
    found = passages_of("\n".join(texts))
    assert found.texts == texts
    assert [piece.names for piece in found.pieces] == [names(text) for text in texts]
    assert [piece.worth for piece in found.pieces] == [module.DEFINING, 0, 0, module.ALARMING, 0]
    assert found.worthy == [0, 3, 4]
    assert found.spread == {"load_rows": 2, "tests/test_rows.py": 1}
