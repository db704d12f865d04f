"""Blocks of ours become words at their place; what their client sends again is shown once."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.conversations.compaction.condense import Condensed
from foldline.conversations.compaction.expansion import Expanded
from foldline.conversations.compaction.messages_blocks import block_of, expand_blocks
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.seals import SealKey

KEY = SealKey(b"k" * 32)
TASK = {"role": "user", "content": "Task."}
JOINT = {"role": "assistant", "content": "Understood."}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"z": 1, "a": 2}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Long."}]}
SUMMARY = {"role": "user", "content": "[Previous conversation summary]\nDone much."}
GO = {"role": "user", "content": "Go."}


def block(*shown: Any, on_demand: bool = False) -> dict[str, Any]:
    condensed = Condensed("Done much.", tuple(shown) or (None,), by_model=True)
    return block_of(KEY, b"me", condensed, on_demand=on_demand)


def expand(*messages: Any, native: bool = False) -> Expanded:
    return expand_blocks(messages, KEY, b"me", native=native)


def held(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_everything_before_a_block_of_a_threshold_is_covered_by_it() -> None:
    made = block(TASK, JOINT, None, CALL, RESULT)
    found = expand(
        TASK, CALL, RESULT, held({"type": "text", "text": "Old."}, made, {"type": "text", "text": "New."}), GO
    )
    assert found.messages == [TASK, JOINT, SUMMARY, CALL, RESULT, held({"type": "text", "text": "New."}), GO]
    assert found.summaries == {2}
    assert found.dropped == (TASK, CALL, RESULT, held({"type": "text", "text": "Old."}))
    assert not found.signed


def test_the_newest_of_several_blocks_counts() -> None:
    found = expand(held(block(TASK, JOINT, None)), GO, held(block(), {"type": "text", "text": "New."}), GO)
    assert found.messages == [SUMMARY, held({"type": "text", "text": "New."}), GO]


def test_arguments_of_a_call_keep_their_order() -> None:
    found = expand(held(block(None, CALL, RESULT)))
    assert list(found.messages[1]["content"][0]["input"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ([CALL, RESULT], [TASK, JOINT, SUMMARY, CALL, RESULT]),
        ([TASK, CALL, RESULT], [SUMMARY, JOINT, TASK, CALL, RESULT]),
        ([held({"type": "text", "text": "Task."}, role="user")], None),
        ([RESULT], [TASK, JOINT, SUMMARY, CALL, RESULT, RESULT]),  # a group is not cut: the API says what is wrong
    ],
)
def test_what_the_client_sends_again_is_not_shown_twice(again: list[Any], expected: list[Any] | None) -> None:
    found = expand(held(block(TASK, JOINT, None, CALL, RESULT)), *again)
    if expected is None:
        expected = [SUMMARY, CALL, RESULT, *again]
    assert found.messages == expected


def test_words_of_the_user_behind_a_summary_are_a_turn_of_their_own() -> None:
    assert expand(held(block(on_demand=True)), GO).messages == [SUMMARY, JOINT, GO]
    inside = expand(held(block(on_demand=True), {"type": "text", "text": "Go."}, role="user"))
    assert [message["role"] for message in inside.messages] == ["user", "assistant", "user"]
    assert inside.signed


def test_blocks_of_the_upstream_stay_where_it_makes_them() -> None:
    theirs = {"type": "compaction", "content": "Theirs.", "signature": "EuYB"}
    assert expand(held(theirs), GO, native=True) == Expanded(messages=[held(theirs), GO])
    assert expand(held(block(on_demand=True)), held(theirs), GO, native=True).messages == [SUMMARY, held(theirs), GO]
    with pytest.raises(CompactionRefused, match="not made by this proxy"):
        expand(held(theirs), GO)


def test_a_request_without_blocks_keeps_its_messages() -> None:
    found = expand(TASK, CALL, RESULT)
    assert [id(message) for message in found.messages] == [id(TASK), id(CALL), id(RESULT)]
    assert not found.changed


@pytest.mark.parametrize("content", ["", 7, ["x"]])
def test_a_block_without_text_is_refused(content: Any) -> None:
    with pytest.raises(CompactionRefused, match=r"messages\.0\.content\.0\.compaction\.content"):
        expand(held({**block(), "content": content}), GO)


def test_a_block_inside_a_result_of_a_tool_is_no_block() -> None:
    nested = {"type": "tool_result", "tool_use_id": "c1", "content": [block()]}
    assert expand(TASK, CALL, held(nested, role="user")).messages[-1] == held(nested, role="user")
