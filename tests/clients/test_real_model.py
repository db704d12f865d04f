"""Clients in front of the proxy, llama.cpp with a real model behind it: five windows without a refusal, on either side.

What the model says is never asserted: it is a small one, and no summary of it would be worth its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clients.proxied import WINDOWS, proxy_before
from tests.clients.relay import Relay
from tests.clients.running import Home
from tests.serving import serve

from foldline.providers.embedded import EmbeddedServer, weights

pytestmark = pytest.mark.clients

WINDOW_TOKENS = 512  # small, so that two slow cores get through five of it
TURNS = 30  # of about 100 tokens
PART_CHARS = 300


@contextmanager
def model_server() -> Iterator[tuple[str, str]]:
    """Its URL, and the key that it wants."""
    server = EmbeddedServer(weights(), window_tokens=WINDOW_TOKENS)
    try:
        yield asyncio.run(server.address()), server.api_key
    finally:
        server.close()


@pytest.mark.parametrize(
    ("library", "driver", "arguments"),
    [
        ("openai", "openai_plain", "streamed chat"),
        ("openai", "openai_plain", "whole responses"),
        ("anthropic", "anthropic_plain", "streamed"),
    ],
    ids=["chat", "responses", "anthropic"],
)
def test_a_real_model_is_never_asked_for_more_than_its_window(
    library: str, driver: str, arguments: str, tmp_path: Path
) -> None:
    with model_server() as (url, key):
        behind = Relay(url)
        with serve(behind) as inner, proxy_before(inner.url, "--no-summaries") as proxy:
            before = Relay(proxy)
            with serve(before) as outer:
                given = [str(TURNS), *arguments.split()]
                home = Home.inside(tmp_path)
                printed = home.drive(library, driver, outer.url, given, part_chars=PART_CHARS, key=key)
    assert f"{TURNS} answers" in printed
    assert [(one.status, one.error) for one in (*before.asked, *behind.asked) if one.status != 200] == []
    assert before.largest_tokens >= WINDOWS * WINDOW_TOKENS
    folds = before.asked[-1].answered["x-foldline-folds"]
    assert int(folds) > 0
    print(
        f"\n{library} {arguments}, real model: {len(before.asked)} requests up to {before.largest_tokens:,} tokens by "
        f"a rough count through a window of {WINDOW_TOKENS:,}; {folds} folds at the end"
    )
