"""What is summarised for a peer: the messages that it gave to a model, by the first line of each, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from bench.tests.peers.support import ROOT, run_through
from bench.tests.peers.test_peers import LONG, SUMMARISING

from foldline.messages import Wire
from foldline.recorded.files import read_session

pytestmark = pytest.mark.xdist_group("peers")

AROUND = re.compile(
    r"Here is a summary of the conversation|\[Summarized: |"  # how two packages begin the message that holds a summary
    r"\[Tool results: |\[tool result cleared\]|\[Truncated: "  # what three of them put in the place of results
)
INSTRUCTIONS = re.compile(
    r"summari[sz]ation assistant|summarizer|Context Extraction|clear and complete summary|"
    r"Please summarize|<(?:role|messages?|content|previous-summary)\b"
)


def squashed(text: str) -> str:
    """Letters and digits alone: packages write the arguments of a call in ways of their own."""
    return re.sub(r"\W+|_", "", text)


def firsts(message: Wire) -> Iterator[str]:
    content = message.get("content") or ""
    texts = [content] if isinstance(content, str) else [block.get("text", "") for block in content]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    if message["role"] == "user":  # of a long one langchain gives the end alone
        yield from map(squashed, content.splitlines() if isinstance(content, str) else texts)
    for text in [*texts, *(f"{call['name']} {call['arguments']}" for call in calls)]:
        yield squashed(text.strip().partition("\n")[0])


def of_a_message(line: str, known: set[str]) -> bool:
    body = squashed(re.sub(r"^\w+: (?:function_result: |function_call )?", "", line))
    return any(first and (body.startswith(first) or first.startswith(body[:40])) for first in known)


@pytest.mark.parametrize("peer", sorted(SUMMARISING))
def test_a_summary_is_the_first_line_of_each_message_that_was_given(peer: str) -> None:
    session = read_session(ROOT / "examples" / "sessions" / f"{LONG[0]}.json.gz")
    known = {first for message in session.messages for first in firsts(message)}
    written = {record["system"]: record["written"] for record in run_through(peer, *LONG) if record["written"]}
    assert written
    for system, summaries in written.items():
        lines = [line for summary in summaries for line in summary.splitlines()]
        others = [line for line in lines if not of_a_message(line, known) and not AROUND.search(line)]
        assert not others, system
    whole = [line for summaries in written.values() for summary in summaries for line in summary.splitlines()]
    assert {"user", "assistant"} < {line.partition(":")[0] for line in whole}, "results are messages, too"
    assert all(len(summaries[-1].splitlines()) > 1 for summaries in written.values() if len(summaries) > 1)


@pytest.mark.parametrize("peer", sorted(SUMMARISING))
def test_no_line_of_the_instructions_is_in_a_summary(peer: str) -> None:
    for record in run_through(peer, *LONG):
        for summary in record["written"]:
            assert not [line for line in summary.splitlines() if INSTRUCTIONS.search(line)], record["system"]


def test_what_an_assistant_says_and_calls_with_it_is_one_line_for_pydantic_ai_as_for_others() -> None:
    lines = [
        line for record in run_through("pydantic_ai", *LONG) for one in record["written"] for line in one.split("\n")
    ]
    says = [line.startswith("assistant: ") for line in lines]
    assert any(says)
    assert not any(said and line.startswith("tool_call: ") for said, line in zip(says, lines[1:], strict=False))
