"""A conversation that rests behind the proxy: folded just before the upstream's cache expires, where that pays."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.doors.proxy.proxies import HEADERS, ServedProxy, proxied, proxy_with
from tests.doors.proxy.proxies import Recording as Upstream
from tests.doors.proxy.test_ahead import Client, asks, soon
from tests.doors.proxy.test_continued_summaries import CHECKPOINT
from tests.serving import serve

from foldline.conversations.persistence import ConversationStore
from foldline.conversations.service import Conversations
from foldline.doors.proxy.ahead import SummariesAfterResponses
from foldline.doors.proxy.served_request import ServedRequest
from foldline.store.addresses import open_store
from foldline.testing import FakeProvider, FakeReply

WINDOW = 400_000
LINES = 300
REST_SECONDS = 0.6


def answer(body: Mapping[str, Any]) -> FakeReply | str:
    return CHECKPOINT if asks(body) else "Noted."


def upstream_of(script: Any = answer) -> Upstream:
    return Upstream(FakeProvider(script, window_tokens=WINDOW, keep=300))


def questions(upstream: Upstream) -> list[Any]:
    return [body for body in map(json.loads, upstream.bodies) if asks(body)]


@contextmanager
def resting(
    upstream: Upstream,
    *,
    rest_seconds: float = REST_SECONDS,
    store: Path | None = None,
    shared: bool = False,
    **more: Any,
) -> Iterator[tuple[ServedProxy, list[SummariesAfterResponses]]]:
    """A proxy whose conversations are folded after so many seconds, and what folds them."""
    made: list[SummariesAfterResponses] = []

    def after(*given: Any) -> SummariesAfterResponses:
        made.append(SummariesAfterResponses(*given, rest_seconds=lambda lifetime: rest_seconds, **more))
        return made[0]

    kept = None if store is None else ConversationStore(open_store(str(store)))
    make = partial(Conversations, max_bytes=10**9, store=kept, shared=shared)
    records: list[ServedRequest] = []
    with serve(upstream) as served, proxy_with(served.url, make, records, window=WINDOW, ahead=after) as proxy:
        yield proxy, made


def large(proxy: ServedProxy) -> Client:
    """A client whose conversation is worth a summary: the provider writes it to its cache anew once that is cold."""
    return Client(proxy.url, "anthropic", result_lines=LINES)


def talked(client: Client, steps: int = 25) -> None:
    for _ in range(steps):
        client.step()


def test_it_is_folded_with_the_key_of_its_client_and_the_next_request_is_small() -> None:
    upstream = upstream_of()
    with resting(upstream) as (proxy, _), large(proxy) as client:
        talked(client)
        whole = len(upstream.bodies[-1])
        assert not questions(upstream)
        assert soon(lambda: questions(upstream))
        place = next(n for n, body in enumerate(upstream.bodies) if asks(json.loads(body)))
        assert (b"x-api-key", HEADERS["x-api-key"].encode()) in upstream.headers[place]
        time.sleep(0.3)
        reply = client.step()
        assert int(reply.headers["x-foldline-folds"]) >= 1
        assert CHECKPOINT in upstream.bodies[-1].decode()
        assert len(upstream.bodies[-1]) < 0.7 * whole
        assert len(questions(upstream)) == 1


def test_one_that_goes_on_in_time_is_not_folded() -> None:
    upstream = upstream_of()
    with resting(upstream, rest_seconds=1.5) as (proxy, made), large(proxy) as client:
        for _ in range(25):
            client.step()
            time.sleep(0.1)
        assert not questions(upstream)
        assert made[0].resting == 1


def test_a_small_one_is_left_as_it_is() -> None:
    """The summary would cost more than the next request saves."""
    upstream = upstream_of()
    with resting(upstream, rest_seconds=0.1) as (proxy, made), Client(proxy.url, "anthropic") as client:
        talked(client, 2)
        assert soon(lambda: not made[0].resting)
        time.sleep(0.3)
        assert not questions(upstream)


def test_a_request_that_comes_meanwhile_does_not_wait_and_finds_all_in_order() -> None:
    gate, asked = threading.Event(), threading.Event()

    def slowly(body: Mapping[str, Any]) -> FakeReply | str:
        if not asks(body):
            return "Noted."
        asked.set()

        async def wait(number: int) -> None:
            while number == 0 and not gate.is_set():
                await asyncio.sleep(0.01)

        return FakeReply(text=CHECKPOINT, gate=wait)

    upstream = upstream_of(slowly)
    with resting(upstream) as (proxy, _), large(proxy) as client:
        talked(client)
        assert asked.wait(20)
        began = time.monotonic()
        assert not int(client.step().headers["x-foldline-folds"])
        assert time.monotonic() - began < 5
        gate.set()
        client.step()
        assert len(questions(upstream)) == 1


def test_a_key_that_refuses_is_asked_once_within_the_hour() -> None:
    def refused(body: Mapping[str, Any]) -> FakeReply | str:
        return FakeReply(status=401, message="invalid x-api-key") if asks(body) else "Noted."

    upstream = upstream_of(refused)
    with resting(upstream, rest_seconds=0.4) as (proxy, made), large(proxy) as client:
        talked(client)
        assert soon(lambda: any("writes no summary ahead" in line for line in proxy.lines))
        count = len(questions(upstream))
        client.step()
        assert soon(lambda: not made[0].resting)
        time.sleep(0.3)
        assert len(questions(upstream)) == count


def test_nothing_is_asked_once_the_proxy_has_stopped() -> None:
    upstream = upstream_of()
    with serve(upstream):
        with resting(upstream) as (proxy, made), large(proxy) as client:
            talked(client)
            assert made[0].resting == 1
        assert made[0].resting == 0
        time.sleep(2 * REST_SECONDS)
        assert not questions(upstream)


def test_nothing_is_kept_of_a_conversation_where_it_is_switched_off(tmp_path: Path) -> None:
    upstream = upstream_of()
    off = proxied(upstream, tmp_path, summaries=True, ahead=False, window=WINDOW)
    with off as proxy, large(proxy) as client:
        talked(client, 3)
    assert not questions(upstream)


def test_the_requests_that_are_kept_are_bounded_and_the_longest_rest_ends_first() -> None:
    upstream = upstream_of()
    with resting(upstream, rest_seconds=60, max_resting_bytes=30_000) as (proxy, made):
        for size in (10, 11, 12, 13, 14, 15):
            with Client(proxy.url, "anthropic", result_lines=size) as client:
                client.messages[0] = {"role": "user", "content": f"conversation {size} " * 500}
                client.step()
        assert 1 <= made[0].resting <= 3


def test_in_a_store_that_processes_share_nobody_knows_that_it_rests(tmp_path: Path) -> None:
    upstream = upstream_of()
    in_common = resting(upstream, rest_seconds=0.2, store=tmp_path, shared=True)
    with in_common as (proxy, made), large(proxy) as client:
        talked(client)
        assert made[0].resting == 0
        time.sleep(0.5)
        assert not questions(upstream)


def test_what_was_folded_while_it_rested_is_in_the_store(tmp_path: Path) -> None:
    upstream = upstream_of()
    with resting(upstream, store=tmp_path) as (proxy, _), large(proxy) as client:
        talked(client)
        assert soon(lambda: CHECKPOINT in "".join(log.read_text() for log in tmp_path.rglob("*.jsonl")))


class Faulty(Conversations):
    """Conversations with a fault in what runs beside the requests."""

    async def write_ahead(self, *given: Any, **more: Any) -> Any:
        raise KeyError("words of the user")


def test_a_fault_beside_the_requests_is_told_without_their_words() -> None:
    upstream = upstream_of()
    with serve(upstream) as served:
        make = partial(Faulty, max_bytes=10**9)
        after = partial(SummariesAfterResponses, rest_seconds=lambda lifetime: 0.1)
        with proxy_with(served.url, make, [], window=WINDOW, ahead=after) as proxy, large(proxy) as client:
            talked(client, 2)
            assert soon(lambda: any("no summary ahead, a fault of the proxy: KeyError" in line for line in proxy.lines))
            assert not any("words of the user" in line for line in proxy.lines)
            assert client.step().status_code == 200
