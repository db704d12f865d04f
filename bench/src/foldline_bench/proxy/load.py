"""The clients of a measurement: `python -m foldline_bench.proxy.load` loads one address and prints a JSON report.

Every client has a connection of its own and a conversation that grows by each answer, as agents have them; it reads
HTTP by hand, so that the clients are not what is measured. Each answer is checked against its request.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, Final
from urllib.parse import urlsplit

from foldline_bench.proxy.processes import ServerProcess
from foldline_bench.proxy.upstream import WORD, answer_text

__all__ = ["Client", "GrowingChat", "LoadPlan", "LoadReport", "load", "main"]

_END: Final = b"\r\n0\r\n\r\n"
_SYSTEM_BYTES: Final = 3_000
_USER_BYTES: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The plan of one measurement.

    `every_seconds` is the time from one request of a client to its next (0: at once when the last one has ended).
    `first_seconds` is how long the upstream takes to its first event, half to one and a half times that by chance
    (0: not at all). The first `warm_seconds` are not counted. A conversation has `turns` turns. An answer
    that is not there `stuck_seconds` after the end is a fault.
    """

    url: str
    key: str = "sk-bench"
    clients: int = 64
    seconds: float = 10.0
    warm_seconds: float = 3.0
    every_seconds: float = 0.0
    first_seconds: float = 0.0
    words: int = 40
    pause_seconds: float = 0.0
    turns: int = 20
    stuck_seconds: float = 60.0


@dataclass(slots=True)
class LoadReport:
    """The clients' report: `requests` are those of the `seconds` that count, `answered` in `lasted_seconds` are all.

    The times are those of requests that began in the seconds that count, also where they were answered later.
    `first_byte_seconds`: from the request to the first byte of the body, without what the upstream waits by itself;
    `over_seconds`: the same to the end of the answer. `late` requests began after their time, because the one before
    took too long. Processor time and memory are those of the clients' own process. `faults` are counted by what went
    wrong, warming up included, and are not among the others.
    """

    requests: int = 0
    seconds: float = 0.0
    answered: int = 0
    lasted_seconds: float = 0.0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int | None = None
    late: int = 0
    first_byte_seconds: list[float] = field(default_factory=list)
    over_seconds: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values, from which it can be made again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class GrowingChat:
    """The bodies of one conversation after the other, each as the messages so far and a new one."""

    def __init__(self, name: str, wanted: LoadPlan) -> None:
        self._name, self._wanted, self._chance = name, wanted, random.Random(name)
        self._number, self._turn, self._messages = 0, 0, b""

    def next(self) -> tuple[bytes, str, float]:
        """The body of the next request, the mark that its answer begins with, the seconds that the upstream waits."""
        if self._turn in {0, self._wanted.turns}:
            self._turn, self._number = 0, self._number + 1
            self._messages = _message("system", f"Conversation {self._name}-{self._number}. {_filler(_SYSTEM_BYTES)}")
        wait = round(self._wanted.first_seconds * 1000 * self._chance.uniform(0.5, 1.5))
        pause = round(self._wanted.pause_seconds * 1000)
        mark = f"{self._name}-{self._number}-{self._turn}"
        self._messages += b"," + _message("user", f"{_filler(_USER_BYTES)} [[{mark} {wait} {pause}]]")
        body = (
            b'{"model":"bench","stream":true,"stream_options":{"include_usage":true},"messages":['
            + self._messages
            + b"]}"
        )
        self._messages += b"," + _message("assistant", answer_text(mark, self._wanted.words))
        self._turn += 1
        return body, mark, wait / 1000


def _message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}, separators=(",", ":")).encode()


def _filler(size: int) -> str:
    words = "Read the module, find out why the build failed, and mend it without breaking its callers. "
    return (words * (size // len(words) + 1))[:size]


class Client(asyncio.Protocol):
    """One connection with one conversation at a time."""

    def __init__(
        self, name: str, wanted: LoadPlan, seen: LoadReport, start: float, lost: Callable[[Client], None]
    ) -> None:
        self._wanted, self._seen, self._lost = wanted, seen, lost
        self._loop = asyncio.get_running_loop()
        self._talk = GrowingChat(name, wanted)
        at = urlsplit(wanted.url)
        self._head = (
            f"POST {at.path} HTTP/1.1\r\nhost: {at.netloc}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {wanted.key}\r\naccept: text/event-stream\r\nconnection: keep-alive\r\n"
        ).encode()
        self._counts_from = start + wanted.warm_seconds
        self._ends_at = self._stops_at = self._counts_from + wanted.seconds
        self._due = start
        self._mark, self._planned = "", 0.0
        self._began, self._first, self._size = 0.0, 0.0, 0
        self._read = bytearray()
        self._body_at = -1
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask, at once or at the time that it is due."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._next()

    def begin_at(self, when: float) -> None:
        """When its first request is due (perf_counter)."""
        self._due = when

    def _next(self) -> None:
        wait = self._due - perf_counter()
        if self._due >= self._stops_at or perf_counter() >= self._stops_at:
            self.close()
        elif wait > 0.0005:
            self._timer = self._loop.call_later(wait, self._ask)
        else:
            self._loop.call_soon(self._ask)

    def close(self) -> None:
        """Ask nothing more."""
        self.busy = False
        self._stops_at = 0.0
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.close()

    def _ask(self) -> None:
        if self.transport is None:
            return
        body, self._mark, self._planned = self._talk.next()
        request = b"%scontent-length: %d\r\n\r\n%s" % (self._head, len(body), body)
        self._size = len(body)
        self._read.clear()
        self._body_at = -1
        self.busy = True
        self._began = perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Note the first byte of the body, and see the end."""
        self._read += data
        if self._body_at < 0:
            end = self._read.find(b"\r\n\r\n")
            if end < 0 or len(self._read) == end + 4:
                return
            self._body_at = end + 4
            self._first = perf_counter()
            if not self._read.startswith(b"HTTP/1.1 200"):
                self._fail(f"status {bytes(self._read[9:12]).decode('latin-1')}")
        if self._read.endswith(_END) and self.busy:
            self._ended(perf_counter())

    def _ended(self, now: float) -> None:
        self.busy = False
        self._count(now)
        self._due = self._due + self._wanted.every_seconds if self._wanted.every_seconds else now
        self._next()

    def _count(self, now: float) -> None:
        wrong = self._wrong()
        if wrong:
            self._seen.faults[wrong] += 1
            return
        self._seen.answered += 1
        # With a schedule, requests count by their start: slow answers must not drop out (coordinated omission). In a
        # closed loop they count by their end, as the rate is that of answers.
        when = self._began if self._wanted.every_seconds else now
        if self._counts_from <= when < self._ends_at:
            self._seen.requests += 1
            self._seen.sent_bytes += self._size
        if self._began >= self._counts_from:
            planned = self._planned + self._wanted.pause_seconds * (self._wanted.words - 1)
            self._seen.first_byte_seconds.append(self._first - self._began - self._planned)
            self._seen.over_seconds.append(now - self._began - planned)
            self._seen.late += self._wanted.every_seconds > 0 and self._began > self._due + 0.1

    def _wrong(self) -> str:
        """The fault of a complete answer, "" if there is none."""
        if f'"{self._mark}"'.encode() not in self._read:
            return "the answer of another request"
        words = self._read.count(f'"{WORD}"'.encode())
        if words != self._wanted.words - 1 or b"data: [DONE]" not in self._read:
            return "an answer that is not whole"
        return ""

    def _fail(self, what: str) -> None:
        """Count it, and go on with a new connection."""
        self._seen.faults[what] += 1
        self.busy = False
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Connect again unless all is done; an answer that was under way has failed."""
        self.transport = None
        if self.busy:
            self.busy = False
            self._seen.faults["a connection that broke"] += 1
        if self._stops_at:
            self._due = max(self._due, perf_counter() + 0.05)  # a server that is down is not asked in a tight loop
        self._lost(self)

    @property
    def going_on(self) -> bool:
        """Whether it still has something to ask."""
        return self._stops_at > perf_counter()


async def load(wanted: LoadPlan) -> LoadReport:
    """Run all clients to the end of the time, and until their last answers are there."""
    loop, seen, at = asyncio.get_running_loop(), LoadReport(), urlsplit(wanted.url)
    host, port = at.hostname or "127.0.0.1", at.port or 80
    start = perf_counter() + 0.2
    left, all_done, connecting = wanted.clients, asyncio.Event(), set[asyncio.Task[None]]()

    def lost(client: Client) -> None:
        nonlocal left
        if client.going_on:
            task = loop.create_task(connect(client))
            connecting.add(task)
            task.add_done_callback(connecting.discard)
            return
        left -= 1
        if not left:
            all_done.set()

    async def connect(client: Client) -> None:
        while True:
            try:
                await loop.create_connection(lambda: client, host, port)
            except OSError:
                seen.faults["a connection refused"] += 1
                if not client.going_on:
                    lost(client)
                    return
                await asyncio.sleep(0.1)
            else:
                return

    clients = [Client(f"c{number}", wanted, seen, start, lost) for number in range(wanted.clients)]
    for number, client in enumerate(clients):  # spread over one period, so that they do not march in step
        client.begin_at(start + (wanted.every_seconds or 0.2) * number / wanted.clients)
        await connect(client)
    try:
        async with asyncio.timeout(0.2 + wanted.warm_seconds + wanted.seconds + wanted.stuck_seconds):
            await all_done.wait()
    except TimeoutError:
        seen.faults["no answer"] += sum(client.busy for client in clients)
        for client in clients:
            client.close()
        await asyncio.sleep(0)
    seen.seconds, seen.lasted_seconds = wanted.seconds, perf_counter() - start
    return seen


def main(argv: Sequence[str] | None = None) -> None:
    """Read a plan as JSON, run it, print the report as JSON."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.proxy.load", description=__doc__)
    parser.add_argument("wanted", help="the fields of Load as JSON")
    wanted = LoadPlan(**json.loads(parser.parse_args(argv).wanted))
    # A pause of the clients would look like one of the proxy. A run is too short for its memory to matter.
    gc.disable()
    seen = asyncio.run(load(wanted))
    seen.cpu_seconds, seen.peak_rss_bytes = process_time(), ServerProcess("", os.getpid()).peak_rss_bytes()
    sys.stdout.write(json.dumps(seen.as_json()) + "\n")


if __name__ == "__main__":
    main()
