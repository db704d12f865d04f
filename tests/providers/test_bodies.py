"""Server-sent events, in whatever pieces they come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import InvalidInput
from foldline.providers.bodies import Event, EventReader


def read(*chunks: bytes) -> list[Event]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_of_the_standard_ends_a_line(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: 1", b"data: 2", b"", b"data:3", b"", b""])
    assert read(stream) == [Event("a", "1\n2"), Event("", "3")]


def test_comments_ids_unknown_fields_and_events_without_data_say_nothing() -> None:
    assert read(b": ping\n\nid: 7\nretry: 5\nwhat: x\n\nevent: lonely\n\ndata: x\n\n") == [Event("", "x")]


def test_one_space_after_the_colon_is_no_data_and_a_field_without_colon_is_empty() -> None:
    assert read(b"data:  two\n\ndata\n\n") == [Event("", " two"), Event("", "")]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert read(b"\xef\xbb\xbfdata: x\n\n") == [Event("", "x")]


def test_an_event_whose_blank_line_never_came_is_given_at_the_end() -> None:
    assert read(b"data: [DONE]") == [Event("", "[DONE]")]


def test_an_error_field_of_older_servers_is_an_event_of_that_name() -> None:
    assert read(b'error: {"code":500}\n\n') == [Event("error", '{"code":500}')]


def test_bytes_that_are_no_text_do_not_stop_the_stream() -> None:
    assert read(b"data: \xff\n\ndata: x\n\n") == [Event("", "�"), Event("", "x")]


def test_an_event_without_end_is_refused() -> None:
    reader = EventReader(max_event_bytes=100)
    for _ in range(20):  # many small events are no large one
        reader.feed(b"data: 0123456789\n\n")
    reader.feed(b"0123456789" * 9)
    with pytest.raises(InvalidInput, match="more than 100 bytes"):
        reader.feed(b"0123456789" * 2)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=12)


@costly
@given(st.lists(st.lists(texts, min_size=1, max_size=3), max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_where_the_chunks_are_cut_makes_no_difference(datas: list[list[str]], end: str, data: st.DataObject) -> None:
    stream = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in datas).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[start:stop] for start, stop in pairwise(edges)]
    assert read(*chunks) == [Event("", "\n".join(lines)) for lines in datas]
