"""The server in the place of Telegram: python-telegram-bot talks to it as it does to the real one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from telegram import Bot, BotCommand, Update
from telegram.error import BadRequest, InvalidToken, RetryAfter
from telegram.ext import Application, ApplicationBuilder, CommandHandler, MessageHandler, filters
from tests.real.telegram_api import BOT_NAME, TelegramApi

USER, GROUP, THREAD = 7, -1001, 3


def built(api: TelegramApi) -> Application[Any, Any, Any, Any, Any, Any]:
    builder = ApplicationBuilder().token(api.token).base_url(api.base_url).base_file_url(api.base_file_url)
    return builder.build()


async def shout(update: Update, context: Any) -> None:
    """Answers in the thread of the question, with an answer that is changed once."""
    message = update.effective_message
    assert message is not None
    await message.chat.send_action("typing", message_thread_id=message.message_thread_id)
    answer = await message.reply_text("<i>…</i>", parse_mode="HTML", do_quote=True)
    await answer.edit_text(f"<b>{(message.text or '').upper()}</b> &amp; more", parse_mode="HTML")


async def copy(update: Update, context: Any) -> None:
    """Sends a document back, doubled."""
    message = update.effective_message
    assert message is not None
    assert message.document is not None
    content = bytes(await (await message.document.get_file()).download_as_bytearray())
    await message.reply_document(content * 2, filename=f"twice-{message.document.file_name}", caption="here")


async def started(update: Update, context: Any) -> None:
    message = update.effective_message
    assert message is not None
    await message.reply_text(f"{' '.join(context.args)} {message.date.year > 2020} {update.effective_user}")


def test_a_bot_answers_in_the_thread_and_changes_its_answer(telegram_api: TelegramApi) -> None:
    async def talk() -> None:
        app = built(telegram_api)
        app.add_handler(CommandHandler("start", started))
        app.add_handler(MessageHandler(filters.Document.ALL, copy))
        app.add_handler(MessageHandler(filters.TEXT, shout))
        async with app:
            assert app.bot.username == BOT_NAME
            await app.bot.set_my_commands([BotCommand("start", "begin")])
            assert app.updater is not None
            await app.updater.start_polling(timeout=20)
            await app.start()
            try:
                await asyncio.to_thread(people)
            finally:
                await app.updater.stop()
                await app.stop()

    def people() -> None:
        telegram_api.send_text("grüße 👋", user_id=USER, chat_id=GROUP, thread_id=THREAD)
        [reply] = telegram_api.wait_for(lambda found: any(r.earlier for r in found), GROUP, thread_id=THREAD)
        assert (reply.text, reply.parse_mode, reply.earlier) == ("GRÜSSE 👋 & more", "HTML", ("<i>…</i>",))
        assert telegram_api.replies(GROUP) == []
        telegram_api.send_command("/start now", user_id=USER)
        [reply] = telegram_api.wait_for(bool, USER)
        assert reply.text.startswith("now True User(")
        telegram_api.send_document("a.txt", b"abc", user_id=USER)
        [_, reply] = telegram_api.wait_for(lambda found: len(found) == 2, USER)
        assert (reply.document, reply.text) == (("twice-a.txt", b"abcabc"), "here")

    asyncio.run(talk())
    assert telegram_api.calls("sendChatAction")[0]["action"] == "typing"
    assert telegram_api.calls("setMyCommands")[0]["commands"] == [{"command": "start", "description": "begin"}]


def test_what_the_real_server_refuses_is_refused(telegram_api: TelegramApi) -> None:
    async def ask() -> None:
        async with built(telegram_api).bot as bot:
            await bot.send_message(USER, "👋" * 2048)
            with pytest.raises(BadRequest, match="too long"):
                await bot.send_message(USER, "👋" * 2048 + "!")
            for wrong in ("<b>open", "<p>unknown</p>", "a < b", "<b><i>crossed</b></i>"):
                with pytest.raises(BadRequest, match="parse entities"):
                    await bot.send_message(USER, wrong, parse_mode="HTML")
            sent = await bot.send_message(USER, "same")
            with pytest.raises(BadRequest, match="not modified"):
                await sent.edit_text("same")
            telegram_api.refuse("sendMessage", 429, "Too Many Requests: retry after 5", retry_after=5)
            with pytest.raises(RetryAfter):
                await bot.send_message(USER, "later")
            await bot.send_message(USER, "now")

    asyncio.run(ask())
    assert [reply.text for reply in telegram_api.replies(USER)] == ["👋" * 2048, "same", "now"]


def test_a_file_that_is_too_big_is_not_handed_out(telegram_api: TelegramApi) -> None:
    async def ask() -> None:
        async with built(telegram_api).bot as bot:
            [update] = await bot.get_updates(timeout=20)
            assert update.message is not None
            assert update.message.document is not None
            with pytest.raises(BadRequest, match="too big"):
                await update.message.document.get_file()

    telegram_api.send_document("big.bin", b"", user_id=USER, size_bytes=21 * 2**20)
    asyncio.run(ask())


def test_an_update_comes_again_until_a_higher_offset_confirms_it(telegram_api: TelegramApi) -> None:
    async def ask() -> None:
        async with built(telegram_api).bot as bot:
            [first] = await bot.get_updates()
            [again] = await bot.get_updates()
            assert first.update_id == again.update_id
            assert await bot.get_updates(offset=first.update_id + 1) == ()

    telegram_api.send_text("once", user_id=USER)
    asyncio.run(ask())


def test_another_token_is_refused(telegram_api: TelegramApi) -> None:
    async def ask() -> None:
        bot = Bot("1:wrong", base_url=telegram_api.base_url)
        with pytest.raises(InvalidToken):
            await bot.initialize()
        await bot.shutdown()  # `async with` would leave its connections open here

    asyncio.run(ask())
