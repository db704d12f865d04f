"""Turns that break off: stopped at any moment, on a full disk, by a listener. Nothing is lost, the session goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import CoroutineType
from typing import Any, cast

import pytest
from tests.agent.support import DIALECTS, Answers, agent_over, calls

from foldline.agent.events import AgentEvent, ReplyFinished, ToolFinished, TurnEnded
from foldline.agent.tool_calls import INTERRUPTED, run_calls
from foldline.agent.tools.base import ToolOutcome
from foldline.agent.tools.toolbox import Toolbox
from foldline.engine.context import Request
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.messages import ToolCall
from foldline.providers.base import Piece, Provider, TextDelta
from foldline.store.folders import FileStore
from foldline.store.session import LOG
from foldline.testing import FakeProvider
from foldline.view.transcript import Entry

if sys.platform != "win32":
    import resource

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="limits of a file's size are those of POSIX")


class Streaming:
    """A provider whose pieces come one by one, and whose connection takes a moment to close."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self.name, self.dialect, self.model, self.endpoint = inner.name, inner.dialect, inner.model, inner.endpoint
        self.open = 0

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        self.open += 1
        try:
            async with aclosing(cast("Any", self.inner.stream(request))) as pieces:
                async for piece in pieces:
                    await asyncio.sleep(0)
                    yield piece
        finally:
            self.open -= 1
            await asyncio.sleep(0)

    async def window_tokens(self) -> int | None:
        return None

    async def aclose(self) -> None:
        await self.inner.aclose()


async def slow(arguments: Mapping[str, Any]) -> ToolOutcome:
    """A tool that takes three steps of the event loop."""
    for _ in range(3):
        await asyncio.sleep(0)
    return ToolOutcome(f"found {arguments['what']}")


def unrecorded_words(heard: list[AgentEvent], log: str) -> str:
    """The words on screen that are not in the session."""
    shown = ""
    for event in heard:
        shown = (
            shown + event.text if isinstance(event, TextDelta) else "" if isinstance(event, ReplyFinished) else shown
        )
    return "" if shown.strip() in log else shown


@every_dialect
def test_a_turn_stopped_at_any_step_loses_nothing_that_was_said_or_done(dialect: str) -> None:
    async def stopped_after(steps: int) -> bool:
        heard: list[AgentEvent] = []
        fake = FakeProvider([calls("a", "b"), calls("c"), "All found.", *["Fine."] * 2])
        async with agent_over(fake, Answers(slow), dialect=dialect, heard=heard) as agent:
            agent.provider = provider = Streaming(agent.provider)
            own = asyncio.current_task()
            assert own is not None
            task = asyncio.create_task(agent.run("Look."))
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                assert task.result().text == "All found."
                return True
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert provider.open == 0
            left = [one.get_coro() for one in asyncio.all_tasks() if not one.done()]
            assert [one for one in left if isinstance(one, CoroutineType)] == [
                own.get_coro()
            ]  # httpx's generators aside
            log = json.dumps([event.recorded for event in agent.session.context.events if isinstance(event, Entry)])
            assert unrecorded_words(heard, log) == ""
            assert [e.text for e in heard if isinstance(e, ToolFinished) and e.text not in log] == []
            if not agent.session.empty:
                request = await agent.session.prepare()
                assert check(request.messages, dialect=dialect, system=request.system, tools=request.tools) == []
                assert request.repairs == ()
            assert (await agent.run("Go on.")).reason == "done"
            assert not fake.refusals
        return False

    steps = 0
    while not asyncio.run(stopped_after(steps)):
        steps += 1
    assert steps > 30


def test_a_second_cancellation_does_not_wait_for_a_tool_that_will_not_stop() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def stubborn(arguments: Mapping[str, Any]) -> ToolOutcome:
        try:
            await asyncio.Event().wait()
        finally:
            entered.set()
            await release.wait()
        raise AssertionError

    async def turn() -> list[tuple[ToolCall, str, bool]]:
        recorded: list[tuple[ToolCall, str, bool]] = []
        toolbox = Toolbox([Answers(stubborn)])
        call = ToolCall(id="c1", name="look", arguments='{"what": "x"}')
        scope: Any = None  # this tool looks at none
        running = asyncio.create_task(run_calls([call], toolbox, scope, lambda event: None, recorded.extend))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        await entered.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        release.set()
        return recorded

    ((_, text, is_error),) = asyncio.run(turn())
    assert (text, is_error) == (INTERRUPTED, True)


def test_a_listener_that_raises_is_heard_of_and_costs_no_result_of_other_calls() -> None:
    async def turn() -> None:
        def tell(event: AgentEvent) -> None:
            if isinstance(event, ToolFinished) and event.text == "found a":
                raise ZeroDivisionError("a fault of the listener")

        fake = FakeProvider([calls("a", "b"), "Fine."])
        async with agent_over(fake, Answers(slow)) as agent:
            agent.emit = tell
            with pytest.raises(ZeroDivisionError):
                await agent.run("Look.")
            request = await agent.session.prepare()
            assert "found b" in str(request.messages)
            assert request.repairs == ()
            assert (await agent.run("Go on.")).text == "Fine."

    asyncio.run(turn())


def test_a_second_turn_at_once_is_refused_and_the_first_goes_on() -> None:
    async def turn() -> None:
        fake = FakeProvider([calls("a"), "Found."])
        async with agent_over(fake, Answers(slow)) as agent:
            first = asyncio.create_task(agent.run("Look."))
            await asyncio.sleep(0)
            with pytest.raises(InvalidInput, match="a turn is running"):
                await agent.run("And look there.")
            assert (await first).text == "Found."
            assert "there" not in str(fake.requests[-1].body["messages"])
            assert (await agent.run("Thanks.")).reason != "cancelled"

    asyncio.run(turn())


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def room(size_bytes: int) -> Iterator[None]:
    """No file grows over this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def recorded(root: Path, name: str) -> list[Any]:
    return [event.recorded for event in FileStore(root, fsync=False).read(name).events if isinstance(event, Entry)]


@posix_only
@every_dialect
def test_on_a_full_disk_nothing_is_done_unrecorded_and_nothing_lost(dialect: str, tmp_path: Path) -> None:
    async def full_at(size_bytes: int, root: Path) -> bool:
        ran: list[str] = []

        def look(arguments: Mapping[str, Any]) -> str:
            ran.append(arguments["what"])
            return f"{arguments['what']} " + "some words of it " * 150

        heard: list[AgentEvent] = []
        fake = FakeProvider([calls("alpha"), calls("beta", "gamma"), calls("delta"), "Found.", *["Fine."] * 5])
        async with agent_over(fake, Answers(look), dialect=dialect, window=3_000, root=root, heard=heard) as agent:
            stored = agent.session.stored
            assert stored is not None
            try:
                with room(size_bytes):
                    await agent.run("Look.")
                return True
            except OSError as error:
                assert LOG in str(error)
            log = (Path(stored.place) / LOG).read_text()
            assert [name for name in ran if name not in log] == []
            if "Look." in log:
                assert len([event for event in heard if isinstance(event, TurnEnded)]) == 1
            held = [event.recorded for event in agent.session.context.events if isinstance(event, Entry)]
            agent.session.undo()
            assert (await agent.run("Go on.")).reason == "done"
            assert (await agent.session.prepare()).repairs == ()
            assert not fake.refusals
            after = recorded(root, stored.id)
            assert [wire for wire in held if wire not in after] == []
            assert after == [e.recorded for e in agent.session.whole().events if isinstance(e, Entry)]
        return False

    size_bytes = 250
    while not asyncio.run(full_at(size_bytes, tmp_path / str(size_bytes))):
        size_bytes += 991
    assert size_bytes > 10_000


@posix_only
def test_what_a_full_disk_kept_from_the_log_survives_an_undo(tmp_path: Path) -> None:
    """An undo reads the session again from the disk: what is not there yet has to get there first."""

    async def turn() -> None:
        steps = [calls(f"n{number}") for number in range(3)]
        tool = Answers(lambda arguments: f"{arguments['what']} " + "some words of it " * 150)
        fake = FakeProvider([*steps, "Found."])
        async with agent_over(fake, tool, window=3_000, root=tmp_path) as agent:
            await agent.run("Look.")
            agent.session.add_user_message("And now?")
            assert await agent.session.compact(None, None)
            assert agent.session.context.released
            stored = agent.session.stored
            assert stored is not None
            with room((Path(stored.place) / LOG).stat().st_size), pytest.raises(OSError, match="File too large"):
                agent.session.record([{"role": "user", "content": "Mind the gap."}])
            assert agent.session.undo()
            assert {"role": "user", "content": "Mind the gap."} in recorded(tmp_path, stored.id)
            assert "Mind the gap." in str((await agent.session.prepare()).messages)

    asyncio.run(turn())


@posix_only
def test_an_archive_that_cannot_be_written_ends_the_turn_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def turn() -> None:
        fake = FakeProvider([*[calls(f"n{number}") for number in range(8)], *["Fine."] * 3], window_tokens=3_000)
        tool = Answers(lambda arguments: f"{arguments['what']} " + "some words of it " * 150)
        async with agent_over(fake, tool, window=3_000, root=tmp_path) as agent:
            stored = agent.session.stored
            assert stored is not None
            in_its_place = Path(stored.place) / "archive"
            in_its_place.write_text("no folder")
            with pytest.raises(OSError, match="archive"):
                await agent.run("Look.")
            in_its_place.unlink()
            assert (await agent.run("Go on.")).reason == "done"
            assert not fake.refusals
            assert (await agent.session.prepare()).repairs == ()

    asyncio.run(turn())
