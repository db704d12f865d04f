"""A chat platform on paper: the Protocol `Gateway` in forty lines, for tests of `ChatGateway` without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.doors.gateway.base import Attachment, ChatPlace, Incoming, NotDelivered, Receive
from foldline.doors.gateway.markdown import utf16_units

HERE = ChatPlace("1")


@dataclass
class PaperGateway:
    """`files` can be fetched by their ids; places in `closed` take no message. `inbound` is handed over in batches."""

    name: str = "paper:1"
    max_units: int = 2_000
    max_file_bytes: int = 1_000_000
    files: dict[str, bytes] = field(default_factory=dict)
    closed: set[ChatPlace] = field(default_factory=set)
    sent: list[tuple[ChatPlace, str]] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    inbound: asyncio.Queue[Sequence[Incoming]] = field(default_factory=asyncio.Queue)

    def units(self, line: str) -> int:
        return utf16_units(line)

    async def run(self, take: Receive) -> None:
        while True:
            await take(await self.inbound.get())

    async def send(self, where: ChatPlace, text: str) -> str:
        if where in self.closed:
            raise NotDelivered("it is closed")
        async with self.news:
            self.sent.append((where, text))
            self.news.notify_all()
        return str(len(self.sent) - 1)

    async def edit(self, where: ChatPlace, sent: str, text: str) -> None:
        self.sent[int(sent)] = (where, text)

    async def typing(self, where: ChatPlace) -> None:
        return

    async def fetch(self, file: Attachment, max_bytes: int) -> bytes:
        if file.id not in self.files:
            raise NotDelivered("it is gone")
        return self.files[file.id]

    async def announce(self, commands: Sequence[tuple[str, str]]) -> None:
        return

    # --- for tests ---------------------------------------------------------------------------------------------------

    async def texts(self, count: int) -> list[str]:
        """What was sent, as soon as there are so many."""
        async with asyncio.timeout(120), self.news:
            await self.news.wait_for(lambda: len(self.sent) >= count)
            return [text for _, text in self.sent]


def message(text: str, number: int, *, user: str = "7", where: ChatPlace = HERE, **more: object) -> Incoming:
    """A message of a person."""
    return Incoming(key=str(number), user=user, where=where, text=text, **more)  # type: ignore[arg-type]
