"""Requests of the Chat dialect."""

from __future__ import annotations

from typing import Any

import pytest
from tests.providers.serving import endpoint, request

from foldline.providers.openai_chat import ChatDialect

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
