"""A request with too many cache markers is sent with the valid ones, and its client is warned."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, Recording, proxied

from foldline.testing import FakeProvider

MARK = {"cache_control": {"type": "ephemeral"}}


def body(turns: int) -> dict[str, Any]:
    """A client that marks five blocks of its system text, and its newest message."""
    messages: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[at % 2], "content": [{"type": "text", "text": f"{at} " + "words of it " * 40}]}
        for at in range(2 * turns + 1)
    ]
    messages[-1]["content"][-1] |= MARK
    system = [{"type": "text", "text": f"Rule {number}.", **MARK} for number in range(5)]
    return {"model": "m", "max_tokens": 50, "system": system, "messages": messages}


@pytest.mark.parametrize("coded", [False, True])
def test_too_many_markers_of_a_client_are_mended_and_told(coded: bool, tmp_path: Path) -> None:
    fake = FakeProvider("ok", window_tokens=6_000, keep=100)
    upstream = Recording(fake)
    with proxied(upstream, tmp_path, policy="sliding") as proxy, httpx.Client(headers=HEADERS, timeout=60) as client:
        for turns in range(24):
            raw = json.dumps(body(turns)).encode()
            more = {"content-encoding": "gzip"} if coded else {}
            data = gzip.compress(raw) if coded else raw
            url = f"{proxy.url}/v1/messages"
            answer = client.post(url, content=data, headers={"content-type": "application/json", **more})
            assert answer.status_code == 200, answer.text
            assert "cache markers" in answer.headers["x-foldline-warning"]
    assert fake.refused == type(fake.refused)(maxlen=100)
    sent = [json.loads(data) for data in upstream.bodies]
    assert all(one["system"] == sent[0]["system"] for one in sent)
    assert ["cache_control" in block for block in sent[0]["system"]] == [False, False, True, True, True]
    assert all(json.dumps(one["messages"]).count("cache_control") == 1 for one in sent)
    assert int(answer.headers["x-foldline-folds"]) > 0


@pytest.mark.parametrize("mode", ["dry-run", "strict"])
def test_where_nothing_may_be_changed_the_markers_stay(mode: str, tmp_path: Path) -> None:
    upstream = Recording(FakeProvider("ok"))
    with proxied(upstream, tmp_path, mode=mode) as proxy:
        raw = json.dumps(body(1)).encode()
        answer = httpx.post(f"{proxy.url}/v1/messages", content=raw, headers=HEADERS, timeout=60)
    assert answer.status_code == 400
    assert upstream.bodies == [raw]
