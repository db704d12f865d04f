"""Whatever JSON a client sends, it is read or refused in words: nothing else is raised."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.conversations.compaction.condense import Condensed
from foldline.conversations.compaction.edits import read_edits, read_on_demand
from foldline.conversations.compaction.messages_blocks import block_of, expand_blocks, has_block
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.responses_items import expand_items, has_item, item_of, read_request
from foldline.conversations.compaction.seals import SealKey

KEY = SealKey(b"k" * 32)
CONDENSED = Condensed("Done.", ({"role": "user", "content": "Task."}, None), by_model=True)
BLOCK = block_of(KEY, b"me", CONDENSED, on_demand=False)
SIGNED = block_of(KEY, b"me", CONDENSED, on_demand=True)
ITEM = item_of(KEY, b"me", CONDENSED, window=True)

NAMES = st.sampled_from(
    "type edits trigger value keep instructions content role signature encrypted_content cache_control tool_changes "
    "compact_threshold clear_tool_inputs exclude_tools clear_at_least pause_after_compaction id".split()
)
WORDS = st.sampled_from(
    "compaction compaction_trigger compact_20260112 clear_tool_uses_20250919 clear_thinking_20251015 input_tokens "
    "tool_uses thinking_turns all summarize user assistant message foldline-1.a.b.c".split()
)
LEAVES = st.none() | st.booleans() | st.integers(-3, 10**6) | st.text(max_size=3) | WORDS
ANY = st.recursive(
    LEAVES | st.sampled_from([BLOCK, SIGNED, ITEM]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)
LISTS = st.lists(st.dictionaries(NAMES, ANY, max_size=5), min_size=1, max_size=4)


@given(ANY, ANY)
def test_parameters(management: Any, compaction: Any) -> None:
    with suppress(CompactionRefused):
        read_edits({"context_management": management})
    with suppress(CompactionRefused):
        read_on_demand({"compaction": compaction, "output_config": management, "tool_choice": management})
    with suppress(CompactionRefused):
        read_request({"context_management": management}, [])


@settings(max_examples=300)
@given(LISTS, st.booleans())
def test_messages_and_items(found: list[dict[str, Any]], native: bool) -> None:
    has_block(found)
    has_item(found)
    with suppress(CompactionRefused):
        expanded = expand_blocks(found, KEY, b"me", native=native)
        assert all(0 <= at < len(expanded.messages) for at in expanded.summaries)
    with suppress(CompactionRefused):
        expand_items(found, KEY, b"me", native=native)
    with suppress(CompactionRefused):
        read_request({}, found)


@given(ANY)
def test_a_block_with_anything_around_it(content: Any) -> None:
    around = content if isinstance(content, list) else [content]
    with suppress(CompactionRefused):
        found = expand_blocks([{"role": "assistant", "content": [*around, BLOCK, *around]}], KEY, b"me", native=False)
        assert BLOCK not in [block for wire in found.messages for block in wire["content"]]
