"""Client requests that a summary may continue: those that real clients send, and none that could act on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.conversations.clients import body_of, turns
from tests.providers.test_summariser import ACTS, FORMS

from foldline.conversations.conversation import summariser_for
from foldline.conversations.request_body import FORMS as DIALECTS
from foldline.conversations.request_body import RequestBody, read_body
from foldline.engine.context import Request
from foldline.engine.drivers import Continues
from foldline.messages import Json

MARK = {"cache_control": {"type": "ephemeral"}}


class Asked:
    """A summariser that can go on, and keeps with which fields it was to."""

    model = "some-model"

    def __init__(self) -> None:
        self.fields: dict[str, Json] = {}

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str:
        return "short"

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> str:
        self.fields = dict(fields)
        return "short"


def sent(dialect: str, **fields: Any) -> RequestBody:
    wires = turns(dialect, 2)
    if dialect == "anthropic":
        wires[-1] = {"role": "user", "content": [{"type": "text", "text": "And?", **MARK}]}
    plain = body_of(dialect, wires, **fields)
    return read_body(DIALECTS[dialect], plain.raw.replace(b', "x-unknown": {"kept": [1, null]}', b""))


def goes_on(body: RequestBody) -> bool:
    return isinstance(summariser_for(Asked(), body, dict), Continues)


CLIENTS = {
    "Claude Code": (
        "anthropic",
        {
            "max_tokens": 128_000,
            "system": [{"type": "text", "text": "You help.", **MARK}],
            "metadata": {"user_id": "u"},
            "thinking": {"type": "adaptive", "display": "omitted"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "medium"},
            "stream": True,
        },
    ),
    "Codex": (
        "openai-responses",
        {
            "instructions": "You help.",
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k",
            "text": {"verbosity": "low"},
            "client_metadata": {"session_id": "s"},
            "service_tier": "priority",
        },
    ),
    "opencode": (
        "openai-chat",
        {"max_tokens": 4_000, "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}},
    ),
    "opencode, anthropic": ("anthropic", {"max_tokens": 4_000, "tool_choice": {"type": "auto"}, "stream": True}),
    "pydantic-ai, litellm, langchain": (
        "openai-chat",
        {"temperature": 0.0, "n": 1, "parallel_tool_calls": True, "max_completion_tokens": 500, "seed": 1, "user": "u"},
    ),
    "openai-agents": (
        "openai-responses",
        {"include": [], "max_output_tokens": 500, "truncation": "disabled", "top_logprobs": 2, "metadata": {"a": "b"}},
    ),
}


@pytest.mark.parametrize(("dialect", "fields"), CLIENTS.values(), ids=list(CLIENTS))
def test_clients_are_gone_on_from_by_the_fields_that_they_send(dialect: str, fields: dict[str, Any]) -> None:
    assert goes_on(sent(dialect, **fields))


@pytest.mark.parametrize("dialect", list(DIALECTS))
@pytest.mark.parametrize("fields", [*ACTS, *FORMS], ids=str)
def test_no_request_is_that_could_act_or_has_another_form(dialect: str, fields: dict[str, Any]) -> None:
    assert goes_on(sent(dialect, temperature=0.2))
    assert not goes_on(sent(dialect, temperature=0.2, **fields))
