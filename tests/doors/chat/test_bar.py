"""The window as a bar: the parts are the whole, at any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldline.doors.chat.bar import Share, bar_lines, cells, shares_of
from foldline.engine.context import Context
from foldline.testing import session

LABELS = ("system", "tools", "pinned", "folded", "live", "free")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def held(rounds: int = 12) -> Context:
    context = Context(window=4_000, system="You are terse.", tools=TOOLS, max_output_tokens=300)
    context.extend(session(rounds, result="found it. " * 60))
    return context


def test_the_parts_are_the_window() -> None:
    context = held(3)
    context.pin(0)
    context.prepare()
    shares = shares_of(context, "You are terse.")
    assert tuple(share.label for share in shares) == LABELS
    assert sum(share.tokens for share in shares) == 4_000
    sizes = {share.label: share.tokens for share in shares}
    assert all(sizes[label] > 0 for label in ("system", "tools", "pinned", "live", "free"))
    assert sizes["folded"] == 0


def test_folds_move_tokens_from_live_to_folded() -> None:
    context = held()
    context.compact(summarize=None)
    sizes = {share.label: share.tokens for share in shares_of(context, "You are terse.")}
    assert sizes["folded"] > 0
    assert sum(sizes.values()) == 4_000


@given(st.lists(st.integers(0, 10_000), min_size=6, max_size=6).filter(sum), st.integers(6, 200))
def test_the_bar_is_as_wide_as_it_may_be_and_shows_what_is_small(sizes: list[int], width: int) -> None:
    shares = [Share(label, size) for label, size in zip(LABELS, sizes, strict=True)]
    counts = cells(shares, width)
    assert sum(counts) == width
    assert all(count > 0 for count, size in zip(counts, sizes, strict=True) if size)
    bar, *lines = bar_lines(shares, sum(sizes), width=width)
    assert len(bar.plain) == min(width, 80)
    assert [line.plain.split()[1] for line in lines] == list(LABELS)
    assert bar_lines(shares, sum(sizes), width=width, ascii_only=True)[0].plain.isascii()
