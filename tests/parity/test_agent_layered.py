"""The three-layer system in the agent: what it holds, cuts, masks and drops while it runs (S3.02, S3.05 to S3.09)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.agent.support import Answers
from tests.parity.agents import DIALECTS, agent_of, calls, results, sent

from foldline.agent.events import AgentEvent, ReplyFinished
from foldline.agent.loop import Agent
from foldline.engine.presets import POLICIES
from foldline.engine.settings import memory_limit
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply, asks_for_summary
from foldline.tokens import ESTIMATE
from foldline.view.transcript import Entry, Fold

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def layered(**context: Any) -> str:
    """An `agents.yaml` with a `context` block; the policy follows from it."""
    return yaml.safe_dump({"session": {"context": context or None}})


# --- S3.02 ------------------------------------------------------------------------------------------------------------


class Held(list[AgentEvent]):
    """Looks at each event how many messages the session of `agent` holds."""

    agent: Agent
    most = 0

    def append(self, event: AgentEvent, /) -> None:
        """Hear an event."""
        self.most = max(self.most, len(self.agent.session.context.view.entries))


def chatty(body: Mapping[str, Any]) -> FakeReply | str:
    """A tool call for each question, then an answer of a word or two: many messages, few tokens."""
    if asks_for_summary(body):
        return "A summary of what was said: nothing of note, the user asks on and the agent answers."
    last = (body.get("messages") or body["input"])[-1]
    return calls("a", "b") if last.get("role") == "user" and "question" in str(last) else "Yes."


def kept(agent: Agent) -> list[Entry]:
    assert agent.session.stored is not None
    return [event for event in agent.session.stored.events() if isinstance(event, Entry)]


@pytest.mark.parametrize("chosen", POLICIES)
def test_s3_02_memory_is_bounded_at_every_add_under_every_policy(chosen: str, tmp_path: Path) -> None:
    """A window of 8,000 tokens warrants 100 messages; 150 of a few tokens each would fit it, and still are too many."""

    async def run() -> None:
        heard, fake = Held(), FakeProvider(chatty, window_tokens=8_000)
        async with agent_of(
            f"policy: {chosen}", fake, tmp_path, window=8_000, heard=heard, tools=[Answers(lambda _: "ok")]
        ) as agent:
            heard.agent = agent
            for turn in range(30):
                assert (await agent.run(f"question {turn}")).text == "Yes."
            assert memory_limit(8_000) == 100
            assert 50 < heard.most <= 100
            assert len(kept(agent)) == 30 * 5
            folds = [event for event in agent.session.stored.events() if isinstance(event, Fold)]  # type: ignore[union-attr]
            spans = [fold for fold in folds if not fold.form and fold.reducer == "held_messages"]
            assert len(spans) <= 6, "the prefix moves once in many turns"
            assert all("may be held in memory" in fold.reason for fold in spans)
            assert "question 0" in agent.session.peek(0), "nothing is lost"
        assert not fake.refusals

    asyncio.run(run())


@every_dialect
def test_s3_02_one_endless_turn_is_bounded_too(dialect: str, tmp_path: Path) -> None:
    async def run() -> None:
        steps = [calls("a", "b", "c", "d") for _ in range(25)]
        heard, fake = Held(), FakeProvider([*steps, "Done."], window_tokens=8_000)
        async with agent_of(
            layered(), fake, tmp_path, dialect=dialect, window=8_000, heard=heard, tools=[Answers(lambda _: "found it")]
        ) as agent:
            agent.max_iterations = 50
            heard.agent = agent
            assert (await agent.run("Look everywhere.")).text == "Done."
            assert heard.most <= memory_limit(8_000)
            assert sum(len(entry.message.results) for entry in kept(agent)) == 100
            assert "Look everywhere." in sent(fake), "what the user asked for stays"
        assert not fake.refusals

    asyncio.run(run())


def test_s3_02_the_snapshot_is_bounded_and_the_log_is_whole_and_the_session_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        tool = Answers(lambda _: "ok")
        fake = FakeProvider(chatty, window_tokens=8_000)
        async with agent_of(layered(), fake, tmp_path, window=8_000, tools=[tool]) as agent:
            assert agent.session.stored is not None
            name, folder = agent.session.stored.id, Path(agent.session.stored.place)
            for turn in range(24):
                await agent.run(f"question {turn}")
            agent.session.save()
            before = (await agent.session.prepare()).messages
        state = yaml.safe_load((folder / "state.yaml").read_bytes())
        assert state["messages"] == 120
        assert len(state["shown"]) <= 100
        log = (folder / "events.jsonl").read_text("utf-8")
        assert all(f"question {turn}" in log for turn in range(24))
        async with agent_of(layered(), fake, tmp_path, window=8_000, tools=[tool], resume=name) as agent:
            assert (await agent.session.prepare()).messages == before
            assert (await agent.run("question 24")).text == "Yes."
        assert not fake.refusals

    asyncio.run(run())


@pytest.mark.parametrize(("window", "limit"), [(4_000, 100), (20_000, 200), (500_000, 2_000)])
def test_s3_02_the_bound_follows_the_window_and_is_no_setting(window: int, limit: int, tmp_path: Path) -> None:
    async def run() -> int:
        settings = f"model: {{max_input_tokens: {window}}}\npolicy: balanced"
        async with agent_of(settings, FakeProvider("Yes."), tmp_path) as agent:
            for number in range(limit + limit // 4):
                agent.session.add_user_message(f"{number}")
                if number % 20 == 0:
                    await agent.session.prepare()
            await agent.session.prepare()
            return len(agent.session.context.view.entries)

    assert 0.6 * limit < asyncio.run(run()) <= limit


def test_s3_02_who_switched_folding_off_is_not_folded_for(tmp_path: Path) -> None:
    async def run() -> int:
        settings = "policy: {name: balanced, auto: false}"
        async with agent_of(settings, FakeProvider("Yes."), tmp_path, window=8_000) as agent:
            for number in range(150):
                agent.session.add_user_message(f"{number}")
            return len((await agent.session.prepare()).messages)

    assert asyncio.run(run()) == 150


# --- S3.05 ------------------------------------------------------------------------------------------------------------

WORDS = " ".join(f"word{number}" for number in range(20_000))


@every_dialect
@pytest.mark.parametrize("mode", ["head", "tail", "both"])
def test_s3_05_a_result_is_cut_at_once_with_the_documents_indicator(mode: str, dialect: str, tmp_path: Path) -> None:
    async def run() -> str:
        fake = FakeProvider([calls("x"), "Done."])
        async with agent_of(
            layered(max_tool_result_tokens=1_000, tool_result_truncation=mode),
            fake,
            tmp_path,
            dialect=dialect,
            window=128_000,
            tools=[Answers(lambda _: WORDS)],
        ) as agent:
            await agent.run("Look.")
            assert agent.session.peek(2, start_char=WORDS.index("word9999")).startswith(" word9999 word10000")
        (result,) = results(fake.requests[1].body)
        return result

    total = ESTIMATE.text(WORDS)
    kept_part = {"head": "first", "tail": "last", "both": "first+last"}[mode]
    indicator = f"[truncated: kept {kept_part} ~1000 of ~{total} tokens ({mode})]"
    shown = asyncio.run(run())
    before, after = shown.split(indicator)
    assert bool(before) is (mode != "tail")
    assert bool(after) is (mode != "head")
    assert not before or before.startswith("word0 word1 ")
    assert not after or after.endswith(" word19998 word19999")
    assert 950 <= ESTIMATE.text(before.strip("\n")) + ESTIMATE.text(after.strip("\n")) <= 1_005, (
        "a cut word counts as two"
    )


def test_s3_05_the_default_is_8000_head_and_an_error_is_cut_too(tmp_path: Path) -> None:
    def fail(arguments: Mapping[str, Any]) -> str:
        raise ValueError(WORDS)

    async def run() -> str:
        fake = FakeProvider([calls("x"), "Done."])
        async with agent_of(layered(), fake, tmp_path, window=128_000, tools=[Answers(fail)]) as agent:
            await agent.run("Look.")
        return results(fake.requests[1].body)[0]

    shown = asyncio.run(run())
    assert shown.startswith("look failed: ValueError: word0")
    assert shown.endswith(
        f"[truncated: kept first ~8000 of ~{ESTIMATE.text(f'look failed: ValueError: {WORDS}')} tokens (head)]"
    )


# --- S3.06 ------------------------------------------------------------------------------------------------------------


def found(arguments: Mapping[str, Any]) -> str:
    return f"result {arguments['what']}: " + "a line of what was found. " * 20


@every_dialect
def test_s3_06_between_the_iterations_results_in_the_middle_are_masked(dialect: str, tmp_path: Path) -> None:
    async def run() -> FakeProvider:
        fake = FakeProvider([*(calls(str(number)) for number in range(12)), "Done."])
        async with agent_of(
            layered(), fake, tmp_path, dialect=dialect, window=128_000, tools=[Answers(found)]
        ) as agent:
            await agent.run("Look.")
        return fake

    fake = asyncio.run(run())
    whole = [found({"what": str(number)}) for number in range(12)]
    figures: dict[int, str] = {}
    for iteration, request in enumerate(fake.requests):
        shown = results(request.body)
        assert len(shown) == iteration
        if iteration <= 7:
            assert shown == whole[:iteration], "no more than first + last: nothing is masked"
            continue
        assert shown[:2] == whole[:2]
        assert shown[-5:] == whole[iteration - 5 : iteration]
        for number, text in enumerate(shown[2:-5], 2):
            assert text.startswith("[result masked — ~")
            assert text.endswith(" tokens removed]")
            assert figures.setdefault(number, text) == text, "it is not masked again"
        body = json.dumps(request.body).replace("\\", "").replace(" ", "")
        assert all(f'"what":"{n}"' in body for n in range(iteration)), "the calls stay, and their arguments"
    assert not fake.refusals


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2)])
def test_s3_06_both_windows_are_settings_and_0_0_masks_nothing(first: int, last: int, tmp_path: Path) -> None:
    async def run() -> list[str]:
        fake = FakeProvider([*(calls(str(number)) for number in range(9)), "Done."])
        settings = layered(tool_result_keep_first=first, tool_result_keep_last=last)
        async with agent_of(settings, fake, tmp_path, window=128_000, tools=[Answers(found)]) as agent:
            await agent.run("Look.")
        return results(fake.requests[-1].body)

    masked = [text.startswith("[result masked") for text in asyncio.run(run())]
    assert masked == ([False] * 9 if not last else [False, *[True] * 6, False, False])


def test_s3_06_a_placeholder_is_never_longer_than_what_it_hides(tmp_path: Path) -> None:
    async def run() -> list[str]:
        fake = FakeProvider([*(calls(str(number)) for number in range(12)), "Done."])
        async with agent_of(layered(), fake, tmp_path, tools=[Answers(lambda a: f"ok {a['what']}")]) as agent:
            await agent.run("Look.")
        return results(fake.requests[-1].body)

    assert asyncio.run(run()) == [f"ok {number}" for number in range(12)]


# --- S3.07 ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_s3_07_groups_of_the_loop_leave_oldest_first_and_the_conversation_stays(dialect: str, tmp_path: Path) -> None:
    """Unmasked results of parallel calls over the budget: whole groups go, the newest and the history stay."""
    window = 8_000

    async def run() -> FakeProvider:
        steps = [calls(f"{number}a", f"{number}b") for number in range(14)]
        fake = FakeProvider(["It is a parser.", *steps, "Done."], window_tokens=window, keep=40)
        settings = layered(tool_result_keep_first=0, tool_result_keep_last=0)
        tool = Answers(lambda a: f"result {a['what']}: " + "a line of what was found. " * 50)
        async with agent_of(settings, fake, tmp_path, dialect=dialect, window=window, tools=[tool]) as agent:
            await agent.run("What is in src/parse.py?")
            assert (await agent.run("Now find the fault.")).text == "Done."
            folds = [event for event in agent.session.stored.events() if isinstance(event, Fold)]  # type: ignore[union-attr]
            assert {fold.reducer for fold in folds} == {"drop_groups"}
            room = window - agent.session.context.limits.max_output_tokens
            assert agent.session.context.limits.input_tokens <= room - 0.1 * room
        return fake

    fake = asyncio.run(run())
    assert not fake.refusals
    earliest = -1
    for number, request in enumerate(list(fake.requests)[2:]):
        text = json.dumps(request.body)
        assert "What is in src/parse.py?" in text
        assert "It is a parser." in text
        assert "Now find the fault." in text
        shown = [int(result.split(":")[0].removeprefix("result ")[:-1]) for result in results(request.body)]
        assert shown[-2:] == [number, number], "the newest group stays"
        assert shown == [n for n in range(shown[0], number + 1) for _ in "ab"], "the oldest leave first, and whole"
        assert shown[0] >= earliest
        earliest = shown[0]
    assert earliest > 0


# --- S3.08 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "most"), [("session: {}", 25), ("session: {max_tool_iterations: 3}", 3), ("", 50)]
)
def test_s3_08_the_rounds_of_one_turn_are_bounded_by_the_file(settings: str, most: int, tmp_path: Path) -> None:
    async def run() -> tuple[str, str, int]:
        fake = FakeProvider(calls("again"))
        async with agent_of(settings, fake, tmp_path, window=128_000, tools=[Answers(lambda _: "ok")]) as agent:
            ended = await agent.run("Go.")
        return ended.reason, ended.message, fake.served

    reason, message, served = asyncio.run(run())
    assert (reason, served) == ("iterations", most)
    assert f"{most} model calls" in message


# --- S3.09 ------------------------------------------------------------------------------------------------------------


async def endure(chosen: str, dialect: str, turns: int, folder: Path) -> FakeProvider:
    """A session of questions, parallel calls, results of all sizes and answers, in a window of 8,000 tokens."""
    replies = 0

    def script(body: Mapping[str, Any]) -> FakeReply | str:
        nonlocal replies
        if asks_for_summary(body):
            return "Goal: understand the modules. Files were read; the next ones are still to be read."
        replies += 1
        if replies % 3 == 0:
            return f"Answer {replies}: " + "some words about it " * 10
        return calls(*(f"file_{replies}_{number}.py" for number in range(1 + replies % 2)))

    def result(arguments: Mapping[str, Any]) -> str:
        number = int(str(arguments["what"]).split("_")[1])
        return f"{arguments['what']}: " + "a line of the result\n" * (2_000 if number % 23 == 1 else number % 40)

    fake = FakeProvider(script, window_tokens=8_000, keep=2)
    async with agent_of(
        f"policy: {chosen}", fake, folder, dialect=dialect, window=8_000, tools=[Answers(result)]
    ) as agent:
        for turn in range(turns):
            ended = await agent.run(f"Question {turn}: what about module number {turn}?")
            assert ended.reason == "done", ended
    return fake


@pytest.mark.parametrize(("chosen", "dialect"), [(name, DIALECTS[at % 3]) for at, name in enumerate(POLICIES)])
def test_s3_09_no_policy_lets_a_session_become_unusable(chosen: str, dialect: str, tmp_path: Path) -> None:
    fake = asyncio.run(endure(chosen, dialect, 20, tmp_path))
    assert not fake.refusals
    assert fake.largest_tokens <= 8_000


@pytest.mark.soak
@every_dialect
@pytest.mark.parametrize("chosen", POLICIES)
def test_s3_09_two_hundred_turns_under_every_policy_in_every_dialect(chosen: str, dialect: str, tmp_path: Path) -> None:
    fake = asyncio.run(endure(chosen, dialect, 200, tmp_path))
    assert not fake.refusals
    assert fake.served >= 600


def test_s3_09_a_window_that_shrinks_under_a_long_session_is_coped_with(tmp_path: Path) -> None:
    """The server's window is a third of what was set: refusals are learned from, and no turn fails."""

    async def run() -> tuple[FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake = FakeProvider([*(calls(str(number)) for number in range(20)), "Done.", "Fine."], window_tokens=6_000)
        tool = Answers(lambda a: f"result {a['what']}: " + "a line of what was found. " * 80)
        async with agent_of(layered(), fake, tmp_path, window=18_000, heard=heard, tools=[tool]) as agent:
            assert (await agent.run("Look.")).text == "Done."
            assert (await agent.run("And now?")).text == "Fine."
        return fake, heard

    fake, heard = asyncio.run(run())
    assert 0 < sum(fake.refusals.values()) <= 3
    assert [event.text for event in heard if isinstance(event, ReplyFinished)][-1] == "Fine."


def test_s3_09_sessions_are_listed_and_read_after_all_that(tmp_path: Path) -> None:
    asyncio.run(endure("layered", "openai-chat", 5, tmp_path))
    (listed,) = FileStore(tmp_path / "home" / "sessions").sessions()
    assert listed.snapshot is not None
    assert listed.snapshot.turns == 5
