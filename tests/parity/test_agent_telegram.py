"""The system with the token display on Telegram: footer, warning, /compact (S4.02 to S4.05); and S3.02, S3.09."""

from __future__ import annotations

import re
from pathlib import Path

from tests.doors.gateway.gateways import USER, running_gateway
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.reducers.summarize import ACKNOWLEDGEMENT
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

CONFIRM = "compact_threshold: 0.9\nmodel: {max_input_tokens: 128000}"
SUMMARY = "The user wants the fault in src/parse.py found. Decided: read it in parts. " + "Open: lines 200 on. " * 40


def test_s4_02_the_footer_is_the_last_line_of_each_reply(telegram_api: TelegramApi, tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply("One.", input_tokens=12_450, output_tokens=850)])
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path, yaml=CONFIRM) as desk:
        assert desk.ask("Hi") == "One.\n\n📊 Context: 12,450/128,000 (9.7%)"


def test_s4_03_the_warning_names_compact_comes_again_and_compacts_nothing(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    settings = "compact_threshold: 0.7\nmodel: {max_input_tokens: 128000}"
    replies = [FakeReply(word, input_tokens=92_160, output_tokens=5) for word in ("One.", "Two.")]
    fake = FakeProvider([*replies, FakeReply("Three.", input_tokens=50_000, output_tokens=5)])
    warning = "⚠ Context usage at 72%. Reply /compact to summarize and continue, or keep chatting."
    footer = "📊 Context: 92,160/128,000 (72.0%)"
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path, yaml=settings) as desk:
        desk.ask("1?")
        assert desk.texts(2) == [f"One.\n\n{footer}", warning]
        desk.ask("2?")
        assert desk.texts(4)[2:] == [f"Two.\n\n{footer}", warning]
        desk.ask("3?")
        assert desk.ask("/help").startswith("/compact")  # nothing came between
        assert desk.texts(6)[4].startswith("Three.")
    sent = [message["content"] for message in fake.requests[-1].body["messages"] if message["role"] != "system"]
    assert sent == ["1?", "One.", "2?", "Two.", "3?"]
    assert fake.served == 3


def test_s4_04_s4_05_compact_tells_figures_before_and_after_and_a_preview(
    telegram_api: TelegramApi, tmp_path: Path
) -> None:
    fake = FakeProvider(
        [
            FakeReply("One. " * 400, input_tokens=100_000, output_tokens=5),
            FakeReply("Two. " * 400, input_tokens=110_000, output_tokens=5),
            SUMMARY,
            FakeReply("Three.", input_tokens=2_000, output_tokens=5),
        ]
    )
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path, yaml=CONFIRM) as desk:
        desk.ask("1?")
        desk.ask("2?")
        assert desk.texts(3)[2].startswith("⚠ Context usage at 86%.")  # shortly before folding would be forced
        before, after, blank, *preview = desk.ask("/compact keep the paths").split("\n")
        asked = str(fake.requests[-1].body)
        assert desk.ask("3?").endswith("📊 Context: 2,000/128,000 (1.6%)")
    assert before == "📊 Context before: 110,000/128,000 (85.9%)"
    found = re.fullmatch(r"📊 Context after: ([\d,]+)/128,000 \(\d+\.\d%\)", after)
    assert found is not None
    assert int(found[1].replace(",", "")) < 3_000
    assert blank == ""
    told = "\n".join(preview)
    assert told.startswith("The user wants the fault in src/parse.py found.")
    assert len(told) == 500
    assert told.endswith("…")
    assert "keep the paths" in asked
    user, assistant, newest = [m for m in fake.requests[-1].body["messages"] if m["role"] != "system"]
    assert (user["role"], assistant["role"], newest["content"]) == ("user", "assistant", "3?")
    assert SUMMARY.strip() in user["content"]
    assert assistant["content"] == ACKNOWLEDGEMENT


def test_s3_02_s3_09_a_long_chat_stays_usable_and_keeps_everything(telegram_api: TelegramApi, tmp_path: Path) -> None:
    """Requests fit a window of 8,000 tokens however long the chat gets; the log has every word."""
    fake = FakeProvider("An answer of some length. " * 60, window_tokens=8_000)
    with serve(fake) as served, running_gateway(telegram_api, served.url, tmp_path, window=8_000) as desk:
        for number in range(16):
            desk.ask(f"Question {number}: " + "more words " * 100)
    assert set(fake.refusals) <= {"route"}  # a look for the window at addresses of other servers
    assert fake.largest_tokens <= 8_000
    assert all("📊 Context: " in reply.text for reply in telegram_api.replies(USER))
    store = FileStore(tmp_path / "sessions")
    said = [str(record) for record in store.records(store.names()[0]) if record["type"] == "message"]
    assert sum("Question" in record for record in said) == 16
