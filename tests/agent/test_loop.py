"""The loop of the agent: answers, tools, limits, refusals, and what a stop leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import DIALECTS, Answers, agent_over, calls
from tests.engine.test_refused_parts import PDF, document, from_user, said

from foldline.agent.events import AgentEvent, Calling, Notice, ReplyFinished, ToolFinished, TurnEnded
from foldline.agent.session import RESULT_LOST
from foldline.agent.tool_calls import INTERRUPTED
from foldline.agent.tools.base import CompactionRequest, ToolOutcome
from foldline.codecs import codec
from foldline.engine.context import Request
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.messages import Message, ToolCall
from foldline.providers.base import Piece, Provider, Reply, TextDelta
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def look(arguments: Mapping[str, Any]) -> str:
    return f"found {arguments.get('what')}"


@every_dialect
def test_a_turn_runs_tools_until_the_model_answers(dialect: str) -> None:
    async def turn() -> tuple[TurnEnded, list[AgentEvent]]:
        fake = FakeProvider([calls("a", "b"), calls("c"), "All found."])
        heard: list[AgentEvent] = []
        async with agent_over(fake, Answers(look), dialect=dialect, heard=heard) as agent:
            ended = await agent.run("Find a, b and c.")
            assert not fake.refusals
            return ended, heard

    ended, heard = asyncio.run(turn())
    assert (ended.reason, ended.text, ended.iterations) == ("done", "All found.", 3)
    assert sorted(e.text for e in heard if isinstance(e, ToolFinished)) == ["found a", "found b", "found c"]
    replies = [event for event in heard if isinstance(event, ReplyFinished)]
    assert all(reply.prompt_tokens > 0 and reply.completion_tokens > 0 and not reply.estimated for reply in replies)
    assert replies[-1].figures.last_prompt_tokens == replies[-1].prompt_tokens


@every_dialect
def test_calls_of_one_reply_run_beside_each_other(dialect: str) -> None:
    both = asyncio.Event()
    running = 0

    async def meet(arguments: Mapping[str, Any]) -> ToolOutcome:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 120)
        return ToolOutcome(f"met {arguments['what']}")

    async def turn() -> list[Mapping[str, Any]]:
        fake = FakeProvider([calls("a", "b"), "Done."])
        async with agent_over(fake, Answers(meet), dialect=dialect) as agent:
            await agent.run("Go.")
            return list((await agent.session.prepare()).messages)

    sent = str(asyncio.run(turn()))
    assert 0 < sent.index("met a") < sent.index("met b")


def test_s0_08_a_turn_stops_after_the_limit_with_a_clear_message() -> None:
    async def turn(**more: Any) -> tuple[TurnEnded, int]:
        fake = FakeProvider(calls("again"))
        async with agent_over(fake, Answers(look), window=100_000, **more) as agent:
            ended = await agent.run("Go.")
            again = await agent.run("go on")
            assert again.reason == "iterations"
            assert not fake.refusals
            return ended, fake.served

    ended, served = asyncio.run(turn())
    assert ended.reason == "iterations"
    assert "50 model calls" in ended.message
    assert served == 100
    ended, served = asyncio.run(turn(max_iterations=3))
    assert "3 model calls" in ended.message
    assert served == 6


@every_dialect
def test_an_overflow_inside_the_loop_is_folded_and_sent_again(dialect: str) -> None:
    """The server's window is smaller than the one we know of: it refuses, we learn, fold and go on."""

    async def turn() -> tuple[TurnEnded, FakeProvider, list[AgentEvent], int]:
        steps = [FakeReply(text="Step.", calls=(("look", {"what": str(number)}),)) for number in range(12)]
        fake = FakeProvider([*steps, "Done."], window_tokens=4_000)
        heard: list[AgentEvent] = []
        tool = Answers(lambda arguments: f"{arguments['what']} " + "words of a result " * 150)
        async with agent_over(fake, tool, dialect=dialect, window=60_000, heard=heard) as agent:
            ended = await agent.run("Go.")
            return ended, fake, heard, agent.session.context.limits.window_tokens

    ended, fake, heard, window = asyncio.run(turn())
    assert ended.reason == "done"
    assert fake.refusals
    assert len(fake.refused) < 4
    assert window == 4_000
    assert any(isinstance(event, Notice) for event in heard)


def test_what_cannot_be_made_to_fit_ends_the_turn_with_the_parts() -> None:
    async def turn() -> TurnEnded:
        async with agent_over(FakeProvider("ok"), window=2_000, max_output_tokens=200) as agent:
            ended = await agent.run("word " * 4_000)
            assert (await agent.run("and now?")).reason == "done"  # the large message is answered by an error: it folds
            return ended

    ended = asyncio.run(turn())
    assert ended.reason == "does_not_fit"
    assert "newest user message" in ended.message


def test_a_fault_of_the_server_ends_the_turn_and_the_next_one_goes_on() -> None:
    async def turn() -> tuple[TurnEnded, TurnEnded]:
        fake = FakeProvider([FakeReply(status=401), "Here I am."])
        async with agent_over(fake) as agent:
            return await agent.run("Hello?"), await agent.run("Hello again?")

    failed, done = asyncio.run(turn())
    assert failed.reason == "failed"
    assert failed.message.startswith("auth")
    assert done.text == "Here I am."


class Halting:
    """A provider whose first reply stops in the middle of a sentence; then it is the one it stands for."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self.halted = asyncio.Event()
        self.name, self.dialect, self.model, self.endpoint = inner.name, inner.dialect, inner.model, inner.endpoint

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        if not self.halted.is_set():
            yield TextDelta("The answer ")
            yield TextDelta("is long")
            self.halted.set()
            await asyncio.Event().wait()
        async for piece in self.inner.stream(request):
            yield piece

    async def window_tokens(self) -> int | None:
        return None

    async def aclose(self) -> None:
        await self.inner.aclose()


@every_dialect
def test_a_cancelled_stream_keeps_the_words_that_came_and_a_valid_session(dialect: str) -> None:
    async def turn() -> None:
        fake = FakeProvider("Fine.")
        async with agent_over(fake, dialect=dialect) as agent:
            agent.provider = halting = Halting(agent.provider)
            task = asyncio.create_task(agent.run("Tell me."))
            await halting.halted.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ended = await agent.run("Never mind.")
            assert ended.text == "Fine."
            assert f"The answer is long\\n{INTERRUPTED}" in json.dumps(fake.requests[-1].body)
            assert not fake.refusals

    asyncio.run(turn())


@every_dialect
def test_words_that_were_shown_stay_in_the_session_when_the_reply_breaks_off(dialect: str) -> None:
    """Nothing is sent again: it would go on from half a sentence."""

    async def turn() -> None:
        fake = FakeProvider([FakeReply(text="Half of the answer is here", fails="error"), "Fine."])
        async with agent_over(fake, dialect=dialect) as agent:
            ended = await agent.run("Tell me.")
            assert ended.reason == "failed"
            assert len(fake.requests) == 1
            assert (await agent.run("Go on.")).text == "Fine."
            assert INTERRUPTED in json.dumps(fake.requests[-1].body)
            assert not fake.refusals

    asyncio.run(turn())


@pytest.mark.parametrize(
    ("reply", "reason", "message"),
    [
        (FakeReply(finish_reason="refusal"), "refusal", "refused"),
        (FakeReply(text="Well", finish_reason="length"), "length", "cut off"),
        (FakeReply(text=""), "done", "said nothing"),
    ],
)
def test_an_answer_that_is_none_says_so(reply: FakeReply, reason: str, message: str) -> None:
    async def turn() -> TurnEnded:
        async with agent_over(FakeProvider(reply)) as agent:
            return await agent.run("Tell me.")

    ended = asyncio.run(turn())
    assert ended.reason == reason
    assert message in ended.message


@every_dialect
def test_a_cancelled_tool_leaves_a_result_for_every_call(dialect: str) -> None:
    async def hang(arguments: Mapping[str, Any]) -> ToolOutcome:
        if arguments["what"] == "quick":
            return ToolOutcome("here")
        await asyncio.Event().wait()
        raise AssertionError

    async def turn() -> None:
        fake = FakeProvider([calls("quick", "slow"), "Fine."])
        heard: list[AgentEvent] = []
        tool = Answers(hang)
        async with agent_over(fake, tool, dialect=dialect, heard=heard) as agent:
            task = asyncio.create_task(agent.run("Look."))
            while not any(isinstance(event, ToolFinished) for event in heard):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert heard[-1] == TurnEnded(reason="cancelled", message="Stopped.")
            request = await agent.session.prepare()
            assert request.repairs == ()
            assert "here" in str(request.messages)
            assert INTERRUPTED in str(request.messages)
            assert check(request.messages, dialect=dialect, system=request.system, tools=request.tools) == []
            assert (await agent.run("Go on.")).text == "Fine."

    asyncio.run(turn())


@every_dialect
def test_s4_10_the_agent_compacts_its_own_conversation_by_a_typed_result(dialect: str) -> None:
    async def turn(outcome: ToolOutcome) -> tuple[int, str]:
        fake = FakeProvider([calls("x") for _ in range(6)] + [FakeReply(calls=(("look", {"what": "now"}),)), "Done."])
        tool = Answers(lambda a: outcome if a["what"] == "now" else "Plain words of a result. " * 30)
        async with agent_over(fake, tool, dialect=dialect) as agent:
            ended = await agent.run("Go.")
            assert ended.text == "Done."
            assert not fake.refusals
            folds = [event for event in agent.session.context.events if type(event).__name__ == "Fold"]
            return len(folds), str(fake.requests[-1].body)

    folds, sent = asyncio.run(turn(ToolOutcome("It will be compacted.", compact=CompactionRequest())))
    assert folds > 0
    folds, sent = asyncio.run(turn(ToolOutcome("[COMPACT_CONTEXT] __COMPACT__ compact_context() /compact")))
    assert folds == 0
    assert "/compact" in sent


@every_dialect
@pytest.mark.parametrize(
    "chosen",
    [CompactionRequest(None, ((1, 5),)), CompactionRequest(None, (), "APPLES"), CompactionRequest(None, ((0, 500),))],
    ids=["a stretch", "a topic", "what is not there"],
)
def test_the_model_folds_what_it_names_and_nothing_else(dialect: str, chosen: CompactionRequest) -> None:
    async def turn() -> tuple[set[int], str]:
        names = ["apples", "apples", "pears", "pears"]
        fake = FakeProvider([*map(calls, names), FakeReply(calls=(("look", {"what": "now"}),)), "Done."])
        done = ToolOutcome("It will be compacted, apples.", compact=chosen)
        tool = Answers(lambda a: done if a["what"] == "now" else f"Of {a['what']}: " + "plain words. " * 60)
        async with agent_over(fake, tool, dialect=dialect) as agent:
            assert (await agent.run("Go.")).text == "Done."
            assert not fake.refusals
            whole = agent.session.context
            return {seq for seq in whole.view.entries if whole.explain(seq)}, str(fake.requests[-1].body)

    folded, sent = asyncio.run(turn())
    assert sent.count("Of pears: plain words.") == 2
    if chosen.ranges and chosen.ranges[0][1] == 500:
        assert not folded
        assert "could not be compacted: entries 0 to 499 are not there" in sent
    else:
        assert folded and min(folded) >= 1
        assert "Of apples: " + "plain words. " * 8 not in sent


@every_dialect
def test_s4_11_one_notice_per_run_when_the_window_fills_and_the_loop_goes_on(dialect: str) -> None:
    async def turn() -> list[str]:
        fake = FakeProvider([calls("x") for _ in range(5)] + ["Done."])
        tool = Answers(lambda _: "Plain words of a result. " * 40)
        async with agent_over(
            fake, tool, dialect=dialect, chosen="confirm", compact_threshold=0.05, window=20_000
        ) as agent:
            await agent.run("Go.")
            return [str(message) for message in (await agent.session.prepare()).messages]

    notices = [message for message in asyncio.run(turn()) if "[Context notice:" in message]
    assert len(notices) == 1
    assert "compact_context" in notices[0]
    assert "% of the window" in notices[0]


def test_s2_08_every_fold_is_told_at_its_beginning_and_its_end() -> None:
    async def turn() -> list[str]:
        fake = FakeProvider([calls(str(number)) for number in range(30)] + ["Done."])
        heard: list[AgentEvent] = []
        tool = Answers(lambda a: f"{a['what']} " + "Plain words of a result. " * 60)
        async with agent_over(fake, tool, window=4_000, heard=heard) as agent:
            assert (await agent.run("Go.")).text == "Done."
            assert not fake.refusals
        return [event.name for event in heard if hasattr(event, "name") and "fold_" in event.name]

    expected = asyncio.run(turn())
    assert expected.count("fold_started") == expected.count("fold_finished") > 0


def test_a_server_without_usage_gets_figures_of_our_own_marked_so() -> None:
    async def turn() -> ReplyFinished:
        heard: list[AgentEvent] = []
        async with agent_over(FakeProvider("A whole sentence.", usage=False), heard=heard) as agent:
            await agent.run("Hello, who are you?")
        return next(event for event in heard if isinstance(event, ReplyFinished))

    reply = asyncio.run(turn())
    assert reply.estimated
    assert reply.prompt_tokens > 0
    assert reply.completion_tokens > 0


def test_a_turn_without_words_is_refused_before_anything_happens() -> None:
    async def turn() -> None:
        async with agent_over(FakeProvider("ok")) as agent:
            with pytest.raises(InvalidInput):
                await agent.run("  \n")
            assert agent.session.empty

    asyncio.run(turn())


def test_s0_04_every_call_tells_messages_bytes_and_tokens() -> None:
    async def turn() -> list[Calling]:
        heard: list[AgentEvent] = []
        async with agent_over(FakeProvider([calls("x"), "ok"]), Answers(look), heard=heard) as agent:
            await agent.run("Hello")
        return [event for event in heard if isinstance(event, Calling)]

    first, second = asyncio.run(turn())
    assert (first.messages, second.messages) == (1, 3)
    assert 0 < first.size_bytes < second.size_bytes
    assert 0 < first.tokens < second.tokens


@every_dialect
def test_a_session_that_broke_off_in_a_tool_call_goes_on(dialect: str, tmp_path: Path) -> None:
    """As after `kill -9` between a reply and its results: the call gets a result that says so."""

    async def turn() -> None:
        fake = FakeProvider([calls("x"), "Fine."])
        async with agent_over(fake, Answers(look), dialect=dialect, root=tmp_path) as agent:
            agent.session.add_user_message("Look.")
            request = await agent.session.prepare()
            async for piece in agent.provider.stream(request):
                last = piece
            agent.session.record(last.messages)  # type: ignore[union-attr]
            assert agent.session.stored is not None
            name = agent.session.stored.id
        async with agent_over(fake, Answers(look), dialect=dialect, root=tmp_path, resume=name) as agent:
            ended = await agent.run("Go on.")
            assert ended.text == "Fine."
            assert RESULT_LOST in str(fake.requests[-1].body)
            assert not fake.refusals

    asyncio.run(turn())


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_calls_of_one_reply_under_one_id_get_each_its_own_result(dialect: str) -> None:
    """Some compatible servers number the calls of every reply anew, or give all of them one id."""

    class OneId(Halting):
        async def stream(self, request: Request) -> AsyncIterator[Piece]:
            if not self.halted.is_set():
                self.halted.set()
                called = tuple(ToolCall("call_0", "look", json.dumps({"what": name})) for name in "ab")
                yield Reply(
                    messages=(codec(dialect).write(Message("assistant", called)),),
                    text="",
                    calls=called,
                    finish_reason="tool_calls",
                    usage=None,
                    request_body={},
                    seconds=0.1,
                )
                return
            async for piece in self.inner.stream(request):
                yield piece

    async def turn() -> None:
        fake = FakeProvider("Both found.")
        async with agent_over(fake, Answers(look), dialect=dialect) as agent:
            agent.provider = OneId(agent.provider)
            assert (await agent.run("Find a and b.")).text == "Both found."
            sent = json.dumps(fake.requests[-1].body)
            assert "found a" in sent
            assert "found b" in sent
            assert not fake.refusals

    asyncio.run(turn())


@every_dialect
def test_a_document_that_is_refused_leaves_and_the_turn_goes_on(dialect: str) -> None:
    # anthropics/claude-code#25202: one PDF, and every later turn was refused.
    heard: list[AgentEvent] = []

    def answer(body: Body) -> FakeReply:
        refused = PDF in json.dumps(body)
        return FakeReply(status=400, message="Could not process PDF") if refused else FakeReply("Fine.")

    async def turns() -> list[TurnEnded]:
        async with agent_over(FakeProvider(answer, repeat=True), dialect=dialect, heard=heard) as agent:
            agent.session.record([from_user(dialect, "keep these words", document(dialect)), said(dialect, "no")])
            return [await agent.run("And now?"), await agent.run("Go on.")]

    assert [ended.reason for ended in asyncio.run(turns())] == ["done", "done"]
    assert [event.text for event in heard if isinstance(event, Notice)] == [
        "A part was left out of the request: it could not be read."
    ]
