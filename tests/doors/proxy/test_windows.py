"""The window of a model: a setting, else a refusal, else the upstream's report, else the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.serving import serve

from foldline.catalog.models import lookup
from foldline.doors.proxy.windows import ModelWindow, ModelWindows, key_headers, versioned
from foldline.testing import FakeProvider

KEY = [(b"authorization", b"Bearer sk-test"), (b"x-other", b"y")]


def windows_of(
    url: str,
    work: Callable[[ModelWindows], Awaitable[Any]],
    *,
    setting: int | None = None,
    learned: dict[tuple[str, str, bytes], int] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Any:
    async def run() -> Any:
        windows = ModelWindows(url, setting=setting, learned={} if learned is None else learned, clock=clock)
        try:
            return await work(windows)
        finally:
            await windows.aclose()

    return asyncio.run(run())


def test_the_order_is_setting_learned_asked_catalogue() -> None:
    with serve(FakeProvider(window_tokens=7_000, api_key="sk-test")) as served:

        async def of(windows: ModelWindows) -> ModelWindow:
            return await windows.of("openai-chat", "gpt-4o", KEY)

        learned = {(served.url, "gpt-4o (told 7000)", b""): 6_000}
        assert windows_of(served.url, of, setting=5_000, learned=learned) == ModelWindow(5_000, "setting")
        assert windows_of(served.url, of, learned=learned) == ModelWindow(6_000, "learned")
        assert windows_of(f"{served.url}/v1", of, learned=learned) == ModelWindow(6_000, "learned")
        assert windows_of(served.url, of) == ModelWindow(7_000, "asked")


def test_what_a_refusal_taught_holds_as_long_as_the_server_tells_the_same() -> None:
    upstream, learned, now = Upstream(FakeProvider(tells_window=False)), dict[tuple[str, str, bytes], int](), [0.0]

    async def of(windows: ModelWindows) -> None:
        async def learn(tokens: int) -> None:
            window = await windows.of("openai-chat", "m", KEY, anew=True)
            learned[windows.endpoint, window.learned_as, b""] = tokens

        async def current() -> ModelWindow:
            return await windows.of("openai-chat", "m", KEY, anew=True)

        await learn(6_000)
        assert await current() == ModelWindow(6_000, "learned")
        upstream.fake = fake(5_000)  # it tells now, and counts for itself
        assert await current() == ModelWindow(5_000, "asked")
        upstream.fake = fake(9_000)
        assert await current() == ModelWindow(9_000, "asked")
        await learn(8_000)
        assert await current() == ModelWindow(8_000, "learned")
        upstream.fake = fake(16_000)  # started anew, larger
        assert await windows.of("openai-chat", "m", KEY) == ModelWindow(8_000, "learned")  # known for an hour
        now[0] = 3_601.0
        await until(windows, 16_000)

    with serve(upstream) as served:
        windows_of(served.url, of, learned=learned, clock=lambda: now[0])


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_a_server_that_says_nothing_leaves_it_to_the_catalogue(dialect: str) -> None:
    async def of(windows: ModelWindows) -> list[ModelWindow]:
        return [await windows.of(dialect, model, KEY) for model in ("gpt-4o", "model-of-nobody")]

    with serve(FakeProvider(tells_window=False)) as served:
        known, unknown = windows_of(served.url, of)
    assert known == ModelWindow(lookup("gpt-4o").window_tokens, "catalogue")
    assert unknown == ModelWindow(8_192, "default")


@dataclass
class Upstream:
    """A server that can be restarted with another window; records who queried it."""

    fake: FakeProvider
    asked: list[dict[str, str]] = field(default_factory=list)
    cookie: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] in ("/props", "/v1/models"):
            if scope["path"] == "/props":
                self.asked.append({name.decode(): value.decode() for name, value in scope["headers"]})

            async def sending(message: Any) -> None:
                if self.cookie and message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"set-cookie", self.cookie.encode())]
                await send(message)

            await self.fake(scope, receive, sending)
            return
        await self.fake(scope, receive, send)


def fake(window_tokens: int) -> FakeProvider:
    return FakeProvider(window_tokens=window_tokens)


async def until(windows: ModelWindows, tokens: int) -> None:
    """Ask until the answer is this one."""
    async with asyncio.timeout(120):
        while (await windows.of("openai-chat", "m", KEY)).tokens != tokens:
            await asyncio.sleep(0.005)


def test_many_askers_ask_once_and_an_answer_holds_for_an_hour() -> None:
    upstream, now = Upstream(fake(7_000)), [0.0]

    async def of(windows: ModelWindows) -> None:
        found = await asyncio.gather(*(windows.of("openai-chat", "m", KEY) for _ in range(20)))
        assert set(found) == {ModelWindow(7_000, "asked")}
        upstream.fake = fake(5_000)  # started anew
        now[0] = 3_599.0
        assert await windows.of("openai-chat", "m", KEY) == ModelWindow(7_000, "asked")
        assert len(upstream.asked) == 1
        now[0] = 3_601.0  # nobody waits: what is known serves until the new answer is there
        found = await asyncio.gather(*(windows.of("openai-chat", "m", KEY) for _ in range(20)))
        assert set(found) == {ModelWindow(7_000, "asked")}
        await until(windows, 5_000)
        assert len(upstream.asked) == 2

    with serve(upstream) as served:
        windows_of(served.url, of, clock=lambda: now[0])


def test_a_server_that_does_not_tell_is_asked_again_after_a_minute() -> None:
    upstream, now = Upstream(FakeProvider(tells_window=False)), [0.0]

    async def of(windows: ModelWindows) -> None:
        assert (await windows.of("openai-chat", "m", KEY)).source == "default"
        upstream.fake = fake(5_000)
        now[0] = 59.0
        assert (await windows.of("openai-chat", "m", KEY)).source == "default"
        now[0] = 61.0
        await until(windows, 5_000)
        upstream.fake, now[0] = FakeProvider(tells_window=False), 4_000.0  # what was told once is not forgotten
        assert await windows.of("openai-chat", "m", KEY) == ModelWindow(5_000, "asked")
        async with asyncio.timeout(120):
            while len(upstream.asked) < 4:  # asked for the fourth time, so the third answer has come
                assert await windows.of("openai-chat", "m", KEY) == ModelWindow(5_000, "asked")
                now[0] += 61.0
                await asyncio.sleep(0.005)
        assert await windows.of("openai-chat", "m", KEY) == ModelWindow(5_000, "asked")

    with serve(upstream) as served:
        windows_of(served.url, of, clock=lambda: now[0])


def test_it_is_asked_with_the_clients_own_key_and_with_nothing_of_another_client() -> None:
    upstream = Upstream(fake(7_000), cookie="session=of-the-first; Path=/")

    async def of(windows: ModelWindows) -> None:
        await windows.of("openai-chat", "m", iter([(b"Authorization", b"Bearer one"), (b"cookie", b"a=b")]))
        await windows.of("openai-chat", "n", iter([(b"authorization", b"Bearer two")]))

    with serve(upstream) as served:
        windows_of(served.url, of)
    assert [given["authorization"] for given in upstream.asked] == ["Bearer one", "Bearer two"]
    assert not any("cookie" in given for given in upstream.asked)


def test_a_key_that_no_header_can_carry_and_a_name_without_end_ask_nobody() -> None:
    upstream = Upstream(fake(7_000))

    async def of(windows: ModelWindows) -> list[ModelWindow]:
        odd = await windows.of("openai-chat", "gpt-4o", [(b"authorization", "Bearer ключ".encode())])
        return [odd, await windows.of("openai-chat", "x" * 10_000, KEY)]

    with serve(upstream) as served:
        assert [window.source for window in windows_of(served.url, of)] == ["catalogue", "default"]
    assert upstream.asked == []


def test_closing_does_not_wait_for_a_server_that_does_not_answer() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.Event().wait()

    async def of(windows: ModelWindows) -> asyncio.Task[ModelWindow]:
        asking = asyncio.create_task(windows.of("openai-chat", "m", KEY))
        await asyncio.sleep(0)
        await windows.aclose()
        await asyncio.wait([asking])
        return asking

    with serve(silent) as served:
        assert windows_of(served.url, of).cancelled()


def test_one_client_that_leaves_does_not_keep_the_answer_from_the_others() -> None:
    async def of(windows: ModelWindows) -> int:
        first = asyncio.create_task(windows.of("openai-chat", "m", KEY))
        second = asyncio.create_task(windows.of("openai-chat", "m", KEY))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).tokens

    with serve(FakeProvider(window_tokens=7_000)) as served:
        assert windows_of(served.url, of) == 7_000


BETA = [(b"anthropic-beta", b"a,context-1m-2025-08-07")]


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (FakeProvider(tells_window=False), ModelWindow(1_000_000, "catalogue")),
        (fake(32_000), ModelWindow(32_000, "asked")),  # a server of one's own knows nothing of betas
    ],
)
def test_the_large_window_of_a_beta_counts_where_no_server_tells_its_own(server: Any, expected: ModelWindow) -> None:
    async def of(windows: ModelWindows) -> ModelWindow:
        return await windows.of("anthropic", "claude-sonnet-4-5", iter(BETA))

    with serve(server) as served:
        assert windows_of(served.url, of) == expected


def test_what_was_learned_without_a_beta_says_nothing_of_the_window_with_it() -> None:
    async def of(windows: ModelWindows) -> list[ModelWindow]:
        asked = [(BETA, "claude-sonnet-4-5"), (KEY, "claude-sonnet-4-5"), (BETA, "claude-opus-4-1")]
        return [await windows.of("anthropic", model, headers) for headers, model in asked]

    with serve(FakeProvider(tells_window=False)) as served:
        learned = {
            (served.url, "claude-sonnet-4-5", b""): 200_000,
            (served.url, "claude-opus-4-1 (context-1m)", b""): 150_000,
        }
        with_it, without, of_its_own = windows_of(served.url, of, learned=learned)
    assert with_it == ModelWindow(1_000_000, "catalogue")
    assert without == ModelWindow(200_000, "learned")
    assert of_its_own == ModelWindow(150_000, "learned")


def test_of_the_betas_only_the_one_of_a_sign_in_says_who_asks() -> None:
    headers = [
        (b"anthropic-beta", b"context-1m-2025-08-07, oauth-2025-04-20"),
        (b"x-api-key", b"k"),
        (b"x-other", b"y"),
    ]
    assert key_headers(headers) == {"anthropic-beta": "oauth-2025-04-20", "x-api-key": "k"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://api.example.com", "https://api.example.com/v1"),
        ("https://api.example.com/", "https://api.example.com/v1"),
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://api.example.com/api/v1/", "https://api.example.com/api/v1"),
        ("https://api.example.com/api", "https://api.example.com/api/v1"),
        ("https://api.example.com/v1beta/openai", "https://api.example.com/v1beta/openai"),
        ("http://v1.example.com:8080", "http://v1.example.com:8080/v1"),
    ],
)
def test_an_address_without_a_version_gets_one(given: str, expected: str) -> None:
    assert versioned(given) == expected
