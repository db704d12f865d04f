"""The checkpoint system in the agent: outputs, archived results, compaction and recovery (S2.04 to S2.09)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import Answers
from tests.parity.agents import DIALECTS, agent_of, calls, results, sent

from foldline.agent.events import AgentEvent, Notice, ToolFinished
from foldline.agent.loop import Agent
from foldline.engine.events import FoldFinished, FoldStarted
from foldline.reducers.archive_results import DIGEST_PREFIX, TOOL_PREFIX
from foldline.reducers.summarize import SUMMARY_PREFIX
from foldline.testing import FakeProvider, FakeReply
from foldline.view.tiles import VisibleMessage

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

SUMMARY = (
    "## Goal\nFind the fault in src/parse.py.\n## Done\nRead modules 0 to 9; the fault is not in them.\n## Next\nGo on."
)
DIGEST = "The results told of modules; nothing was wrong in any of them."


def checkpoint(**settings: Any) -> str:
    """An `agents.yaml` with the policy and settings of its own, and a smaller model for the summaries."""
    fields = "".join(f"\n  {name}: {value}" for name, value in settings.items())
    return f"policy:\n  name: checkpoint{fields}\nsummariser:\n  name: small-model\n"


def everything(agent: Agent) -> list[VisibleMessage]:
    """Every entry as the user's history has it, those that have left memory too."""
    return list(agent.session.whole().view.history())


def found(arguments: Mapping[str, Any]) -> str:
    return f"result {arguments['what']}: " + "a line of what was found. " * 20


# --- S2.05 ------------------------------------------------------------------------------------------------------------


def follows(body: Mapping[str, Any]) -> FakeReply | str:
    """A model that does what a notice says: reads the saved output by its SHA-256, then answers with what it read."""
    shown = results(body)
    if not shown:
        return calls("the log")
    if len(shown) == 1:
        key = re.findall(r"SHA-256 ([0-9a-f]{64})", shown[0])[0]
        return FakeReply(calls=(("recall", {"action": "grep", "saved": key, "pattern": "FAULT"}),))
    if len(shown) == 2:
        path = re.findall(r"saved to (\S+)", shown[0])[0]
        line = int(re.findall(r"line (\d+): ", shown[1])[0])
        arguments = {"action": "peek", "saved": path, "start_line": line, "lines": 1}
        return FakeReply(calls=(("recall", arguments),))
    return f"I read: {shown[2]}"


@every_dialect
def test_s2_05_a_spilled_output_is_saved_and_a_model_that_follows_the_notice_reads_it(
    dialect: str, tmp_path: Path
) -> None:
    lines = [f"line {number} as usual, größe" for number in range(12_000)]
    lines[9_000] = "line 9000 FAULT 42 in the parser"
    output = "\n".join(lines)
    assert len(output) > 200 * 1024

    async def run() -> None:
        fake = FakeProvider(follows)
        async with agent_of(
            checkpoint(), fake, tmp_path, dialect=dialect, window=128_000, tools=[Answers(lambda _: output)]
        ) as agent:
            ended = await agent.run("What is wrong?")
            assert ended.text.split("\n") == [
                "I read: [the saved output, from line 9001]",
                "line 9000 FAULT 42 in the parser",
                "[lines 9,001-9,001 of 12,000; go on with start_line=9002]",
            ]
            assert agent.session.stored is not None
            archive = Path(agent.session.stored.place) / "archive"
        shown = results(fake.requests[1].body)[0]
        digest = hashlib.sha256(output.encode()).hexdigest()
        (path,) = archive.rglob(digest)
        assert path.read_text("utf-8") == output
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert (
            f"[output of {len(output):,} characters saved to {path} (the tool recall reads it), SHA-256 {digest};"
            in shown
        )
        assert not fake.refusals

    asyncio.run(run())


def test_s2_05_one_endless_line_is_read_in_parts(tmp_path: Path) -> None:
    output = "".join(f"<{number:06}>" for number in range(40_000))

    async def run() -> list[str]:
        key = hashlib.sha256(output.encode()).hexdigest()
        steps = [
            FakeReply(calls=(("recall", {"action": "peek", "saved": key, "start_char": char}),))
            for char in (1, 200_001, 319_993)
        ]
        heard: list[AgentEvent] = []
        fake = FakeProvider([calls("x"), *steps, "Done."])
        async with agent_of(
            checkpoint(), fake, tmp_path, window=128_000, heard=heard, tools=[Answers(lambda _: output)]
        ) as agent:
            await agent.run("Look.")
        return [event.text for event in heard if isinstance(event, ToolFinished)][1:]

    first, middle, last = asyncio.run(run())
    assert first.startswith("[the saved output, from line 1]\n<000000><000001>")
    assert first.endswith("… [300,000 more characters in this line]")
    assert middle.startswith("[the saved output, from line 1, character 200001]\n<025000><025001>")
    assert last == "[the saved output, from line 1, character 319993]\n<039999>"


@pytest.mark.parametrize("wrong", ["ab" * 32, "../../agents.yaml", "/etc/passwd", ""])
def test_s2_05_nothing_but_what_the_session_saved_is_read(wrong: str, tmp_path: Path) -> None:
    async def run() -> ToolFinished:
        heard: list[AgentEvent] = []
        peek = FakeReply(calls=(("recall", {"action": "peek", "saved": wrong}),))
        async with agent_of(checkpoint(), FakeProvider([peek, "Done."]), tmp_path, heard=heard) as agent:
            await agent.run("Look.")
        return next(event for event in heard if isinstance(event, ToolFinished))

    done = asyncio.run(run())
    assert done.is_error
    assert "no output is kept under" in done.text


@every_dialect
def test_s2_05_under_the_threshold_outputs_and_errors_are_cut_with_the_figures(dialect: str, tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(3_000))

    def look(arguments: Mapping[str, Any]) -> str:
        if arguments["what"] == "error":
            raise ValueError(text)
        return text

    async def run() -> list[str]:
        fake = FakeProvider([calls("fine", "error"), "Done."])
        async with agent_of(
            checkpoint(), fake, tmp_path, dialect=dialect, window=128_000, tools=[Answers(look)]
        ) as agent:
            await agent.run("Look.")
        return results(fake.requests[1].body)

    for result, head in zip(asyncio.run(run()), ("line 0\n", "look failed: ValueError: line 0\n"), strict=True):
        *lines, notice = result.split("\n")
        assert len(lines) == 2_000
        assert result.startswith(head)
        assert lines[1_000] == "... [1001 lines omitted] ..."
        assert lines[-1] == "line 2999"
        assert notice.startswith("[output truncated: 2000 of 3000 lines, ")


def test_s2_05_limits_are_settings(tmp_path: Path) -> None:
    async def run() -> list[str]:
        settings = checkpoint(large_output_chars=5_000, output_max_lines=10, output_mode="head")
        fake = FakeProvider([calls("50", "600"), "Done."])
        tool = Answers(lambda a: "line of it\n" * int(a["what"]))
        async with agent_of(settings, fake, tmp_path, window=128_000, tools=[tool]) as agent:
            await agent.run("Look.")
        return results(fake.requests[1].body)

    cut, spilled = asyncio.run(run())
    figures = "10 of 50 lines, 109 of 550 characters, 109 of 550 bytes"
    assert cut == "\n".join(["line of it"] * 10) + f"\n[output truncated: {figures}]"
    assert "[output of 6,600 characters saved to " in spilled


# --- S2.04, S2.06 -----------------------------------------------------------------------------------------------------


async def archiving(
    folder: Path, smaller: FakeProvider | None, *, count: int, dialect: str = "openai-chat", **settings: Any
) -> tuple[FakeProvider, list[VisibleMessage], int]:
    """An agent that makes `count` calls in one turn: its server, the user's history, the most results in a request."""
    fake = FakeProvider([*(calls(str(number)) for number in range(count)), "Done."], keep=100)
    settings = {"tool_call_cutoff": 4, **settings}
    async with agent_of(
        checkpoint(**settings),
        fake,
        folder,
        dialect=dialect,
        window=128_000,
        smaller=smaller,
        tools=[Answers(found)],
    ) as agent:
        assert (await agent.run("Look.")).text == "Done."
        seen = everything(agent)
    assert not fake.refusals
    return fake, seen, max(len(results(request.body)) for request in fake.requests)


@every_dialect
def test_s2_06_a_smaller_model_writes_the_digest_of_what_is_archived(dialect: str, tmp_path: Path) -> None:
    smaller = FakeProvider(DIGEST)
    fake, seen, _ = asyncio.run(archiving(tmp_path, smaller, count=12, dialect=dialect))
    assert 0 < smaller.served < 8, "several at once, not at every call"
    for request in smaller.requests:
        assert request.body["model"] == "small-model"
        assert not request.body.get("tools")
        assert len(str(request.body)) < 12_000 + 1_500
    assert f"{TOOL_PREFIX}\\n{DIGEST}" in sent(fake)
    assert len(results(fake.requests[-1].body)) <= 4
    assert "result 11: " in sent(fake)
    assert "result 0: " not in sent(fake)
    kinds = [one.kind for one in seen if one.message.results]
    archived = kinds.count("tool_result_archived")
    assert kinds == ["tool_result_archived"] * archived + ["tool_result"] * (12 - archived)
    assert archived >= 8
    for one in seen:
        if one.message.results:
            assert one.agent_visible is (one.kind == "tool_result")
            assert one.user_visible, "unchanged"
    (summary,) = [one for one in seen if one.kind == "tool_summary" and one.agent_visible]
    assert summary.message.role == "user"
    assert not summary.user_visible, "for the agent only"


@pytest.mark.parametrize("reply", [FakeReply(status=400), "", "I'm sorry, but I can't help with that."])
def test_s2_06_a_failing_model_falls_back_to_the_heuristic(reply: FakeReply | str, tmp_path: Path) -> None:
    fake, _, most = asyncio.run(archiving(tmp_path, FakeProvider(reply), count=12))
    digest = next(m["content"] for m in fake.requests[-1].body["messages"] if str(m["content"]).startswith(TOOL_PREFIX))
    assert len(digest) <= len(TOOL_PREFIX) + 1 + 800
    assert "result: result" in digest
    assert most <= 12
    assert len(results(fake.requests[-1].body)) <= 4


def test_s2_06_the_heuristic_asks_nobody_and_keeps_to_the_cutoff_at_each_call(tmp_path: Path) -> None:
    smaller = FakeProvider(DIGEST)
    _, _, most = asyncio.run(archiving(tmp_path, smaller, count=12, tool_summary_strategy="heuristic"))
    assert smaller.served == 0
    assert most == 4


def test_s2_06_a_digest_of_a_model_has_at_most_1200_characters(tmp_path: Path) -> None:
    fake, _, _ = asyncio.run(archiving(tmp_path, FakeProvider("long words " * 1_000), count=14))
    digests = [str(m["content"]) for m in fake.requests[-1].body["messages"] if TOOL_PREFIX in str(m["content"])]
    assert digests
    assert all(len(digest) <= len(TOOL_PREFIX) + 1 + 1_200 for digest in digests)


def test_s2_06_off_archives_nothing(tmp_path: Path) -> None:
    _, seen, most = asyncio.run(archiving(tmp_path, None, count=9, tool_summary_strategy='"off"'))
    assert most == 9
    assert {one.kind for one in seen if one.message.results} == {"tool_result"}


# --- S2.07, S2.08 -----------------------------------------------------------------------------------------------------


def questions(body: Mapping[str, Any]) -> FakeReply | str:
    """A call for each question, then an answer."""
    last = (body.get("messages") or body["input"])[-1]
    return calls("it") if "Question" in str(last) else "An answer in some words. " * 20


@every_dialect
def test_s2_07_s2_08_a_session_is_compacted_by_itself_and_tells_it(dialect: str, tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake, smaller = FakeProvider(questions, keep=100), FakeProvider(SUMMARY)
        settings = checkpoint(reserve_tokens=10_000, keep_recent_tokens=1_000)
        async with agent_of(
            settings,
            fake,
            tmp_path,
            dialect=dialect,
            window=14_000,
            smaller=smaller,
            heard=heard,
            tools=[Answers(found)],
        ) as agent:
            for number in range(16):
                assert (await agent.run(f"Question {number}")).reason == "done"
            whole = [one.message.text for one in everything(agent) if one.message.role == "user" and one.entry]
            assert all(f"Question {number}" in whole for number in range(16)), "nothing is lost"
        return fake, smaller, heard

    fake, smaller, heard = asyncio.run(run())
    assert not fake.refusals
    assert smaller.served > 0
    assert {request.body["model"] for request in smaller.requests} == {"small-model"}
    body = next(request.body for request in reversed(fake.requests) if SUMMARY_PREFIX in str(request.body))
    messages = [m for m in body.get("messages") or body["input"] if m.get("role") != "system"]
    first = messages[0]["content"]
    text = first if isinstance(first, str) else first[0]["text"]
    assert messages[0]["role"] == "user"
    assert text.startswith("[Previous conversation summary]")
    assert SUMMARY in text
    assert str(messages).count(SUMMARY_PREFIX) == 1, "the earlier summary is updated"
    started = [event for event in heard if isinstance(event, FoldStarted)]
    finished = [event for event in heard if isinstance(event, FoldFinished)]
    assert len(started) == len(finished) > 0
    for start, end in zip(started, finished, strict=True):
        assert (end.messages_before, end.tokens_before) == (start.messages, start.tokens)
        assert end.tokens < start.tokens
        assert end.messages < start.messages
        assert start.tokens >= 4_000, "window - reserve_tokens"
        assert end.error is None


def test_s2_07_results_enter_the_summary_with_1800_characters(tmp_path: Path) -> None:
    async def run() -> FakeProvider:
        smaller = FakeProvider(SUMMARY)
        settings = checkpoint(keep_recent_tokens=500)
        tool = Answers(lambda _: "begin " + "w" * 6_000 + " end")
        async with agent_of(
            settings, FakeProvider(questions), tmp_path, window=60_000, smaller=smaller, tools=[tool]
        ) as agent:
            await agent.run("Question 1")
            await agent.run("Question 2")
            await agent.session.compact(None, agent.summarize)
        return smaller

    (request,) = asyncio.run(run()).requests
    runs = re.findall(r"w+", str(request.body["messages"]))
    assert max(map(len, runs)) <= 1_800
    assert sum(len(run) for run in runs if len(run) > 100) <= 2 * 1_800


def test_s2_07_excess_results_among_the_recent_become_one_digest(tmp_path: Path) -> None:
    async def run() -> str:
        fake, smaller = (
            FakeProvider(["Old answer. " * 200, *(calls(str(n)) for n in range(8)), "Done."]),
            FakeProvider(SUMMARY),
        )
        settings = checkpoint(tool_call_cutoff=3, tool_summary_strategy='"off"', keep_recent_tokens=1_100)
        async with agent_of(settings, fake, tmp_path, window=60_000, smaller=smaller, tools=[Answers(found)]) as agent:
            await agent.run("Something old. " * 50)
            await agent.run("Look.")
            await agent.session.compact(None, agent.summarize)
            return str((await agent.session.prepare()).messages)

    shown = asyncio.run(run())
    assert shown.count("[Previous conversation summary]") == 1
    assert shown.count(DIGEST_PREFIX) == 1
    assert DIGEST_PREFIX == "[Compaction tool digest]"
    assert len(re.findall(r"'role': 'tool'", shown)) == 3


@every_dialect
def test_s2_08_a_refusal_for_length_compacts_and_sends_again(dialect: str, tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake = FakeProvider(questions, window_tokens=5_000)
        smaller = FakeProvider(SUMMARY)
        async with agent_of(
            "model: {max_output_tokens: 300}\n" + checkpoint(keep_recent_tokens=1_000),
            fake,
            tmp_path,
            dialect=dialect,
            window=60_000,
            smaller=smaller,
            heard=heard,
            tools=[Answers(lambda a: found(a) * 9)],
        ) as agent:
            for number in range(30):
                assert (await agent.run(f"Question {number}")).reason == "done"
                if fake.refusals:
                    break
            assert agent.session.context.limits.window_tokens == 5_000, "the limit is learned"
        return fake, smaller, heard

    fake, smaller, heard = asyncio.run(run())
    assert sum(fake.refusals.values()) == 1, "once"
    assert smaller.served >= 1
    assert "[Previous conversation summary]" in sent(fake)
    (start,) = [event for event in heard if isinstance(event, FoldStarted) and "refused" in event.reason]
    end = heard[heard.index(start) :][1:]
    finish = next(event for event in end if isinstance(event, FoldFinished))
    assert (finish.messages_before, finish.tokens_before, finish.error) == (start.messages, start.tokens, None)
    assert finish.tokens < start.tokens
    assert [event.text for event in heard if isinstance(event, Notice)] == [
        "Context was compacted and truncated to fit token limits."
    ]


def test_s2_08_the_end_event_has_the_error_of_a_model_that_failed_and_the_session_goes_on(tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake, smaller = FakeProvider(questions), FakeProvider(FakeReply(status=401))
        settings = checkpoint(reserve_tokens=10_000, keep_recent_tokens=1_000)
        async with agent_of(
            settings, fake, tmp_path, window=14_000, smaller=smaller, heard=heard, tools=[Answers(found)]
        ) as agent:
            for number in range(16):
                assert (await agent.run(f"Question {number}")).reason == "done"
        return fake, heard

    fake, heard = asyncio.run(run())
    assert not fake.refusals
    errors = [event.error for event in heard if isinstance(event, FoldFinished)]
    assert any(error is not None and "auth" in error for error in errors)


def test_s2_08_off_means_that_nothing_is_compacted_unasked(tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake, smaller = FakeProvider(questions), FakeProvider(SUMMARY)
        settings = checkpoint(reserve_tokens=50_000, auto_compact="false", tool_summary_strategy='"off"')
        async with agent_of(
            settings, fake, tmp_path, window=54_000, smaller=smaller, heard=heard, tools=[Answers(found)]
        ) as agent:
            for number in range(16):
                await agent.run(f"Question {number}")
            assert agent.session.context.view.tokens > 4_000
        return smaller, heard

    smaller, heard = asyncio.run(run())
    assert smaller.served == 0
    assert not [event for event in heard if isinstance(event, FoldStarted)]


# --- S2.09 ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_s2_09_the_size_is_the_reported_usage_and_an_estimate_of_what_follows(dialect: str, tmp_path: Path) -> None:
    """`counter: chars` is the documented estimate: ceil(characters / 4) of what follows the report."""

    async def run() -> list[int]:
        full = FakeReply("Fine.", calls=(("look", {"what": "x"}),), input_tokens=5_000, output_tokens=60)
        fake = FakeProvider(["A longer answer. " * 40, full, FakeReply("Fine.", input_tokens=6_000, output_tokens=70)])
        settings = "policy: checkpoint\ncounter: chars"
        tools = [Answers(found)]
        async with agent_of(settings, fake, tmp_path, dialect=dialect, window=60_000, tools=tools) as agent:
            await agent.run("Hello")
            await agent.run("Look.")
            sizes = [agent.session.context.view.tokens]
            agent.session.add_user_message("x" * 41)
            sizes.append((await agent.session.prepare()).tokens)
            assert agent.session.stored is not None
            name = agent.session.stored.id
        async with agent_of(
            settings, fake, tmp_path, dialect=dialect, window=60_000, tools=tools, resume=name
        ) as agent:
            return [*sizes, agent.session.context.view.tokens]

    assert asyncio.run(run()) == [6_070, 6_081, 6_081], "and so it is when the session goes on"


def test_s2_09_without_reported_usage_all_is_estimated(tmp_path: Path) -> None:
    async def run() -> tuple[int, int, int]:
        fake = FakeProvider(FakeReply("y" * 9), usage=False)
        settings = "policy: checkpoint\ncounter: chars\nsystem: Be terse."
        async with agent_of(settings, fake, tmp_path, window=60_000) as agent:
            fixed = agent.session.context.view.tokens
            await agent.run("x" * 10)
            return fixed, agent.session.context.view.tokens, (await agent.session.prepare()).tokens

    fixed, after, prepared = asyncio.run(run())
    assert after == prepared == fixed + 3 + 3


def test_s2_09_reported_usage_makes_compaction_due(tmp_path: Path) -> None:
    async def run() -> tuple[int, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        replies: list[FakeReply | str] = [
            "An answer in some words. " * 40,
            FakeReply("Fine.", input_tokens=43_700, output_tokens=10),
            "ok",
        ]
        smaller = FakeProvider(SUMMARY)
        settings = checkpoint(keep_recent_tokens=100) + "counter: chars\n"
        async with agent_of(
            settings, FakeProvider(replies), tmp_path, window=60_000, smaller=smaller, heard=heard
        ) as agent:
            await agent.run("Question 1: " + "why is that so? " * 2_700)
            await agent.run("Question 2")
            assert smaller.served == 0
            await agent.run("Question 3")
        return smaller.served, heard

    asked, heard = asyncio.run(run())
    assert asked == 1
    (start,) = [event for event in heard if isinstance(event, FoldStarted)]
    assert start.tokens == 43_710 + 3, "the limit is 60,000 - 16,384"
