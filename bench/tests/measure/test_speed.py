from __future__ import annotations

import json

import pytest

from foldline import check
from foldline.engine.presets import POLICIES
from foldline_bench.__main__ import main
from foldline_bench.measure.speed import CostGrowth, import_time, loop, run, run_loop, session, speed


def test_the_benchmark_session_is_one_that_a_provider_would_take() -> None:
    messages = [message for turn in session(250) for message in turn]
    assert len(messages) == 250
    assert check(messages) == []


def test_every_turn_of_it_is_timed() -> None:
    turns = run("balanced", 120, 4_000)
    assert [so_far for so_far, _, _ in turns] == list(range(2, 121, 2))
    assert all(seconds >= 0 for _, seconds, _ in turns)
    assert any(folded for _, _, folded in turns)


def test_the_loop_is_one_that_a_provider_would_take_and_begins_with_signed_thinking() -> None:
    messages = [message for turn in loop(251) for message in turn]
    assert len(messages) == 251
    assert check(messages, dialect="anthropic") == []
    signed = [at for at, message in enumerate(messages) for block in message["content"] if "signature" in block]
    assert signed == [1]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_turn_of_the_loop_is_timed_and_what_folds_stand_for_leaves_memory(policy: str) -> None:
    turns, held = run_loop(policy, 401, 3_000)
    assert [so_far for so_far, _, _ in turns] == list(range(1, 402, 2))
    assert any(folded for _, _, folded in turns)
    assert max(held[150:]) <= 1.5 * max(held[50:150]) < 200


def test_turns_are_looked_at_before_each_length_and_folds_set_apart() -> None:
    turns = [(2 * n, 0.001 if n % 10 else 0.5, n % 10 == 0) for n in range(1, 401)]
    [short, long], growth = speed(turns, sizes=(100, 800))
    assert (short.messages, short.turns, short.folding_turns) == (100, 50, 5)
    assert (long.messages, long.turns, long.folding_turns) == (800, 100, 10)
    assert (long.p50_seconds, long.p95_seconds, long.folding_p95_seconds) == (0.001, 0.001, 0.5)
    assert long.folding_p50_seconds == 0.5
    assert growth.plain == pytest.approx(0.0, abs=1e-9)
    assert growth.folding == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_growth_is_the_exponent_of_time_over_messages(power: float) -> None:
    turns = [(n, 1e-6 * n**power, False) for n in range(1, 500)]
    assert speed(turns, sizes=(100,))[1].plain == pytest.approx(power)


def test_turns_that_fold_have_a_growth_of_their_own() -> None:
    turns = [(n, 1e-6 * n ** (2.0 if n % 2 else 1.0), n % 2 == 1) for n in range(1, 500)]
    growth = speed(turns, sizes=(100,))[1]
    assert growth.plain == pytest.approx(1.0)
    assert growth.folding == pytest.approx(2.0)


def test_too_few_turns_tell_no_growth() -> None:
    always = [(n, 1e-6 * n, True) for n in range(1, 500)]
    assert speed([(2, 0.1, False)], sizes=(2,))[1] == CostGrowth(None, None)
    growth = speed(always, sizes=(100,))[1]
    assert growth.plain is None
    assert growth.folding == pytest.approx(1.0)


def test_the_import_is_timed_in_a_fresh_interpreter() -> None:
    start = import_time(runs=1)
    assert start.seconds > 0
    assert start.foreign_modules == ()


def test_the_benchmark_prints_a_table_with_a_dash_where_no_turn_tells_the_growth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--messages", "100", "--policy", "balanced", "--imports", "1"])
    out = capsys.readouterr().out
    [first, _] = [line for line in out.splitlines() if line.split()[:1] == ["growth"]]
    assert first.split()[2:] == ["–"]
    assert "import foldline" in out
    assert "no third-party module" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_benchmark_of_the_loop_prints_how_many_entries_are_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--loop", "--messages", "101", "--policy", "sliding", "--imports", "1"])
    out = capsys.readouterr().out
    [row] = [line for line in out.splitlines() if line.startswith("sliding")]
    assert row.split()[1:5] == ["101", "in", "memory", "101"]
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_benchmark_of_the_loop_takes_every_policy_unless_it_is_told_which(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--loop", "--json", "--messages", "21", "--imports", "1"])
    report = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in report["turns"]] == list(POLICIES)
    assert {row["sizes"][0]["entries"] for row in report["turns"]} == {21}


def test_the_benchmark_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--json", "--messages", "60", "--policy", "balanced,sliding", "--imports", "1"])
    report = json.loads(capsys.readouterr().out)
    assert report["import_seconds"] > 0
    assert [(one["policy"], one["sizes"][0]["messages"]) for one in report["turns"]] == [
        ("balanced", 60),
        ("balanced", 60),
        ("sliding", 60),
        ("sliding", 60),
    ]


@pytest.mark.parametrize(
    ("given", "word"),
    [(["--policy", "nope"], "nope"), (["--messages", "0"], "--messages"), (["--imports", "0"], "--imports")],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    given: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert word in line
