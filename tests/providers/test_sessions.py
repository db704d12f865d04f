"""Whole sessions over HTTP against a server that refuses what the providers refuse, in every dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import pytest
from tests.providers.serving import Pauses, endpoint

from foldline.codecs import codec
from foldline.codecs.dialect import ROWS
from foldline.engine.context import Context
from foldline.errors import ProviderError
from foldline.messages import ToolCall
from foldline.providers.base import CallStarted, Piece, Provider, ReasoningDelta, Reply, Retrying, TextDelta
from foldline.providers.http import provider_for
from foldline.providers.summariser import summariser
from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import Fold

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {dialect: [row.tool("read", "Reads a file.", SCHEMA)] for dialect, row in ROWS.items()}
# Names that the catalogue has with a small cacheable prefix, and that are no reasoning models.
MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
}
every_dialect = pytest.mark.parametrize("dialect", ROWS)


@asynccontextmanager
async def connected(server: FakeProvider, dialect: str, **fields: Any) -> AsyncIterator[Provider]:
    transport = httpx.ASGITransport(app=server)
    async with httpx.AsyncClient(transport=transport, verify=False) as client:
        where = endpoint("http://fake.example/v1", dialect, model=MODELS[dialect], **fields)
        provider = provider_for(where, client=client, sleep=Pauses(), chance=lambda: 0.0)
        yield provider
        await provider.aclose()


def session(dialect: str, window: int = 100_000) -> Context:
    return Context(
        dialect=dialect,
        model=MODELS[dialect],
        window=window,
        max_output_tokens=500,
        system="You read files.",
        tools=TOOLS[dialect],
    )


def words(dialect: str, text: str, role: str = "user") -> Mapping[str, Any]:
    return codec(dialect).write(codec(dialect).note(text, role=role))


def result(dialect: str, call: ToolCall, text: str) -> Mapping[str, Any]:
    reader = codec(dialect)
    return reader.write(reader.answer(call, text))


async def last(provider: Provider, context: Context) -> Reply:
    got = [piece async for piece in provider.stream(context.prepare())]
    reply = got[-1]
    assert isinstance(reply, Reply)
    return reply


async def rest_of(stream: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in stream]


async def run_turns(provider: Provider, context: Context, turns: int, text: Callable[[int], str]) -> None:
    """User messages and tool calls, answered with `text(turn)`; each reply is recorded and its usage taken."""
    context.append(words(context.dialect, "Read on."))
    for turn in range(turns):
        reply = await last(provider, context)
        context.extend(reply.messages)
        assert reply.usage is not None
        context.observe(reply.usage)
        for call in reply.calls:
            context.append(result(context.dialect, call, text(turn)))
        if not reply.calls:
            context.append(words(context.dialect, f"Go on, {turn}."))


def readings() -> Iterator[FakeReply]:
    """A model that reads one file, then two, then says that it has, and so on."""
    for turn in count():
        calls = [("read", {"path": f"{turn}-{number}.txt"}) for number in range(1 + turn % 3)]
        yield FakeReply("Reading.", calls=calls) if turn % 3 < 2 else FakeReply("All read so far.")


@every_dialect
def test_a_long_session_is_never_refused_and_its_usage_is_known(dialect: str) -> None:
    async def work() -> None:
        server = FakeProvider(readings(), window_tokens=8_000)
        context = session(dialect, window=8_000)
        async with connected(server, dialect) as provider:
            await run_turns(provider, context, 60, lambda turn: f"line {turn} of the file " * 60)
        assert server.served == 60
        assert not server.refusals
        assert 0 < server.largest_tokens <= 8_000
        assert any(isinstance(event, Fold) for event in context.events)

    asyncio.run(work())


@every_dialect
def test_the_prefix_is_read_from_the_cache_between_two_folds(dialect: str) -> None:
    async def work() -> None:
        server = FakeProvider(readings())
        context = session(dialect)
        async with connected(server, dialect, session_id="s1") as provider:
            await run_turns(provider, context, 30, lambda turn: f"line {turn} of the file " * 80)
        assert server.cached_tokens > server.input_tokens // 2

    asyncio.run(work())


@every_dialect
def test_text_thinking_and_calls_come_as_pieces_and_go_back_as_they_came(dialect: str) -> None:
    async def work() -> None:
        reply = FakeReply(
            "Let me look at it.", calls=[("read", {"path": "a"}), ("read", {"path": "b"})], reasoning="Hm, so."
        )
        server = FakeProvider([reply, "Done."])
        context = session(dialect)
        context.append(words(context.dialect, "Look."))
        async with connected(server, dialect) as provider:
            got = [piece async for piece in provider.stream(context.prepare())]
            first = got[-1]
            assert isinstance(first, Reply)
            context.extend(first.messages)
            for call in first.calls:
                context.append(result(dialect, call, "x"))
            second = await last(provider, context)
        assert (
            "".join(piece.text for piece in got if isinstance(piece, TextDelta)) == first.text == "Let me look at it."
        )
        assert "".join(piece.text for piece in got if isinstance(piece, ReasoningDelta)) == "Hm, so."
        assert [piece.name for piece in got if isinstance(piece, CallStarted)] == ["read", "read"]
        assert [json.loads(call.arguments) for call in first.calls] == [{"path": "a"}, {"path": "b"}]
        assert (first.finish_reason, second.finish_reason, second.text) == ("tool_calls", "stop", "Done.")
        sent = server.requests[-1].body[ROWS[dialect].body.messages]
        assert all(dict(message) in sent for message in first.messages)
        assert not server.refusals

    asyncio.run(work())


@every_dialect
def test_a_refusal_for_length_is_recovered_from(dialect: str) -> None:
    async def work() -> None:
        server = FakeProvider(repeat=True, window_tokens=2_000)
        context = session(dialect, window=50_000)
        for number in range(12):
            context.append(words(context.dialect, f"question {number} " * 60))
            context.append({"role": "assistant", "content": f"answer {number} " * 60})
        context.append(words(context.dialect, "And now?"))
        async with connected(server, dialect) as provider:
            with pytest.raises(ProviderError) as caught:
                await last(provider, context)
            assert caught.value.failure.kind == "prompt_overflow"
            assert context.recover(caught.value.failure).retry
            assert (await last(provider, context)).finish_reason == "stop"

    asyncio.run(work())


@every_dialect
@pytest.mark.parametrize(
    "trouble",
    [
        FakeReply(status=429, retry_after_seconds=3),
        FakeReply(status=500),
        FakeReply(fails="no_answer"),
        FakeReply(fails="unfinished", after_events=0),
    ],
    ids=["busy", "fault", "no answer", "empty stream"],
)
def test_trouble_before_the_first_piece_is_not_seen_by_the_session(dialect: str, trouble: FakeReply) -> None:
    async def work() -> None:
        context = session(dialect)
        context.append(words(context.dialect, "Hello?"))
        async with connected(FakeProvider([trouble, "Hello."]), dialect) as provider:
            got = [piece async for piece in provider.stream(context.prepare())]
        assert isinstance(got[0], Retrying)
        assert isinstance(got[-1], Reply) and got[-1].text == "Hello."

    asyncio.run(work())


@every_dialect
@pytest.mark.parametrize(("fails", "kind"), [("unfinished", "other"), ("error", None), ("overflow", "prompt_overflow")])
def test_trouble_in_the_middle_of_a_reply_is_raised(dialect: str, fails: Any, kind: str | None) -> None:
    async def work() -> None:
        context = session(dialect)
        context.append(words(context.dialect, "Hello?"))
        server = FakeProvider([FakeReply("Hello to you, and to all.", piece_chars=5, fails=fails)])
        async with connected(server, dialect) as provider:
            stream = provider.stream(context.prepare())
            first = await anext(stream)
            with pytest.raises(ProviderError) as caught:
                await rest_of(stream)
        assert first == TextDelta("Hello")
        assert kind is None or caught.value.failure.kind == kind

    asyncio.run(work())


@every_dialect
def test_a_server_that_reports_no_usage_has_none(dialect: str) -> None:
    async def work() -> None:
        context = session(dialect)
        context.append(words(context.dialect, "Hello?"))
        async with connected(FakeProvider("Hello.", usage=False), dialect) as provider:
            assert (await last(provider, context)).usage is None

    asyncio.run(work())


@every_dialect
def test_a_wrong_key_is_said_to_be_one_and_shown_nowhere(dialect: str) -> None:
    async def work() -> None:
        context = session(dialect)
        context.append(words(context.dialect, "Hello?"))
        async with connected(FakeProvider("x", api_key="right-one"), dialect, api_key="wrong-one-1234") as provider:
            with pytest.raises(ProviderError) as caught:
                await last(provider, context)
        assert caught.value.failure.kind == "auth"
        assert "wrong-one-1234" not in f"{caught.value!r} {caught.value}"

    asyncio.run(work())


@every_dialect
def test_a_session_is_summarised_by_the_model_it_talks_to(dialect: str) -> None:
    async def work() -> None:
        server = FakeProvider("Files one to nine were read; nothing is open.", repeat=True)
        context = session(dialect)
        async with connected(server, dialect) as provider:
            for number in range(10):
                context.append(words(dialect, f"question {number} " * 40))
                context.append(words(dialect, f"answer {number} " * 40, "assistant"))
            folds = await context.compact_async(summarize=summariser(provider))
        assert folds
        assert "nothing is open" in json.dumps(context.prepare().messages)
        assert not server.refusals

    asyncio.run(work())
