"""Limits besides tokens. The substitute of a refused name or id follows from it alone, and is accepted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear

from foldline.codecs.dialect import caps_of, dialect_named
from foldline.codecs.limits import (
    BESIDE_LARGER,
    Amounts,
    Caps,
    bounded_id,
    has_valid_item_id,
    tool_names,
    valid_author,
    valid_name,
)
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.view.budget import caps_for

names = st.one_of(st.text(min_size=1, max_size=300), st.from_regex(r"[a-zA-Z0-9_.: \"-]{1,300}", fullmatch=True))
DIALECTS = ("openai-chat", "openai-responses", "anthropic")


def history(dialect: str, name: str, call_id: str) -> list[dict[str, object]]:
    """A call and its result in any dialect."""
    user: dict[str, object] = {"role": "user", "content": "hi"}
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": "no such tool"}
        return [user, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    if dialect == "openai-chat":
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        return [
            user,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "name": name, "content": "no such tool"},
        ]
    return [
        user,
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": "no such tool"},
    ]


@dear
@given(names, st.sampled_from(DIALECTS))
def test_a_name_becomes_one_that_is_taken_and_a_good_one_stays(name: str, dialect: str) -> None:
    most = dialect_named(dialect).limits.call_name_chars
    good = valid_name(name, most)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", good)
    assert len(good) <= most
    assert valid_name(good, most) == good
    if re.fullmatch(r"[a-zA-Z0-9_-]+", name) and len(name) <= most:
        assert good == name
    assert valid_name(name, most, {name}) == name, "a tool that is there may be called"


@dear
@given(names, st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=120))
def test_whatever_a_call_is_called_both_sides_are_sent_as_they_are_taken(name: str, call_id: str) -> None:
    for dialect in DIALECTS:
        wires = history(dialect, name, call_id)
        context = Context(dialect=dialect, window=100_000, max_output_tokens=0)
        context.extend(wires)
        first = context.prepare()
        assert check(first.messages, dialect=dialect) == []
        assert len(first.messages) == 3, "the result still answers its call"
        assert bool(first.repairs) == bool(check(wires, dialect=dialect)), "what is wrong is reported, nothing else"
        context.append({"role": "assistant", "content": "There is none."})
        again = context.prepare()
        assert again.messages[:3] == first.messages, "a mend is the same in every request"


def test_two_long_names_that_begin_alike_stay_two() -> None:
    long = "psql_" + "x" * 100
    assert valid_name(long + "a", 64) != valid_name(long + "b", 64)
    assert bounded_id("c" * 80 + "1", 64) != bounded_id("c" * 80 + "2", 64)


def test_an_id_that_carries_a_thought_signature_stays_whole() -> None:
    call_id = "call_1__thought__" + "A" * 400
    assert bounded_id(call_id, dialect_named("openai-chat").limits.call_id_chars) == call_id


def test_a_call_of_a_tool_that_is_there_keeps_its_name_whatever_it_is() -> None:
    tools = [{"type": "function", "function": {"name": "functions.bash", "parameters": {}}}]
    wires = history("openai-chat", "functions.bash", "c1")
    out = fit(wires, max_tokens=10_000, tools=tools)
    assert out.messages == wires
    assert {violation.rule for violation in check(wires, tools=tools)} == {"call-name", "tool-name"}


def test_an_id_used_again_gets_one_within_the_length() -> None:
    call_id = "c" * 64
    wires = history("openai-responses", "f", call_id) + history("openai-responses", "f", call_id)
    out = fit(wires, max_tokens=10_000, dialect="openai-responses")
    assert check(out.messages, dialect="openai-responses") == []
    assert len(out.messages) == 6


@pytest.mark.parametrize("name", ["Ann Lee", "a<b", "x|y", "n" * 70, "tab\tbed"])
def test_the_name_of_who_speaks_is_sent_as_it_is_taken(name: str) -> None:
    out = fit([{"role": "user", "name": name, "content": "hi"}], max_tokens=1_000)
    assert check(out.messages) == []
    assert out.messages[0]["name"] == valid_author(name) != name
    assert [repair.rule for repair in out.repairs] == ["message"]


@pytest.mark.parametrize(
    ("item", "taken"),
    [
        ({"type": "message", "id": "msg_1"}, True),
        ({"type": "message", "id": "rs_1"}, False),
        ({"type": "function_call", "id": "call_1"}, False),
        ({"type": "function_call", "id": "fc_" + "a" * 62}, False),
        ({"type": "custom_tool_call", "id": "ctc_1"}, True),
        ({"type": "reasoning", "id": ""}, False),
        ({"type": "function_call"}, True),
        ({"type": "web_search_call", "id": "anything"}, True),
    ],
)
def test_an_item_has_the_id_of_its_type(item: dict[str, str], taken: bool) -> None:
    assert has_valid_item_id(item, item["type"]) is taken


def test_an_item_with_the_id_of_another_type_is_sent_without() -> None:
    call, output = history("openai-responses", "f", "c1")[1:]
    out = fit(
        [{"role": "user", "content": "hi"}, {**call, "id": "call_1"}, output],
        max_tokens=1_000,
        dialect="openai-responses",
    )
    assert "id" not in out.messages[1]
    assert out.messages[2] == output


def test_names_are_found_in_the_tools_of_every_dialect() -> None:
    tools = [{"name": "a"}, {"function": {"name": "b"}}, {"type": "custom", "custom": {"name": "c"}}, {"type": "d"}, 7]
    assert list(tool_names(tools)) == ["a", "b", "c"]


def test_images_and_pages_count_together_where_the_provider_adds_them_up() -> None:
    caps = caps_of("anthropic")
    assert list(caps.over(Amounts(images=60, pages=40))) == []
    assert list(caps.over(Amounts(images=60, pages=41))) == [("images and PDF pages", 101, 100)]
    assert list(caps_of("openai-chat").over(Amounts(images=501, pages=900))) == [("images", 501, 500)]


def test_many_images_may_not_be_large() -> None:
    caps = caps_of("anthropic")
    assert list(caps.over(Amounts(images=20, large_images=20))) == []
    assert list(caps.over(Amounts(images=21, large_images=1))) == [(BESIDE_LARGER, 21, 20)]
    assert list(caps.over(Amounts(images=21))) == []


def test_a_larger_window_takes_more_media() -> None:
    assert caps_of("anthropic", 1_000_000).max_media == 600
    assert caps_of("anthropic", 200_000).max_media == 100
    assert caps_for(None, "anthropic").max_media == 100
    assert caps_for("claude-3-5-sonnet-20241022", "anthropic").max_media == 100


def test_what_a_provider_says_takes_the_place_of_what_was_known() -> None:
    caps = caps_of("anthropic").learned(max_images=50, max_pages=None)
    assert (caps.max_images, caps.max_media, caps.max_pages) == (50, 50, None)
    assert caps_of("openai-chat").learned(max_images=50) == Caps(max_images=50)
    with pytest.raises(TypeError, match="max_dogs"):
        caps.learned(max_dogs=1)


def test_where_to_land_is_a_part_of_each_limit_and_at_least_one() -> None:
    assert Caps(max_images=100, max_messages=1).share(0.75) == Caps(max_images=75, max_messages=1)
