"""Summaries that the proxy writes after a response: their fold waits for nobody, a key that refuses is left alone."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, PATHS, Recording, proxied
from tests.doors.proxy.test_continued_summaries import CHECKPOINT, LIST, TOOLS, is_question, marked

from foldline.catalog.models import lookup
from foldline.catalog.prices import request_price
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.scripted_model import session

dialects = pytest.mark.parametrize("dialect", list(PATHS))
ROUNDS = 30


def asks(body: Mapping[str, Any]) -> bool:
    return is_question(body) or "You write the checkpoint" in json.dumps(body)


class Client:
    """A client that resends all it has, two messages more each time."""

    def __init__(self, url: str, dialect: str, *, result_lines: int = 110) -> None:
        self.url, self.dialect = url, dialect
        self.messages = session(ROUNDS, result="This line of the file is in order. " * result_lines, dialect=dialect)
        self.count = 1
        self.http = httpx.Client(headers=HEADERS, timeout=60)

    def step(self) -> httpx.Response:
        sent = [dict(wire) for wire in self.messages[: self.count]]
        if self.dialect == "anthropic":
            sent[-1] = marked(sent[-1])
        body: dict[str, Any] = {"model": "some-model", "tools": TOOLS[self.dialect], LIST[self.dialect]: sent}
        if self.dialect == "anthropic":
            body["max_tokens"] = 300
        reply = self.http.post(self.url + PATHS[self.dialect], json=body)
        assert reply.status_code == 200, reply.text
        self.count += 2
        return reply

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    @property
    def done(self) -> bool:
        return self.count > len(self.messages)


def soon(holds: Any) -> bool:
    """Whether something holds before long."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return False


@dialects
def test_the_fold_is_ready_before_the_request_that_needs_it(dialect: str, tmp_path: Path) -> None:
    """The model is asked after a response, in the client's own request; the fold itself asks nobody."""
    upstream = Recording(
        FakeProvider(lambda body: CHECKPOINT if asks(body) else "Noted.", window_tokens=20_000, keep=200)
    )
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=True, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, dialect) as client,
    ):
        folded = asked_at = 0
        while not client.done:
            before = len(upstream.bodies)
            reply = client.step()
            asked_meanwhile = [body for body in map(json.loads, upstream.bodies[before:]) if asks(body)]
            if int(reply.headers["x-foldline-folds"]) and not folded:
                folded = client.count
                assert CHECKPOINT in upstream.bodies[-1].decode()
                assert asked_at and not asked_meanwhile
                break
            if not asked_at and any(asks(json.loads(body)) for body in upstream.bodies):
                asked_at = client.count
            time.sleep(0.1)
        assert folded > asked_at > 0
        question = next(body for body in map(json.loads, upstream.bodies) if asks(body))
        assert is_question(question)


@dialects
def test_a_request_waits_for_its_summary_only_where_it_would_not_fit(dialect: str, tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()

    def answer(body: Mapping[str, Any]) -> FakeReply | str:
        if not asks(body):
            return "Noted."
        asked.set()

        async def slow(number: int) -> None:
            while number == 0 and not gate.is_set():
                await asyncio.sleep(0.01)

        return FakeReply(text=CHECKPOINT, gate=slow)

    upstream = Recording(FakeProvider(answer, window_tokens=20_000, keep=300))
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=True, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, dialect) as client,
    ):
        while not asked.is_set():
            client.step()
            asked.wait(0.1)
        passed = 0
        replies: list[httpx.Response] = []
        while passed < 20:
            thread = threading.Thread(target=lambda: replies.append(client.step()))
            thread.start()
            thread.join(3)
            if thread.is_alive():
                break
            passed += 1
        assert 1 <= passed < 8
        assert not int(replies[-1].headers["x-foldline-folds"])
        gate.set()
        thread.join(20)
        assert int(replies[-1].headers["x-foldline-folds"]) == 1
        assert sum(asks(json.loads(body)) for body in upstream.bodies) == 1


def test_a_key_that_refuses_is_asked_once_and_its_folds_are_made_as_ever(tmp_path: Path) -> None:
    def answer(body: Mapping[str, Any]) -> FakeReply | str:
        return (
            FakeReply(status=429, message="You exceeded your current quota", code="insufficient_quota")
            if asks(body)
            else "On."
        )

    upstream = Recording(FakeProvider(answer, window_tokens=20_000, keep=300))
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=True, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, "openai-chat") as client,
    ):
        while not client.done:
            reply = client.step()
            time.sleep(0.02)
        assert int(reply.headers["x-foldline-folds"])
        told = [line for line in proxy.lines if "writes no summary ahead" in line]
    assert len(told) == 1
    assert "sk-client-key" not in told[0]


def test_nothing_is_asked_after_responses_where_it_is_switched_off(tmp_path: Path) -> None:
    upstream = Recording(FakeProvider(lambda body: CHECKPOINT if asks(body) else "On.", window_tokens=20_000, keep=300))
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=False, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, "openai-chat") as client,
    ):
        reply = client.step()
        while not int(reply.headers["x-foldline-folds"]):
            assert not any(asks(json.loads(body)) for body in upstream.bodies)
            reply = client.step()


def test_what_it_cost_counts_with_the_next_request(tmp_path: Path) -> None:
    upstream = Recording(FakeProvider(lambda body: CHECKPOINT if asks(body) else "On.", window_tokens=20_000, keep=300))
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=True, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, "openai-chat") as client,
    ):
        while not any(asks(json.loads(body)) for body in upstream.bodies):
            client.step()
            time.sleep(0.1)
        time.sleep(0.3)
        before = summary_tokens(client.http.get(proxy.url + "/metrics").text)
        client.step()
        assert soon(lambda: summary_tokens(client.http.get(proxy.url + "/metrics").text) > before)


def summary_tokens(metrics: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if "summary" in line and "tokens" in line and not line.startswith("#")
    )


def test_a_proxy_that_stops_does_not_wait_for_a_summary(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(body: Mapping[str, Any]) -> FakeReply | str:
        if not asks(body):
            return "On."
        asked.set()

        async def never(number: int) -> None:
            await asyncio.sleep(120)

        return FakeReply(text=CHECKPOINT, gate=never)

    upstream = FakeProvider(answer, window_tokens=20_000, keep=300)
    with (
        proxied(upstream, tmp_path, summaries=True, ahead=True, window=20_000, policy="sliding") as proxy,
        Client(proxy.url, "openai-chat") as client,
    ):
        while not asked.is_set():
            client.step()
            asked.wait(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 30


def test_a_response_says_what_going_on_costs_once_the_cache_is_cold(tmp_path: Path) -> None:
    with proxied(FakeProvider("On."), tmp_path) as proxy, httpx.Client(headers=HEADERS, timeout=60) as client:
        body: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 300}
        body["messages"] = [{"role": "user", "content": "word " * 8_000}]
        headers = client.post(proxy.url + "/v1/messages", json=body).headers
        model = lookup("claude-sonnet-5-5")
        tokens = int(headers["x-foldline-tokens"])
        assert model.input_usd_per_million
        usd = request_price(model.cache, tokens, 0) * model.input_usd_per_million / 1e6
        assert float(headers["x-foldline-resume-usd"]) == pytest.approx(usd, abs=1e-4)
        unknown = client.post(proxy.url + "/v1/messages", json={**body, "model": "some-model"}).headers
        assert "x-foldline-resume-usd" not in unknown
