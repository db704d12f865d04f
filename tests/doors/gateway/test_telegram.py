"""A conversation with the agent on Telegram, as a person sees it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.doors.gateway.gateways import QUICK, USER, running_gateway
from tests.hosting.pools import words
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

GROUP, THREAD = -1001, 3


def asked(fake: FakeProvider) -> list[str]:
    """The user's texts in the newest request."""
    return [message["content"] for message in fake.requests[-1].body["messages"] if message["role"] == "user"]


def test_a_message_is_answered_with_how_full_the_window_is_as_its_last_line(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    with (
        serve(FakeProvider("**Hello** there")) as served,
        running_gateway(telegram_api, served.url, tmp_path) as chat_gateway,
    ):
        answer = chat_gateway.ask("Hi!")
        assert answer.startswith("Hello there\n\n📊 Context: ")
        [reply] = telegram_api.replies(USER)
        assert reply.sent.startswith("<b>Hello</b> there")
        assert reply.parse_mode == "HTML"
    assert telegram_api.calls("sendChatAction")[0]["action"] == "typing"
    menu = [each["command"] for each in telegram_api.calls("setMyCommands")[0]["commands"]]
    assert menu == ["compact", "context", "undo", "new", "policy", "stop", "help", "start"]
    [sent] = telegram_api.calls("sendMessage")
    assert sent["link_preview_options"] == {"is_disabled": True}


def test_each_person_has_a_session_in_each_chat_and_thread(telegram_api: TelegramApi, tmp_path: Path) -> None:
    users = (USER, 8)
    with (
        serve(FakeProvider("ok")) as served,
        running_gateway(telegram_api, served.url, tmp_path, users=users) as chat_gateway,
    ):
        chat_gateway.ask("private")
        telegram_api.send_text("in a group", user_id=USER, chat_id=GROUP)
        chat_gateway.texts(1, GROUP)
        telegram_api.send_text("in a thread", user_id=USER, chat_id=GROUP, thread_id=THREAD)
        chat_gateway.texts(1, GROUP, THREAD)
        telegram_api.send_text("another in the thread", user_id=8, chat_id=GROUP, thread_id=THREAD)
        chat_gateway.texts(2, GROUP, THREAD)
        telegram_api.send_text("the first again", user_id=USER, chat_id=GROUP, thread_id=THREAD)
        chat_gateway.texts(3, GROUP, THREAD)
    store = FileStore(tmp_path / "sessions")
    held = {key.split(":", 2)[2]: words(tmp_path, name)[::2] for key, name in store.bindings().items()}
    assert held == {
        "7::7": ["private"],
        "-1001::7": ["in a group"],
        "-1001:3:7": ["in a thread", "the first again"],
        "-1001:3:8": ["another in the thread"],
    }


def test_a_conversation_goes_on_after_a_restart(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served:
        with running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
            chat_gateway.ask("My name is Ada.")
        with running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
            chat_gateway.ask("What is my name?")
        assert asked(fake) == ["My name is Ada.", "What is my name?"]
        assert fake.served == 2


def test_who_is_not_allowed_gets_no_answer_and_is_told_of_once(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        for text in ("Hello?", "/start", "/new"):
            telegram_api.send_text(text, user_id=666)
        telegram_api.send_text("me too", user_id=666, chat_id=GROUP)
        chat_gateway.ask("Hi")
        assert telegram_api.replies(666) == telegram_api.replies(GROUP) == []
        assert chat_gateway.notices == ["Not answered: user 666 is not allowed."]
    assert fake.served == 1
    assert {call["chat_id"] for call in telegram_api.calls("sendMessage")} == {USER}
    assert {call["chat_id"] for call in telegram_api.calls("sendChatAction")} == {USER}


def test_what_is_said_while_a_turn_runs_is_answered_in_order(telegram_api: TelegramApi, tmp_path: Path) -> None:
    gate = asyncio.Event()
    fake = FakeProvider([FakeReply("one", gate=gate), "two", "three"])
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        for text in ("1?", "2?", "3?"):
            telegram_api.send_text(text, user_id=USER)
        while not fake.requests:
            time.sleep(0.01)
        assert "Context" in chat_gateway.ask("/context")  # looks in the middle of the turn
        served.set(gate)
        answers = [text.split("\n")[0] for text in chat_gateway.texts(4)[1:]]
        assert answers == ["one", "two", "three"]
        assert asked(fake) == ["1?", "2?", "3?"]


def test_a_turn_is_stopped_and_the_next_one_is_answered(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply("never", gate=asyncio.Event()), "the next"])
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send_text("Count to a million", user_id=USER)
        while not fake.requests:
            time.sleep(0.01)
        telegram_api.send_text("And then?", user_id=USER)
        chat_gateway.ask("/stop")
        *of_the_stop, after = chat_gateway.texts(3)  # the command and the turn answer independently of each other
        stopping, stopped = sorted(of_the_stop)
        assert stopping.startswith("Stopping.")
        assert stopped.startswith("⏹ Stopped.")
        assert after.startswith("the next\n")
        assert chat_gateway.ask("/stop") == "Nothing is running."


def test_a_long_turn_tells_in_one_line_what_it_does(telegram_api: TelegramApi, tmp_path: Path) -> None:
    gate = asyncio.Event()
    (tmp_path / "a_b.txt").write_text("x")
    steps: list[Any] = [
        FakeReply("", calls=[("read_file", {"path": "a_b.txt"})]),
        FakeReply("", calls=[("list_files", {})]),
        FakeReply("done", gate=gate),
    ]
    with (
        serve(FakeProvider(steps)) as served,
        running_gateway(telegram_api, served.url, tmp_path, pace=QUICK) as chat_gateway,
    ):
        telegram_api.send_text("Look around", user_id=USER)
        chat_gateway.until(lambda found: found[0].text.startswith("⏳ list_files") if found else False)
        served.set(gate)
        line, answer = chat_gateway.until(lambda found: len(found) == 2 and found[0].text.startswith("✓"))
        assert line.text.startswith("✓ read_file, list_files (")
        assert line.earlier[0] == "⏳ read_file a_b.txt"
        assert answer.text.startswith("done\n")


def test_a_long_answer_comes_in_messages_and_its_code_stays_code(telegram_api: TelegramApi, tmp_path: Path) -> None:
    code = "\n".join(f"line({n})  # 👋" for n in range(600))
    text = f"Here:\n```python\n{code}\n```\nThat is *it*."
    with serve(FakeProvider(text)) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send_text("Code!", user_id=USER)
        replies = chat_gateway.until(lambda found: bool(found) and "📊 Context" in found[-1].text)
    assert len(replies) == 3
    for reply in replies:
        assert len(reply.text.encode("utf-16-le")) // 2 <= 4_096
        assert reply.sent.count('<pre><code class="language-python">') == reply.sent.count("</code></pre>") == 1
    lines = [line for reply in replies for line in reply.text.split("\n") if line.startswith("line(")]
    assert lines == code.split("\n")
    assert replies[-1].text.splitlines()[-1].startswith("📊 Context: ")


@pytest.mark.parametrize("text", ["/new", "/compact forget everything", "[x](tg://resolve?domain=evil) <b>/stop"])
def test_what_a_model_says_is_no_command_and_no_markup(telegram_api: TelegramApi, tmp_path: Path, text: str) -> None:
    with serve(FakeProvider(text)) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        assert chat_gateway.ask("Say it").startswith(f"{text}\n")
        chat_gateway.ask("Again")
    assert len(FileStore(tmp_path / "sessions").names()) == 1


def test_a_forwarded_text_is_no_command(telegram_api: TelegramApi, tmp_path: Path) -> None:
    origin = {"type": "hidden_user", "date": 1_700_000_000, "sender_user_name": "A stranger"}
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send(user_id=USER, text="/new", forward_origin=origin)
        assert chat_gateway.texts(1)[0].startswith("ok")
        assert asked(fake) == ["/new"]


def test_bots_and_channels_are_not_answered_even_where_their_id_is_allowed(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    """An anonymous administrator writes under an id that all groups share."""
    anonymous = 1087968824
    with (
        serve(FakeProvider("ok")) as served,
        running_gateway(telegram_api, served.url, tmp_path, users=(USER, anonymous)) as chat_gateway,
    ):
        person = {"id": anonymous, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
        fields: dict[str, Any] = {"text": "Hello", "from": person}
        telegram_api.send(user_id=anonymous, chat_id=GROUP, **fields)
        chat_gateway.ask("Hi")
        assert telegram_api.replies(GROUP) == []


def test_in_a_group_the_name_of_the_bot_may_stand_with_what_is_meant_for_it(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        for text in ("/help@SomeOtherBot", "/help@TestNameBot", "@TestNameBot what now?", "/etc/hosts, what is it?"):
            telegram_api.send_text(text, user_id=USER, chat_id=GROUP)
        helped, *answers = chat_gateway.texts(3, GROUP)
        assert helped.startswith("/compact [instructions]")
        assert [answer[:2] for answer in answers] == ["ok", "ok"]
        assert asked(fake) == ["what now?", "/etc/hosts, what is it?"]
