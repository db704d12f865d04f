"""Shortening texts: never inside a code point, never over the limit."""

from __future__ import annotations

import cProfile
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.text.identifiers import names
from foldline.text.memory import TextMemory
from foldline.text.shorten import Mode, clip_bytes, clip_tokens, extract, first_line, head_and_tail, largest
from foldline.tokens import ESTIMATE

FAMILY = "👩‍👩‍👧‍👦"
AWKWARD = ["ascii only", "größer als", "上下文窗口管理", FAMILY * 5, "a" + "é" * 9, "mixed 上 👩 é text"]

texts = st.text(alphabet=st.sampled_from("ab \n.,{}é上👩\ud83d"), max_size=400)
modes: st.SearchStrategy[Mode] = st.sampled_from(("head", "tail", "both"))


def sendable(text: str) -> bool:
    return text.encode("utf-8", "strict").decode("utf-8") == text


@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("end", [False, True])
def test_bytes_are_cut_on_a_character_boundary(text: str, end: bool) -> None:
    # vertesia/llumiverse PR#462: a cut inside an emoji left half a character, and the request was a 400.
    size = len(text.encode())
    for limit in range(size + 2):
        piece = clip_bytes(text, limit, end=end)
        assert len(piece.encode()) <= limit
        assert text.endswith(piece) if end else text.startswith(piece)
        assert len(piece.encode()) > limit - 4 or piece == text
        assert sendable(piece)


def test_a_text_within_its_bytes_is_returned_as_it_is() -> None:
    text = "größer"
    assert clip_bytes(text, 100) is text


def test_half_a_character_in_the_text_is_no_obstacle() -> None:
    assert clip_bytes("ab\ud83dcd", 4) in ("ab", "ab\ud83d")


@given(texts, st.integers(0, 500), st.integers(0, 500))
def test_head_and_tail_are_the_ends_and_do_not_overlap(text: str, head: int, tail: int) -> None:
    first, last = head_and_tail(text, head, tail)
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(first) <= head
    assert len(last) <= tail
    assert len(first) + len(last) <= len(text)
    assert len(first) + len(last) == min(len(text), head + tail)


@given(st.integers(-5, 50), st.integers(0, 60), st.integers(-10, 120), st.none() | st.integers(-5, 120))
def test_largest_finds_the_last_that_fits(low: int, width: int, most: int, guess: int | None) -> None:
    high = low + width
    found = largest(low, high, lambda n: n <= most, guess=guess)
    assert found == max(low, min(high, most))


def test_largest_asks_a_logarithm_of_times() -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= 123_456

    assert largest(0, 1_000_000, fits, guess=120_000) == 123_456
    assert len(asked) < 24


@given(texts, st.integers(0, 200), modes)
def test_clipped_tokens_are_within_the_limit_and_from_the_ends(text: str, limit: int, mode: Mode) -> None:
    head, tail = clip_tokens(text, limit, ESTIMATE, mode)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert ESTIMATE.text(head) + ESTIMATE.text(tail) <= limit or (not head and not tail)
    if ESTIMATE.text(text) <= limit:
        assert (head, tail) == (text, "")
    elif mode == "head":
        assert not tail
    elif mode == "tail":
        assert not head


def test_clipping_keeps_as_much_as_the_limit_allows() -> None:
    text = "word " * 2_000
    head, _ = clip_tokens(text, 500, ESTIMATE)
    assert ESTIMATE.text(head) > 490


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n \n  first \nsecond", "first"),
        ("only", "only"),
        ("x" * 500, "x" * 200),
        ("\n" * 50_000 + "far", ""),
    ],
)
def test_the_first_line_is_the_first_with_anything_on_it(text: str, line: str) -> None:
    assert first_line(text) == line


# --- extracts ---------------------------------------------------------------------------------------------------------


@given(texts, st.integers(8, 200))
def test_an_extract_is_within_its_limit(text: str, limit: int) -> None:
    out = extract(text, limit, ESTIMATE)
    assert ESTIMATE.text(out) <= limit
    if ESTIMATE.text(text) <= limit:
        assert out == text


LOG = "\n".join(
    ["$ make test", *(f"collecting item number {n} of the long run" for n in range(400))]
    + ["ERROR src/app/config.py:17 parse_config failed"]
    + [f"collecting item number {n} of the long run" for n in range(400, 800)]
    + ["1 failed, 799 passed"]
)


def test_an_extract_shows_beginning_and_end() -> None:
    # openai/codex#6415: only the head was shown, and a failed build read as a success.
    out = extract(LOG, 120, ESTIMATE)
    assert out.startswith("$ make test")
    assert out.endswith("1 failed, 799 passed")


def test_an_extract_finds_what_went_wrong_in_the_middle() -> None:
    assert "parse_config failed" in extract(LOG, 160, ESTIMATE)


def test_what_was_asked_for_comes_first() -> None:
    lines = [f"src/module_{n}/handler_{n}.py is fine" for n in range(300)]
    text = "\n".join(lines)
    out = extract(text, 120, ESTIMATE, {"src/module_150/handler_150.py": 2})
    assert "src/module_150/handler_150.py" in out
    assert "src/module_151/handler_151.py" not in out


def test_gaps_are_marked_and_lines_keep_their_order() -> None:
    out = extract(LOG, 160, ESTIMATE)
    shown = [line for line in out.split("\n") if line != "…"]
    places = [LOG.index(line.strip("…")) for line in shown]
    assert places == sorted(places)
    assert "…" in out


@pytest.mark.parametrize("limit", range(40, 200, 7))
def test_behind_whole_lines_no_line_is_cut(limit: int) -> None:
    lines = [f"step {n}: " + "plain words of a long line " * (n % 9) for n in range(120)]
    shown = extract("\n".join(lines), limit, ESTIMATE).split("\n")
    assert shown[0] == lines[0]
    assert all(line == "…" or line in lines for line in shown[:-1])


def test_a_result_on_one_line_is_extracted_too() -> None:
    text = "{" + ", ".join(f'"key_{n}": "value {n}"' for n in range(2_000)) + ', "error": "ENOENT config.toml"}'
    out = extract(text, 100, ESTIMATE)
    assert out.startswith('{"key_0"')
    assert out.rstrip("}").endswith('ENOENT config.toml"')


@pytest.mark.parametrize(
    "make", [lambda: "x" * 60_000, lambda: "\n" * 60_000, lambda: "上" * 20_000, lambda: "a\n" * 30_000]
)
def test_endless_data_is_cut_within_the_limit(make: Callable[[], str]) -> None:
    assert ESTIMATE.text(extract(make(), 64, ESTIMATE)) <= 64


def test_lines_that_are_to_be_kept_go_before_edges_and_names() -> None:
    lines = [f"src/module_{n}/handler_{n}.py is fine" for n in range(200)]
    lines[120] = "plain words without a name"
    out = extract("\n".join(lines), 60, ESTIMATE, pinned=("plain words without a name",))
    assert "plain words without a name" in out
    assert ESTIMATE.text(out) <= 60


def test_of_too_many_lines_to_be_kept_those_that_fit_are_kept_whole() -> None:
    lines = [f"rule {n}: never do the thing number {n}" for n in range(50)]
    out = extract("\n".join(lines), 50, ESTIMATE, pinned=lines)
    assert [line for line in out.split("\n") if line != "…"]
    assert set(out.split("\n")) - {"…"} <= set(lines)


def test_names_that_are_shown_elsewhere_do_not_count_again() -> None:
    lines = [
        "start",
        *("src/known_file.py and src/known_file.py" for _ in range(50)),
        "see src/other_file.py",
        "x " * 200,
    ]
    lines += ["filler words without names here"] * 100
    out = extract("\n".join(lines), 60, ESTIMATE, seen={"src/known_file.py"}, edge=0.1)
    assert "src/other_file.py" in out


LONG_ROWS = [f"entry number {n} of handler_{n} " + "with many plain words " * 12 for n in range(40)]


def test_names_stand_alone_where_their_lines_do_not_fit() -> None:
    text = "\n".join(LONG_ROWS)
    plain = extract(text, 200, ESTIMATE, edge=0.0)
    out = extract(text, 200, ESTIMATE, edge=0.0, named=0.25)
    assert len(names(out)) > 2 * len(names(plain))
    assert names(out) <= names(text)
    assert ESTIMATE.text(out) <= 200
    whole = [line for line in out.split("\n") if not line.startswith("…")]
    assert whole
    assert set(whole) <= set(LONG_ROWS)


def test_names_in_a_gap_keep_their_order_and_are_told_once() -> None:
    out = extract("\n".join(LONG_ROWS), 200, ESTIMATE, edge=0.0, named=0.5, seen={"handler_7"})
    numbers = [int(number) for number in re.findall(r"handler_(\d+)", out)]
    assert numbers == sorted(set(numbers))
    assert 7 not in numbers


def test_names_that_were_used_or_repeated_come_first() -> None:
    rows = [*LONG_ROWS, *(f"{'plain words ' * 30} again_once" for _ in range(9))]
    out = extract("\n".join(rows), 60, ESTIMATE, {"handler_31": 2}, edge=0.0, named=1.0)
    assert "handler_31" in out
    assert "again_once" in out


def test_with_no_room_of_their_own_names_get_what_no_line_fits_in() -> None:
    text = "\n".join(LONG_ROWS)
    lines = [line for line in extract(text, 200, ESTIMATE).split("\n") if line != "…"]
    out = extract(text, 200, ESTIMATE, named=0.0)
    assert set(lines) <= set(out.split("\n"))
    assert len(names(out)) > len(names("\n".join(lines)))


@given(texts, st.integers(8, 200), st.sampled_from([0.0, 0.25, 1.0]))
def test_an_extract_with_names_is_within_its_limit(text: str, limit: int, named: float) -> None:
    out = extract(text, limit, ESTIMATE, edge=0.0, named=named)
    assert ESTIMATE.text(out) <= limit


def test_an_extract_of_an_extract_keeps_no_gap_as_its_end() -> None:
    first = extract("\n".join(LONG_ROWS), 300, ESTIMATE, named=0.3)
    again = extract(first, 200, ESTIMATE, edge=0.5, named=0.3)
    assert names(again) <= names(first)


def test_hundreds_of_thousands_of_short_lines_are_looked_at_by_the_dozen() -> None:
    """Two megabytes of them took seconds once: each line cost more than its characters."""
    asked: list[int] = []

    class Counting:
        name = "counting"

        def text(self, text: str, /) -> int:
            asked.append(len(text))
            return ESTIMATE.text(text)

    wanted = "ticket-4711: the disk of host-a17 is full"
    lines = [f"ok {number}" for number in range(300_000)]
    lines[150_000] = wanted
    lines[200_000] = "keep me"
    with profiled() as calls:
        text = extract("\n".join(lines), 2_000, Counting(), {"ticket-4711": 1}, pinned=("keep me",))
    assert wanted in text
    assert "\nkeep me\n" in text
    assert text.startswith("ok 0\nok 1\n")
    assert text.endswith("ok 299998\nok 299999")
    assert ESTIMATE.text(text) <= 2_000
    assert sum(asked) < 3 * len("\n".join(lines))
    assert calls() < 400_000


@contextmanager
def profiled() -> Iterator[Callable[[], int]]:
    """How many functions of Python were called in the block."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield lambda: sum(each.callcount for each in profile.getstats() if not isinstance(each.code, str))
    finally:
        profile.disable()


def test_of_two_lines_that_bring_as_much_the_earlier_is_shown_in_every_process() -> None:
    spreads = (3, 5, 6, 7, 9, 11, 13)
    for number in range(60):  # names have another order in each process: some of these would show it
        first, second = ([f"{side}{number:02d}_{k:02d}.py" for k in spreads] for side in ("left", "also"))
        again = [
            name for k, pair in zip(spreads, zip(first, second, strict=True), strict=True) for name in pair * (k - 1)
        ]
        text = "\n".join([*["-"] * 40, " ".join(first), " ".join(second), *again, *["-"] * 40])
        shown = extract(text, 60, ESTIMATE)
        assert (" ".join(first) in shown, " ".join(second) in shown) == (True, False)


@given(st.lists(st.sampled_from(["def load_rows():", "", "see a/b.py", "error in load_rows", "x" * 900]), max_size=60))
def test_of_a_text_that_is_remembered_the_same_lines_stay(lines: list[str]) -> None:
    memory, text = TextMemory(ESTIMATE), "\n".join(lines)
    for limit in (8, 40, 200):
        plain = extract(text, limit, ESTIMATE, {"load_rows": 3}, seen={"a/b.py"})
        assert extract(text, limit, ESTIMATE, {"load_rows": 3}, seen={"a/b.py"}, memory=memory) == plain


def test_a_text_that_is_shortened_again_is_not_read_again() -> None:
    memory, text = (
        TextMemory(ESTIMATE),
        "\n".join(f"row {n} of data/part_{n}.csv was read, {n * 7} bytes" for n in range(600)),
    )
    with profiled() as counted:
        extract(text, 200, ESTIMATE, memory=memory)
        first = counted()
        extract(text, 120, ESTIMATE, {"data/part_5.csv": 2}, memory=memory)
        assert counted() - first < first / 4
