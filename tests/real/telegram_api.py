"""A real server in the place of Telegram: the emulation telegram-test-api under Node.js, with what it lacks before it.

Give a bot `telegram_api.token`, `.base_url` and `.base_file_url`; python-telegram-bot takes them by
`ApplicationBuilder().token(…).base_url(…).base_file_url(…)`. The fixture's methods are the person on the other side.
They wait without an event loop: in a test whose bot runs in its own loop, call them by `asyncio.to_thread`.

What the emulation does by itself: getMe, getUpdates, sendMessage, editMessageText, editMessageReplyMarkup,
deleteMessage, answerCallbackQuery, setWebhook, deleteWebhook; other fields, message_thread_id among them, are kept as
they were sent. What it lacks, or answers so that python-telegram-bot cannot read it, is in `telegram_methods`:

- getMe without `is_bot`; dates in milliseconds; edits that return nothing; forms whose numbers stay texts.
- getUpdates that returns at once, and forgets what it has handed out: here it waits for `timeout` seconds, and repeats
  an update until a higher `offset` confirms it, as the real one does.
- sendDocument, getFile and the download of files (20 MiB at most), sendChatAction, setMyCommands, deleteMyCommands.
- refusals: a wrong token (401), an empty or too long text, HTML that cannot be parsed, an edit that changes nothing or
  finds no message; and whichever `refuse` orders, a 429 with its retry_after for instance.

Not here: parse_mode other than HTML (refused), entities of what the bot sends, other media than documents, the
conflict of two getUpdates at once (409), rate limits by themselves, message_id in forms of `reply_parameters`.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.real.leash import held
from tests.real.parts import missing
from tests.real.telegram_methods import Kept, Refusal, application, plain_text
from tests.serving import serve

__all__ = ["BOT_NAME", "Reply", "TelegramApi", "telegram_api", "telegram_server"]

ROOT = Path(__file__).parents[2]
BOT_NAME = "TestNameBot"
WAIT_SECONDS = 120
# A port of "0" is a free one; as a number the emulation would take it for none given. Messages are kept for a day.
EMULATION = """
const TelegramServer = require(process.argv[1]);
const server = new TelegramServer({ host: '127.0.0.1', port: '0', storeTimeout: 86400 });
server.start().then(() => console.log(`listening on ${server.server.address().port}.`));
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the bot, as it is now. `text` is the caption of a document."""

    message_id: int
    chat_id: int
    thread_id: int | None
    text: str  # as a person reads it
    sent: str  # as the bot sent it, in `parse_mode`
    parse_mode: str | None
    earlier: tuple[str, ...]  # as sent, before its edits
    document: tuple[str, bytes] | None  # file name and content
    reply_markup: Any


class TelegramApi:
    """One bot's Telegram: where it finds it, and the people who write to it. Chats are private unless negative."""

    def __init__(self, url: str, token: str, kept: Kept) -> None:
        self.token = token
        self.base_url = f"{url}/bot"
        self.base_file_url = f"{url}/file/bot"
        self._kept = kept
        self._client = httpx.Client(base_url=url, timeout=WAIT_SECONDS)

    def close(self) -> None:
        self._client.close()

    def _asked(self, path: str, given: dict[str, Any]) -> Any:
        reply = self._client.post(path, json=given).raise_for_status().json()
        assert reply["ok"], reply
        return reply["result"]

    def send(self, *, user_id: int, chat_id: int | None = None, thread_id: int | None = None, **fields: Any) -> None:
        """Send a message of any `fields` of the Bot API's Message."""
        chat_id = user_id if chat_id is None else chat_id
        person = {"first_name": f"User {user_id}", "username": f"user{user_id}"}
        chat = {"type": "supergroup", "title": f"Group {chat_id}"} if chat_id < 0 else {"type": "private", **person}
        self._kept.chats[chat_id] = {"id": chat_id, **chat}
        message = {
            "botToken": self.token,
            "date": int(time.time()),
            "from": {"id": user_id, "is_bot": False, **person},
            "chat": self._kept.chats[chat_id],
            **({"message_thread_id": thread_id, "is_topic_message": True} if thread_id is not None else {}),
            **fields,
        }
        self._asked("/sendCommand" if "entities" in fields else "/sendMessage", message)

    def send_text(self, text: str, *, user_id: int, chat_id: int | None = None, thread_id: int | None = None) -> None:
        self.send(user_id=user_id, chat_id=chat_id, thread_id=thread_id, text=text)

    def send_command(
        self, text: str, *, user_id: int, chat_id: int | None = None, thread_id: int | None = None
    ) -> None:
        """Send "/name words", marked as a command as Telegram's programs do."""
        entity = {"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])}
        self.send(user_id=user_id, chat_id=chat_id, thread_id=thread_id, text=text, entities=[entity])

    def send_document(
        self,
        name: str,
        content: bytes,
        *,
        user_id: int,
        chat_id: int | None = None,
        thread_id: int | None = None,
        caption: str | None = None,
        media_type: str = "text/plain",
        size_bytes: int | None = None,
    ) -> None:
        """Send a file. `size_bytes` is the size that the message tells, if not that of `content`."""
        fields: dict[str, Any] = {"document": self._kept.keep_file(name, content, media_type, size_bytes)}
        if caption is not None:
            fields["caption"] = caption
        self.send(user_id=user_id, chat_id=chat_id, thread_id=thread_id, **fields)

    def replies(self, chat_id: int, *, thread_id: int | None = None) -> list[Reply]:
        """All that the bot has in this chat and thread now, oldest first; with no thread, what is in none."""
        history = self._asked("/getUpdatesHistory", {"token": self.token})
        found = [(update["messageId"], update.get("message", {})) for update in history]
        replies = [self._reply(number, message) for number, message in found if message.get("chat_id") == chat_id]
        return sorted((r for r in replies if r.thread_id == thread_id), key=lambda reply: reply.message_id)

    def _reply(self, number: int, message: dict[str, Any]) -> Reply:
        sent = message.get("text", message.get("caption", ""))
        parse_mode = message.get("parse_mode")
        document = message.get("document")
        return Reply(
            message_id=number,
            chat_id=message["chat_id"],
            thread_id=message.get("message_thread_id"),
            text=plain_text(sent, parse_mode),
            sent=sent,
            parse_mode=parse_mode,
            earlier=tuple(message.get("earlier", ())),
            document=self._kept.files[document["file_id"]][:2] if document else None,
            reply_markup=message.get("reply_markup"),
        )

    def wait_for(
        self, condition: Callable[[list[Reply]], bool], chat_id: int, *, thread_id: int | None = None
    ) -> list[Reply]:
        """The replies as soon as `condition` holds for them; AssertionError when it does not within 30 seconds."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            seen = self._kept.changes
            if condition(found := self.replies(chat_id, thread_id=thread_id)):
                return found
            assert self._kept.wait_for_change(seen, end - time.monotonic()), found

    def calls(self, method: str) -> list[dict[str, Any]]:
        """What the bot gave to each of its calls of `method` (not getUpdates), oldest first."""
        return [given for name, given in self._kept.calls if name == method]

    def refuse(self, method: str, status: int, description: str, **parameters: int) -> None:
        """Refuse the next call of `method`, once: 429 with retry_after=1, 403 "Forbidden: bot was blocked …", 502."""
        self._kept.refusals[method].append(Refusal(status, description, **parameters))


def emulation() -> Sequence[str]:
    """The command that runs the emulation, or the reason why the test is skipped."""
    node = shutil.which("node")
    if node is None:
        missing("telegram", "its emulation needs Node.js (apt-get install nodejs)")
    name, _, version = (Path(__file__).parent / "npm.txt").read_text("utf-8").strip().rpartition("@")
    package = ROOT / ".npm" / "node_modules" / name
    described = package / "package.json"
    if not described.is_file() or json.loads(described.read_text("utf-8"))["version"] != version:
        missing("telegram", f"its emulation {name}@{version} is not installed (make .npm)")
    return [node, "-e", EMULATION, str(package)]


@pytest.fixture(scope="session")
def telegram_server() -> Iterator[tuple[str, dict[str, Kept]]]:
    """Where the Bot API is served, and the bots it knows by their tokens."""
    command = emulation()
    bots: dict[str, Kept] = {}
    folder = Path(tempfile.mkdtemp(prefix="foldline-telegram-"))
    with held(command, folder, stop=signal.SIGTERM) as server:
        port = server.said(r"listening on (\d+)")[1]
        with serve(application(f"http://127.0.0.1:{port}", bots)) as served:
            yield served.url, bots


@pytest.fixture
def telegram_api(telegram_server: tuple[str, dict[str, Kept]]) -> Iterator[TelegramApi]:
    """A bot of this test's own: no chat, no message, no file that another test left."""
    url, bots = telegram_server
    token = f"{secrets.randbelow(10**9)}:{secrets.token_hex(16)}"
    bots[token] = Kept()
    api = TelegramApi(url, token, bots[token])
    yield api
    api.close()
    del bots[token]
