"""Summaries come from the upstream with the client's own key, each asked for once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.serving import serve

from foldline import ProviderError
from foldline.drive import Completion
from foldline.interfaces.proxy.summaries import Summaries
from foldline.testing import FakeProvider, FakeReply

PROMPT = [{"role": "system", "content": "Sum up."}, {"role": "user", "content": "A long story."}]
KEYS = {
    "openai-chat": [(b"authorization", b"Bearer sk-1234")],
    "openai-responses": [(b"authorization", b"Bearer sk-1234")],
    "anthropic": [(b"x-api-key", b"sk-1234"), (b"anthropic-version", b"2023-06-01")],
}


def asked(url: str, dialect: str, times: int, *, model: str | None = None) -> list[object]:
    """What several threads get that ask for the same summary at once."""

    async def run() -> list[object]:
        summaries = Summaries(url, model=model)
        loop = asyncio.get_running_loop()
        summarise = summaries.for_request(dialect, "small-model", KEYS[dialect], loop)
        with ThreadPoolExecutor(8) as threads:
            waits = [loop.run_in_executor(threads, summarise, PROMPT, 200) for _ in range(times)]
            found = await asyncio.gather(*waits, return_exceptions=True)
        await summaries.aclose()
        return list(found)

    return asyncio.run(run())


@pytest.mark.parametrize("dialect", list(KEYS))
def test_many_threads_that_ask_the_same_cost_one_request_with_the_clients_key(dialect: str) -> None:
    fake = FakeProvider("The story in short.", api_key="sk-1234")
    with serve(fake) as served:
        found = asked(served.url, dialect, 8)
    assert found == [Completion("The story in short.", "stop")] * 8
    assert (fake.served, fake.requests[0].dialect, fake.requests[0].body["model"]) == (1, dialect, "small-model")


def test_another_model_writes_them_when_one_is_named() -> None:
    fake = FakeProvider("Short.")
    with serve(fake) as served:
        asked(served.url, "openai-chat", 1, model="cheap-model")
    assert fake.requests[0].body["model"] == "cheap-model"


def test_a_failure_is_raised_and_not_remembered() -> None:
    fake = FakeProvider([FakeReply(status=401), FakeReply("Short.")])
    with serve(fake) as served:
        first = asked(served.url, "openai-chat", 1)
        second = asked(served.url, "openai-chat", 1)
    assert isinstance(first[0], ProviderError)
    assert second == [Completion("Short.", "stop")]
