"""Old results and old thinking are cleared as the API does it: the client's own messages stay as they are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.conversations.compaction.clearing import CLEARED, cleared
from foldline.conversations.compaction.edits import ClearThinking, ClearToolUses, Edits
from foldline.engine.one_shot import check
from foldline.tokens import message_tokens

READER = codec("anthropic")
FIELDS = st.sampled_from(["type", "id", "tool_use_id", "content", "name", "input"])
WORDS = st.sampled_from(["tool_use", "tool_result", "thinking", "c1"])
ANY = st.recursive(
    st.none() | st.text(max_size=4) | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


def tokens_of(wire: Any) -> int:
    return message_tokens(READER.read(wire))


def session(rounds: int, *, thinking: bool = False) -> list[dict[str, Any]]:
    """A user's task, then calls of two tools in turn, with thinking before each."""
    out: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for n in range(rounds):
        name = ("read", "memory")[n % 2]
        thought = [{"type": "thinking", "thinking": f"Thought {n}.", "signature": "s"}] if thinking else []
        call = {"type": "tool_use", "id": f"c{n}", "name": name, "input": {"n": n}}
        out.append({"role": "assistant", "content": [*thought, call]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"word {n} " * 200}
        out.append({"role": "user", "content": [result]})
    return out


def run(messages: list[dict[str, Any]], *, most_tokens: int | None = None, **edits: Any) -> tuple[Any, Any]:
    size = sum(map(tokens_of, messages))
    return cleared(messages, Edits(**edits, asked=True), size, tokens_of, most_tokens=most_tokens)


def results(messages: list[dict[str, Any]]) -> list[bool]:
    """Whether each result was cleared."""
    blocks = [block for wire in messages for block in wire["content"] if isinstance(block, dict)]
    return [block["content"] == CLEARED for block in blocks if block["type"] == "tool_result"]


def test_the_newest_uses_stay_and_the_rest_is_cleared() -> None:
    messages = session(8)
    kept = copy.deepcopy(messages)
    out, applied = run(messages, tool_uses=ClearToolUses(trigger=100, keep=3))
    assert results(out) == [True] * 5 + [False] * 3
    assert messages == kept
    assert applied[0]["cleared_tool_uses"] == 5
    assert applied[0]["cleared_input_tokens"] == sum(map(tokens_of, messages)) - sum(map(tokens_of, out))
    assert check(out, dialect="anthropic") == []


def test_nothing_is_cleared_at_the_trigger_but_beyond_it() -> None:
    messages = session(8)
    size = sum(map(tokens_of, messages))
    assert run(messages, tool_uses=ClearToolUses(trigger=size))[1] == []
    assert run(messages, tool_uses=ClearToolUses(trigger=size - 1))[1] != []
    assert run(messages, tool_uses=ClearToolUses(trigger=8, counts_uses=True))[1] == []
    assert run(messages, tool_uses=ClearToolUses(trigger=7, counts_uses=True))[1] != []


def test_a_window_that_is_full_before_the_trigger_counts_as_the_trigger() -> None:
    messages = session(8)
    assert run(messages, tool_uses=ClearToolUses(), most_tokens=10**6)[1] == []
    assert run(messages, tool_uses=ClearToolUses(), most_tokens=1_000)[1] != []


def test_excluded_tools_keep_their_results_and_named_ones_lose_their_inputs() -> None:
    edit = ClearToolUses(trigger=100, keep=2, excluded=frozenset({"memory"}), inputs=frozenset({"read"}))
    out, applied = run(session(8), tool_uses=edit)
    assert results(out) == [True, False, True, False, True, False, False, False]
    inputs = [block["input"] for wire in out if wire["role"] == "assistant" for block in wire["content"]]
    assert inputs == [{}, {"n": 1}, {}, {"n": 3}, {}, {"n": 5}, {"n": 6}, {"n": 7}]
    assert applied[0]["cleared_tool_uses"] == 3


def test_less_than_the_least_is_not_worth_it() -> None:
    messages = session(8)
    saved = run(messages, tool_uses=ClearToolUses(trigger=100))[1][0]["cleared_input_tokens"]
    assert run(messages, tool_uses=ClearToolUses(trigger=100, least_tokens=saved))[1] != []
    out, applied = run(messages, tool_uses=ClearToolUses(trigger=100, least_tokens=saved + 1))
    assert (out, applied) == (messages, [])


def test_thinking_of_old_turns_goes_and_a_turn_lasts_over_its_calls() -> None:
    first, second = session(3, thinking=True), session(2, thinking=True)
    out, applied = run([*first, {"role": "assistant", "content": "Done."}, *second], thinking=ClearThinking(1))
    thoughts = [
        sum(block["type"] == "thinking" for block in wire["content"] if isinstance(block, dict)) for wire in out
    ]
    assert sum(thoughts[:7]) == 0
    assert sum(thoughts) == 2
    (edit,) = applied
    assert (edit["type"], edit["cleared_thinking_turns"]) == ("clear_thinking_20251015", 1)
    assert edit["cleared_input_tokens"] > 0
    assert run(first, thinking=ClearThinking(1)) == (first, [])
    assert run(first, thinking=ClearThinking(None)) == (first, [])


def test_a_message_of_nothing_but_thinking_goes_with_it() -> None:
    alone = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "A"}, alone, *session(1, thinking=True)]
    out, _ = run(messages, thinking=ClearThinking(1))
    assert alone not in out


@given(ANY)
def test_blocks_of_any_shape_pass(content: Any) -> None:
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": content}, *session(4)]
    edits = Edits(ClearThinking(1), ClearToolUses(trigger=1, keep=0), asked=True)
    out, _ = cleared(messages, edits, 10**6, lambda wire: len(str(wire)))
    assert len(out) >= len(messages) - 1


@pytest.mark.parametrize("keep", range(6))
def test_clearing_again_changes_nothing(keep: int) -> None:
    once, _ = run(session(5), tool_uses=ClearToolUses(trigger=1, keep=keep))
    assert run(once, tool_uses=ClearToolUses(trigger=1, keep=keep)) == (once, [])
