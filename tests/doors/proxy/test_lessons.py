"""Lessons of an upstream about images and roles outlive the proxy, for the client that learned them alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import PATHS, proxy_of, request_of
from tests.engine.test_refused_parts import PNG, from_user, image, said
from tests.serving import serve

from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body

ALICE, BOB = "sk-alice", "sk-bob"


def asked(url: str, dialect: str, key: str, messages: list[Any]) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01"}
    return httpx.post(url + PATHS[dialect], json=request_of(dialect, messages), headers=headers, timeout=60)


def test_the_order_of_roles_is_known_after_a_restart_to_the_client_that_was_told(tmp_path: Path) -> None:
    fake = FakeProvider("Fine.", repeat=True, alternates=True)
    with serve(fake) as served:
        for run, (key, refusals) in enumerate([(BOB, 1), (BOB, 1), (ALICE, 2), (ALICE, 2)]):
            with proxy_of(served.url, tmp_path) as proxy:
                for number in range(2):  # the second is a conversation of its own
                    said_so = {"role": "user", "content": f"run {run}: {number}"}
                    messages = [said_so, {"role": "user", "content": "two"}]
                    assert asked(proxy.url, "openai-chat", key, messages).status_code == 200
                    in_turn = [{"role": "user", "content": f"in turn {run} {number}"}]
                    assert asked(proxy.url, "openai-chat", key, in_turn).status_code == 200
            assert len(fake.refused) == refusals


@pytest.mark.parametrize("dialect", list(PATHS))
def test_a_number_of_images_is_known_after_a_restart_to_the_client_that_was_told(dialect: str, tmp_path: Path) -> None:
    def answer(body: Body) -> FakeReply | str:
        images = json.dumps(body).count(PNG)
        words = f"You provided {images} images but the maximum is 3"
        return FakeReply(status=400, message=words) if images > 3 else "Fine."

    fake = FakeProvider(answer, repeat=True)
    with serve(fake) as served:
        for run, (key, refusals) in enumerate([(BOB, 1), (BOB, 1), (ALICE, 2)]):
            messages: list[Any] = []
            for number in range(6):
                messages += [from_user(dialect, f"run {run} shot {number}", image(dialect)), said(dialect, "seen")]
            with proxy_of(served.url, tmp_path) as proxy:
                reply = asked(proxy.url, dialect, key, [*messages, from_user(dialect, "so?")])
            assert reply.status_code == 200, reply.text
            assert fake.faults["400"] == refusals
    text = (tmp_path / "state" / "learned.json").read_text()
    assert ALICE not in text
    assert BOB not in text
