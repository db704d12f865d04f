"""A chat gateway that answers a bot's chats in a loop of its own; the test is the person on the other side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosting.pools import session_pool
from tests.real.telegram_api import Reply, TelegramApi

from foldline.doors.gateway.chat_gateway import ChatGateway
from foldline.doors.gateway.replies import Pace
from foldline.doors.gateway.telegram import telegram
from foldline.hosting.session_pool import SessionPool

USER = 7
QUICK = Pace(first_line_seconds=0, line_seconds=0)
PATIENT = Pace(first_line_seconds=600)
"""No line on the progress of a turn: tests that count messages want none."""

START_SECONDS = 120


@dataclass
class RunningGateway:
    """A running gateway. `notices` are the lines for its owner."""

    api: TelegramApi
    pool: SessionPool
    loop: asyncio.AbstractEventLoop
    stopping: asyncio.Event
    notices: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)

    def texts(self, count: int, chat: int = USER, thread: int | None = None) -> list[str]:
        """The messages to the person, as soon as there are `count` of them."""
        found = self.api.wait_for(lambda replies: len(replies) >= count, chat, thread_id=thread)
        return [reply.text for reply in found]

    def ask(self, text: str, user: int = USER) -> str:
        """Send a text, and return the next message."""
        before = len(self.api.replies(user))
        send = self.api.send_command if text.startswith("/") else self.api.send_text
        send(text, user_id=user)
        return self.texts(before + 1, user)[before]

    def until(self, holds: Callable[[list[Reply]], bool], chat: int = USER) -> list[Reply]:
        return self.api.wait_for(holds, chat)


@contextmanager
def running_gateway(
    api: TelegramApi,
    url: str,
    folder: Path,
    *,
    users: Sequence[int] = (USER,),
    pace: Pace = PATIENT,
    max_file_bytes: int | None = None,
    grace_seconds: float = 5.0,
    **acted: Any,
) -> Iterator[RunningGateway]:
    """Run a gateway until the block ends. Its errors are raised here."""
    up: list[RunningGateway] = []
    faults: list[BaseException] = []
    ready = threading.Event()

    async def attend() -> None:
        notices: list[str] = []
        async with (
            session_pool(url, folder, **acted) as pool,
            telegram(api.token, base_url=api.base_url.removesuffix("/bot"), notice=notices.append) as gateway,
        ):
            chat_gateway = ChatGateway(
                pool,
                gateway,
                users=[str(user) for user in users],
                notice=notices.append,
                pace=pace,
                max_file_bytes=max_file_bytes,
            )
            one = RunningGateway(api, pool, asyncio.get_running_loop(), asyncio.Event(), notices)
            up.append(one)
            ready.set()
            await chat_gateway.run(one.stopping, grace_seconds=grace_seconds)

    def run() -> None:
        try:
            asyncio.run(attend())
        except BaseException as fault:  # noqa: BLE001 - handed to the test
            faults.append(fault)
        finally:
            ready.set()
            for one in up:
                one.over.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(START_SECONDS)
    try:
        if up:
            yield up[0]
    finally:
        if up and thread.is_alive():
            up[0].stop()
        thread.join(START_SECONDS)
    if faults:
        raise faults[0]
    assert not thread.is_alive()
