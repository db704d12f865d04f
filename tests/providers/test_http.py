"""One request over a real connection: retries, refusals, streams that break off, and where the key goes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import pytest
from tests import idle_clock
from tests.providers.serving import (
    Answer,
    Pauses,
    as_json,
    chat,
    endpoint,
    events,
    pieces_of,
    reply_of,
    request,
    serving,
    talk,
)

from foldline.engine.context import Context
from foldline.errors import ProviderError
from foldline.failures.failure import Failure
from foldline.providers.base import Piece, Reply, Retrying, TextDelta
from foldline.providers.http import provider_for
from foldline.providers.retries import CONNECT_RETRIES, FAULT_RETRIES

T = TypeVar("T")

KEY = "sk-test-0123456789"
HELLO = chat(
    {"role": "assistant", "content": "Hel"}, {"content": "lo"}, usage={"prompt_tokens": 9, "completion_tokens": 2}
)
BUSY = as_json({"error": {"message": "Rate limit reached"}}, 429)
BROKEN = as_json({"error": {"message": "Internal error"}}, 500)
HALF = [events({"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]})]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 120))


def pieces(*answers: Answer, dialect: str = "openai-chat", **fields: Any) -> list[Piece]:
    async def work() -> list[Piece]:
        async with serving(*answers) as server:
            return await talk(server, dialect, **fields)

    return run(work())


def failure(*answers: Answer, dialect: str = "openai-chat", **fields: Any) -> Failure:
    with pytest.raises(ProviderError) as caught:
        pieces(*answers, dialect=dialect, **fields)
    return caught.value.failure


def test_a_reply_comes_in_pieces_and_then_whole() -> None:
    got = pieces(HELLO)
    reply = reply_of(got)
    assert got[:-1] == [TextDelta("Hel"), TextDelta("lo")]
    assert reply.messages == ({"role": "assistant", "content": "Hello"},)
    assert (reply.text, reply.finish_reason, reply.usage) == (
        "Hello",
        "stop",
        {"prompt_tokens": 9, "completion_tokens": 2},
    )
    assert reply.seconds >= 0


def test_what_is_sent_is_the_body_that_the_reply_names_and_the_key_is_in_a_header_only() -> None:
    async def work() -> None:
        async with serving(HELLO) as server:
            reply = reply_of(await talk(server, api_key=KEY))
            [asked] = server.asked
        assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
        assert asked.body == reply.request_body
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert KEY.encode() not in asked.content

    run(work())


@pytest.mark.parametrize(
    ("dialect", "path", "answer"),
    [
        (
            "anthropic",
            "/v1/messages",
            events(
                {"type": "message_start", "message": {"usage": {"input_tokens": 9}}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
                {"type": "message_stop"},
            ),
        ),
        (
            "openai-responses",
            "/v1/responses",
            events(
                {"type": "response.output_text.delta", "delta": "hi"},
                {
                    "type": "response.completed",
                    "response": {
                        "status": "completed",
                        "usage": {"input_tokens": 9, "output_tokens": 2},
                        "output": [
                            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
                        ],
                    },
                },
            ),
        ),
    ],
)
def test_the_other_dialects_go_to_their_own_paths(dialect: str, path: str, answer: bytes) -> None:
    async def work() -> None:
        async with serving(Answer([answer])) as server:
            got = await talk(server, dialect)
            assert server.asked[0].path == path
        reply = reply_of(got)
        assert got[0] == TextDelta("hi")
        assert reply.text == "hi"
        session = Context(dialect=dialect, model="m", window=8_000)
        session.append({"role": "user", "content": "hi"})
        session.extend(reply.messages)
        assert session.observe(reply.usage).input_tokens == 9

    run(work())


def test_bytes_may_be_cut_anywhere() -> None:
    whole = b"".join(chat({"content": "grüß 🙂"}).chunks)
    assert reply_of(pieces(Answer([whole[at : at + 1] for at in range(len(whole))]))).text == "grüß 🙂"


def test_a_reply_that_is_no_stream_is_taken_as_well() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
    assert reply_of(pieces(as_json(body))).text == "hi"


def test_a_reply_that_reached_the_cap_ended_for_length_whatever_the_server_says() -> None:
    full = chat({"content": "x"}, usage={"prompt_tokens": 9, "completion_tokens": 100})
    assert reply_of(pieces(full)).finish_reason == "length"


@pytest.mark.parametrize("trouble", [BUSY, BROKEN, Answer(status=503), Answer(), Answer(cut=True)])
def test_a_request_that_met_trouble_is_sent_again(trouble: Answer) -> None:
    retrying, *rest = pieces(trouble, HELLO)
    assert isinstance(retrying, Retrying)
    assert (retrying.attempt, retrying.wait_seconds) == (1, 0.5)
    assert reply_of(rest).text == "Hello"


def test_every_wait_is_told_and_kept() -> None:
    async def work() -> None:
        pauses = Pauses()
        async with serving(BUSY, as_json({"error": "rate limit"}, 429, retry_after_ms="1500"), HELLO) as server:
            provider = provider_for(endpoint(server.url), sleep=pauses, chance=lambda: 0.0)
            told = [piece for piece in await pieces_of(provider, request()) if isinstance(piece, Retrying)]
            assert server.asked[0].content == server.asked[2].content
        assert [(each.attempt, each.wait_seconds) for each in told] == [(1, 0.5), (2, 1.5)]
        assert pauses.seconds == [0.5, 1.5]
        assert "Rate limit reached" in told[0].reason

    run(work())


def test_a_server_that_asks_for_minutes_is_not_waited_for() -> None:
    found = failure(as_json({"error": {"message": "Rate limit reached"}}, 429, retry_after="600"))
    assert (found.kind, found.retry_after_seconds) == ("rate", 600)


def test_trouble_without_end_is_given_up() -> None:
    assert failure(*[BROKEN] * (1 + FAULT_RETRIES)).status == 500


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            as_json({"error": {"message": "This model's maximum context length is 8192 tokens."}}, 400),
            "prompt_overflow",
        ),
        (as_json({"error": {"message": "Incorrect API key provided"}}, 401), "auth"),
        (
            as_json({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429),
            "quota",
        ),
        (as_json({"error": {"message": "No user message", "type": "x"}}, 404), "other"),
        (as_json({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}, 200), "prompt_overflow"),
        (Answer([events({"error": {"message": "the request exceeds the available context size"}})]), "prompt_overflow"),
        (Answer([b"<h1>hello</h1>"], media="text/html"), "other"),
    ],
)
def test_what_a_repetition_cannot_help_is_raised_at_once(answer: Answer, kind: str) -> None:
    assert failure(answer).kind == kind


def test_an_ambiguous_refusal_is_judged_by_the_size_of_the_request() -> None:
    silent, model = as_json({"error": {"message": "Bad Request"}}, 400), "gpt-4"  # a window of 8,192 tokens
    assert failure(silent, model=model, sent=request(tokens=8_000)).kind == "prompt_overflow"
    assert failure(silent, model=model, sent=request(tokens=50)).kind == "ambiguous"


def test_an_error_before_the_first_piece_of_a_stream_is_tried_again() -> None:
    overloaded = Answer([events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})])
    done = events({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"})
    got = pieces(overloaded, Answer([done]), dialect="anthropic")
    assert [type(piece) for piece in got] == [Retrying, Reply]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(HALF),
        Answer(HALF, cut=True),
        Answer([*HALF, b'data: {"choices": [{"ind'], cut=True),
        Answer([*HALF, b'data: {"choices": [{"ind']),
    ],
    ids=["ends early", "connection closed", "closed in a line", "ends in a line"],
)
def test_a_reply_that_breaks_off_is_an_error_and_not_sent_again(answer: Answer) -> None:
    found = failure(answer)
    assert found.kind == "other"
    assert "cut off" in found.message


def test_what_was_shown_before_an_error_came_is_not_taken_back() -> None:
    async def work() -> list[Piece]:
        got: list[Piece] = []
        async with serving(Answer([*HALF, events({"error": {"message": "Internal", "code": 500}})])) as server:
            provider = provider_for(endpoint(server.url), sleep=Pauses())
            stream = provider.stream(request())
            got.append(await anext(stream))
            with pytest.raises(ProviderError, match="Internal"):
                await anext(stream)
            await provider.aclose()
        return got

    assert run(work()) == [TextDelta("Hel")]


def test_a_connection_that_is_lost_after_the_end_of_a_reply_loses_nothing() -> None:
    ended = events({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]})
    assert reply_of(pieces(Answer([ended], cut=True))).text == "x"


def test_nothing_is_read_behind_the_end() -> None:
    assert reply_of(pieces(Answer([*HELLO.chunks, b"data: not json\n\n"]))).text == "Hello"


def test_an_address_where_nothing_listens_is_named() -> None:
    async def work() -> tuple[str, Pauses]:
        async with serving() as server:
            url = server.url
        pauses = Pauses()
        provider = provider_for(endpoint(url), sleep=pauses)
        with pytest.raises(ProviderError) as caught:
            await pieces_of(provider, request())
        return str(caught.value).replace(url, "ADDRESS"), pauses

    said, pauses = run(work())
    assert said.startswith("other: ADDRESS/v1: cannot connect: ")
    assert len(pauses.seconds) == CONNECT_RETRIES


def test_a_server_that_stays_silent_is_left() -> None:
    async def work() -> str:
        connections = 0

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await reader.read()  # until the client goes
            writer.close()
            await writer.wait_closed()
            connections -= 1

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            provider = provider_for(endpoint(url, timeout_seconds=0.05), sleep=Pauses())
            with pytest.raises(ProviderError) as caught:
                await pieces_of(provider, request())
            while connections:
                await asyncio.sleep(0)
            return str(caught.value)

    assert "nothing came for 0.05 s" in idle_clock.run(work())


def test_a_field_that_a_server_does_not_know_is_left_out_from_then_on() -> None:
    refused = as_json({"error": {"message": "stream_options: Extra inputs are not permitted"}}, 422)

    async def work() -> None:
        async with serving(refused, HELLO, HELLO) as server:
            provider = provider_for(endpoint(server.url), sleep=Pauses())
            got = [piece async for piece in provider.stream(request())]
            await pieces_of(provider, request())
            sent = ["stream_options" in asked.body for asked in server.asked]
        assert sent == [True, False, False]
        assert [type(piece) for piece in got] == [TextDelta, TextDelta, Reply]

    run(work())


def test_a_field_that_is_refused_under_either_name_ends_in_an_error() -> None:
    refusals = [
        as_json({"error": {"message": f"Unsupported parameter: '{name}'"}}, 400)
        for name in ("max_tokens", "max_completion_tokens", "max_tokens")
    ]
    assert failure(*refusals).status == 400


def test_a_redirect_is_not_followed_so_that_the_key_goes_nowhere_else() -> None:
    async def work() -> None:
        async with (
            serving() as other,
            serving(Answer(status=307, headers={"location": f"{other.url}/x?q={KEY}"})) as server,
        ):
            with pytest.raises(ProviderError) as caught:
                await talk(server, api_key=KEY)
            assert other.asked == []
            assert f"redirects to {other.url}/x, which is not followed" in str(caught.value)

    run(work())


def test_a_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    key, token = "plain-words-as-key", "token-of-a-gateway"
    echo = as_json({"error": {"message": f"Wrong credentials {key} and {token}"}}, 401)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ProviderError) as caught:
        pieces(echo, api_key=key, headers={"x-gateway-token": token})
    texts = [str(caught.value), repr(caught.value), repr(caught.value.failure), caplog.text]
    assert not any(key in text or token in text for text in texts)
    assert "[redacted] and [redacted]" in str(caught.value)


def test_a_missing_key_is_said_to_be_missing() -> None:
    assert "no key was sent" in failure(as_json({"error": {"message": "Unauthorized"}}, 401)).message


def test_a_body_without_words_still_has_a_message() -> None:
    assert "status 404 without a word" in failure(Answer(status=404)).message


def test_what_json_cannot_hold_is_replaced() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "\ud800", "parameters": {"x": float("nan")}}}

    async def work() -> Any:
        async with serving(HELLO) as server:
            await talk(server, sent=request(tools=[tool]))
            return server.asked[0].body["tools"][0]["function"]

    assert run(work()) == {"name": "f", "description": "�", "parameters": {"x": None}}


def test_messages_travel_as_the_same_json() -> None:
    message = {"content": "grüß", "role": "user", "zeta": 1, "alpha": None}

    async def work() -> bytes:
        async with serving(HELLO) as server:
            await talk(server, sent=request(message))
            return server.asked[0].content

    assert json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() in run(work())


def test_leaving_in_the_middle_ends_the_request_and_closing_twice_does_no_harm() -> None:
    async def work() -> None:
        async with serving(HELLO) as server:
            provider = provider_for(endpoint(server.url))
            stream = provider.stream(request())
            assert await anext(stream) == TextDelta("Hel")
            assert isinstance(stream, AsyncGenerator)
            await stream.aclose()
            await provider.aclose()
            await provider.aclose()

    run(work())


def test_a_provider_says_what_it_is_without_its_key() -> None:
    provider = provider_for(endpoint(api_key=KEY, model="m1"))
    assert (provider.name, provider.dialect, provider.model) == ("test", "openai-chat", "m1")
    assert provider.endpoint == "http://127.0.0.1:1/v1"
    assert KEY not in repr(provider)
