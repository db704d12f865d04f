"""Files that a person sends on Telegram: stored whole, shown to the agent as far as they fit, and read on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.doors.gateway.gateways import USER, running_gateway
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply


def newest(fake: FakeProvider) -> str:
    """The newest words of the user in the newest request."""
    said = [message["content"] for message in fake.requests[-1].body["messages"] if message["role"] == "user"]
    return str(said[-1])


def kept(folder: Path) -> set[bytes]:
    """What is in the archive of the only session."""
    store = FileStore(folder / "sessions")
    return set(store.originals(store.names()[0]))


def test_a_small_file_is_told_whole_with_its_caption_as_the_message(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    content = "Grüße\r\nline two\n".encode("latin-1")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send_document("a b.txt", content, user_id=USER, caption="/new What is in it?")
        assert chat_gateway.texts(1)[0].startswith("ok")
        text = newest(fake)
    assert text.startswith('/new What is in it?\n\n[The user sent the file "a b.txt", 16 bytes: ~')
    assert "in 2 lines. Not valid UTF-8: read as Latin-1" in text
    assert "--- a b.txt ---\nGrüße\r\nline two\n--- end of a b.txt ---" in text
    assert kept(tmp_path) == {content, "Grüße\r\nline two\n".encode()}


def test_a_file_over_its_share_of_the_window_is_shown_by_its_first_lines_and_read_on(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    content = "".join(f"line {n} of a long log with a few words in it\n" for n in range(1, 5_001)).encode()
    recalled: list[str] = []

    def reads_on(body: Any) -> FakeReply:
        prompt = str(body["messages"][-1]["content"])
        found = re.search(r"saved (\w+), start_line (\d+) and", prompt)
        assert found is not None, prompt
        arguments = {"action": "peek", "saved": found[1], "start_line": int(found[2]), "lines": 2}
        return FakeReply("", calls=[("recall", arguments)])

    def answers(body: Any) -> FakeReply:
        recalled.append(body["messages"][-1]["content"])
        return FakeReply("read")

    fake = FakeProvider([reads_on, answers])
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path, window=32_000) as chat_gateway:
        telegram_api.send_document("big.log", content, user_id=USER)
        assert chat_gateway.texts(1)[0].startswith("read")
        [prompt] = [m["content"] for m in fake.requests[-1].body["messages"] if m["role"] == "user"]
    assert "That is too much to be shown at once: the budget is ~" in prompt
    assert "--- the first 50 lines of big.log ---\nline 1 of" in prompt
    assert "line 50 of" in prompt
    assert "line 51 of" not in prompt
    assert "line 51 of a long log" in recalled[0]
    assert content in kept(tmp_path)


def test_a_notebook_is_told_as_text(telegram_api: TelegramApi, tmp_path: Path) -> None:
    book = {"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": ["print(1)"], "outputs": []}]}
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send_document("x.ipynb", json.dumps(book).encode(), user_id=USER)
        chat_gateway.texts(1)
        assert "--- Cell 1 (code, python) ---\nprint(1)" in newest(fake)


def test_what_has_no_text_is_kept_and_said_to_be_unreadable(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send_document("p.png", picture, user_id=USER, caption="What is this?")
        chat_gateway.texts(1)
        text = newest(fake)
        telegram_api.send_document("empty.txt", b"", user_id=USER)
        chat_gateway.texts(2)
        assert newest(fake) == '[The user sent the file "empty.txt", 0 bytes. There is no text in it.]'
    assert text.startswith(
        'What is this?\n\n[The user sent the file "p.png", 108 bytes. It is a binary file (a PNG image;'
    )
    assert picture in kept(tmp_path)


def test_a_file_that_is_too_large_is_not_fetched(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with (
        serve(fake) as served,
        running_gateway(telegram_api, served.url, tmp_path, max_file_bytes=1_000) as chat_gateway,
    ):
        telegram_api.send_document("big.bin", b"", user_id=USER, size_bytes=21 * 2**20)
        assert chat_gateway.texts(1) == ["big.bin was not read: it has 21.0 MB, and at most 1000 bytes are taken here."]
        assert telegram_api.calls("getFile") == []
        assert fake.served == 0
        telegram_api.send_document("lies.bin", bytes(2_000), user_id=USER, size_bytes=10, caption="See")
        refused, answer = chat_gateway.texts(3)[1:]
        assert refused.startswith("lies.bin was not read: it has 2.0 KB")
        assert answer.startswith("ok")
        assert newest(fake).startswith('See\n\n[With it the user sent the file "lies.bin", which was not read: ')


def test_pictures_and_voices_are_said_not_to_be_seen_or_heard(telegram_api: TelegramApi, tmp_path: Path) -> None:
    size = {"file_id": "p", "file_unique_id": "u", "width": 9, "height": 9}
    voice = {"file_id": "v", "file_unique_id": "w", "duration": 3}
    fake = FakeProvider("ok")
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path) as chat_gateway:
        telegram_api.send(user_id=USER, voice=voice)
        assert chat_gateway.texts(1) == ["I cannot read voice messages: the model here is given text only."]
        assert fake.served == 0
        telegram_api.send(user_id=USER, photo=[size], caption="Who is it?")
        refused, answer = chat_gateway.texts(3)[1:]
        assert refused == "I cannot read pictures: the model here is given text only. I go on with the rest."
        assert answer.startswith("ok")
        assert newest(fake) == "Who is it?\n\n[With it the user sent something that cannot be read here: pictures.]"
