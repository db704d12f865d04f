"""Many conversations at once through a proxy, over an upstream that fails in every way, and what each client must see.

Each request carries a mark, `conversation-turn`, in a field that nobody reads; the upstream answers with it. Texts of
the conversation hold marks too, so that the upstream sees when one conversation's request holds another one's text.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import aiohttp

from foldline.testing import FakeReply

__all__ = ["DIALECTS", "FAULTS", "LEFT", "WINDOW", "Client", "Seen", "Storm"]

WINDOW: Final = 4_000
TURNS: Final = 24
"""Turns of about 350 tokens: twice the window."""

DIALECTS: Final = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}

FAULTS: Final[dict[str, tuple[FakeReply, int]]] = {
    "429": (FakeReply(status=429, retry_after_seconds=2), 429),
    "500": (FakeReply(status=500), 500),
    "502": (FakeReply(status=502), 502),
    "503": (FakeReply(status=503), 503),
    "529": (FakeReply(status=529), 529),
    "no answer": (FakeReply("lost", fails="no_answer"), 502),
    "broken": (FakeReply("this breaks off", fails="broken", piece_chars=4), 200),
    "broken at once": (FakeReply("this breaks off", fails="broken", after_events=0), 200),
    "unfinished": (FakeReply("this stops", fails="unfinished"), 200),
    "error inside": (FakeReply("this fails", fails="error"), 200),
    "overflow inside": (FakeReply("this fails", fails="overflow"), 200),
    "overflow at the beginning": (FakeReply("never said", fails="overflow", after_events=0), 200),
    "overflow": (FakeReply(status=400), 400),
}
"""What the upstream does to a request, and the status that the client sees. "overflow" has the dialect's own words."""

RECOVERED: Final = frozenset({"overflow", "overflow at the beginning"})
"""A large request that is refused for this is answered all the same, and the client never knows."""

LEFT: Final = "left"
"""The client goes away at the first piece of its answer; the upstream holds back the rest until it hears of that."""

_TOO_LONG: Final = {
    "openai-chat": "This model's maximum context length is {0} tokens. However, your messages resulted in {1} tokens.",
    "openai-responses": "Input tokens exceed the configured limit of {0} tokens. Your messages resulted in {1} tokens.",
    "anthropic": "prompt is too long: {1} tokens > {0} maximum",
}
_MARK: Final = re.compile(r"\[\[(c\d+)-(\d+)\]\]")


@dataclass(slots=True)
class Storm:
    """The script of the upstream: its requests, and the faults that the test ordered."""

    random: random.Random
    attempts: Counter[str] = field(default_factory=Counter)
    planned: dict[str, str] = field(default_factory=dict)
    mixed: list[str] = field(default_factory=list)
    summaries: int = 0
    deck: list[str] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=lambda: count(1))

    def dealt(self, *, streamed: bool) -> str:
        """The next fault, from a shuffled deck of all, so that none is left out; who is not streamed cannot leave."""
        if not any(streamed or fault != LEFT for fault in self.deck):
            self.deck += self.random.sample([*FAULTS, LEFT], len(FAULTS) + 1)
        fault = next(fault for fault in self.deck if streamed or fault != LEFT)
        self.deck.remove(fault)
        return fault

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        """Answer one request."""
        text = json.dumps(body)
        names = {match[1] for match in _MARK.finditer(text)}
        mark = (body.get("metadata") or {}).get("mark")
        if len(names) > 1:
            self.mixed.append(f"{mark}: {sorted(names)}")
        if mark is None:  # the proxy wants a summary
            self.summaries += 1
            return FakeReply(status=500) if self.summaries % 5 == 0 else FakeReply("They went on step by step.")
        name, _, turn = mark.partition("-")
        if (int(turn) and f"[[{mark}]]" not in text) or names - {name}:
            self.mixed.append(f"{mark}: {sorted(names)}, its newest message is not there")
        self.attempts[mark] += 1
        fault = self.planned.get(mark)
        if fault == LEFT and self.attempts[mark] == 1:
            return FakeReply(f"echo {mark}", gate=asyncio.Event(), piece_chars=3)  # goes on for nobody
        if fault in {None, LEFT}:
            return FakeReply(f"echo {mark}", gate=_aside, piece_chars=3)
        reply, _ = FAULTS[str(fault)]
        # A proxy may repeat what a kept connection swallowed, once.
        if fault not in RECOVERED or self.attempts[mark] > 1:
            if self.attempts[mark] > (2 if fault == "no answer" else 1):
                return FakeReply(f"echo {mark}", piece_chars=3)
            return reply
        if fault == "overflow":
            dialect = _dialect_of(body)
            code = None if dialect == "anthropic" else "context_length_exceeded"
            return FakeReply(status=400, message=_TOO_LONG[dialect].format(WINDOW, WINDOW + 1), code=code)
        return reply


async def _aside(number: int) -> None:
    """Let others go on between two pieces, so that answers come interleaved."""
    await asyncio.sleep(0.001 if number % 4 == 0 else 0)


def _dialect_of(body: Mapping[str, Any]) -> str:
    if "input" in body:
        return "openai-responses"
    return "anthropic" if "max_tokens" in body else "openai-chat"


@dataclass(slots=True)
class Seen:
    """What one request came to. `end`: "whole", "cut" (the connection broke) or "left" (by the client itself)."""

    status: int
    end: str
    text: str = ""
    raw: bytes = b""
    closed: bool = False
    error: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Client:
    """One user: turn after turn of one conversation; a failed request is repeated byte for byte."""

    url: str
    name: str
    dialect: str
    streamed: bool
    storm: Storm
    counts: Counter[str]
    wrong: list[str]
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def run(self, session: aiohttp.ClientSession, left: list[int], turns: int = TURNS) -> None:
        """Talk as long as requests are `left`, a new conversation being somebody else's."""
        for turn in range(turns):
            if left[0] <= 0:
                return
            await self._turn(session, left, turn)

    async def _turn(self, session: aiohttp.ClientSession, left: list[int], turn: int) -> None:
        mark = f"{self.name}-{turn}"
        # The first message of all conversations is the same: nothing but their further course tells them apart.
        said = "Mend the build." if turn == 0 else f"Step {turn} [[{mark}]] " + "and look at the next module " * 45
        self.messages.append({"role": "user", "content": said})
        chance = self.storm.random.random()
        if chance < 0.55:
            self.storm.planned[mark] = self.storm.dealt(streamed=self.streamed)
        leaves = self.storm.planned.get(mark) == LEFT
        for _ in range(6):
            left[0] -= 1
            seen = await self._ask(session, mark, leaves=leaves)
            if seen.end == "left":
                leaves = False
                self.counts["left"] += 1
                continue
            if self._judge(mark, seen):
                self.messages.append({"role": "assistant", "content": f"echo {mark}"})
                return
        self.wrong.append(f"{mark}: no answer after six attempts, fault {self.storm.planned.get(mark)!r}")

    async def _ask(self, session: aiohttp.ClientSession, mark: str, *, leaves: bool) -> Seen:
        field_name = "input" if self.dialect == "openai-responses" else "messages"
        body: dict[str, Any] = {"model": "fake-model", field_name: self.messages, "metadata": {"mark": mark}}
        if self.streamed:
            body["stream"] = True
        headers = {"authorization": f"Bearer key-of-{self.name}"}
        if self.dialect == "anthropic":
            body["max_tokens"] = 100
            headers = {"x-api-key": f"key-of-{self.name}", "anthropic-version": "2023-06-01"}
        raw = bytearray()
        status, found, end = 0, {}, "whole"
        try:
            async with session.post(f"{self.url}{DIALECTS[self.dialect]}", json=body, headers=headers) as answer:
                status, found = answer.status, dict(answer.headers)
                async for chunk in answer.content.iter_any():
                    raw += chunk
                    if leaves:
                        answer.close()
                        return Seen(status, "left")
        except aiohttp.ClientError:
            end = "cut"
        return _read(status, end, bytes(raw), found, self.streamed)

    def _judge(self, mark: str, seen: Seen) -> bool:
        """Whether the answer is the right one; a failure that was not ordered is noted."""
        fault = self.storm.planned.get(mark)
        self.counts[f"{fault or 'none'}: {seen.status} {seen.end}"] += 1
        if (seen.status, seen.end) == (200, "whole") and seen.text == f"echo {mark}" and seen.closed:
            if int(seen.headers.get("x-foldline-recoveries", "0")):
                self.counts["recovered"] += 1
            if int(seen.headers.get("x-foldline-folds", "0")):
                self.counts["folded"] += 1
            return True
        why = _unlike(fault, seen, self.streamed)
        if why:
            self.wrong.append(f"{mark} ({self.dialect}, streamed {self.streamed}), fault {fault!r}: {why}; {seen}")
        return False


def _unlike(fault: str | None, seen: Seen, streamed: bool) -> str:
    """What is wrong with how a failure was passed on, "" if nothing is."""
    if fault is None or fault == LEFT:
        return "no failure was ordered"
    status = FAULTS[fault][1]
    if fault in RECOVERED or (fault == "overflow inside" and not streamed):
        tokens, window = (int(seen.headers.get(f"x-foldline-{name}", "0")) for name in ("tokens", "window"))
        if not 0 < tokens * 2 < window:
            return "an overflow was not recovered"
        # Too small to be one, or to be folded: passed on, or told in the dialect's words (a stream that failed).
        reported = seen.status in (200, status) and (seen.error or b"context_length_exceeded" in seen.raw)
        return "" if seen.status == 400 or reported else "an overflow was lost"
    # Whole replies and the beginnings of large ones are held back: then nothing has gone out yet.
    if (fault == "broken at once" or (fault == "broken" and not streamed)) and seen.status == 502:
        return "" if seen.end == "whole" else "a refusal was cut"
    if seen.status != status:
        return f"status {status} was to be passed on"
    if fault.startswith("broken"):
        return "" if seen.end == "cut" else "a cut looks whole"
    if seen.end != "whole":
        return "what was sent in good order was cut"
    if fault == "429" and seen.headers.get("retry-after") != "2":
        return "a header was lost"
    if fault == "unfinished" and seen.closed:
        return "what did not end looks ended"
    if status == 200 and fault != "unfinished" and not seen.error:
        return "an error inside was lost"
    return ""


def _read(status: int, end: str, raw: bytes, headers: Mapping[str, str], streamed: bool) -> Seen:
    seen = Seen(status, end, raw=raw, headers={name.lower(): value for name, value in headers.items()})
    if status != 200:
        return seen
    if not streamed:
        with suppress(ValueError):  # cut in half
            _whole(seen, json.loads(raw))
        return seen
    for line in raw.split(b"\n"):
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            seen.closed = True
        elif line.startswith(b"data: ") and line.endswith(b"}"):
            _event(seen, json.loads(data))
    return seen


def _whole(seen: Seen, body: dict[str, Any]) -> None:
    seen.error = body.get("error") is not None or body.get("type") == "error"
    if body.get("choices"):
        seen.text, seen.closed = body["choices"][0]["message"]["content"], True
    elif isinstance(body.get("content"), list):
        seen.text, seen.closed = "".join(part.get("text", "") for part in body["content"]), True
    elif isinstance(body.get("output"), list):
        parts = [part for item in body["output"] for part in item.get("content", ())]
        seen.text, seen.closed = "".join(part.get("text", "") for part in parts), True


def _event(seen: Seen, event: dict[str, Any]) -> None:
    kind = event.get("type", "")
    if event.get("error") is not None or kind in {"error", "response.failed"}:
        seen.error = True
    for choice in event.get("choices", ()):
        seen.text += choice.get("delta", {}).get("content") or ""
    if kind == "content_block_delta":
        seen.text += event["delta"].get("text", "")
    elif kind == "response.output_text.delta":
        seen.text += event["delta"]
    elif kind in {"message_stop", "response.completed"}:
        seen.closed = True
