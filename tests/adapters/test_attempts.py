"""A framework that makes the attempts itself, and tells an adapter of each by hooks."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.adapters.test_adapter import TOY, Toy, usage_of
from tests.adapters.toy import Note, notes
from tests.serving import serve

from foldline.adapters.attempts import Attempts
from foldline.adapters.model_call import ModelCall
from foldline.errors import DoesNotFit
from foldline.messages import Json
from foldline.testing import FakeProvider, FakeReply

WINDOW_TOKENS = 3_000
LONG = 12


async def attempted(toy: Toy, attempts: Attempts[Note], call: ModelCall[Note]) -> tuple[Json, int]:
    """The answer, and how many attempts failed before it."""
    failed = 0
    async with httpx.AsyncClient(timeout=30) as client:
        while True:
            shown = await attempts.begin(call)
            try:
                answer = (await client.post(toy.url, json=toy.body(shown))).raise_for_status().json()
            except httpx.HTTPError as error:
                failed += 1
                if not await attempts.failed(error):
                    raise
            else:
                attempts.answered(usage_of(answer))
                return answer, failed


def test_an_attempt_fits_and_its_usage_comes_back() -> None:
    server = FakeProvider([FakeReply("done")], window_tokens=WINDOW_TOKENS)
    with serve(server) as served:
        toy = Toy(served.url, window=WINDOW_TOKENS)
        with toy.adapter.attempts() as attempts:
            asyncio.run(attempted(toy, attempts, ModelCall(messages=notes(LONG), model="m", key="k")))
        context = toy.adapter.context("k")
    assert not server.refusals
    assert context is not None
    assert context.figures.last_prompt_tokens


def test_a_refused_attempt_is_followed_by_a_smaller_one() -> None:
    server = FakeProvider([FakeReply("done")], window_tokens=WINDOW_TOKENS)
    given = notes(LONG)
    with serve(server) as served:
        toy = Toy(served.url, window=8 * WINDOW_TOKENS)
        with toy.adapter.attempts() as attempts:
            answer, failed = asyncio.run(attempted(toy, attempts, ModelCall(messages=given, model="m")))
    assert answer["choices"][0]["message"]["content"] == "done"
    assert failed == server.refusals["overflow"] >= 1
    assert toy.sent[-1].tokens < toy.sent[0].tokens
    assert given == notes(LONG)


def test_an_error_that_less_text_cannot_mend_asks_for_no_other_attempt() -> None:
    server = FakeProvider([FakeReply(status=401)], window_tokens=WINDOW_TOKENS)
    with serve(server) as served:
        toy = Toy(served.url, window=WINDOW_TOKENS)
        with toy.adapter.attempts() as attempts, pytest.raises(httpx.HTTPStatusError):
            asyncio.run(attempted(toy, attempts, ModelCall(messages=notes(2), model="m")))
    assert len(toy.sent) == 1


def test_a_conversation_is_given_back_by_an_attempt_that_cannot_fit() -> None:
    toy = Toy("http://127.0.0.1:9", window=WINDOW_TOKENS)
    attempts = toy.adapter.new_attempts()
    with pytest.raises(DoesNotFit):
        asyncio.run(attempts.begin(ModelCall(messages=[Note("user", "word " * 9_000)], model="m", key="k")))
    assert toy.adapter.context("k") is not None


def test_a_conversation_is_given_back_when_its_attempts_are_over() -> None:
    toy = Toy("http://127.0.0.1:9")
    with toy.adapter.attempts() as attempts:
        asyncio.run(attempts.begin(ModelCall(messages=notes(2), model="m", window=WINDOW_TOKENS, key="k")))
        assert toy.adapter.context("k") is None
    assert toy.adapter.context("k") is not None
    assert asyncio.run(attempts.failed(ValueError())) is False
    assert TOY.dialect == "openai-chat"
