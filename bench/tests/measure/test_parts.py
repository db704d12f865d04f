from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline_bench.measure.parts import parts_of, source_of


@pytest.mark.parametrize(
    ("source", "place", "found"),
    [
        ("someone/agents (a subset)", "logs/x-1.json", "someone/agents"),
        ("", "logs/support-0042.json.gz", "support"),
        ("", "logs/support.json", "logs"),
        ("", "projects/web-shop/3f2a9c1e-77aa-4b1e.jsonl", "web-shop"),
        ("", "logs/20261128-chat.json", "logs"),
        ("", "-", ""),
    ],
)
def test_a_session_names_its_source_or_its_file_or_its_folder_does(source: str, place: str, found: str) -> None:
    assert source_of(source, place) == found


SIZES = {"a": 9, "b": 7, "c": 3, "d": 2, "e": 2, "f": 1, "g": 1}
SOURCES = {f"{source}{number}": source for source, count in SIZES.items() for number in range(count)}


def test_no_source_is_torn_apart_and_small_ones_are_merged() -> None:
    made = parts_of(SOURCES)
    assert (made.by, made.sources) == ("source", 7)
    assert [len(part) for part in made.parts] == [9, 7, 3, 3, 3]
    assert [sorted({SOURCES[name] for name in part}) for part in made.parts] == [
        ["a"],
        ["b"],
        ["c"],
        ["d", "f"],
        ["e", "g"],
    ]
    assert made.about() == "parts by source: 7 sources in 5 parts, none torn apart"


def test_with_few_sources_the_parts_are_by_hash_and_say_so() -> None:
    made = parts_of({name: source for name, source in SOURCES.items() if source in "ab"})
    assert (made.by, made.sources) == ("hash", 2)
    assert [len(part) for part in made.parts] == [4, 3, 3, 3, 3]
    assert "only 2 sources" in made.about()
    assert "is only 1 source and not 2" in parts_of({"a": "x", "b": "x"}).about()


def test_fewer_sessions_than_parts_are_a_part_each() -> None:
    made = parts_of({"one": "x", "two": "x", "three": "y"})
    assert (sorted(made.parts), made.by) == ([("one",), ("three",), ("two",)], "hash")
    assert parts_of({"one": "x", "two": "y"}).about() == "parts by source: 2 sources in 2 parts, none torn apart"
    assert parts_of({}).parts == ()


@given(st.dictionaries(st.text(max_size=4), st.sampled_from("abcdefgh"), max_size=40), st.integers(1, 6))
def test_each_session_is_in_one_part_in_any_order_of_names(sources: dict[str, str], count: int) -> None:
    made = parts_of(sources, count)
    assert sorted(name for part in made.parts for name in part) == sorted(sources)
    assert all(made.parts)
    assert parts_of(dict(reversed(sources.items())), count) == made
    if made.by == "source":
        homes = [{sources[name] for name in part} for part in made.parts]
        assert sum(map(len, homes)) == made.sources
