"""Talking with the agent on Telegram, as a person sees it."""

from __future__ import annotations

from pathlib import Path

from tests.interfaces.gateway.attending import USER, attended
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.testing import FakeProvider


def test_a_message_is_answered_with_how_full_the_window_is_as_its_last_line(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    with serve(FakeProvider("**Hello** there")) as served, attended(telegram_api, served.url, tmp_path) as desk:
        answer = desk.said("Hi!")
        assert answer.startswith("Hello there\n\n📊 Context: ")
        assert answer.splitlines()[-1].startswith("📊 Context: ")
        [reply] = telegram_api.replies(USER)
        assert reply.sent.startswith("<b>Hello</b> there")
