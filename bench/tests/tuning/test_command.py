from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from bench.tests.tuning.support import session, write_sessions
from click.testing import CliRunner, Result

from foldline import Context
from foldline.agent.settings.file import load_settings
from foldline.cli.main import cli
from foldline.store.folders import FileStore
from foldline.store.paths import sessions_path
from foldline_bench.tuning.report import SCHEMA
from foldline_bench.tuning.trial_store import FILE

pytestmark = pytest.mark.xdist_group("tune")  # one worker alone searches what most of these tests show

MODEL = ("--model", "claude-sonnet-4-5")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sessions(tmp_path_factory.mktemp("tune") / "sessions", 1, rounds=10, result_lines=80)


@pytest.fixture(scope="module")
def state(sessions: Path) -> Path:
    """What a first run has found; the others take it from there."""
    state = sessions.parent / "state"
    result = invoke(sessions, state)
    assert result.exit_code == 0, result.output
    return state


def invoke(sessions: Path | str, state: Path, *arguments: str) -> Result:
    given = ["tune", str(sessions), "--state", str(state), "--window", "3000", "--workers", "1", *MODEL, *arguments]
    return CliRunner().invoke(cli, given)


def test_the_front_the_choice_and_its_block_are_printed(sessions: Path, state: Path) -> None:
    result = invoke(sessions, state)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "1 session, 11 requests; window 3,000 tokens; prices of claude-sonnet-4-5"
    assert " settings tried; " in lines[1]
    assert re.fullmatch(r"(\d+) of all \1 replays needed: 0 run, \1 known from before", lines[2])
    assert sum(line.startswith(">") for line in lines) == 1
    assert "  none " in result.stdout
    assert "$" in next(line for line in lines if line.startswith(">"))
    assert " of it is for the replies, the same for all" in result.stdout
    assert all(len(line) <= 80 for line in lines if not line.startswith("chosen: "))
    block = result.stdout[result.stdout.index("agents:") :]
    assert '      name: "claude-sonnet-4-5"\n      max_input_tokens: 3000\n' in block
    assert "foldline: reading: 1 session\n" in result.stderr


def test_a_report_has_all_figures_and_the_block(sessions: Path, state: Path) -> None:
    report: dict[str, Any] = json.loads(invoke(sessions, state, "--json").stdout)
    assert report["replays"]["run"] == 0
    assert report["replays"]["known"] > 0
    assert report["front"] == sorted(report["front"], key=lambda row: row["with_rereads"]["value"])
    for row in report["front"]:
        assert row["invalid"] == row["over_budget"] == row["refused"] == 0
        assert row["cost"]["low"] <= row["cost"]["value"] <= row["cost"]["high"]
    assert report["none"]["over_budget"] > 0
    assert report["chosen"]["why"]
    assert report["agents_yaml"].startswith("# foldline tune: 1 session at a window of 3,000 tokens.\n")
    [one] = report["sessions"]
    assert (one["name"], one["requests"]) == ("session-0", 11)


def test_a_report_says_what_was_asked_for_and_the_manual_names_every_field(sessions: Path, state: Path) -> None:
    report: dict[str, Any] = json.loads(invoke(sessions, state, "--json", "--min-far", "0.5").stdout)
    assert report["schema"] == SCHEMA
    assert report["made"]["foldline"] == version("foldline")
    assert datetime.fromisoformat(report["made"]["date"]).tzinfo is UTC
    assert (report["min_far"], report["exact"], report["max_output_tokens"], report["telling"]) == (0.5, False, None, 1)
    manual = (Path(__file__).parents[3] / "docs" / "tune.md").read_text().partition("## The JSON report")[2]
    parts = ("made", "replays", "none", "chosen")
    fields = {
        *report,
        *report["sessions"][0],
        *report["none"]["cost"],
        *(key for part in parts for key in report[part]),
    }
    assert {field for field in fields if f"`{field}`" not in manual} == set()


def test_a_check_prints_each_part_and_its_warnings_and_the_manual_names_its_fields(tmp_path: Path) -> None:
    folder, state = write_sessions(tmp_path / "sessions", 2, rounds=8), tmp_path / "state"
    report: dict[str, Any] = json.loads(invoke(folder, state, "--json").stdout)
    said = invoke(folder, state).stdout
    assert "(parts by hash, as there is only 1 source and not 2: " in said
    assert len(re.findall(r"^1 of sessions  ", said, re.MULTILINE)) == 2
    assert "\nall sessions  " in said
    found = report["carry_over"]
    assert all(f"warning: {line}" in said for line in found["warnings"])
    manual = (Path(__file__).parents[3] / "docs" / "tune.md").read_text().partition("## The JSON report")[2]
    fields = {*found, *found["parts"][0], *found["left_out"]}
    assert {field for field in fields if f"`{field}`" not in manual} == set()
    unchecked = invoke(folder, state, "--no-check", "--json")
    assert json.loads(unchecked.stdout)["carry_over"] is None


def test_the_block_is_written_as_a_file_that_is_read_as_settings(sessions: Path, state: Path, tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    result = invoke(sessions, state, "--out", str(file), "--json")
    assert result.exit_code == 0, result.output
    chosen = json.loads(result.stdout)["chosen"]
    settings = load_settings(config=file).settings
    assert settings.policy is not None
    assert (settings.policy.name, dict(settings.policy.settings)) == (chosen["policy"], chosen["settings"])
    again = invoke(sessions, state, "--out", str(file))
    assert again.exit_code == 2
    assert "is there already; write to another file" in again.stderr


def test_enough_far_recall_can_be_asked_for(sessions: Path, state: Path) -> None:
    chosen = json.loads(invoke(sessions, state, "--json", "--min-far", "0.01").stdout)["chosen"]
    assert chosen["why"] == "the cheapest with a far recall of 0.01 or more"


def test_without_a_price_the_bill_is_in_tokens(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1, rounds=3)
    given = ["tune", str(folder), "--state", str(tmp_path / "state"), "--window", "1500", "--workers", "1"]
    result = CliRunner().invoke(cli, given)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].endswith("; no price is known, since no model is named")
    assert "no session has far references enough: only the cost was compared" in result.stdout
    quarters = re.findall(r"foldline: round 1 of \d+ settings on 1 session: (\d+) of (\d+)\n", result.stderr)
    assert [int(done) for done, _ in quarters] == [int(quarters[0][1]) * part // 4 for part in (1, 2, 3)]
    assert "tokens: input at the full price, for no price is known; name a --model" in result.stdout
    assert re.search(r"^ .* reads .*far .*tokens$", result.stdout, re.MULTILINE)
    assert "$" not in result.stdout


def test_a_model_that_is_not_in_the_catalogue_is_warned_of_with_the_nearest_name(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1, rounds=3)
    given = ["tune", str(folder), "--state", str(tmp_path / "state"), "--workers", "1", "--model", "claude-sonet-4-5"]
    said = CliRunner().invoke(cli, given).stderr
    assert (
        "model 'claude-sonet-4-5' is not in the catalogue, the nearest name is 'claude-sonnet-4-5': its window" in said
    )
    result = CliRunner().invoke(cli, [*given, "--window", "1500"])
    assert "nearest name is 'claude-sonnet-4-5': without its price the bill is in tokens\n" in result.stderr
    assert result.stdout.splitlines()[0].endswith("; no price is known of claude-sonet-4-5")
    assert "$" not in result.stdout


NO_RANGES = "no ranges: they are told of 5 sessions or more"
RANGE = re.compile(r" \d\.\d\d-\d\.\d\d ")


def test_ranges_are_told_of_five_sessions_or_more_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sessions(tmp_path / "sessions", 5, rounds=3)
    given = ["tune", str(folder), "--state", str(tmp_path / "state"), "--window", "1500", "--workers", "1"]
    for columns, shown in ((80, True), (60, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        said = CliRunner().invoke(cli, given).stdout
        assert bool(RANGE.search(said)) is ("ranges are 95 % intervals" in said) is shown
        assert ("no room here for ranges" in said) is not shown
        assert NO_RANGES not in said


def test_the_check_has_ranges_of_five_sessions_or_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sessions(tmp_path / "sessions", 6, rounds=3)
    given = ["tune", str(folder), "--state", str(tmp_path / "state"), "--window", "1500", "--workers", "1"]
    for columns, ranges in ((120, 2), (50, 0)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = CliRunner().invoke(cli, given).stdout.splitlines()
        [whole] = [line for line in lines if line.startswith("all sessions ")]
        assert len(RANGE.findall(f"{whole} ")) == ranges


def test_of_fewer_than_five_sessions_no_ranges_are_told(sessions: Path, state: Path) -> None:
    said = invoke(sessions, state).stdout
    assert NO_RANGES in said
    assert not RANGE.search(said)
    assert "ranges are" not in said and "no room here for ranges" not in said


@pytest.mark.parametrize(("columns", "gone"), [(48, "on arrival"), (20, "on arrival, ")])
def test_a_narrow_terminal_gets_fewer_columns_and_no_figure_that_is_cut(
    sessions: Path, state: Path, monkeypatch: pytest.MonkeyPatch, columns: int, gone: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = invoke(sessions, state)
    table = result.stdout.split("\n\n")[1].splitlines()
    assert "…" not in result.stdout
    assert f"no room here for {gone}" in " ".join(result.stdout.split())
    # 31: the longest name of a policy and three figures, which no terminal is too narrow for.
    assert all(len(line) <= max(columns, 31) for line in table)
    [chosen] = [line for line in table if line.startswith("> ")]
    assert re.search(r" \d\.\d\d +\d\.\d\d +\$\d[.\d]+$", chosen)


def test_a_window_may_be_named_as_models_name_theirs(sessions: Path, state: Path) -> None:
    assert "; window 3,000 tokens; " in invoke(sessions, state, "--window", "3k").stdout
    refused = invoke(sessions, state, "--window", "3x")
    assert refused.exit_code == 2
    assert "'3x' is not a size such as 16000 or 16k" in refused.stderr


def test_all_that_is_left_out_is_named_one_a_line(sessions: Path, state: Path, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.json").write_text("no JSON")
    result = invoke(sessions, state, str(tmp_path))
    named = [line for line in result.stdout.splitlines() if line.startswith("left out: ")]
    assert [line.split(": ")[1] for line in named] == [str(tmp_path / f"{number}.json") for number in range(5)]
    nothing = invoke(tmp_path, state)
    assert nothing.exit_code == 2
    *lines, last = nothing.stderr.splitlines()
    assert [line for line in lines if "left out: " in line] == [f"foldline: {line}" for line in named]
    assert last.startswith("foldline: none of them can be replayed; ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{}/nowhere"], "there is no such file or folder"),
        (["{}"], "holds no session"),
        (["{}/sessions", "--window", "400000"], "all sessions fit into the window of 400,000 tokens"),
        (["{}/sessions", "--window", "1000", "--max-output-tokens", "1000"], "max_output_tokens: must be from 0"),
        (["{}/sessions", "--ray-address", "auto"], "--ray-address is of use with --engine ray only"),
        (["{}/sessions", "--out", "{}/none/agents.yaml"], "there is no such folder to write to"),
        (["{}/sessions", "--min-far", "2"], "2.0 is not in the range 0<=x<=1"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_sessions(tmp_path / "sessions", 1, rounds=3)
    place = tmp_path / "empty" if arguments == ["{}"] else tmp_path
    given = [argument.format(place) for argument in arguments]
    result = CliRunner().invoke(cli, ["tune", *given, "--state", str(tmp_path / "state"), "--workers", "1"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_without_names_the_sessions_that_are_kept_are_replayed(tmp_path: Path) -> None:
    environ = {"FOLDLINE_HOME": str(tmp_path), "FOLDLINE_STORE": ""}
    given = ["tune", "--window", "1500", "--workers", "1"]
    nothing = CliRunner().invoke(cli, given, env=environ)
    assert (nothing.exit_code, nothing.stderr) == (2, "foldline: no session is named, and none is kept here yet\n")
    ctx = Context(dialect="openai-chat", window=100_000)
    ctx.extend(session(0, rounds=3)["messages"])
    with FileStore(sessions_path(environ)).create(dialect="openai-chat", model="gpt-4.1-mini") as kept:
        kept.append(ctx.events)
    result = CliRunner().invoke(cli, given, env=environ)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 session, 4 requests; window 1,500 tokens; prices of gpt-4.1-mini\n")
    assert (tmp_path / "cache" / "tune" / FILE).exists()


def children(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return set(map(int, text.split()))


def gone(pid: int) -> bool:
    """Whether a process has ended, whoever has still to take note of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def stopped(command: list[str], file: Path, lines: int, how: signal.Signals) -> tuple[int, str] | None:
    """Run a command and stop it once its file has so many lines; its exit code and words.

    None when it had ended by itself before the signal came: then there was too little to do for this machine.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as running:
        while running.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
            sleep(0.005)
        workers = children(running.pid) if running.poll() is None else set()
        if how == signal.SIGINT and workers:
            os.killpg(running.pid, how)  # as a terminal does: its workers hear it too
        else:
            running.kill()
        _, said = running.communicate()
    if running.returncode == 0 or not workers:
        return None
    assert len(workers) >= 2
    assert b"Traceback" not in said
    assert b"resource_tracker" not in said  # it outlives what was killed, and is read here to its end
    while not all(map(gone, workers)):
        sleep(0.005)
    return running.returncode, said.decode()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc")
def test_what_was_stopped_or_killed_goes_on_and_leaves_no_process_behind(tmp_path: Path) -> None:
    """Whoever is faster: a run that ended before its signal came is begun anew with more to do."""
    for sessions in (1, 2, 4, 8):
        folder, state = write_sessions(tmp_path / f"sessions_{sessions}", sessions, rounds=10), tmp_path / f"{sessions}"
        given = ["tune", str(folder), "--window", "3000", *MODEL, "--state", str(state), "--workers"]
        command = [sys.executable, "-m", "foldline.cli.main", *given, "2"]
        file = state / FILE
        if (ended := stopped(command, file, 4, signal.SIGINT)) is None:
            continue
        first = file.read_bytes().count(b"\n")
        assert first >= 4
        code, said = ended
        assert (code, said.splitlines()[-1]) == (
            130,
            f"foldline: stopped; {first} results are stored; the same command continues",
        )
        if (killed := stopped(command, file, first + 4, signal.SIGKILL)) is None:
            continue
        assert killed[0] == -signal.SIGKILL
        kept = file.read_bytes().count(b"\n")
        assert kept >= first + 4
        report = json.loads(CliRunner().invoke(cli, [*given, "1", "--json"]).stdout)
        assert report["replays"]["known"] == kept
        assert report["replays"]["run"] == report["replays"]["all_on_all"] - kept
        return
    pytest.fail("each run had ended before its signal came")
