"""Agents that work until they are killed, and say, line by line, what their user has seen. Run by test_crashes.py.

For each line on standard input (a session's id) a child is started, so that a process to kill costs no start of Python.
What the child says:

    resuming, resumed     it opens the session
    writing               a write to the log begins; it goes on in small pieces
    folding, folded       a fold begins, and is in the log
    prompt N              the user's message is accepted
    reply TOKEN           a reply is finished
    tool TOKEN            a tool has come to its end
    result TOKEN          the model is called with what that tool brought
    refused, failed       what must not happen
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from tests.agent.support import Answers, agent_over

from foldline.agent.events import AgentEvent, Calling, ReplyFinished, ToolFinished
from foldline.agent.loop import Agent
from foldline.engine.events import FoldFinished, FoldStarted
from foldline.store.folders import FileStore
from foldline.store.session import FileSession
from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import Entry

WINDOW_TOKENS = 3_000
PIECE_BYTES = 48
TOKEN = re.compile(r"(prompt|reply|result) ([0-9a-f]+)\b")


class Piecemeal(io.FileIO):
    """A file that takes little at each write, as a system may: what a kill leaves of a record is a part of it."""

    def write(self, data: Any, /) -> int:
        """Some of the bytes."""
        os.sched_yield()
        return super().write(data[:PIECE_BYTES])


class Progress(list[AgentEvent]):
    """Says what the user of the agent sees."""

    def __init__(self) -> None:
        self.prompt = 0
        self.finished: list[str] = []

    def append(self, event: AgentEvent, /) -> None:
        """One event."""
        match event:
            case Calling(iteration=1):
                say(f"prompt {self.prompt}")
            case Calling():
                for token in self.finished:
                    say(f"result {token}")
                self.finished.clear()
            case ReplyFinished(text=text):
                say(token_in(text))
            case ToolFinished(text=text):
                say(token_in(text).replace("result", "tool"))
                self.finished.append(token_in(text).split()[1])
            case FoldStarted():
                say("folding")
            case FoldFinished():
                say("folded")


def say(line: str) -> None:
    """One line, at once and whole."""
    os.write(1, f"{line}\n".encode())


def token_in(text: str) -> str:
    """The first "reply TOKEN" or "result TOKEN" of a text."""
    found = TOKEN.search(text)
    assert found is not None, text
    return found[0]


def tool() -> Answers:
    """A tool whose results are long now and then, and name themselves."""
    return Answers(lambda arguments: f"result {arguments['what']} " + "some words of it " * random.choice((3, 30, 250)))


def model(body: Mapping[str, Any]) -> FakeReply:
    """A model that calls the tool once, twice or not at all."""
    del body
    count = random.choice((0, 1, 1, 2))
    calls = tuple(("look", {"what": secrets.token_hex(6)}) for _ in range(count))
    return FakeReply(text=f"reply {secrets.token_hex(6)} " + "and more words " * random.choice((2, 20)), calls=calls)


async def summarise(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    """A summary, after a moment in which a kill may come."""
    del max_output_tokens
    await asyncio.sleep(0.002)
    return f"A summary of {len(messages)} messages: they were about tokens, words and results."


def opened(store: FileStore, name: str) -> FileSession:
    """Open the session for writing, its log written piece by piece."""
    stored = store.open(name)
    log = stored._log  # there is no other way to a disk that takes a record bit by bit
    whole = log._file
    log._file = Piecemeal(os.dup(whole.fileno()), "r+b")
    whole.close()
    extend = log.extend

    def announce_and_extend(events: Any) -> None:
        say("writing")
        extend(events)

    log.extend = announce_and_extend  # type: ignore[method-assign]
    return stored


def next_prompt(agent: Agent) -> int:
    """Return the number of the first prompt that the session does not have."""
    texts = [str(event.recorded) for event in agent.session.whole().events if isinstance(event, Entry)]
    numbers = [int(found[1]) for text in texts if (found := re.search(r"prompt (\d+):", text))]
    return max(numbers, default=-1) + 1


async def work(root: str, name: str) -> None:
    """Run turn after turn, without end."""
    say("resuming")
    progress = Progress()
    stored = opened(FileStore(root, fsync=True), name)
    fake = FakeProvider(model, window_tokens=WINDOW_TOKENS)
    asked: dict[str, Any] = {"summarize": summarise} if stored.header.policy == "checkpoint" else {}
    async with agent_over(
        fake,
        tool(),
        dialect=stored.header.dialect,
        chosen=stored.header.policy,
        window=WINDOW_TOKENS,
        max_output_tokens=200,
        stored=stored,
        heard=progress,
        **asked,
    ) as agent:
        progress.prompt = next_prompt(agent)
        say("resumed")
        while True:
            ended = await agent.run(f"prompt {progress.prompt}: " + "what about this? " * random.randint(1, 20))
            if fake.refusals:
                say(f"refused {dict(fake.refusals)}")
            if ended.reason not in {"done", "iterations"}:
                say(f"failed {ended}")
            progress.prompt += 1
            if progress.prompt % 4 == 0:
                agent.session.save()


def main(root: str) -> None:
    """Starts a child for each name, and says when it is gone."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                random.seed()  # else every child would do what the first one did
                asyncio.run(work(root, line.strip()))
            finally:
                os._exit(1)
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
