"""Gemini over HTTP: what is asked, and how a streamed reply is put together."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.engine.context import Context, Request
from foldline.errors import ProviderError
from foldline.providers.base import Reply
from foldline.providers.bodies import Event
from foldline.providers.endpoint import Endpoint
from foldline.providers.gemini import GeminiDialect
from foldline.providers.http import provider_for
from foldline.testing import FakeProvider, FakeReply
from foldline.view.usage import usage_of


def endpoint(**more: Any) -> Endpoint:
    fields = {"name": "gemini", "dialect": "gemini", "base_url": "https://fake", "model": "gemini-test"}
    return Endpoint(**{**fields, "api_key": "secret", **more})


def request(*wires: Any, **more: Any) -> Request:
    context = Context(dialect="gemini", window=100_000, max_output_tokens=500, **more)
    context.extend(wires or [{"role": "user", "parts": [{"text": "Hello"}]}])
    return context.prepare()


def ask(app: FakeProvider, asked: Request, **more: Any) -> Reply:
    async def run() -> Reply:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            pieces = [piece async for piece in provider_for(endpoint(**more), client=client).stream(asked)]
        assert isinstance(pieces[-1], Reply)
        return pieces[-1]

    return asyncio.run(run())


def assembled(*bodies: Any) -> Any:
    assembler = GeminiDialect().assembler()
    for body in bodies:
        list(assembler.feed(Event("", json.dumps(body))))
    return assembler.result()


def candidate(*parts: Any, **more: Any) -> Any:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


def test_the_model_and_the_key_stand_where_google_wants_them() -> None:
    app = FakeProvider("Hi.", api_key="secret")
    reply = ask(app, request(system="Be brief.", tools=None), extra={"generationConfig": {"temperature": 0}})
    (sent,) = app.requests
    assert sent.path == "/v1beta/models/gemini-test:streamGenerateContent"
    assert sent.headers["x-goog-api-key"] == "secret"
    assert sent.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert sent.body["generationConfig"] == {"temperature": 0, "maxOutputTokens": 500}
    assert (reply.text, reply.finish_reason) == ("Hi.", "stop")


def test_a_tool_loop_goes_back_with_its_signatures() -> None:
    calls = FakeReply(reasoning="hm", calls=[("read", {"path": "a"}), ("read", {"path": "b"})])
    app = FakeProvider([calls, "Done."])
    context = Context(dialect="gemini", window=100_000, max_output_tokens=500)
    context.append({"role": "user", "parts": [{"text": "Read both."}]})
    reply = ask(app, context.prepare())
    assert reply.finish_reason == "tool_calls"
    context.extend(reply.messages)
    kind = codec("gemini")
    merged = kind.merge([kind.answer(call, "ok") for call in reply.calls])
    assert merged is not None
    context.append(kind.write(merged))
    assert ask(app, context.prepare()).text == "Done."
    parts = app.requests[-1].body["contents"][1]["parts"]
    assert [("thoughtSignature" in part) for part in parts] == [False, True, False]


@given(st.text(min_size=1, max_size=30).filter(str.strip), st.integers(1, 9))
def test_pieces_are_joined_and_a_signature_keeps_its_part(text: str, chars: int) -> None:
    cut = [text[at : at + chars] for at in range(0, len(text), chars)]
    outcome = assembled(
        *(candidate({"text": piece, "thought": True}) for piece in cut),
        *(candidate({"text": piece}) for piece in cut),
        candidate({"text": "", "thoughtSignature": "sig"}),
        candidate(finishReason="STOP"),
    )
    (message,) = outcome.messages
    assert message["parts"] == [
        {"text": text, "thought": True},
        {"text": text},
        {"text": "", "thoughtSignature": "sig"},
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [("MAX_TOKENS", "length"), ("SAFETY", "refusal"), ("MALFORMED_FUNCTION_CALL", "malformed_call")],
)
def test_a_finish_reason_is_read(said: str, reason: str) -> None:
    assert assembled(candidate({"text": "so"}, finishReason=said)).finish_reason == reason


def test_a_prompt_that_was_blocked_is_refused_without_words() -> None:
    outcome = assembled({"promptFeedback": {"blockReason": "SAFETY"}})
    assert (outcome.messages, outcome.finish_reason) == ((), "refusal")


def test_thoughts_count_as_output_and_cached_tokens_as_input() -> None:
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 5}
    found = usage_of(usage)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (100, 60, 12)


def test_an_overflow_inside_a_stream_is_an_overflow() -> None:
    with pytest.raises(ProviderError) as caught:
        ask(FakeProvider(FakeReply("so", fails="overflow")), request())
    assert caught.value.failure.kind == "prompt_overflow"


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    assert assembled(candidate({"text": "so"})) is None
