"""The autopilot system's record of model calls: its own query runs on ours, and streamed replies have their tokens."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from foldline import Context, count
from foldline.store.call_log import CallLog, usage_or_count
from foldline.testing import session

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)

GROWTH = """
SELECT id, LENGTH(request_messages) as bytes, created_at
FROM llm_calls
ORDER BY created_at DESC
LIMIT 20;
"""
"""The document's query, as it stands there."""


def run(path: Path, dialect: str = "openai-chat", report: Any = None) -> list[str]:
    """A session of 30 calls under the document's policy; returns the messages of each as JSON."""
    context = Context(dialect=dialect, policy="autopilot", window=128_000)
    name = "input" if dialect == "openai-responses" else "messages"
    sent = []
    with CallLog(path) as log:
        for wire in session(30, dialect=dialect, result="a line of a file\n" * 200):
            context.append(wire)
            request = context.prepare()
            sent.append(json.dumps(request.messages, ensure_ascii=False, separators=(",", ":")))
            reply = [{"role": "assistant", "content": "Done, all of it."}]
            usage = usage_or_count(report, prompt_tokens=request.tokens, completion_tokens=count(reply))
            body = {"model": "m", name: request.messages, "stream": True}
            log.record("s", body, usage, seconds=0.5, folds=len(request.folds))
    return sent


def rows(path: Path, query: str) -> list[Any]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


# --- S0.07 ------------------------------------------------------------------------------------------------------------


@dialects
def test_s0_07_the_growth_query_runs_unchanged(dialect: str, tmp_path: Path) -> None:
    sent = run(tmp_path / "calls.sqlite", dialect)
    found = rows(tmp_path / "calls.sqlite", GROWTH)
    newest = list(enumerate(sent, 1))[:-21:-1]
    assert [(number, size) for number, size, _ in found] == [(number, len(text)) for number, text in newest]
    times = [time for _, _, time in found]
    assert times == sorted(times, reverse=True)


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no SQLite shell here")
def test_s0_07_the_growth_query_runs_in_a_plain_shell(tmp_path: Path) -> None:
    sent = run(tmp_path / "calls.sqlite")
    shell = ["sqlite3", str(tmp_path / "calls.sqlite"), GROWTH]
    out = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split("|")[:2] for line in out[:2]] == [
        [str(len(sent)), str(len(sent[-1]))],
        [str(len(sent) - 1), str(len(sent[-2]))],
    ]


@dialects
def test_s0_07_every_call_is_there_with_its_whole_request_tokens_and_time(dialect: str, tmp_path: Path) -> None:
    report = {"prompt_tokens": 900, "completion_tokens": 30}
    sent = run(tmp_path / "calls.sqlite", dialect, report)
    found = rows(
        tmp_path / "calls.sqlite",
        "SELECT request_messages, request_parameters, prompt_tokens, completion_tokens, seconds, created_at"
        " FROM llm_calls ORDER BY id",
    )
    assert [row[0] for row in found] == sent
    assert {row[1:5] for row in found} == {('{"model":"m","stream":true}', 900, 30, 0.5)}
    assert all(row[5] for row in found)


def test_s0_07_growth_and_compaction_can_be_seen_in_it(tmp_path: Path) -> None:
    run(tmp_path / "calls.sqlite")
    sizes = [size for _, size, _ in rows(tmp_path / "calls.sqlite", GROWTH)][::-1]
    folds = [number for (number,) in rows(tmp_path / "calls.sqlite", "SELECT folds FROM llm_calls ORDER BY id")][-20:]
    falls = [at for at in range(1, 20) if sizes[at] < sizes[at - 1]]
    assert falls
    assert [at for at in falls if not folds[at]] == []


# --- S0.09 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [None, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_s0_09_a_streamed_reply_without_usage_is_counted_and_marked_never_0(report: Any, tmp_path: Path) -> None:
    run(tmp_path / "calls.sqlite", report=report)
    found = rows(tmp_path / "calls.sqlite", "SELECT prompt_tokens, completion_tokens, estimated FROM llm_calls")
    assert len(found) == 61
    assert all(prompt > 0 and completion > 0 for prompt, completion, _ in found)
    assert {estimated for _, _, estimated in found} == {1}


def test_s0_09_usage_that_a_stream_ends_with_is_taken_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "calls.sqlite", report={"prompt_tokens": 900, "completion_tokens": 30})
    found = rows(tmp_path / "calls.sqlite", "SELECT prompt_tokens, completion_tokens, estimated FROM llm_calls")
    assert set(found) == {(900, 30, 0)}
