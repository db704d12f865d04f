"""Several proxies over one PostgreSQL: all send the folds of one, and the database may be lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.doors.proxy.proxies import PATHS, Recording, before_newest, proxy_of, proxy_with
from tests.doors.proxy.test_exchange import WINDOW, Client
from tests.real.postgresql import fresh_database
from tests.serving import serve
from tests.store.test_sql_gone import Server, server

from foldline.conversations.persistence import ConversationStore
from foldline.conversations.request_plan import ConversationSettings
from foldline.conversations.service import Conversations
from foldline.store.addresses import open_store
from foldline.testing import FakeProvider

__all__ = ["server"]  # the fixture


@pytest.fixture
def database(postgresql_url: str) -> str:
    return fresh_database(postgresql_url)


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_three_proxies_serve_one_conversation_without_sticky_sessions(
    dialect: str, database: str, tmp_path: Path
) -> None:
    fake = FakeProvider("ok", window_tokens=WINDOW)
    upstream = Recording(fake)
    with (
        serve(upstream) as served,
        proxy_of(served.url, tmp_path / "1", store=database) as one,
        proxy_of(served.url, tmp_path / "2", store=database) as two,
        proxy_of(served.url, tmp_path / "3", store=database) as three,
    ):
        client = Client(one, dialect)
        for number in range(28):
            client.url = (one, two, three, two)[number % 4].url + PATHS[dialect]
            answer = client.ask(f"Question {number}: " + "words of a long story " * 60)
            assert answer.status_code == 200, answer.text
            assert "x-foldline-warning" not in answer.headers
    assert [one for one in fake.refused if one.kind != "route"] == []
    steps = list(zip(upstream.bodies, upstream.bodies[1:], strict=False))
    stable = sum(new.startswith(before_newest(dialect, old)) for old, new in steps)
    assert stable >= 14  # the others are the requests that were folded anew


def test_without_the_database_requests_pass_with_a_warning_until_it_is_back(server: Server) -> None:
    lines: list[str] = []

    def over(under: ConversationSettings) -> Conversations:
        keeping = ConversationStore(lambda: open_store(server.url))
        keeping.open()
        known = Conversations(under, max_bytes=2**28, store=keeping, shared=True, notice=lines.append)
        assert known._store is not None
        known._store._retry_seconds = 0.2
        return known

    with serve(FakeProvider("ok", window_tokens=WINDOW)) as served, proxy_with(served.url, over, []) as proxy:
        client = Client(proxy, "openai-chat")
        client.talk(12)
        server.stop()
        known = client.talk(1)  # a conversation that is in memory goes on as it was folded
        other = Client(proxy, "openai-chat")
        other.messages = json.loads(json.dumps(client.messages))
        other.messages[0]["content"] = "Another beginning."
        unknown = other.talk(1)
        server.start()
        while "x-foldline-warning" in (back := client.talk(1)).headers:
            pass
    for answer in (known, unknown):
        assert "store" in answer.headers["x-foldline-warning"]
        assert answer.status_code == 200  # also of what was too large as it came
    assert int(back.headers["x-foldline-folds"]) > 0
    assert any("answers again" in line for line in lines)
