from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import foldline
from foldline.cli.main import cli

FILLER = "The build went on without a word about it. " * 40
HELLO = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "?"}]
ORPHAN = [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "gone", "content": "42"}]


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def saved(folder: Path, value: Any, name: str = "x.json") -> str:
    path = folder / name
    data = json.dumps(value).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


def loop(rounds: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    for turn in range(rounds):
        function = {"name": "read", "arguments": f'{{"line": {turn}}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn}: {FILLER}"},
        ]
    return messages


def test_count_prints_the_number_that_the_library_gives(tmp_path: Path) -> None:
    result = invoke("count", saved(tmp_path, loop(5)))
    assert result.exit_code == 0
    assert int(result.stdout) == foldline.count(loop(5))


def test_count_includes_what_stands_beside_the_messages(tmp_path: Path) -> None:
    tool = {"name": "ls", "description": "Lists files. " * 20, "input_schema": {"type": "object"}}
    system = "Be brief. " * 20
    body = {"messages": HELLO, "system": system, "tools": [tool]}
    result = invoke("count", "--json", "--dialect", "anthropic", saved(tmp_path, body, "x.json.gz"))
    report = json.loads(result.stdout)
    assert report["tokens"] == foldline.count(HELLO, dialect="anthropic", system=system, tools=[tool])
    assert (report["messages"], report["dialect"], report["counter"]) == (3, "anthropic", "estimate")


def test_check_is_silent_on_stdout_when_all_is_well(tmp_path: Path) -> None:
    result = invoke("check", saved(tmp_path, HELLO))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "foldline: 0 violations in 3 messages (openai-chat)\n"


def test_check_lists_what_would_be_refused(tmp_path: Path) -> None:
    result = invoke("check", saved(tmp_path, ORPHAN))
    expected = foldline.check(ORPHAN)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [str(violation) for violation in expected]
    assert expected


def test_check_reports_as_json(tmp_path: Path) -> None:
    good = invoke("check", "--json", saved(tmp_path, HELLO))
    assert (good.exit_code, json.loads(good.stdout)) == (
        0,
        {"valid": True, "dialect": "openai-chat", "violations": []},
    )
    bad = invoke("check", "--json", saved(tmp_path, ORPHAN))
    report = json.loads(bad.stdout)
    assert bad.exit_code == 1
    assert not report["valid"]
    assert report["violations"][0]["index"] == 1
    assert set(report["violations"][0]) == {"index", "rule", "detail", "source"}


def test_fit_prints_a_list_for_a_list(tmp_path: Path) -> None:
    result = invoke("fit", saved(tmp_path, loop(40)), "--max-tokens", "4000")
    messages = json.loads(result.stdout)
    assert result.exit_code == 0
    assert messages == foldline.fit(loop(40), max_tokens=4_000).messages
    assert foldline.check(messages) == []
    assert "→" in result.stderr
    assert "(limit 4,000)" in result.stderr


def test_what_fits_is_printed_as_it_came(tmp_path: Path) -> None:
    odd = [{"role": "user", "content": [{"type": "text", "text": "hi", "x-note": None}], "extra": {"a": [1, 2.5]}}]
    result = invoke("fit", saved(tmp_path, odd), "--max-tokens", "4000")
    assert json.loads(result.stdout) == odd


def test_fit_keeps_the_other_fields_of_a_request_body(tmp_path: Path) -> None:
    body = {"model": "m", "temperature": 0.5, "messages": loop(40), "stream": True}
    fitted = json.loads(invoke("fit", saved(tmp_path, body), "--max-tokens", "4000").stdout)
    assert {key: value for key, value in fitted.items() if key != "messages"} == {
        "model": "m",
        "temperature": 0.5,
        "stream": True,
    }
    assert fitted["messages"] != body["messages"]


def test_fit_gives_a_responses_body_back_as_one(tmp_path: Path) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    body = {"input": items, "instructions": "Be brief.", "model": "m"}
    assert json.loads(invoke("fit", saved(tmp_path, body), "--max-tokens", "4000").stdout) == body


def test_fit_reports_as_json_what_it_did_and_why(tmp_path: Path) -> None:
    history = [*ORPHAN, *loop(40)[1:]]
    result = invoke("fit", "--json", saved(tmp_path, history), "--max-tokens", "4000", "--max-output-tokens", "500")
    report = json.loads(result.stdout)
    assert report["fits"] is True
    assert report["tokens"] <= report["limit"] == 3_500 < report["tokens_before"]
    assert report["repairs"]
    assert all(fold["reducer"] and fold["reason"] for fold in report["folds"])
    assert sum(fold["before_tokens"] > fold["tokens"] for fold in report["folds"]) == len(report["folds"]) > 0
    assert foldline.check(report["messages"]) == []


@pytest.mark.parametrize("policy", ["economical", "autopilot"])
def test_fit_takes_a_policy(tmp_path: Path, policy: str) -> None:
    result = invoke("fit", saved(tmp_path, loop(40)), "--max-tokens", "4000", "--policy", policy)
    assert json.loads(result.stdout) == foldline.fit(loop(40), max_tokens=4_000, policy=policy).messages


def test_what_does_not_fit_names_the_parts_and_prints_nothing(tmp_path: Path) -> None:
    file = saved(tmp_path, [{"role": "system", "content": FILLER * 10}, *HELLO])
    result = invoke("fit", file, "--max-tokens", "300")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("foldline: does not fit: what must stay needs ")
    assert "system text" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_does_not_fit_is_a_json_report_when_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, [{"role": "system", "content": FILLER * 10}, *HELLO])
    result = invoke("fit", "--json", file, "--max-tokens", "300")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (report["fits"], report["limit"]) == (False, 300)
    assert report["floor_tokens"] > 300
    assert report["parts"][0]["tokens"] > 300


def test_half_a_surrogate_pair_is_printed_as_an_escape() -> None:
    odd = b'[{"role": "user", "content": "half \\ud83d, kept \xe4\xb8\xad"}]'
    result = invoke("fit", "-", "--max-tokens", "4000", "--json", stdin=odd)
    assert result.exit_code == 0
    assert "中" in json.loads(result.stdout)["messages"][0]["content"]


def test_other_scripts_are_printed_as_they_are() -> None:
    talk = json.dumps([{"role": "user", "content": "中文 ü"}]).encode()
    assert "中文 ü" in invoke("fit", "-", "--max-tokens", "4000", stdin=talk).stdout


def test_a_session_of_claude_code_can_be_fitted(tmp_path: Path) -> None:
    record = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "hi"}}
    fitted = json.loads(invoke("fit", saved(tmp_path, record, "s.jsonl"), "--max-tokens", "4000").stdout)
    assert fitted == [{"role": "user", "content": "hi"}]


def test_exact_counts_come_from_a_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("toktok")
    report = json.loads(invoke("count", "--json", "--exact", "--model", "gpt-4o", saved(tmp_path, loop(5))).stdout)
    assert report["counter"] != "estimate"
    fitted = invoke("fit", "--exact", "--json", saved(tmp_path, loop(40)), "--max-tokens", "4000")
    assert json.loads(fitted.stdout)["tokens"] <= 4_000
