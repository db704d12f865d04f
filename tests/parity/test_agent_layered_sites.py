"""The render-time budget at its three call sites: HTTP, a gateway, the scheduler (S3.03, S3.04)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.doors.gateway.paper_gateway import PaperGateway, message
from tests.doors.http.support import serving
from tests.doors.schedule.schedules import MONDAY, manual_schedule
from tests.hosting.pools import session_pool
from tests.serving import serve

import foldline
from foldline.doors.gateway.chat_gateway import ChatGateway
from foldline.testing import FakeProvider

pytestmark = pytest.mark.xdist_group("sites")  # what they are held against is made once

WINDOW, HISTORY = 8_000, 1_500
TURNS = 20
PROMPT = "What has changed since the last time? Please tell it in some detail."
ANSWER = "Much has changed, and each change has a reason of its own. " * 6
YAML = f"""
policy: layered
session: {{context: {{max_history_tokens: {HISTORY}}}}}
schedule:
  often: {{cron: "* * * * *", prompt: "{PROMPT}"}}
"""
NOTICE = re.compile(r"\[conversation truncated — (\d+) older messages omitted\]")

Messages = list[dict[str, Any]]


def last_request(fake: FakeProvider) -> Messages:
    assert set(fake.refusals) <= {"route"}, "it has no page that tells its window; nothing else was refused"
    return list(fake.requests[-1].body["messages"])


def by_http(folder: Path) -> Messages:
    with serving(folder, ANSWER, window_tokens=WINDOW, yaml=YAML) as api:
        session = api.create_session()
        for _ in range(TURNS):
            assert api.say(session, PROMPT)["reason"] == "done"
        return last_request(api.fake)


def by_gateway(folder: Path) -> Messages:
    async def run(url: str) -> None:
        async with session_pool(url, folder, yaml=YAML, window=WINDOW) as pool:
            paper, stopping = PaperGateway(), asyncio.Event()
            desk = asyncio.create_task(ChatGateway(pool, paper, users=["7"], notice=print).run(stopping))
            try:
                for number in range(TURNS):
                    await paper.inbound.put([message(PROMPT, number)])
                    async with asyncio.timeout(120):  # its answer was sent, and the session is at rest
                        while len(fake.requests) <= number or any(actor.busy for actor in pool.actors.values()):
                            await asyncio.sleep(0.005)
            finally:
                stopping.set()
                await desk

    fake = FakeProvider(ANSWER, window_tokens=WINDOW, keep=TURNS)
    with serve(fake) as served:
        asyncio.run(run(served.url))
    return last_request(fake)


def by_schedule(folder: Path) -> Messages:
    async def run(url: str) -> None:
        async with manual_schedule(url, folder, YAML, window=WINDOW) as plan:
            for minute in range(TURNS + 1):
                await plan.at(MONDAY + timedelta(minutes=minute))

    fake = FakeProvider(ANSWER, window_tokens=WINDOW)
    with serve(fake) as served:
        asyncio.run(run(served.url))
    return last_request(fake)


def split(messages: Messages) -> tuple[str, Messages]:
    """The notice of a request, and its messages of the conversation."""
    said = [text for each in messages if each["role"] == "system" for text in [str(each["content"])]]
    [notice] = [found for text in said if (found := NOTICE.search(text))]
    return notice[0], [each for each in messages if each["role"] != "system"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Messages]:
    return split(by_http(tmp_path_factory.mktemp("http")))


@pytest.mark.parametrize("site", [by_gateway, by_schedule])
def test_s3_04_every_call_site_sends_what_the_budget_leaves(
    site: Callable[[Path], Messages], expected: tuple[str, Messages], tmp_path: Path
) -> None:
    """The same words on another way to the same agent: the same notice, and the same messages to the byte."""
    assert split(site(tmp_path)) == expected


def test_s3_04_the_history_is_within_its_budget_and_its_notice_counts_what_is_left_out(
    expected: tuple[str, Messages],
) -> None:
    notice, sent = expected
    assert HISTORY / 2 < foldline.count(sent) <= HISTORY
    assert sent[-1]["content"] == PROMPT, "the newest message is there whole"
    found = NOTICE.fullmatch(notice)
    assert found is not None
    assert int(found[1]) + len(sent) == 2 * TURNS - 1
