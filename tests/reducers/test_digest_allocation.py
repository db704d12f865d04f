"""How the room of a digest is divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldline.reducers.digest_allocation import LEAST_TOKENS, DigestItem, divided


def item(tokens: int, worth: float = 1.0) -> DigestItem:
    return DigestItem([("  gave: ", "x")], [tokens], tokens, False, worth=worth)


ITEMS = st.lists(
    st.builds(item, st.integers(2, 2_000), st.sampled_from([0.5, 1.0, 1.5, 2.25])), min_size=1, max_size=60
).map(lambda items: dict(enumerate(items)))


@given(ITEMS, st.integers(0, 200))
def test_what_fits_stays_whole(items: dict[int, DigestItem], spare: int) -> None:
    needed = sum(each.tokens for each in items.values())
    assert divided(items, needed + spare) == {age: each.tokens for age, each in items.items()}


@given(ITEMS, st.integers(-50, 4_000))
def test_no_more_is_given_than_there_is(items: dict[int, DigestItem], room: int) -> None:
    assert sum(divided(items, room).values()) <= max(0, room)


@given(ITEMS, st.integers(100, 8_000))
def test_an_item_is_cut_only_where_no_older_one_of_its_worth_gets_more(items: dict[int, DigestItem], room: int) -> None:
    limits = divided(items, room)
    for age, limit in limits.items():
        if limit < items[age].tokens:
            older = [other for other in limits if other > age and items[other].worth <= items[age].worth]
            assert all(limits[other] <= limit + 1 for other in older)


@given(ITEMS, st.integers(100, 8_000))
def test_only_the_oldest_are_left_out_and_the_others_get_enough(items: dict[int, DigestItem], room: int) -> None:
    limits = divided(items, room)
    assert sorted(limits) == list(range(len(limits)))
    assert all(limit >= min(LEAST_TOKENS, items[age].tokens) for age, limit in limits.items())
