"""Hash chains that identify a conversation: exact except for cache markers, and tolerant of spelling."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear
from tests.property.sessions import DIALECTS, Wire, legal

from foldline.conversations.incoming_request import LINK_BYTES, exact_links, tolerant_links, without_markers

MARKERS = ('{"type":"ephemeral"}', '{ "type" : "ephemeral" , "ttl" : "1h" }', "null")


def histories() -> st.SearchStrategy[tuple[str, list[Wire]]]:
    """(dialect, messages)."""
    return st.sampled_from(DIALECTS).flatmap(lambda dialect: st.tuples(st.just(dialect), legal(dialect, 4)))


def told(wires: list[Wire], **options: Any) -> list[str]:
    return [json.dumps(wire, **options) for wire in wires]


@dear
@given(histories(), st.data())
def test_a_link_stands_for_exactly_the_messages_before_it(history: tuple[str, list[Wire]], data: st.DataObject) -> None:
    dialect, wires = history
    count = data.draw(st.integers(1, len(wires)))
    texts = told(wires)
    exact, tolerant = exact_links(dialect, texts), tolerant_links(dialect, wires)
    assert exact[:count] == exact_links(dialect, texts[:count])
    assert tolerant[:count] == tolerant_links(dialect, wires[:count])
    assert tolerant_links(dialect, wires[count:], after=tolerant[count - 1]) == tolerant[count:]
    assert {len(link) for link in exact + tolerant} == {LINK_BYTES}
    assert len({*exact, *tolerant}) == 2 * len(wires)  # also where one message comes twice
    at = data.draw(st.integers(0, len(wires) - 1))
    other = [*wires[:at], {**wires[at], "content": "something else"}, *wires[at + 1 :]]
    for new, old in ((exact_links(dialect, told(other)), exact), (tolerant_links(dialect, other), tolerant)):
        assert new[:at] == old[:at]
        assert not set(new[at:]) & set(old)


def test_messages_that_run_together_are_not_the_same() -> None:
    assert exact_links("anthropic", ["ab", "c"])[-1] != exact_links("anthropic", ["a", "bc"])[-1]
    assert exact_links("anthropic", ["abc"])[-1] != exact_links("openai-chat", ["abc"])[-1]


def marked(text: str, marker: str, *, last: bool) -> str:
    """A block with a cache marker before its other fields or after them."""
    if last:
        return f'{text[:-1]}, "cache_control" : {marker}}}'
    return f'{{"cache_control": {marker}, {text[1:]}'


@given(st.lists(st.tuples(st.sampled_from(MARKERS), st.booleans(), st.booleans()), min_size=1, max_size=4))
def test_moved_markers_do_not_change_a_chain(places: list[tuple[str, bool, bool]]) -> None:
    blocks = [f'{{"type": "text", "text": "block {at}"}}' for at in range(len(places))]
    with_markers = [
        marked(block, marker, last=last) if here else block
        for block, (marker, here, last) in zip(blocks, places, strict=True)
    ]
    plain = [f'{{"role": "user", "content": [{block}]}}' for block in blocks]
    moved = [f'{{"role": "user", "content": [{block}]}}' for block in with_markers]
    assert exact_links("anthropic", moved) == exact_links("anthropic", plain)
    assert tolerant_links("anthropic", map(json.loads, moved)) == tolerant_links("anthropic", map(json.loads, plain))
    for text, other in zip(moved, plain, strict=True):
        assert without_markers(json.loads(text)) == json.loads(other)


@pytest.mark.parametrize(
    "words",
    [
        'see "cache_control": {"type": "ephemeral"}, in the docs',
        ', "cache_control": null',
        '"cache_control":{},',
        "cache_control",
        '\\", "cache_control": {"type": "ephemeral"}',
    ],
)
def test_a_text_that_names_a_marker_is_not_altered(words: str) -> None:
    def links(said: str) -> tuple[bytes, bytes]:
        wire = {"role": "user", "content": [{"type": "text", "text": said}]}
        assert without_markers(wire) is wire
        return exact_links("anthropic", [json.dumps(wire)])[0], tolerant_links("anthropic", [wire])[0]

    assert not set(links(words)) & set(links("")) and links(words)[0] != links(words + ".")[0]
    assert links(words)[1] != links(words + ".")[1]


def test_what_a_tool_is_given_under_the_name_of_a_marker_is_kept() -> None:
    call = {"type": "tool_use", "id": "c", "name": "put", "input": {"cache_control": {"max-age": 60}, "path": "/"}}
    wire = {"role": "assistant", "content": [{**call, "cache_control": {"type": "ephemeral"}}]}
    assert without_markers(wire) == {"role": "assistant", "content": [call]}
    other = json.loads(json.dumps(wire).replace("60", "61"))
    assert tolerant_links("anthropic", [wire]) != tolerant_links("anthropic", [other])


def test_what_holds_no_marker_is_the_very_object() -> None:
    marker = {"type": "ephemeral"}
    inner = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": marker}]
    wire = {"role": "user", "content": inner}
    plain: Any = without_markers(wire)
    assert plain["content"][0] is inner[0] and plain["content"][1] == {"type": "text", "text": "b"}
    assert inner[1] == {**plain["content"][1], "cache_control": marker}, "the client's own message was changed"


def respelled(value: Any, by: Random, *, top: bool = True) -> Any:
    """The same message to the tolerant chain, not to the exact one."""
    if isinstance(value, dict):
        pairs = [(name, respelled(inner, by, top=False)) for name, inner in value.items()]
        pairs += [(f"null {by.random()}", None)]
        by.shuffle(pairs)
        made = dict(pairs)
        if top and isinstance(value.get("content"), str) and by.random() < 0.5:
            made["content"] = [{"text": made["content"], "type": "text"}]
        return made
    if isinstance(value, list):
        return [respelled(inner, by, top=False) for inner in value]
    if isinstance(value, str) and " " in value:
        return value.replace(" ", by.choice(("  ", "\n", " \t"))) + "\n"
    return value


@dear
@given(histories(), st.integers(0, 2**32))
def test_the_tolerant_chain_sees_no_spelling(history: tuple[str, list[Wire]], seed: int) -> None:
    dialect, wires = history
    other = [respelled(wire, Random(seed + at)) for at, wire in enumerate(wires)]
    assert tolerant_links(dialect, other) == tolerant_links(dialect, wires)
    assert exact_links(dialect, told(other)) != exact_links(dialect, told(wires))
    assert tolerant_links(dialect, json.loads(json.dumps(wires, indent=3))) == tolerant_links(dialect, wires)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
        ({"role": "user", "content": "a", "x": 0}, {"role": "user", "content": "a"}),
        ({"role": "user", "content": "a", "x": False}, {"role": "user", "content": "a", "x": 0}),
        ({"role": "user", "content": "a", "x": []}, {"role": "user", "content": "a"}),
        ({"role": "user", "content": ["a", "b"]}, {"role": "user", "content": ["b", "a"]}),
        ({"role": "user", "content": "A"}, {"role": "user", "content": "a"}),
        ({"role": "user", "content": "null"}, {"role": "user", "content": None}),
        ({"role": "user", "content": [{"type": "text", "text": "a b"}]}, {"role": "user", "content": ["a", "b"]}),
    ],
)
def test_the_tolerant_chain_sees_every_word(one: Wire, other: Wire) -> None:
    assert tolerant_links("openai-chat", [one]) != tolerant_links("openai-chat", [other])


def test_a_text_of_responses_is_the_same_by_itself_and_in_a_block() -> None:
    short = [{"role": "user", "content": "Mend it."}, {"role": "assistant", "content": "Done."}]
    long = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend it."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    assert tolerant_links("openai-responses", long) == tolerant_links("openai-responses", short)


def test_lone_surrogates_have_links() -> None:
    wire = json.loads('{"role":"user","content":"\\ud83d"}')
    assert exact_links("openai-chat", ['{"content":"\ud83d"}']) and tolerant_links("openai-chat", [wire])
