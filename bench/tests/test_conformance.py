"""The engine as compaction-conformance-kit calls it, and what the kit says of it where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from foldline_bench.conformance import KIT_PYTHON, Foldline

SRC = Path(__file__).parents[2] / "src"
PYTHON = SRC.parent / KIT_PYTHON


@dataclass(frozen=True)
class Said:
    role: str
    text: str


def talk(rounds: int = 60) -> list[Said]:
    out = [Said("system", "You are a coding assistant.")]
    for n in range(rounds):
        out += [Said("user", f"We looked at module {n} and how it is laid out."), Said("assistant", "I see. I go on.")]
        if n % 10 == 5:
            out += [Said("user", f"Never touch the file secret_{n}.toml."), Said("assistant", "Noted.")]
    return out


def characters(turns: list[Said]) -> int:
    return sum(len(turn.role) + len(turn.text) + 4 for turn in turns) - 1


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_the_text_keeps_to_its_budget(share: float) -> None:
    budget = int(share * characters(talk()))
    text = Foldline().compact(talk(), 1, budget).text
    assert 0.6 * budget < len(text) <= budget


def test_rules_survive_where_small_talk_does_not() -> None:
    text = Foldline().compact(talk(), 1, characters(talk()) // 5).text
    assert all(f"Never touch the file secret_{n}.toml." in text for n in range(5, 60, 10))
    assert "module 3 " not in text


def test_further_rounds_lose_nothing() -> None:
    budget = characters(talk()) // 5
    engine = Foldline()
    first = engine.compact(talk(), 1, budget).text
    again = engine.compact([Said("system", first)], 2, budget)
    assert (again.text, again.round_num, again.compactor_name) == (first, 2, "foldline")


def test_without_a_budget_it_keeps_to_one_of_its_own_in_all_rounds() -> None:
    engine = Foldline()
    first = engine.compact(talk()).text
    assert len(first) <= 0.3 * characters(talk())
    assert engine.compact([Said("system", first)], 2).text == first


def test_what_fits_is_left_as_it_is() -> None:
    text = Foldline().compact(talk(3), 1, 100_000).text
    assert text.startswith("[system] You are a coding assistant.\n[user] We looked at module 0")
    assert "Digest" not in text


def test_tool_output_without_its_call_is_told_as_text() -> None:
    assert "[assistant] 42 tests passed" in Foldline().compact([Said("tool", "42 tests passed")], 1, 1_000).text


@pytest.mark.parametrize("text", ["x", ""])
def test_a_text_of_next_to_nothing_is_left_as_it_is(text: str) -> None:
    assert Foldline().compact([Said("user", text)], 1, 1).text == f"[user] {text}"


def test_a_budget_that_nothing_can_keep_gives_the_least_there_is() -> None:
    text = Foldline().compact(talk(), 1, 10).text
    assert 10 < len(text) < 400


def test_the_kit_finds_85_percent_at_its_20_percent_budget() -> None:
    if not PYTHON.exists():
        pytest.skip("compaction-conformance-kit is not installed: python bench/tools/bench_peers.py conformance")
    spec = ["-m", "compaction_kit.cli", "benchmark", "--spec", "foldline_bench.conformance:Foldline"]
    done = subprocess.run(
        [str(PYTHON), *spec, "--budgets", "0.2", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    [entry] = json.loads(done.stdout)["entries"]
    assert entry["budget_compliant"]
    assert entry["randomized"]["overall_final_survival"] >= 0.85
