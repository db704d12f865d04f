from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from foldline.cli.console import write_whole
from foldline.cli.main import cli
from foldline.engine.presets import POLICIES
from foldline.errors import InvalidInput

EXAMPLES = Path(__file__).parents[2] / "examples" / "sessions"
SHORT = str(EXAMPLES / "tau-airline-46-t3.json.gz")
LONG = str(EXAMPLES / "devai-openhands-39.json.gz")


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["replay", *arguments], input=stdin)


def table(out: str) -> dict[str, list[str]]:
    """The rows of the table by policy."""
    lines = [line.split() for line in out.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) == 13 and cells[1][:1].isdigit()}


def test_the_table_has_no_management_first_then_the_policies_as_asked_for() -> None:
    result = invoke(LONG, SHORT, "--policy", "sliding, balanced,sliding", "--window", "8000")
    assert result.exit_code == 0
    assert list(table(result.stdout)) == ["none", "sliding", "balanced"]
    assert result.stdout.startswith(
        "2 sessions, 64 requests; window 8,000 tokens, 8,000 of them for input;\n"
        "policies keep to 7,200: 10% is margin for errors of the count\n"
        "sizes by estimate, cache prices of anthropic\n"
    )


def test_the_table_stays_readable_on_eighty_columns() -> None:
    result = invoke(LONG, "--policy", "all", "--window", "8000", "--max-output-tokens", "500")
    assert list(table(result.stdout)) == ["none", *POLICIES]
    assert "7,500 of them for input;\npolicies keep to 6,750:" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert "…" not in result.stdout


def test_progress_goes_to_stderr() -> None:
    result = invoke(SHORT, "--window", "8000")
    assert result.stderr == (
        "foldline: replaying 1 session under none, balanced\nfoldline: 1/1 tau-airline-46-t3: 30 requests\n"
    )


def test_json_holds_the_figures_of_all_and_of_each_session() -> None:
    result = invoke(SHORT, LONG, "--json", "--window", "4000", "--prices", "openai")
    report = json.loads(result.stdout)
    assert (report["window"], report["limit"], report["prices"], report["counter"]) == (
        4_000,
        4_000,
        "openai",
        "estimate",
    )
    assert report["kept_to"] == 3_600
    assert [row["policy"] for row in report["policies"]] == ["none", "balanced"]
    assert [one["name"] for one in report["sessions"]] == ["tau-airline-46-t3", "devai-openhands-39"]
    none, balanced = report["policies"]
    assert none["cost_ratio"] == 1.0
    assert balanced["invalid"] == balanced["over_budget"] == 0
    for place, row in enumerate(report["policies"]):
        assert row["tokens"] == sum(one["policies"][place]["tokens"] for one in report["sessions"])


def test_prices_change_the_cost_and_nothing_else() -> None:
    rows = [
        json.loads(invoke(LONG, "--json", "--window", "8000", "--prices", prices).stdout)["policies"][1]
        for prices in ("anthropic", "none")
    ]
    assert rows[0]["tokens"] == rows[1]["tokens"]
    assert rows[0]["cost_tokens"] < rows[1]["cost_tokens"] == rows[1]["tokens"]


def test_the_page_is_written_beside_the_table(tmp_path: Path) -> None:
    page = tmp_path / "replay.html"
    result = invoke(SHORT, "--window", "3000", "--html", str(page))
    assert result.exit_code == 0
    assert table(result.stdout)
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert f"foldline: wrote {page}" in result.stderr
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_whole(str(page), "old")
    write_whole(str(page), "new")
    assert page.read_text() == "new"
    with pytest.raises(UnicodeEncodeError):
        write_whole(str(page), "half a pair: \ud800")
    assert page.read_text() == "new"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder that exists and takes no file")
def test_a_page_that_cannot_be_written_is_one_line_and_exit_code_2() -> None:
    result = invoke(SHORT, "--window", "3000", "--html", "/proc/replay.html")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "/proc/replay.html" in result.stderr.splitlines()[-1]


def test_a_full_disk_leaves_the_old_page_and_no_other_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    page = tmp_path / "page.html"
    write_whole(str(page), "old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
        with pytest.raises(InvalidInput, match=r"page\.html: cannot be written"):
            write_whole(str(page), "x" * 50_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_sessions_of_one_name_are_told_apart() -> None:
    report = json.loads(invoke(SHORT, SHORT, "--json", "--window", "8000").stdout)
    assert [one["name"] for one in report["sessions"]] == ["tau-airline-46-t3", "tau-airline-46-t3 (2)"]


def claude_code(turns: int) -> bytes:
    records: list[dict[str, Any]] = [
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "Mend the build."}}
    ]
    for n in range(turns):
        use = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": "make"}}
        answer = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "cc -c main.c\n" * 100}
        records += [
            {"type": "assistant", "uuid": f"a{n}", "message": {"id": f"m{n}", "role": "assistant", "content": [use]}},
            {"type": "user", "uuid": f"r{n}", "message": {"role": "user", "content": [answer]}},
        ]
    return "\n".join(map(json.dumps, records)).encode()


def test_a_claude_code_session_is_replayed_from_standard_input() -> None:
    result = invoke("-", "--json", "--window", "4000", stdin=claude_code(30))
    report = json.loads(result.stdout)
    [session] = report["sessions"]
    assert (session["name"], session["dialect"], session["requests"]) == ("standard input", "anthropic", 30)
    assert [(row["invalid"], row["over_budget"] > 0) for row in report["policies"]] == [(0, True), (0, False)]


def codex(turns: int) -> bytes:
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend it."}]}
    items: list[dict[str, Any]] = [asked]
    for n in range(turns):
        items += [
            {"type": "function_call", "name": "shell", "arguments": '{"command":["make"]}', "call_id": f"c{n}"},
            {"type": "function_call_output", "call_id": f"c{n}", "output": "cc -c main.c\n" * 100},
        ]
    return "\n".join(json.dumps({"type": "response_item", "payload": item}) for item in items).encode()


def test_a_codex_session_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(codex(30))
    report = json.loads(invoke(str(path), "--json", "--window", "4000").stdout)
    [session] = report["sessions"]
    assert (session["dialect"], session["requests"]) == ("openai-responses", 30)
    assert [(row["invalid"], row["over_budget"] > 0) for row in report["policies"]] == [(0, True), (0, False)]


def test_exact_counts_size_the_requests() -> None:
    pytest.importorskip("toktok")
    report = json.loads(invoke(SHORT, "--json", "--exact", "--window", "3000").stdout)
    assert report["counter"] != "estimate"
    assert [(row["over_budget"] > 0, row["invalid"]) for row in report["policies"]] == [(True, 0), (False, 0)]


def test_a_damaged_session_is_replayed_as_far_as_it_is_whole_and_that_is_counted(tmp_path: Path) -> None:
    said = [(role, turn) for turn in range(4) for role in ("user", "assistant")]
    lines = [json.dumps({"role": role, "content": f"{role} {turn}"}) for role, turn in said]
    good, torn, lost = (tmp_path / name for name in ("good.jsonl", "torn.jsonl", "lost.jsonl"))
    good.write_text("\n".join(lines))
    torn.write_text("\n".join([*lines[:4], "\0" * 100, *lines[4:]])[:-5])
    lost.write_text("Killed\n")
    result = invoke(str(good), str(torn), str(lost), "--policy", "sliding", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [len(one["left_out"]) for one in report["sessions"]] == [0, 2]
    assert [one["requests"] for one in report["sessions"]] == [4, 3]
    assert f"left out: {torn}: line 5: 100 zero bytes" in result.stderr
    assert f"left out: {torn}: line 9: not JSON" in result.stderr
    assert f"left out: {lost}" in result.stderr
    assert "damaged: 2 places left out" in invoke(str(torn), "--policy", "sliding").stdout
    alone = invoke(str(lost))
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert str(lost) in alone.stderr
    assert invoke(str(good), str(tmp_path / "nowhere.jsonl")).exit_code == 2
