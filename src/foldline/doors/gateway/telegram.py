"""Telegram: one bot, by long polling of its Bot API (core.telegram.org/bots/api, version 9).

The library's `Application` is not used: it confirms updates before anything is done about them, so a crash would lose
them. Here they are stored first.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final, TypeVar

from telegram import Bot, BotCommand, LinkPreviewOptions, Message, Update
from telegram.constants import ChatAction, ParseMode
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from foldline.display import size_text
from foldline.doors.gateway.base import Attachment, ChatPlace, Incoming, NotDelivered, Receive
from foldline.doors.gateway.telegram_html import as_html, as_plain, line_units
from foldline.errors import InvalidInput

__all__ = ["MAX_FILE_BYTES", "TelegramGateway", "parse_update", "telegram"]

T = TypeVar("T")

MAX_FILE_BYTES: Final = 20 * 2**20
"""The largest file that bots can download (getFile)."""
MAX_UNITS: Final = 4_096
"""UTF-16 units of one message, "after entities parsing" (sendMessage)."""

# Long polling: the server holds the request for this long. Load balancers on the way often cut at 60 s.
_POLL_SECONDS: Final = 30
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 30.0
_FETCH_TRIES: Final = 3
# Telegram would fetch a linked address: a page that makes the model write one could leak what it has read.
_NO_PREVIEW: Final = LinkPreviewOptions(is_disabled=True)
_COMMAND_TO: Final = re.compile(r"(/[A-Za-z0-9_]{1,32})@(\w+)(.*)", re.DOTALL)
_UNREADABLE: Final = {
    "photo": "pictures",
    "animation": "animations",
    "audio": "recordings",
    "contact": "contacts",
    "dice": "dice",
    "game": "games",
    "location": "locations",
    "poll": "polls",
    "sticker": "stickers",
    "story": "stories",
    "venue": "places",
    "video": "videos",
    "video_note": "video messages",
    "voice": "voice messages",
}


@asynccontextmanager
async def telegram(
    token: str, *, base_url: str | None = None, notice: Callable[[str], None] = lambda line: None
) -> AsyncIterator[TelegramGateway]:
    """Open the bot of a token. `base_url` is another Bot API server; `notice` receives losses of the network.

    Waits while Telegram cannot be reached. Raises InvalidInput for a refused token.
    """
    os.environ.setdefault("PTB_TIMEDELTA", "true")  # or the library warns at each Retry-After
    address = "https://api.telegram.org" if base_url is None else base_url.rstrip("/")
    bot = Bot(
        token,
        base_url=f"{address}/bot",
        base_file_url=f"{address}/file/bot",
        request=HTTPXRequest(connection_pool_size=64, connect_timeout=10, read_timeout=30, pool_timeout=60),
        get_updates_request=HTTPXRequest(connect_timeout=10, read_timeout=20),
    )
    gateway = TelegramGateway(bot, notice)
    try:
        await gateway.retry(bot.initialize)
        yield gateway
    finally:
        await bot.shutdown()


class TelegramGateway:
    """A bot as a `Gateway`. `telegram` initialises and closes `bot`."""

    max_units: Final = MAX_UNITS
    max_file_bytes: Final = MAX_FILE_BYTES

    def __init__(self, bot: Bot, notice: Callable[[str], None]) -> None:
        self._bot, self._notice = bot, notice

    @property
    def name(self) -> str:
        """By the bot's id, since its name can change."""
        return f"telegram:{self._bot.id}"

    @property
    def account(self) -> str:
        """Its public name: "@some_bot"."""
        return f"@{self._bot.username}"

    def units(self, line: str) -> int:
        """UTF-16 units, without the markup."""
        return line_units(line)

    async def run(self, receive: Receive) -> None:
        """Receive until cancelled. Raises InvalidInput once the token is refused."""
        offset: int | None = None
        while True:
            updates = await self.retry(lambda offset=offset: self._updates(offset))  # type: ignore[misc]
            if updates:
                found = (parse_update(update, self._bot.username) for update in updates)
                await receive([each for each in found if each is not None])
                # The next call confirms all updates before this offset, and Telegram forgets them (getUpdates). So it
                # comes after `receive`, which has stored them.
                offset = updates[-1].update_id + 1

    async def _updates(self, offset: int | None) -> tuple[Update, ...]:
        return await self._bot.get_updates(
            offset=offset, timeout=_POLL_SECONDS, allowed_updates=[Update.MESSAGE, Update.EDITED_MESSAGE]
        )

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a text as HTML, or as plain text if Telegram refuses that. Raises NotDelivered."""
        # MarkdownV2 of the Bot API rejects a whole message for one unescaped sign; HTML needs three escapes.
        html = as_html(text)
        try:
            return await self._send(place, html if as_plain(text).strip() else "…", ParseMode.HTML)
        except BadRequest:
            try:
                return await self._send(place, as_plain(text), None)
            except BadRequest as refused:
                raise NotDelivered(f"Telegram refused it: {refused.message}") from None

    async def _send(self, place: ChatPlace, text: str, parse_mode: ParseMode | None) -> str:
        async def call() -> Message:
            return await self._bot.send_message(
                chat,
                text,
                parse_mode=parse_mode,
                message_thread_id=_thread(place),
                link_preview_options=_NO_PREVIEW,
            )

        chat = int(place.chat)
        try:
            return str((await self.retry(call)).message_id)
        except ChatMigrated as moved:  # the group became a supergroup: its old id accepts nothing any more
            chat = moved.new_chat_id
            return str((await self.retry(call)).message_id)

    async def edit(self, place: ChatPlace, sent: str, text: str) -> None:
        """Edit a sent message. If Telegram asks for a wait, the edit is dropped."""
        # No retry: an edit that waits would be older than the next one.
        with suppress(TelegramError):
            await self._bot.edit_message_text(
                as_html(text),
                int(place.chat),
                int(sent),
                parse_mode=ParseMode.HTML,
                link_preview_options=_NO_PREVIEW,
            )

    async def typing(self, place: ChatPlace) -> None:
        """Show "typing" for five seconds."""
        with suppress(TelegramError):
            await self._bot.send_chat_action(int(place.chat), ChatAction.TYPING, message_thread_id=_thread(place))

    async def fetch(self, file: Attachment, max_bytes: int) -> bytes:
        """Fetch a file. Raises NotDelivered."""
        for left in reversed(range(_FETCH_TRIES)):
            try:
                found = await self._bot.get_file(file.id)
                # Checked before and after: the size is the platform's word, and may be missing.
                if (found.file_size or 0) > max_bytes:
                    raise NotDelivered(f"it has {size_text(found.file_size or 0)}, {size_text(max_bytes)} are taken")
                data = bytes(await found.download_as_bytearray())
            except (BadRequest, Forbidden, InvalidToken) as refused:
                raise NotDelivered(f"Telegram does not deliver it: {refused.message}") from None
            except TelegramError:
                if not left:
                    raise NotDelivered("Telegram could not be reached") from None
                await asyncio.sleep(_FIRST_WAIT_SECONDS)
            else:
                if len(data) > max_bytes:
                    raise NotDelivered(f"it has {size_text(len(data))}, {size_text(max_bytes)} are taken")
                return data
        raise AssertionError("the last try returns or raises")

    async def announce(self, commands: Sequence[tuple[str, str]]) -> None:
        """Publish the commands in the bot's menu."""
        bot_commands = [BotCommand(name, does) for name, does in commands]
        try:
            await self.retry(lambda: self._bot.set_my_commands(bot_commands))
        except BadRequest as refused:
            self._notice(f"Telegram refused the list of commands: {refused.message}")

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until Telegram answers, after any wait it asks for; return its result.

        A request without an answer is sent again: a message twice is better than none. Raises BadRequest, ChatMigrated,
        NotDelivered, and InvalidInput for a refused token.
        """
        wait_seconds, reported = _FIRST_WAIT_SECONDS, False
        while True:
            try:
                found = await call()
            except RetryAfter as limited:
                # Not counted as a loss of the network: the API answers, and says when (429 Too Many Requests).
                after = limited.retry_after
                await asyncio.sleep(after.total_seconds() if isinstance(after, timedelta) else after)
                continue
            except InvalidToken:  # its text holds the token, so it must not be chained
                raise InvalidInput("was refused by Telegram", place="token") from None
            except Forbidden as refused:
                raise NotDelivered(f"Telegram refused it: {refused.message}") from None
            except (BadRequest, ChatMigrated):  # a second try would fail in the same way
                raise
            except TelegramError as fault:
                if not reported:
                    reason = "another program receives for this bot" if isinstance(fault, Conflict) else fault.message
                    self._notice(f"Telegram: {reason}; trying again")
                reported = True
            else:
                if reported:
                    self._notice("Telegram: connected again")
                return found
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)


def _thread(place: ChatPlace) -> int | None:
    return int(place.thread) if place.thread else None


def parse_update(update: Update, account: str = "") -> Incoming | None:
    """The message of an update; None if no person wrote it, or if it addresses another bot.

    Bots, channels, an anonymous administrator and news of a group are no persons.
    """
    message = update.message or update.edited_message
    if message is None or message.from_user is None or message.from_user.is_bot or message.sender_chat is not None:
        return None
    # Telegram sends an animation as a document too, so a document counts only where no other kind is named.
    unreadable = tuple(words for name, words in _UNREADABLE.items() if getattr(message, name, None))
    files = () if unreadable or message.document is None else (_attachment(message),)
    text = _strip_address(message.text or message.caption or "", account)
    if text is None or not (text or files or unreadable) or (update.edited_message is not None and not text):
        return None
    return Incoming(
        key=str(update.update_id),
        user=str(message.from_user.id),
        where=ChatPlace(str(message.chat.id), str(message.message_thread_id) if message.is_topic_message else ""),
        text=text,
        own=bool(message.text) and message.forward_origin is None and message.via_bot is None,
        files=files,
        unreadable=unreadable,
        edited=update.edited_message is not None,
    )


def _attachment(message: Message) -> Attachment:
    document = message.document
    if document is None:
        raise RuntimeError("there is no document")
    return Attachment(id=document.file_id, name=document.file_name or "file", size_bytes=document.file_size)


def _strip_address(text: str, account: str) -> str | None:
    """Remove this bot's name from a text; None for a command to another bot."""
    found = _COMMAND_TO.fullmatch(text)
    if found is None:
        name, _, rest = text.partition(" ")
        return rest.strip() if account and name.lower() == f"@{account.lower()}" else text
    return f"{found[1]}{found[3]}" if found[2].lower() == account.lower() else None
