"""Compressed request bodies: read, bounded, and sent on as they came if nothing changes."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, PATHS, Fixed, Recording, messages_in, proxied, request_of

from foldline.doors.proxy.bodies import TooLarge, inflate
from foldline.errors import InvalidInput
from foldline.testing import FakeProvider

WINDOW = 3_000
CODED = (b"content-encoding", b"gzip")


def bare(data: bytes) -> bytes:
    """Deflate without the frame that its name promises, as some clients send it."""
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


codings = pytest.mark.parametrize(
    ("coding", "coded"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare)],
)


def plain(body: bytes, coding: str, most_bytes: int = 10**6) -> bytes:
    return asyncio.run(inflate(body, coding, most_bytes))


@codings
@pytest.mark.parametrize("size", [0, 1, 100, 300_000])
def test_what_was_coded_is_read(coding: str, coded: Callable[[bytes], bytes], size: int) -> None:
    data = (b"%d " * size % tuple(range(size)))[:size]
    assert plain(coded(data), coding) == data


def test_members_in_a_row_are_one_body() -> None:
    assert plain(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip") == b"one two"


@pytest.mark.parametrize(
    "body", [b"", b"\x1f", b"nonsense", gzip.compress(b"a" * 99, mtime=0)[:-1], gzip.compress(b"a", mtime=0) + b"\x1f"]
)
def test_what_is_not_whole_or_not_in_its_coding_is_named(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="gzip"):
        plain(body, "gzip")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "gzip, gzip"])
def test_other_codings_are_named(coding: str) -> None:
    with pytest.raises(InvalidInput, match="content-encoding"):
        plain(b"x", coding)


@codings
def test_of_a_bomb_no_more_is_made_than_may_be(coding: str, coded: Callable[[bytes], bytes]) -> None:
    bomb = coded(bytes(40_000_000))
    assert len(bomb) < 60_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            plain(bomb, coding)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_limit_is_what_it_says() -> None:
    assert len(plain(gzip.compress(bytes(1_000)), "gzip", 1_000)) == 1_000
    with pytest.raises(TooLarge):
        plain(gzip.compress(bytes(1_001)), "gzip", 1_000)


# --- through the proxy -----------------------------------------------------------------------------------------------


def history(turns: int) -> list[dict[str, str]]:
    """A conversation of some turns."""
    said = [
        (
            {"role": "user", "content": f"Question {n}: " + "words of a long story " * 60},
            {"role": "assistant", "content": "ok"},
        )
        for n in range(turns)
    ]
    return [message for turn in said for message in turn][:-1]


@codings
@pytest.mark.parametrize("dialect", list(PATHS))
def test_a_request_that_fits_goes_on_as_it_was_coded(
    dialect: str, coding: str, coded: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    upstream = Recording(Fixed((b"{}",), ((b"content-type", b"application/json"),)))
    sent = coded(json.dumps(request_of(dialect, history(2))).encode())
    with proxied(upstream, tmp_path, window=WINDOW) as proxy:
        answer = httpx.post(proxy.url + PATHS[dialect], content=sent, headers={**HEADERS, "content-encoding": coding})
    assert upstream.bodies == [sent]
    assert (b"content-encoding", coding.encode()) in upstream.headers[0]
    assert "x-foldline-warning" not in answer.headers
    assert 0 < int(answer.headers["x-foldline-tokens"]) < WINDOW


@pytest.mark.parametrize("dialect", list(PATHS))
def test_a_request_that_is_folded_goes_on_in_plain_bytes(dialect: str, tmp_path: Path) -> None:
    fake = FakeProvider("ok", window_tokens=WINDOW)
    upstream = Recording(fake)
    sent = gzip.compress(json.dumps(request_of(dialect, history(20))).encode())
    with proxied(upstream, tmp_path) as proxy:
        answer = httpx.post(proxy.url + PATHS[dialect], content=sent, headers={**HEADERS, "content-encoding": "gzip"})
    assert (answer.status_code, fake.served) == (200, 1)
    assert int(answer.headers["x-foldline-folds"]) > 0
    assert len(messages_in(dialect, upstream.bodies[-1])) < 39
    assert CODED not in upstream.headers[-1]
    assert (b"content-length", str(len(upstream.bodies[-1])).encode()) in upstream.headers[-1]


@pytest.mark.parametrize(
    ("coding", "body"), [("br", b"\x0b\x02\x80{}\x03"), ("zstd", b"(\xb5/\xfd"), ("gzip", b"nonsense")]
)
def test_what_cannot_be_read_goes_on_as_it_came_with_a_warning(coding: str, body: bytes, tmp_path: Path) -> None:
    upstream = Recording(Fixed((b"{}",)))
    with proxied(upstream, tmp_path) as proxy:
        answer = httpx.post(f"{proxy.url}/v1/messages", content=body, headers={"content-encoding": coding})
    assert upstream.bodies == [body]
    assert (b"content-encoding", coding.encode()) in upstream.headers[0]
    assert coding in answer.headers["x-foldline-warning"]


@pytest.mark.parametrize("size", [3_000_000, 30_000_000])
def test_the_largest_request_is_measured_in_plain_bytes(size: int, tmp_path: Path) -> None:
    upstream = Recording(Fixed((b"{}",)))
    with proxied(upstream, tmp_path, max_request_bytes=2_000_000) as proxy:
        answer = httpx.post(
            f"{proxy.url}/v1/messages", content=gzip.compress(bytes(size), 1), headers={"content-encoding": "gzip"}
        )
    assert (answer.status_code, answer.json()["error"]["type"], upstream.bodies) == (413, "request_too_large", [])
