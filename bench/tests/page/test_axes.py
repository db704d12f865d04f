from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline_bench.page.axes import Frame, Scale, apart, label_place, ticks_to


def share_room(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_values_stand_evenly_or_by_their_logarithm() -> None:
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(1, 100, 0, 200, log=True)(10) == pytest.approx(100)
    assert [Scale(0, 10, 100, 200)(value) for value in (-5, 50)] == [100, 200]


@given(st.floats(0.01, 1e6))
def test_ticks_are_few_and_go_up_to_the_end(high: float) -> None:
    ticks = ticks_to(high)
    assert 3 <= len(ticks) <= 8
    assert ticks[0] == 0
    assert high * 0.6 <= ticks[-1] <= high * 1.001


@given(st.lists(st.floats(0, 300), max_size=40))
def test_labels_keep_their_order_and_their_distance_and_stay_inside(places: list[float]) -> None:
    moved = apart(places, gap=13, low=10, high=290)
    assert all(10 - 1e-6 <= place <= 290 + 1e-6 for place in moved)
    order = sorted(range(len(places)), key=lambda at: places[at])
    room = min(13, 280 / max(len(places) - 1, 1))
    for one, other in pairwise(moved[at] for at in order):
        assert other - one >= room - 1e-6


def test_labels_of_neighbours_do_not_cover_each_other() -> None:
    frame = Frame(Scale(0, 1, 40, 540), Scale(0, 1, 330, 20))
    points = [(200.0, 150.0), (206.0, 152.0), (212.0, 150.0)]
    boxes = [place.box for place in label_place(points, ["balanced", "economical", "structured"], frame, taken=points)]
    assert not any(share_room(*pair) for pair in combinations(boxes, 2))


def test_in_a_crowd_labels_stand_aside_and_lines_lead_to_them() -> None:
    frame = Frame(Scale(0, 1, 40, 540), Scale(0, 1, 330, 20))
    points = [(100.0 + 5 * number, 150.0 + 7 * (number % 3)) for number in range(14)]
    labels = [f"balanced {number}" for number in range(14)]
    places = label_place(points, labels, frame, taken=points, bold=[True] * 14)
    assert not any(share_room(*pair) for pair in combinations([place.box for place in places], 2))
    for place in places:
        assert not any(share_room(place.box, (x - 5, y - 5, x + 5, y + 5)) for x, y in points)
        assert place.box[0] >= 40
        assert place.box[2] <= 540
    assert not places[0].led
    assert places[-1].led


def test_a_label_at_the_edge_is_turned_inside() -> None:
    frame = Frame(Scale(0, 1, 40, 540), Scale(0, 1, 330, 20))
    (place,) = label_place([(530.0, 100.0)], ["a long name of a system"], frame, taken=[(530.0, 100.0)])
    assert (place.anchor, place.led) == ("end", False)
