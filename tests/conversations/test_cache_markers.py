"""Cache markers that are too many or out of order are corrected; the rest of the request keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear

from foldline.codecs.anthropic.cache_markers import markers
from foldline.conversations.incoming_request import with_valid_markers
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.engine.one_shot import check

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(words: str, mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": words, **(mark or {})}


def body_of(**fields: Any) -> RequestBody:
    return read_body(FORMS["anthropic"], json.dumps({"model": "m", "max_tokens": 9, **fields}, indent=1).encode())


def says(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def test_a_request_with_as_many_as_are_taken_is_the_clients() -> None:
    messages = [says("user", *[block(f"b{n}", MARK) for n in range(3)])]
    assert with_valid_markers(body_of(system=[block("s", HOUR)], messages=messages)) is None
    assert (
        with_valid_markers(body_of(system="cache_control" * 9, messages=[says("user", block('"cache_control"'))]))
        is None
    )
    chat = read_body(FORMS["openai-chat"], json.dumps({"messages": [says("user", *[block("b", MARK)] * 6)]}).encode())
    assert with_valid_markers(chat) is None


def test_only_what_loses_a_marker_is_written_anew() -> None:
    messages = [says("user", block("a", MARK)), says("assistant", block("b")), says("user", block("c", MARK))]
    body = body_of(system=[block(f"s{n}", MARK) for n in range(3)], messages=messages, metadata={"user_id": "me"})
    taken = with_valid_markers(body)
    assert taken is not None
    assert list(taken.messages) == [says("user", block("a")), *messages[1:]]
    assert [taken.item(at) for at in (1, 2)] == [body.item(at) for at in (1, 2)]
    assert taken.text[: taken.spans["messages"][0]] == body.text[: body.spans["messages"][0]]
    assert taken.text[taken.spans["messages"][1] :] == body.text[body.spans["messages"][1] :]


def test_a_marker_for_the_whole_request_is_one_of_the_four() -> None:
    messages = [says("user", *[block(f"b{n}", MARK) for n in range(4)])]
    taken = with_valid_markers(body_of(cache_control={"type": "ephemeral"}, messages=messages))
    assert taken is not None
    assert len(list(markers(None, None, taken.messages))) == 3


def test_thinking_loses_its_marker_and_the_others_stay() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s", **MARK}
    messages = [says("user", block("a", MARK)), says("assistant", thinking, block("b", MARK)), says("user", block("c"))]
    taken = with_valid_markers(body_of(messages=messages))
    assert taken is not None
    plain = {key: value for key, value in thinking.items() if key != "cache_control"}
    assert list(taken.messages) == [messages[0], says("assistant", plain, block("b", MARK)), messages[2]]


marks_of = st.lists(st.sampled_from([None, MARK, HOUR]), max_size=6)


@dear
@given(tools=marks_of, system=marks_of, turns=st.lists(marks_of.filter(bool), min_size=1, max_size=5))
def test_whatever_is_marked_the_request_is_taken_and_settling_again_changes_nothing(
    tools: list[Any], system: list[Any], turns: list[list[Any]]
) -> None:
    body = body_of(
        tools=[{"name": f"t{n}", "input_schema": {}, **(mark or {})} for n, mark in enumerate(tools)],
        system=[block(f"s{n}", mark) for n, mark in enumerate(system)],
        messages=[
            says("assistant" if at % 2 else "user", *[block(f"{at} {n}", mark) for n, mark in enumerate(turn)])
            for at, turn in enumerate(turns)
        ],
    )
    taken = with_valid_markers(body) or body
    assert check(taken.messages, dialect="anthropic", system=taken.system, tools=taken.tools) == []
    assert with_valid_markers(taken) is None
    given_count = len(list(markers(body.tools, body.system, body.messages)))
    assert len(list(markers(taken.tools, taken.system, taken.messages))) == min(4, given_count)
