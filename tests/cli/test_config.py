from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foldline.cli.main import cli

BAD = "main:\n  polcy: cost\n  compact_threshold: 2\n"
STRANGE = "main: {policy: cost, tools: {allow: [run_command]}}\n"


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FOLDLINE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["config", *arguments], input=answer)


def whole(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process: what it says and how it ends."""
    return subprocess.run(
        [sys.executable, "-m", "foldline.cli.main", "config", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_check_lists_every_fault_in_a_line_and_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(BAD)
    done = whole("check")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "agents.yaml: line 2: main.polcy: is not a setting; nearest is 'policy'",
        "agents.yaml: line 3: main.compact_threshold: must be above 0 and at most 1, not 2",
    ]
    assert done.stderr.endswith("2 faults\n")


def test_check_says_when_all_is_right_and_what_will_not_work_here(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("main: {model: {name: x, api_key_env: NO_SUCH_KEY_1}}\n")
    result = invoke("check", "mine.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mine.yaml: line 1: main.model.api_key_env: the environment has no NO_SUCH_KEY_1" in result.stderr
    assert "mine.yaml: all right" in result.stderr


def test_without_a_file_check_says_where_it_looked(tmp_path: Path) -> None:
    done = invoke("check")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "home" / "config" / "agents.yaml") in done.stderr
    assert invoke("check", "nothing.yaml").stderr == "foldline: nothing.yaml: there is no such file\n"


def test_show_names_the_source_of_each_value(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("main: {policy: cost}\nprofiles: {p: {compact_threshold: 0.5}}\n")
    result = invoke("show", "--profile", "p")
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert lines["policy.name"] == ["cost", "agents.yaml:1"]
    assert lines["compact_threshold"] == ["0.5", "agents.yaml:2"]
    assert lines["subagents.max_number"] == ["8", "built", "in"]
    assert "agent main, profile p" in result.stderr


def test_show_as_json_has_whole_values(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(f"one: {{system: {'word ' * 50}}}\n")
    result = invoke("show", "--config", "other.yaml", "--json")
    report = json.loads(result.stdout)
    assert report["agent"] == "one"
    assert report["settings"]["system"] == {"value": ("word " * 50).strip(), "from": "other.yaml:1"}
    assert report["withheld"] == []


def test_show_of_a_wrong_agent_or_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(BAD)
    done = invoke("show")
    assert done.exit_code == 2
    assert done.stderr == "foldline: agents.yaml: line 2: main.polcy: is not a setting; nearest is 'policy'\n"
    (tmp_path / "agents.yaml").write_text("main: {}\n")
    assert "there is no agent 'x'; known are main" in invoke("show", "--agent", "x").stderr


def test_trust_shows_what_for_asks_and_remembers(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(STRANGE)
    line = "agents.yaml: line 1: main.tools.allow: offer run_command"
    assert line in invoke("show").stderr
    refused = invoke("trust", answer="n\n")
    assert refused.exit_code != 0
    assert line in refused.stderr
    assert line in invoke("show").stderr
    assert invoke("trust", answer="y\n").exit_code == 0
    assert line not in invoke("show").stderr
    (tmp_path / "agents.yaml").write_text(STRANGE + "#\n")
    assert line in invoke("show").stderr
    assert invoke("trust", "--yes").exit_code == 0
    assert line not in invoke("show").stderr


def test_trust_has_nothing_to_ask_for_a_harmless_file(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("main: {policy: cost}\n")
    result = invoke("trust")
    assert result.exit_code == 0
    assert "nothing that needs trust" in result.stderr
    assert not (tmp_path / "home").exists()


def test_path_names_every_place_and_makes_none(tmp_path: Path) -> None:
    result = invoke("path")
    assert result.exit_code == 0
    assert str(tmp_path / "home" / "data" / "sessions") in result.stdout
    assert str(tmp_path / "agents.yaml") in result.stdout
    assert not (tmp_path / "home").exists()
