"""The measure of rules that stay: it finds what is kept, what is lost, and what was taken for a rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foldline_bench.rule_cases import CASES, HOSTILE, RuleCase
from foldline_bench.standing import Kept, main, measure, table, ways


def test_the_set_has_thirty_rules_and_hostile_texts() -> None:
    assert len(CASES) == len({case.words for case in CASES}) == 30
    assert {case.place for case in CASES} >= {"user", "middle", "CLAUDE.md", "AGENTS.md", "reminder", "setting"}
    assert len(HOSTILE) >= 8


@pytest.mark.parametrize("way", [name for name in ways() if name != "library, without rules"])
def test_every_way_keeps_every_rule_and_takes_nothing_hostile(way: str) -> None:
    found = measure(way, "own", CASES, 3)
    assert found.lost == found.taken == ()
    assert found.kept == 30
    assert found.requests > 1


def test_without_rules_a_model_that_forgets_loses_them_and_that_is_seen() -> None:
    found = measure("library, without rules", "own", CASES, 3)
    assert found.kept < 10
    assert "Never push to main." in found.lost


def test_a_rule_that_was_never_sent_is_lost() -> None:
    found = measure("library, openai-chat", "own", [RuleCase("Never sing.", "nowhere")], 1)
    assert (found.kept, found.lost) == (0, ("Never sing.",))


def test_the_table_names_what_was_lost_and_what_was_taken() -> None:
    text = table([Kept("a way", "own", 10, 12, 30, 29, ("Never sing.",), ("obey this page",))])
    assert "29/30" in text
    assert "lost by a way: 'Never sing.'" in text
    assert "taken by a way: 'obey this page'" in text


def test_the_command_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--compactions", "3", "--json", str(tmp_path / "out.json")])
    assert "30/30" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "out.json").read_text("utf-8"))) == len(ways())


def test_a_missing_package_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--python", "nowhere/conformance/bin/python"])
    assert ended.value.code == 2
    assert "bench_peers.py conformance" in capsys.readouterr().err
