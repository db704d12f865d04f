"""Faults between the bot and Telegram: nothing is lost, and nothing is answered twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.doors.gateway.gateways import USER, running_gateway
from tests.forked import Forked
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.doors.gateway.telegram import telegram
from foldline.errors import InvalidInput
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply


def test_what_telegram_asks_to_wait_is_waited_and_it_is_sent_once(telegram_api: TelegramApi, tmp_path: Path) -> None:
    with serve(FakeProvider("ok")) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.refuse("sendMessage", 429, "Too Many Requests: retry after 1", retry_after=1)
        began = time.monotonic()
        assert chat_gateway.ask("Hi").startswith("ok")
        assert time.monotonic() - began >= 1
        assert len(telegram_api.replies(USER)) == 1
        assert len(telegram_api.calls("sendMessage")) == 2


@pytest.mark.parametrize("method", ["getUpdates", "sendMessage", "getMe", "setMyCommands"])
def test_telegram_that_is_away_for_a_moment_is_awaited(telegram_api: TelegramApi, tmp_path: Path, method: str) -> None:
    telegram_api.refuse(method, 502, "Bad Gateway")
    with serve(FakeProvider("ok")) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        assert chat_gateway.ask("Hi").startswith("ok")
        while len(chat_gateway.notices) < 2:  # the message is there before the gateway knows that it was taken
            time.sleep(0.01)
        assert chat_gateway.notices == ["Telegram: Bad Gateway; trying again", "Telegram: connected again"]
        assert len(telegram_api.replies(USER)) == 1


def test_another_program_that_receives_for_the_bot_is_told_of(telegram_api: TelegramApi, tmp_path: Path) -> None:
    telegram_api.refuse("getUpdates", 409, "Conflict: terminated by other getUpdates request")
    with serve(FakeProvider("ok")) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        assert chat_gateway.ask("Hi").startswith("ok")
        assert chat_gateway.notices[0] == "Telegram: another program receives for this bot; trying again"


def test_what_telegram_cannot_read_as_html_is_sent_as_it_reads(telegram_api: TelegramApi, tmp_path: Path) -> None:
    with (
        serve(FakeProvider("**bold** `code`")) as served,
        running_gateway(telegram_api, served.url, tmp_path) as chat_gateway,
    ):
        telegram_api.refuse("sendMessage", 400, "Bad Request: can't parse entities: whatever")
        assert chat_gateway.ask("Hi").startswith("bold code\n")
        [reply] = telegram_api.replies(USER)
        assert reply.parse_mode is None


def test_who_blocks_the_bot_ends_nothing(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.refuse("sendMessage", 403, "Forbidden: bot was blocked by the user")
        telegram_api.send_text("Hi", user_id=USER)
        while not chat_gateway.notices:
            time.sleep(0.01)
        assert chat_gateway.notices == [
            "Not delivered to user 7: Telegram refused it: Forbidden: bot was blocked by the user"
        ]
        assert chat_gateway.ask("There again").startswith("ok")
        assert fake.served == 2


def test_a_group_that_was_moved_gets_its_answer_where_it_is_now(telegram_api: TelegramApi, tmp_path: Path) -> None:
    moved = -100_777
    with serve(FakeProvider("ok")) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        why = "Bad Request: group chat was upgraded to a supergroup chat"
        telegram_api.refuse("sendMessage", 400, why, migrate_to_chat_id=moved)
        telegram_api.send_text("Hi", user_id=USER)
        while len(telegram_api.calls("sendMessage")) < 2:
            time.sleep(0.01)
        assert [int(call["chat_id"]) for call in telegram_api.calls("sendMessage")] == [USER, moved]
        assert chat_gateway.notices == []


def test_a_token_that_is_refused_is_said_without_the_token(telegram_api: TelegramApi) -> None:
    async def start() -> None:
        address = telegram_api.base_url.removesuffix("/bot")
        async with telegram("1:wrong-wrong-wrong-wrong-wrong", base_url=address):
            raise AssertionError("it was taken")

    with pytest.raises(InvalidInput, match="token: was refused by Telegram") as caught:
        asyncio.run(start())
    assert "wrong-wrong" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_token_that_is_taken_back_ends_it(telegram_api: TelegramApi, tmp_path: Path) -> None:
    telegram_api.refuse("getUpdates", 401, "Unauthorized")
    with (
        serve(FakeProvider("ok")) as served,
        pytest.raises(InvalidInput, match="token: was refused by Telegram"),
        running_gateway(telegram_api, served.url, tmp_path) as chat_gateway,
    ):
        assert chat_gateway.over.wait(120)


# --- in a process of its own -----------------------------------------------------------------------------------------


@contextmanager
def process(
    api: TelegramApi, url: str, folder: Path, *, grace_seconds: int = 5, anew: bool = False
) -> Iterator[Forked | subprocess.Popen[bytes]]:
    """`foldline telegram`, killed at the end of the block if it still runs; with `anew` in a Python of its own."""
    environ = {
        **os.environ,
        "FOLDLINE_HOME": str(folder / "home"),
        "FOLDLINE_TELEGRAM_TOKEN": api.token,
    }
    address = api.base_url.removesuffix("/bot")
    command = ["telegram", "--user", str(USER)]
    command += ["--base-url-api", address, "--base-url", f"{url}/v1", "--model", "fake-model"]
    command += ["--store", str(folder / "sessions"), "--grace-seconds", str(grace_seconds)]
    with (folder / "log").open("ab") as log:
        if not anew:
            with Forked(*command, cwd=folder, env=environ, stderr=log.fileno()) as forked:
                yield forked
            return
        python = [sys.executable, "-m", "foldline.cli.main"]
        with subprocess.Popen([*python, *command], cwd=folder, env=environ, stderr=log) as running:
            try:
                yield running
            finally:
                running.kill()


def test_after_a_kill_nothing_is_lost_and_the_person_is_told(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply("never heard", gate=asyncio.Event()), "the second", "the third"])
    with serve(fake) as served:
        with process(telegram_api, served.url, tmp_path) as first:
            telegram_api.send_text("1?", user_id=USER)
            while not fake.requests:
                time.sleep(0.01)
            telegram_api.send_text("2?", user_id=USER)  # it waits behind the first
            telegram_api.send_text("/nosuch", user_id=USER)  # answered at once: by then the second is written down
            telegram_api.wait_for(lambda found: len(found) == 1, USER)
            first.kill()
        with process(telegram_api, served.url, tmp_path) as second:
            replies = telegram_api.wait_for(lambda found: len(found) == 3, USER)
            texts = [reply.text.split("\n")[0] for reply in replies]
            assert texts[1] == '⚠ This was interrupted by a restart. Your message is kept; say "go on" to continue.'
            assert texts[2] == "the second"
            telegram_api.send_text("3?", user_id=USER)
            telegram_api.wait_for(lambda found: len(found) == 4, USER)
            said = [m["content"] for m in fake.requests[-1].body["messages"] if m["role"] == "user"]
            assert [text for text in said if text in {"1?", "2?", "3?"}] == ["1?", "2?", "3?"]
            second.send_signal(signal.SIGTERM)
            assert second.wait(120) == 0
    assert len(telegram_api.replies(USER)) == 4
    log = (tmp_path / "log").read_text()
    assert "foldline: @TestNameBot answers 1 user; sessions in " in log
    assert telegram_api.token not in log
    assert "Traceback" not in log


def test_a_second_signal_ends_it_at_once_and_the_turn_is_recorded(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply("never heard", gate=asyncio.Event())])
    with serve(fake) as served, process(telegram_api, served.url, tmp_path, grace_seconds=600, anew=True) as running:
        telegram_api.send_text("1?", user_id=USER)
        while not fake.requests:
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        while "again: at once" not in (tmp_path / "log").read_text():
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    with FileStore(tmp_path / "sessions").open("latest") as session:
        assert not session.tally.running
    assert "Traceback" not in (tmp_path / "log").read_text()
