from __future__ import annotations

from foldline.messages import Wire
from foldline_bench.peers.counting import text_counter


def test_a_text_is_counted_once_and_without_what_a_message_adds() -> None:
    counted: list[str] = []

    def count(wire: Wire) -> int:
        counted.append(wire["content"])
        return 4 + len(wire["content"].split())

    tokens = text_counter(count)
    assert [tokens("a b c"), tokens("a b c"), tokens("d"), tokens("")] == [3, 3, 1, 0]
    assert sorted(counted) == ["", "", "a b c", "d"]
