"""A request that is sure to pass is sent before it is recorded, and nothing is lost when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, PATHS, Recording, proxy_with, request_of
from tests.serving import serve

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.service import Conversations
from foldline.doors.proxy.served_request import ServedRequest
from foldline.doors.proxy.upstream import Upstream, UpstreamFault, UpstreamResponse, send_early
from foldline.testing import FakeProvider

LONG_SECONDS = 120
dialects = pytest.mark.parametrize("dialect", list(PATHS))


@dialects
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_reaches_the_upstream_before_it_is_taken_up(dialect: str, stream: bool) -> None:
    upstream, records = Recording(FakeProvider("ok")), list[ServedRequest]()
    seen: list[int] = []

    class Late(Conversations):
        async def plan(self, *given: Any, **named: Any) -> PlannedRequest:
            async with asyncio.timeout(LONG_SECONDS):
                while not upstream.bodies:
                    await asyncio.sleep(0.001)
            seen.append(len(upstream.bodies))
            return await super().plan(*given, **named)

    body = request_of(dialect, [{"role": "user", "content": "Hello"}], stream=stream)
    with (
        serve(upstream) as served,
        proxy_with(served.url, lambda under: Late(under, max_bytes=2**20), records) as proxy,
    ):
        answer = httpx.post(proxy.url + PATHS[dialect], json=body, headers=HEADERS)
    assert (answer.status_code, seen) == (200, [1])
    assert answer.headers["x-foldline-session"]
    assert int(answer.headers["x-foldline-tokens"]) > 0
    assert [(one.outcome, one.faulty) for one in records] == [("passed", False)]


@dialects
def test_a_fault_before_it_goes_out_costs_no_request_either(dialect: str) -> None:
    class Broken(Conversations):
        def passes_unchanged(self, *given: Any) -> bool:
            raise RuntimeError("a fault that nobody foresaw")

    records = list[ServedRequest]()
    body = request_of(dialect, [{"role": "user", "content": "Hello"}])
    with (
        serve(FakeProvider("ok")) as served,
        proxy_with(served.url, lambda under: Broken(under, max_bytes=2**20), records) as proxy,
    ):
        answer = httpx.post(proxy.url + PATHS[dialect], json=body, headers=HEADERS)
    assert answer.status_code == 200
    assert [(one.outcome, one.faulty) for one in records] == [("open", True)]


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_what_cannot_be_taken_up_has_gone_out_as_it_came(dialect: str) -> None:
    records = list[ServedRequest]()
    body = request_of(dialect, [{"content": "nobody said this"}])
    upstream = Recording(FakeProvider("ok"))
    with (
        serve(upstream) as served,
        proxy_with(served.url, lambda under: Conversations(under, max_bytes=2**20), records) as proxy,
    ):
        answer = httpx.post(proxy.url + PATHS[dialect], json=body, headers=HEADERS)
    assert answer.status_code == 400, "the upstream says what is wrong with it"
    assert len(upstream.bodies) == 1
    assert "passed on as it came" in answer.headers["x-foldline-warning"]


# --- sending, and working meanwhile ----------------------------------------------------------------------------------


async def _endless(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a piece", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


def test_work_begins_once_something_has_gone_out_and_not_before() -> None:
    async def run() -> list[str]:
        course: list[str] = []

        async def send(out: Callable[[], None]) -> Any:
            await asyncio.sleep(0)
            course.append("sent")
            out()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            course.append("answered")
            return "the answer"

        async def work() -> None:
            course.append("worked")

        course.append(str(await send_early(send, work)))
        return course

    assert asyncio.run(run()) == ["sent", "worked", "answered", "the answer"]


def test_the_work_is_done_though_nothing_could_be_sent() -> None:
    async def run() -> None:
        worked = asyncio.Event()

        async def send(out: Callable[[], None]) -> Any:
            raise UpstreamFault("connect", "there is nobody")

        async def work() -> None:
            worked.set()

        with pytest.raises(UpstreamFault, match="nobody"):
            await send_early(send, work)
        assert worked.is_set()

    asyncio.run(run())


def test_a_client_that_leaves_meanwhile_ends_the_request() -> None:
    async def run() -> None:
        under_way, given_up = asyncio.Event(), asyncio.Event()

        async def send(out: Callable[[], None]) -> Any:
            try:
                out()
                await asyncio.Event().wait()
            finally:
                given_up.set()

        async def work() -> None:
            under_way.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(send_early(send, work))
        await under_way.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert given_up.is_set()

    asyncio.run(run())


def test_an_answer_that_comes_when_nobody_can_wait_for_it_is_let_go_of() -> None:
    """A second cancellation, as at the end of a server, while the first is still seen to."""

    async def run(url: str) -> None:
        async with Upstream(url) as upstream:
            under_way, ending = asyncio.Event(), asyncio.Event()
            answers: list[UpstreamResponse] = []

            async def send(out: Callable[[], None]) -> UpstreamResponse:
                answers.append(await upstream.send("POST", "/v1/messages", [], b"{}"))
                out()
                under_way.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ending.set()
                    await asyncio.sleep(0.05)
                return answers[0]

            async def work() -> None:
                await asyncio.Event().wait()

            task = asyncio.create_task(send_early(send, work))
            await under_way.wait()
            task.cancel()
            await ending.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(LONG_SECONDS):
                while True:
                    try:
                        await answers[0].piece()
                    except UpstreamFault:
                        return

    with serve(_endless) as served:
        asyncio.run(run(served.url))


def test_an_answer_that_nobody_gets_is_closed() -> None:
    async def run(url: str) -> None:
        async with Upstream(url) as upstream:
            answers: list[UpstreamResponse] = []
            answered = asyncio.Event()

            async def send(out: Callable[[], None]) -> UpstreamResponse:
                answers.append(await upstream.send("POST", "/v1/messages", [], b"{}", on_sent=out))
                answered.set()
                return answers[0]

            async def work() -> None:
                await answered.wait()
                raise RuntimeError("a fault")

            with pytest.raises(RuntimeError, match="a fault"):
                await send_early(send, work)
            with pytest.raises(UpstreamFault):
                await answers[0].piece()

    with serve(_endless) as served:
        asyncio.run(run(served.url))


def test_an_upstream_says_when_a_request_goes_out() -> None:
    async def run(url: str) -> list[bool]:
        heard = list[bool]()
        async with Upstream(url) as upstream:
            for body in (b"{}", b"x" * 3_000_000, b""):
                out = asyncio.Event()
                answer = await upstream.send("POST", "/v1/messages", [], body, on_sent=out.set)
                await answer.read(1_000)
                await answer.close()
                heard.append(out.is_set())
        return heard

    with serve(FakeProvider("ok")) as served:
        assert asyncio.run(run(served.url)) == [True, True, True]
