"""The commands of a person on Telegram."""

from __future__ import annotations

import re
from pathlib import Path

from tests.doors.gateway.gateways import USER, running_gateway
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.store.folders import FileStore
from foldline.testing import FakeProvider


def test_each_command_answers(telegram_api: TelegramApi, tmp_path: Path) -> None:
    with (
        serve(FakeProvider("an answer " * 50)) as served,
        running_gateway(telegram_api, served.url, tmp_path) as chat_gateway,
    ):
        assert chat_gateway.ask("/start").startswith("Write to me")
        assert chat_gateway.ask("/context") == "Nothing was said yet."
        assert "/undo – take back the last folds" in chat_gateway.ask("/help")
        assert chat_gateway.ask("/undo") == "There is nothing to take back."
        assert chat_gateway.ask("/compact").startswith("Nothing was compacted: ")
        for question in ("one?", "two?", "three?"):
            chat_gateway.ask(question)
        answer = chat_gateway.ask("/context")
        assert answer.startswith("📊 Context: ")
        assert re.search(r"^system +[\d,]+ +[\d.]+%$", answer, re.MULTILINE)
        assert answer.endswith("0 folds in effect.")
        assert chat_gateway.ask("/policy").startswith("The context is folded by balanced. There are autopilot, ")
        assert chat_gateway.ask("/policy sliding") == "The context is folded by sliding from here on."
        assert chat_gateway.ask("/policy").startswith("The context is folded by sliding.")
        assert chat_gateway.ask("/policy nosuch").startswith("That cannot be done: ")
        assert chat_gateway.ask("/comapct") == "There is no command /comapct. Did you mean /compact?"
        assert chat_gateway.ask("/xyzzy") == "There is no command /xyzzy. /help lists what there is."


def test_a_compaction_is_told_in_figures_and_taken_back(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("an answer " * 200)
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        for question in ("one?", "two?", "three?"):
            chat_gateway.ask(question)
        before, after, _, *summary = chat_gateway.ask("/compact keep the numbers").split("\n")
        assert before.startswith("📊 Context before: ")
        assert after.startswith("📊 Context after: ")
        assert 0 < len("\n".join(summary)) <= 500
        assert "keep the numbers" in str(fake.requests[-1].body)
        folded = chat_gateway.ask("/context")
        assert "fold in effect:" in folded or "folds in effect:" in folded
        assert chat_gateway.ask("/undo").startswith("Took back ")
        assert chat_gateway.ask("/context").endswith("0 folds in effect.")


def test_a_new_conversation_knows_nothing_of_the_one_before_which_is_kept(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        chat_gateway.ask("My name is Ada.")
        answer = chat_gateway.ask("/new")
        chat_gateway.ask("What is my name?")
    asked = [message["content"] for message in fake.requests[-1].body["messages"] if message["role"] == "user"]
    assert asked == ["What is my name?"]
    names = FileStore(tmp_path / "sessions").names()
    assert len(names) == 2
    assert all(name in answer for name in names)


def test_a_text_that_begins_with_a_slash_can_be_said(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        chat_gateway.ask("//new is a command")
        assert fake.requests[-1].body["messages"][-1]["content"] == "/new is a command"
        assert telegram_api.replies(USER)
