"""Requests of the Chat dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.providers.serving import endpoint, request

from foldline.codecs.openai_chat.codec import OpenAIChat
from foldline.providers.base import AssembledReply, CallStarted, Piece, ReasoningDelta, TextDelta
from foldline.providers.bodies import Event, StreamedError
from foldline.providers.openai_chat import ChatAssembler, ChatDialect

OPENAI = "https://api.openai.com/v1"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def body(url: str = "http://127.0.0.1:1", *, sent: Any = None, **fields: Any) -> dict[str, Any]:
    return ChatDialect().body(endpoint(url, **fields), sent or request())


def test_messages_are_the_very_objects_and_the_system_text_comes_first() -> None:
    user = {"role": "user", "content": "hi", "unknown": [1]}
    made = body(sent=request(user, system="be kind", tools=[TOOL]))
    assert made["messages"][0] == {"role": "system", "content": "be kind"}
    assert made["messages"][1] is user
    assert made["tools"] == [TOOL]


def test_plain_system_blocks_become_one_text_and_others_stay() -> None:
    plain = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    marked = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    assert body(sent=request(system=plain))["messages"][0]["content"] == "a\n\nb"
    assert body(sent=request(system=marked))["messages"][0]["content"] == marked


def test_nothing_empty_is_sent() -> None:
    made = body(sent=request(system="", tools=[]))
    assert made.keys() == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert made["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (OPENAI, "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://127.0.0.1:8080", "max_tokens"),
    ],
)
def test_the_output_cap_has_the_name_that_the_host_knows(url: str, name: str) -> None:
    made = body(url)
    assert made[name] == 100
    assert ({"max_tokens", "max_completion_tokens"} - {name}).isdisjoint(made)


def test_a_cap_of_the_settings_can_only_lower_the_sessions() -> None:
    assert body(extra={"max_completion_tokens": 7})["max_completion_tokens"] == 7
    assert body(extra={"max_tokens": 70_000})["max_tokens"] == 100


def test_extra_fields_are_sent_and_none_takes_one_out() -> None:
    made = body(extra={"temperature": 0, "stream_options": None})
    assert made["temperature"] == 0
    assert "stream_options" not in made


def test_only_openai_gets_the_key_of_the_sessions_cache() -> None:
    assert body(OPENAI, session_id="s1")["prompt_cache_key"] == "s1"
    assert "prompt_cache_key" not in body("https://api.groq.com/openai/v1", session_id="s1")


@pytest.mark.parametrize(
    ("refusal", "gone", "come"),
    [
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("stream_options: Extra inputs are not permitted", "stream_options", None),
    ],
)
def test_what_a_server_does_not_know_is_left_out(refusal: str, gone: str, come: str | None) -> None:
    made = ChatDialect().adapted(body(), refusal)
    assert made is not None and gone not in made
    assert come is None or made[come] == 100


def test_openais_own_cap_gives_way_to_the_older_name() -> None:
    made = ChatDialect().adapted(body(OPENAI), "Unknown field: max_completion_tokens")
    assert made is not None and made["max_tokens"] == 100


@pytest.mark.parametrize("refusal", ["max_tokens is too large: 100", "unknown tool", "unsupported: temperature", ""])
def test_any_other_refusal_changes_nothing(refusal: str) -> None:
    assert ChatDialect().adapted(body(), refusal) is None


def played(*chunks: Mapping[str, Any] | str) -> tuple[list[Piece], AssembledReply | None]:
    assembler = ChatAssembler()
    data = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    pieces = [piece for text in data for piece in assembler.feed(Event("", text))]
    return pieces, assembler.result()


def chunk(delta: Mapping[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **fields}


def message_of(*deltas: Mapping[str, Any], reason: str = "stop") -> dict[str, Any]:
    _, result = played(*map(chunk, deltas), chunk({}, reason))
    assert result is not None
    [message] = result.messages
    return dict(message)


def calls_of(*pieces: Sequence[Mapping[str, Any]]) -> list[Any]:
    calls = message_of(*({"tool_calls": list(each)} for each in pieces), reason="tool_calls")["tool_calls"]
    assert isinstance(calls, list)
    return calls


def function(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    inner = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": inner}


def test_text_is_joined_and_given_as_it_comes() -> None:
    pieces, result = played(
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}, "stop"),
        "[DONE]",
    )
    assert pieces == [TextDelta("Hel"), TextDelta("lo")]
    assert result == AssembledReply(({"role": "assistant", "content": "Hello"},), "stop", None)


def test_calls_in_pieces_come_together_by_index() -> None:
    calls = calls_of(
        [function("read", "", index=0, id="a", type="function")],
        [function(None, '{"p":', index=0), function("list", "{}", index=1, id="b", type="function")],
        [function(None, '"x"}', index=0)],
    )
    assert calls == [
        {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"p":"x"}'}},
        {"id": "b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
    ]


def test_a_call_is_announced_once_by_its_name() -> None:
    pieces, _ = played(
        chunk({"tool_calls": [function("read", "", index=0, id="a")]}),
        chunk({"tool_calls": [function("read", "{", index=0, id="a")]}),
        chunk({"tool_calls": [function(None, "}", index=0)]}),
    )
    assert pieces == [CallStarted("read")]


def test_whole_calls_without_index_or_id_each_get_an_id() -> None:
    calls = calls_of([function("read", {"p": 1}), function("read", {"p": 2})])
    assert [call["function"]["arguments"] for call in calls] == ['{"p": 1}', '{"p": 2}']
    assert len({call["id"] for call in calls} - {""}) == 2
    assert all(call["type"] == "function" for call in calls)


def test_pieces_without_index_go_on_with_the_newest_call_or_that_of_their_id() -> None:
    calls = calls_of(
        [function("a", '{"n":', id="1")],
        [function(None, "1}")],
        [function("b", '{"m":', id="2")],
        [function(None, "2}", id="2")],
    )
    assert [call["function"]["arguments"] for call in calls] == ['{"n":1}', '{"m":2}']


def test_parallel_calls_that_share_one_index_are_told_apart_by_id() -> None:
    calls = calls_of([function("a", "{}", index=0, id="1")], [function("b", "{}", index=0, id="2")])
    assert [call["function"]["name"] for call in calls] == ["a", "b"]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert calls_of([function("now", "", index=0, id="1")])[0]["function"]["arguments"] == "{}"


def test_fields_of_a_call_that_are_not_known_here_stay_with_it() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    calls = calls_of([function("a", "{}", index=0, id="1", extra_content=signed)])
    assert calls[0]["extra_content"] == signed


def test_a_custom_call_keeps_its_free_text() -> None:
    [call] = calls_of(
        [{"index": 0, "id": "1", "type": "custom", "custom": {"name": "sh", "input": "l"}}],
        [{"index": 0, "custom": {"input": "s"}}],
    )
    assert call == {"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_text_stays_in_the_field_it_came_in(name: str) -> None:
    pieces, result = played(chunk({name: "let "}), chunk({name: "me"}), chunk({"content": "42"}, "stop"))
    assert pieces == [ReasoningDelta("let "), ReasoningDelta("me"), TextDelta("42")]
    assert result is not None
    assert result.messages[0][name] == "let me"
    assert OpenAIChat().read(result.messages[0]).text == "42"


def test_one_thought_under_two_names_is_shown_once_and_kept_twice() -> None:
    pieces, result = played(chunk({"reasoning": "hm", "reasoning_content": "hm"}), chunk({"content": "x"}, "stop"))
    assert pieces == [ReasoningDelta("hm"), TextDelta("x")]
    assert result is not None
    assert (result.messages[0]["reasoning"], result.messages[0]["reasoning_content"]) == ("hm", "hm")


def test_reasoning_details_are_joined_up_to_their_signature() -> None:
    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    message = message_of(
        {"reasoning_details": [{**text, "text": "a"}]},
        {"reasoning_details": [{**text, "text": "b"}]},
        {"reasoning_details": [{**text, "signature": "sig"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "xx"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "yy"}]},
        {"content": "done"},
    )
    assert message["reasoning_details"] == [
        {**text, "text": "ab", "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "xx"},
        {"type": "reasoning.encrypted", "data": "yy"},
    ]


def test_thinking_blocks_of_a_gateway_stay_apart_where_one_is_signed() -> None:
    thinking = {"type": "thinking"}
    message = message_of(
        {"thinking_blocks": [{**thinking, "thinking": "a"}]},
        {"thinking_blocks": [{**thinking, "thinking": "b", "signature": None}]},
        {"thinking_blocks": [{**thinking, "thinking": "", "signature": "s1"}]},
        {"thinking_blocks": [{**thinking, "thinking": "c"}]},
        {"content": "x"},
    )
    assert message["thinking_blocks"] == [
        {"type": "thinking", "thinking": "ab", "signature": "s1"},
        {"type": "thinking", "thinking": "c"},
    ]


def test_content_in_blocks_is_kept_in_blocks() -> None:
    pieces, result = played(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]}),
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]}),
        chunk({"content": "so "}),
        chunk({"content": "42"}, "stop"),
    )
    assert pieces == [ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("so "), TextDelta("42")]
    assert result is not None
    assert result.messages[0]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "so 42"},
    ]


def test_fields_that_are_not_known_here_stay_in_the_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert message_of({"content": "see", "images": [image]})["images"] == [image]


def test_a_refusal_is_text_and_an_ending_of_its_own() -> None:
    pieces, result = played(chunk({"refusal": "No."}), chunk({}, "stop"))
    assert pieces == [TextDelta("No.")]
    assert result is not None
    assert result.finish_reason == "refusal"
    assert result.messages == ({"role": "assistant", "content": "", "refusal": "No."},)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("eos_token", "stop"),
        ("model_length", "length"),
        ("insufficient_system_resource", "failed"),
    ],
)
def test_endings_have_one_vocabulary(said: str, reason: str) -> None:
    _, result = played(chunk({"content": "x"}, said))
    assert result is not None and result.finish_reason == reason


def test_a_turn_with_calls_ends_with_its_calls_whatever_the_server_says() -> None:
    _, result = played(chunk({"tool_calls": [function("a", "{}", index=0)]}), chunk({}, "stop"))
    assert result is not None and result.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({"content": "x"}, "stop"), {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}],
        [chunk({"content": "x"}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 1})],
        [
            chunk({"content": "x"}, usage={"prompt_tokens": 0, "completion_tokens": 0}),
            chunk({}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 1}),
            {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
        ],
        [chunk({"content": "x"}, "stop", x_groq={"usage": {"prompt_tokens": 9, "completion_tokens": 1}})],
    ],
    ids=["own chunk", "last chunk", "zeros around it", "groq"],
)
def test_usage_is_found_wherever_a_server_puts_it(chunks: list[dict[str, Any]]) -> None:
    _, result = played(*chunks, "[DONE]")
    assert result is not None
    assert result.usage == {"prompt_tokens": 9, "completion_tokens": 1}


def test_a_server_that_does_not_count_reports_nothing_rather_than_zero() -> None:
    _, result = played(chunk({"content": "x"}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0}))
    assert result is not None and result.usage is None


def test_a_stream_without_ending_has_no_outcome() -> None:
    assert played(chunk({"content": "x"}))[1] is None
    assert played()[1] is None


def test_done_alone_is_an_ending() -> None:
    assert played(chunk({"content": "x"}), "[DONE]")[1] is not None


def test_a_reply_that_says_nothing_is_no_message_but_thoughts_are_kept() -> None:
    _, nothing = played(chunk({"content": ""}, "stop"))
    assert nothing is not None and nothing.messages == ()
    _, thought = played(chunk({"reasoning_content": "hm"}, "length"))
    assert thought is not None and thought.messages[0]["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    "chunks",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "overloaded"}}]},
        "upstream: overloaded",
    ],
)
def test_an_error_in_the_stream_is_raised_with_what_it_says(chunks: Any) -> None:
    with pytest.raises(StreamedError) as caught:
        played(chunk({"content": "x"}), chunks)
    assert "overloaded" in str(caught.value.body)


def test_a_reply_in_one_piece_is_taken_as_well() -> None:
    assembler = ChatAssembler()
    message = {"role": "assistant", "content": "hi", "tool_calls": [function("a", "{}", id="1", type="function")]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    pieces = list(assembler.feed_body({"choices": [choice], "usage": {"prompt_tokens": 3}}))
    assert pieces == [TextDelta("hi"), CallStarted("a")]
    assert assembler.result() == AssembledReply((message,), "tool_calls", {"prompt_tokens": 3})
    with pytest.raises(StreamedError):
        list(ChatAssembler().feed_body({"detail": "nothing here"}))
