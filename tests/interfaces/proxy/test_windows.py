"""The window of a model: a setting, else what refusals taught, else what the upstream tells, else the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.serving import serve

from foldline.catalog.models import lookup
from foldline.interfaces.proxy.windows import Window, Windows, versioned
from foldline.testing import FakeProvider

KEY = [(b"authorization", b"Bearer sk-test"), (b"x-other", b"y")]


def windows_of(
    url: str,
    work: Callable[[Windows], Awaitable[Any]],
    *,
    setting: int | None = None,
    learned: dict[tuple[str, str], int] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Any:
    async def run() -> Any:
        windows = Windows(url, setting=setting, learned={} if learned is None else learned, clock=clock)
        try:
            return await work(windows)
        finally:
            await windows.aclose()

    return asyncio.run(run())


def test_the_order_is_setting_learned_asked_catalogue() -> None:
    with serve(FakeProvider(window_tokens=7_000, api_key="sk-test")) as served:

        async def of(windows: Windows) -> Window:
            return await windows.of("openai-chat", "gpt-4o", KEY)

        learned = {(served.url, "gpt-4o"): 6_000}
        assert windows_of(served.url, of, setting=5_000, learned=learned) == Window(5_000, "setting")
        assert windows_of(served.url, of, learned=learned) == Window(6_000, "learned")
        assert windows_of(f"{served.url}/v1", of, learned=learned) == Window(6_000, "learned")
        assert windows_of(served.url, of) == Window(7_000, "asked")


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_a_server_that_says_nothing_leaves_it_to_the_catalogue(dialect: str) -> None:
    async def of(windows: Windows) -> list[Window]:
        return [await windows.of(dialect, model, KEY) for model in ("gpt-4o", "model-of-nobody")]

    with serve(FakeProvider(tells_window=False)) as served:
        known, unknown = windows_of(served.url, of)
    assert known == Window(lookup("gpt-4o").window_tokens, "catalogue")
    assert unknown.source == "default"


def test_many_askers_ask_once_and_an_answer_holds_for_an_hour() -> None:
    fake = FakeProvider(window_tokens=7_000)
    now = [0.0]
    asked = []

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/props":
            asked.append(scope["path"])
        await fake(scope, receive, send)

    async def of(windows: Windows) -> list[int]:
        counts = []
        for seconds in (0.0, 3_000.0, 3_700.0):
            now[0] = seconds
            found = await asyncio.gather(*(windows.of("openai-chat", "m", KEY) for _ in range(20)))
            assert {window.tokens for window in found} == {7_000}
            counts.append(len(asked))
        return counts

    with serve(counting) as served:
        assert windows_of(served.url, of, clock=lambda: now[0]) == [1, 1, 2]


def test_one_client_that_leaves_does_not_keep_the_answer_from_the_others() -> None:
    async def of(windows: Windows) -> int:
        first = asyncio.create_task(windows.of("openai-chat", "m", KEY))
        second = asyncio.create_task(windows.of("openai-chat", "m", KEY))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).tokens

    with serve(FakeProvider(window_tokens=7_000)) as served:
        assert windows_of(served.url, of) == 7_000


def test_the_large_window_of_a_beta_counts() -> None:
    async def of(windows: Windows) -> Window:
        return await windows.of("anthropic", "claude-sonnet-4-5", [(b"anthropic-beta", b"a,context-1m-2025-08-07")])

    with serve(FakeProvider(tells_window=False)) as served:
        assert windows_of(served.url, of) == Window(1_000_000, "catalogue")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://api.example.com", "https://api.example.com/v1"),
        ("https://api.example.com/", "https://api.example.com/v1"),
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://api.example.com/api/v1/", "https://api.example.com/api/v1"),
    ],
)
def test_an_address_without_a_path_gets_a_version(given: str, expected: str) -> None:
    assert versioned(given) == expected
