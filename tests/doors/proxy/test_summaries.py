"""Summaries come from the upstream with the client's own key, and each is requested once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.serving import serve

from foldline import ProviderError
from foldline.doors.proxy.summaries import SummaryClient
from foldline.engine.drivers import Completion, SummarizeWith
from foldline.errors import InvalidInput
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
        summaries = SummaryClient(url, model=model)
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


def test_another_prompt_cap_model_or_dialect_is_another_summary() -> None:
    fake = FakeProvider(lambda body: FakeReply(f"Summary of {body['max_tokens']}."))

    async def run(url: str) -> list[Completion]:
        summaries, loop = SummaryClient(url, model=None), asyncio.get_running_loop()

        async def of(dialect: str, model: str, prompt: list[dict[str, str]], cap: int) -> Completion:
            summarise = summaries.for_request(dialect, model, KEYS[dialect], loop)
            answer = await asyncio.to_thread(summarise, prompt, cap)
            assert isinstance(answer, Completion)
            return answer

        try:
            asks = [
                ("openai-chat", "m", PROMPT, 200),
                ("openai-chat", "m", PROMPT, 100),
                ("openai-chat", "n", PROMPT, 200),
                ("openai-chat", "m", PROMPT[1:], 200),
                ("anthropic", "m", PROMPT, 200),
            ]
            return [await of(*ask) for ask in [*asks, *asks]]
        finally:
            await summaries.aclose()

    with serve(fake) as served:
        found = asyncio.run(run(served.url))
    assert found[:5] == found[5:]
    assert [answer.text for answer in found[:2]] == ["Summary of 200.", "Summary of 100."]
    assert fake.served == 5


def test_of_many_the_oldest_are_forgotten() -> None:
    fake = FakeProvider("Short.")

    async def run(url: str) -> None:
        summaries, loop = SummaryClient(url, model=None, max_cached=3), asyncio.get_running_loop()
        summarise = summaries.for_request("openai-chat", "m", KEYS["openai-chat"], loop)

        def all_of_them() -> None:
            for cap in [1, 2, 3, 1, 4, 1, 3, 2]:  # the fourth takes the place of the second, which is asked for again
                summarise(PROMPT, cap)

        await asyncio.to_thread(all_of_them)
        await summaries.aclose()

    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert [request.body["max_tokens"] for request in fake.requests] == [1, 2, 3, 4, 2]


def test_a_failure_that_several_wait_for_is_asked_for_again_by_the_next() -> None:
    fake = FakeProvider([FakeReply(status=401), FakeReply("Short.")], repeat=True)

    async def run(url: str) -> list[object]:
        summaries, loop = SummaryClient(url, model=None), asyncio.get_running_loop()
        summarise = summaries.for_request("openai-chat", "m", KEYS["openai-chat"], loop)

        def twice() -> list[object]:
            found: list[object] = []
            for _ in range(2):
                try:
                    found.append(summarise(PROMPT, 200))
                except ProviderError as error:
                    found.append(error.failure.kind)
            return found

        try:
            return await asyncio.to_thread(twice)
        finally:
            await summaries.aclose()

    with serve(fake) as served:
        for _ in range(20):  # the second follows so closely that the first may not have been put away
            assert asyncio.run(run(served.url))[1] == Completion("Short.")


def test_a_thread_does_not_wait_for_ever_when_all_is_closed() -> None:
    gate = asyncio.Event()
    fake = FakeProvider(FakeReply("Never.", gate=gate))

    async def run(url: str) -> tuple[object, object]:
        summaries, loop = SummaryClient(url, model=None), asyncio.get_running_loop()
        summarise = summaries.for_request("openai-chat", "m", KEYS["openai-chat"], loop)
        with ThreadPoolExecutor(1) as threads:
            waits = loop.run_in_executor(threads, summarise, PROMPT, 200)
            async with asyncio.timeout(120):
                while not fake.requests:
                    await asyncio.sleep(0.005)
            await summaries.aclose()
            found = await asyncio.gather(waits, return_exceptions=True)
            later = await asyncio.gather(loop.run_in_executor(threads, summarise, PROMPT, 200), return_exceptions=True)
        return found[0], later[0]

    with serve(fake) as served:
        found, later = asyncio.run(run(served.url))
        served.set(gate)
    assert isinstance(found, InvalidInput)  # a context takes it for a summary that failed
    assert isinstance(later, InvalidInput)


def test_on_its_own_loop_and_after_it_has_ended_it_raises_and_does_not_hang() -> None:
    async def run() -> SummarizeWith:
        summaries = SummaryClient("http://127.0.0.1:1", model=None)
        summarise = summaries.for_request("openai-chat", "m", [], asyncio.get_running_loop())
        with pytest.raises(InvalidInput, match="in a thread"):
            summarise(PROMPT, 200)
        await summaries.aclose()
        others = SummaryClient("http://127.0.0.1:1", model=None)
        return others.for_request("openai-chat", "m", [], asyncio.get_running_loop())

    summarise = asyncio.run(run())
    with pytest.raises(InvalidInput, match="loop has ended"):
        summarise(PROMPT, 200)


@pytest.mark.parametrize(
    ("dialect", "header", "value"),
    [
        ("openai-chat", b"authorization", b"Bearer sk-1234"),
        ("openai-responses", b"api-key", b"sk-1234"),
        ("anthropic", b"x-api-key", b"sk-1234"),
        ("anthropic", b"authorization", b"Bearer sk-1234"),
    ],
)
def test_keys_of_clients_are_sent_as_they_came_and_stand_in_no_error(dialect: str, header: bytes, value: bytes) -> None:
    fake = FakeProvider(FakeReply(status=401, message="wrong key: sk-1234"))
    given: list[dict[str, str]] = []

    async def keeping(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given.append({name.decode(): text.decode() for name, text in scope["headers"]})
        await fake(scope, receive, send)

    async def run(url: str) -> object:
        summaries, loop = SummaryClient(url, model=None), asyncio.get_running_loop()
        summarise = summaries.for_request(dialect, "m", [(header, value)], loop)
        try:
            return (await asyncio.gather(asyncio.to_thread(summarise, PROMPT, 200), return_exceptions=True))[0]
        finally:
            await summaries.aclose()

    with serve(keeping) as served:
        found = asyncio.run(run(served.url))
    assert isinstance(found, ProviderError)
    assert "sk-1234" not in str(found)
    assert "wrong key" in str(found)
    assert given[0][header.decode()] == value.decode()
    assert len(given[0].keys() & {"authorization", "x-api-key", "api-key"}) == 1
