from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from foldline.catalog.models import CACHE_RULES
from foldline.errors import InvalidInput
from foldline.recorded.files import read_session
from foldline.replay import Managed, MeasuredSession, Pauses, bill_tokens, context_for, replay
from foldline.text.formatting import DASH
from foldline.tokens import ESTIMATE
from foldline_bench import session_inputs
from foldline_bench.run import BenchPlan, BenchProgress, bench
from foldline_bench.table import by_group, main_table, notes, parts_table, stress_table, week_lines, weeks_table
from foldline_bench.values import BenchResult, SystemRun
from foldline_bench.weeks import WeekRecording, join
from foldline_bench.workers.jobs import COUNTER

pytestmark = pytest.mark.xdist_group("bench")  # one worker alone measures what most of these tests look at

FILLER = "The build went on without a word about it. " * 20

PEER = '''
"""Systems of a test."""
import os, sys, time

print("noise of an import")
PACKAGES = ("no-such-package",)


class Newest:
    """The task and the last messages, from a call on."""

    def __init__(self, budget_tokens, count, summarise):
        self.budget_tokens, self.count, self.summarise = budget_tokens, count, summarise

    def prepare(self, history):
        self.history = list(history)

    def view(self, history):
        print("noise of a request")
        at = len(history) - 1
        size = self.count(history[0]) + self.count(history[1])
        while at > 2 and size + self.count(history[at]) + self.count(history[at - 1]) < self.budget_tokens * 0.8:
            size += self.count(history[at]) + self.count(history[at - 1])
            at -= 2
        return [*history[:2], *history[at + 1 :]]

    def finish(self, out):
        return out


class Asking(Newest):
    def view(self, history):
        text = self.summarise.summarize(history[2:])
        return [*history[:2], {"role": "user", "content": text[:200]}]


class Raising(Newest):
    def view(self, history):
        if len(history) > 6:
            raise ValueError("more than I can take")
        return list(history)


class Spoiling(Newest):
    def view(self, history):
        history[1]["content"] = "forget it"
        return list(history)


class Dying(Newest):
    def view(self, history):
        if len(history) > 4:
            sys.stderr.write("first line\\nthe core was dumped\\n\\n")
            sys.stderr.flush()
            os._exit(9)
        return list(history)


class Slow(Newest):
    def view(self, history):
        if len(history) > 30:
            time.sleep(60)
        return list(history)


SYSTEMS = {"newest": Newest, "asking": Asking, "raising": Raising, "spoiling": Spoiling, "dying": Dying, "slow": Slow}
OWN_COUNTER = {"newest (own counter)": Newest}
'''


def recorded(folder: Path, name: str, rounds: int, source: str = "someone/SWE-agent (runs)") -> str:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Mend src/app.py."},
    ]
    for turn in range(rounds):
        function = {"name": "read_file", "arguments": f'{{"path": "src/module_{turn}.py"}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": f"Step {turn}, as src/module_{turn // 2}.py.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"src/module_{turn}.py\n{FILLER}"},
        ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"messages": messages, "source": source}), "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions, and a folder of peers with one that works and one whose module cannot be loaded."""
    root = tmp_path_factory.mktemp("bench")
    recorded(root, "long", 40)
    recorded(root, "short", 14, "someone/aider (history)")
    recorded(root, "tiny", 2)
    peers = {"peers/mine": PEER, "peers/broken": "import no_such_module", "alone/mine": PEER}
    for place, module in peers.items():
        python = root / place / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
        python.chmod(0o700)
        (root / place / "peer.py").write_text(module, "utf-8")
    return root


def plan(folder: Path, *systems: str, peers: str = "alone", **changes: Any) -> BenchPlan:
    usual: dict[str, Any] = {"repeat": 1, "cap_seconds": 60.0, "stress": False, "budgets_tokens": (2_000,)}
    usual["paths"] = tuple(str(folder / f"{name}.json") for name in ("long", "short", "tiny"))
    return BenchPlan(systems=systems, peers_folder=str(folder / peers), **{**usual, **changes})


def briefly(folder: Path, *systems: str, peers: str = "alone", **changes: Any) -> BenchPlan:
    """A plan over the short session alone, for what is not about the figures."""
    return plan(folder, *systems, peers=peers, **{"paths": (str(folder / "short.json"),), **changes})


def runs(result: BenchResult) -> dict[str, SystemRun]:
    return {run["system"]: run for run in result["budgets"][0]["runs"]}


@pytest.fixture(scope="module")
def measured(folder: Path) -> tuple[BenchResult, list[BenchProgress]]:
    """A bench of ours and of all systems of the peer that come back."""
    steps: list[BenchProgress] = []
    systems = ("balanced", "economical@openai", "newest", "asking", "raising", "spoiling", "dying")
    return bench(plan(folder, *systems, peers="peers", repeat=2), steps.append), steps


def test_a_policy_has_the_figures_that_its_replay_has(
    measured: tuple[BenchResult, list[BenchProgress]], folder: Path
) -> None:
    found = runs(measured[0])["balanced"]["sessions"]["long"]
    done = replay(read_session(folder / "long.json"), "balanced", window=2_000, rule=CACHE_RULES["anthropic"])
    assert (found["requests"], found["tokens"], found["cached_tokens"]) == (40, done.tokens, done.cached_tokens)
    assert found["cost"]["anthropic"]["warm"] == pytest.approx(done.cost_tokens)
    recall = done.recall
    assert found["recall"]["beyond"] == [[tally.kept, tally.total] for tally in recall.beyond]
    assert len(found["cpu_seconds"]) == 40
    assert all(seconds > 0 for seconds in found["cpu_seconds"])


def test_a_policy_of_ours_is_told_of_the_pauses_and_the_others_are_priced_anew(
    measured: tuple[BenchResult, list[BenchProgress]], folder: Path
) -> None:
    found = runs(measured[0])["economical@openai"]["sessions"]["long"]
    rule, anthropic = CACHE_RULES["openai"], CACHE_RULES["anthropic"]
    recording = MeasuredSession(read_session(folder / "long.json"))
    sender = Managed(context_for(recording, "economical", window=2_000, rule=rule), pauses=Pauses(20, 3_600))
    told = replay(recording, "economical", window=2_000, rule=anthropic, sender=sender)
    assert found["cost"]["openai"]["cold"] == pytest.approx(bill_tokens(told.turns, rule, cold_every=20))
    unmanaged = replay(recording, "none", window=2_000, rule=anthropic)
    found = runs(measured[0])["none"]["sessions"]["long"]
    assert found["cost"]["anthropic"]["cold"] == pytest.approx(bill_tokens(unmanaged.turns, anthropic, cold_every=20))


def test_no_management_is_always_there_and_the_measure_of_cost(
    measured: tuple[BenchResult, list[BenchProgress]],
) -> None:
    figures = runs(measured[0])["none"]["figures"]
    assert figures is not None
    ratio = figures["cost"]["anthropic"]["warm"]["ratio"]
    assert ratio is not None
    assert (ratio["value"], ratio["low"], ratio["high"], ratio["sessions"]) == (1.0, 1.0, 1.0, 2)
    assert figures["over_share"] > 0.5
    assert not figures["front"]


def test_the_means_over_parts_are_those_of_their_figures(folder: Path) -> None:
    names = ("web-1", "web-2", "mail-1", "shop-1", "docs-1", "docs-2", "help-1")
    paths = tuple(recorded(folder, name, 14 + place, source="") for place, name in enumerate(names))
    result = bench(plan(folder, "balanced", paths=paths, parts=True))
    parts, run = result["budgets"][0]["parts"], runs(result)["balanced"]
    assert parts is not None
    assert (parts["by"], parts["about"]) == ("source", "parts by source: 5 sources in 5 parts, none torn apart")
    assert parts["sources"] == [["docs"], ["web"], ["help"], ["mail"], ["shop"]]
    assert [len(names) for names in parts["sessions"]] == [2, 2, 1, 1, 1]
    ratios = [one["cost"]["anthropic"]["warm"]["ratio"] for one in run["parts"]]
    means = run["part_means"]
    assert means["cost"] is not None
    assert means["cost"]["sessions"] == 5
    assert means["cost"]["value"] == pytest.approx(sum(ratio["value"] for ratio in ratios if ratio) / 5)
    assert means["cost"]["low"] < means["cost"]["value"] < means["cost"]["high"]
    stages = [one["stages_bound"] for one in run["parts"]]
    assert means["by_stages"] is not None
    assert means["by_stages"]["value"] == pytest.approx(sum(bound["value"] for bound in stages if bound) / 5)
    assert runs(result)["none"]["part_means"]["by_stages"] is None, "no management has no bound"
    table = parts_table(result["budgets"][0])
    assert table is not None
    firsts = [row[0] for row in table.rows]
    assert firsts[6:9] == ["balanced", "  2 sessions of docs", "  2 sessions of web"]
    assert len(firsts) == 12


def test_the_sessions_of_a_source_are_joined_into_a_week(folder: Path) -> None:
    names = ("web-2", "web-1", "mail-1")
    paths = tuple(recorded(folder, name, 16, source="") for name in names)
    result = bench(plan(folder, "balanced", "cut on arrival (2*", paths=paths, weeks=True))
    assert [(row["name"], row["requests"]) for row in result["sessions"]] == [("week of web", 32), ("mail-1", 16)]
    week, single = (row["week"] for row in result["sessions"])
    assert single is None
    assert week is not None
    assert (week["sessions"], week["nights"], week["images"]) == (2, 1, 0)
    assert 0 < week["left_out"] < week["references"]
    hashes = sha256((folder / "web-1.json").read_bytes() + (folder / "web-2.json").read_bytes()).hexdigest()
    assert result["sessions"][0]["sha256"] == hashes
    unmanaged = runs(result)["none"]["sessions"]["week of web"]
    recording = WeekRecording(join([read_session(folder / f"web-{number}.json") for number in (1, 2)], 2), ESTIMATE)
    rule = CACHE_RULES["anthropic"]
    done = replay(recording, "none", window=2_000, rule=rule, pauses=recording.pauses)
    assert unmanaged["cost"]["anthropic"]["warm"] == pytest.approx(done.cost_tokens)
    assert done.turns[16].idle_seconds > rule.lifetime_seconds
    assert unmanaged["recall"]["near"] == [done.recall.near.total] * 2
    assert set(unmanaged["pays_from"].values()) == {None}
    found = runs(result)["balanced"]["sessions"]["week of web"]
    assert (found["bound"], found["over_budget"]) == (None, 0)
    assert runs(result)["balanced"]["sessions"]["mail-1"]["bound"] is not None
    table = weeks_table(result["budgets"][0], ["week of web"])
    assert table is not None
    firsts = ["week of web", "  none", "  balanced", "  cut on arrival (2,000 characters)"]
    assert [row[0] for row in table.rows] == firsts
    [said] = week_lines(result["sessions"])
    assert said.startswith("week of web: 2 sessions, 32 requests, ")
    assert weeks_table(result["budgets"][0], ["mail-1 of nobody"]) is None


def test_a_week_ends_before_it_is_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_inputs, "WEEK_TOKENS", 9_000)
    paths = tuple(recorded(folder, f"shop-{number}", 16, source="") for number in range(3))
    found = session_inputs.collect_sessions(paths, weeks=True)
    assert [(row["name"], row["week"] is None) for row in found.rows] == [("week 1 of shop", False), ("shop-2", True)]
    assert [len(file.paths) for file in found.files] == [2, 1]


def test_without_parts_there_is_no_table_of_them(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    assert parts_table(measured[0]["budgets"][0]) is None
    assert runs(measured[0])["balanced"]["parts"] == []


def test_near_lines_and_re_reads_are_those_of_the_replay(
    measured: tuple[BenchResult, list[BenchProgress]], folder: Path
) -> None:
    found = runs(measured[0])["balanced"]["sessions"]["long"]
    done = replay(read_session(folder / "long.json"), "balanced", window=2_000, rule=CACHE_RULES["anthropic"])
    near = done.recall.near_feasible
    assert found["recall"]["near_feasible"] == [near.kept, near.total]
    assert found["rereads"]["messages"] == [*done.rereads]
    paid = [done.cost_tokens + again for again in found["rereads"]["cost"]["anthropic"]]
    assert paid == pytest.approx([*done.with_rereads_tokens])


def test_sessions_too_small_for_the_budget_take_no_part(
    measured: tuple[BenchResult, list[BenchProgress]], folder: Path
) -> None:
    result = measured[0]
    assert result["budgets"][0]["sessions"] == ["long", "short"]
    assert result["budgets"][0]["too_small"] == ["tiny"]
    assert [(row["name"], row["group"], row["requests"]) for row in result["sessions"]] == [
        ("long", "issue solving", 40),
        ("short", "chat", 14),
    ]
    assert result["sessions"][0]["sha256"] == sha256((folder / "long.json").read_bytes()).hexdigest()


def test_a_system_of_others_is_measured_in_its_own_process(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    figures = runs(measured[0])["newest"]["figures"]
    assert figures is not None
    assert (figures["requests"], figures["errors"], figures["over_share"], figures["hard_share"]) == (54, 0, 0, 0)
    assert figures["sound"]
    assert figures["hit_share"] < 0.9
    row = next(row for row in measured[0]["systems"] if row["name"] == "newest")
    assert row == {"name": "newest", "peer": "mine", "packages": {"no-such-package": "?"}}


def test_what_a_system_asks_a_model_for_is_on_its_bill(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    figures = runs(measured[0])["asking"]["figures"]
    assert figures is not None
    summaries, cost = figures["summaries"], figures["cost"]["nocache"]["warm"]["tokens"]
    assert summaries["calls"] == 54
    expected = summaries["prompt_tokens"] + 5 * summaries["output_tokens"]
    assert summaries["cost"]["nocache"]["warm"] == pytest.approx(expected)
    assert cost == pytest.approx(figures["tokens"] + expected)


def test_policies_of_ours_are_held_against_the_best_in_hindsight(
    measured: tuple[BenchResult, list[BenchProgress]],
) -> None:
    balanced, peer = runs(measured[0])["balanced"], runs(measured[0])["newest"]
    bounds = []
    for session in balanced["sessions"].values():
        bound, bill = session["bound"], session["cost"]["anthropic"]["warm"]
        assert bound is not None
        assert bound["ratio"] == pytest.approx(bill / bound["schedule_tokens"])
        assert bound["anew_ratio"] == pytest.approx(bill / bound["anew_tokens"])
        assert bound["needs_ratio"] == pytest.approx(bill / bound["far_tokens"])
        assert bound["schedule_tokens"] <= bound["anew_tokens"]
        total = bill + session["rereads"]["cost"]["anthropic"][1]
        assert bound["total_tokens"] == pytest.approx(total)
        assert bound["stages_ratio"] == pytest.approx(total / bound["stages_tokens"])
        assert bound["alone_ratio"] == pytest.approx(total / bound["alone_tokens"])
        assert 0 < bound["alone_tokens"] <= bound["stages_tokens"] <= bound["moments_tokens"] <= total + 1e-6
        assert 0 < bound["uses_tokens"] <= total
        assert 0 < bound["far_tokens"] <= bound["facts_tokens"] <= min(bill, bound["messages_tokens"])
        bounds.append(bound)
    figures = balanced["figures"]
    assert figures is not None
    for name, bound_name, worst_name in (
        ("ratio", "bound", "worst_bound"),
        ("anew_ratio", "anew_bound", "worst_anew_bound"),
        ("needs_ratio", "needs_bound", "worst_needs_bound"),
        ("stages_ratio", "stages_bound", "worst_stages_bound"),
        ("alone_ratio", "alone_bound", "worst_alone_bound"),
    ):
        ratios = [bound[name] for bound in bounds]  # type: ignore[literal-required]
        assert min(ratios) >= 1
        assert figures[worst_name] == max(ratios)  # type: ignore[literal-required]
        assert figures[bound_name]["value"] == pytest.approx(sum(ratios) / 2)  # type: ignore[literal-required]
    assert peer["figures"] is not None
    assert (peer["sessions"]["long"]["bound"], peer["figures"]["bound"], peer["figures"]["needs_bound"]) == (None,) * 3


def test_errors_inside_a_system_are_counted_and_the_first_is_told(
    measured: tuple[BenchResult, list[BenchProgress]],
) -> None:
    raising, spoiling = (runs(measured[0])[name]["figures"] for name in ("raising", "spoiling"))
    assert raising is not None
    assert spoiling is not None
    assert (raising["errors"], raising["first_error"]) == (54 - 6, "ValueError: more than I can take")
    assert raising["hard_rules"] == {"empty": 48}
    assert (spoiling["errors"], spoiling["first_error"]) == (2, "it changed messages of the history")


def test_a_worker_that_dies_is_reported_and_the_rest_goes_on(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    result, steps = measured
    dying = runs(result)["dying"]
    assert dying["died"] == "the core was dumped"
    assert dying["unfinished"] == ["short", "long"]
    assert dying["apart"]
    assert dying["figures"] is None
    assert result["budgets"][0]["common"] == ["long", "short"]
    last = [step for step in steps if step.ended]
    assert [step.system for step in last] == list(runs(result))
    assert [step.died for step in last if step.died] == ["the core was dumped"]


def test_a_peer_that_cannot_be_loaded_is_left_out_with_its_reason(
    measured: tuple[BenchResult, list[BenchProgress]],
) -> None:
    absent = {each["peer"]: each["reason"] for each in measured[0]["absent"]}
    assert absent["broken"] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_a_peer_that_is_asked_for_by_name_and_cannot_run_is_refused_at_once(folder: Path) -> None:
    steps: list[BenchProgress] = []
    with pytest.raises(InvalidInput, match="systems, broken: ModuleNotFoundError"):
        bench(briefly(folder, "broken", peers="peers"), steps.append)
    with pytest.raises(InvalidInput, match=r"litellm is not installed: .*bench_peers\.py litellm"):
        bench(briefly(folder, "newest", "litellm", peers="peers"), steps.append)
    assert steps == []


def test_peers_that_nobody_asked_for_are_not_missed(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    assert {each["peer"] for each in measured[0]["absent"]} == {"broken"}  # it is there, and might have been meant


def test_a_peer_without_the_exact_counter_is_told_at_once_where_to_install_it(folder: Path) -> None:
    bare = folder / "bare" / "mine"
    (bare / "bin").mkdir(parents=True)
    (bare / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', "utf-8")
    (bare / "bin" / "python").chmod(0o700)
    (bare / "peer.py").write_text(PEER, "utf-8")
    said = rf"no exact counter; install it with `{sys.executable} -m pip install '{COUNTER}'`, or .*--estimate"
    steps: list[BenchProgress] = []
    for name in ("mine", "newest"):
        with pytest.raises(InvalidInput, match=said):
            bench(briefly(folder, name, peers="bare", exact=True), steps.append)
    assert steps == []
    assert list(runs(bench(briefly(folder, "newest", peers="bare")))) == ["none", "newest"]


def test_what_is_installed_for_the_exact_counter_is_what_the_extra_installs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["optional-dependencies"]["exact"] == [COUNTER]


def test_the_distribution_needs_what_checks_the_settings_that_tune_tries() -> None:
    root = Path(__file__).parents[2]
    own, bench = (tomllib.loads((root / at / "pyproject.toml").read_text("utf-8"))["project"] for at in (".", "bench"))
    (pydantic,) = (one for one in own["optional-dependencies"]["chat"] if one.startswith("pydantic"))
    assert pydantic in bench["dependencies"]


def test_no_peer_is_started_where_ours_alone_are_asked_for(folder: Path) -> None:
    result = bench(briefly(folder, "sliding", peers="peers"))
    assert (list(runs(result)), result["absent"]) == (["none", "sliding"], [])


def test_the_tables_have_a_row_for_each_system(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    budget = measured[0]["budgets"][0]
    table = main_table(budget)
    assert {row[0].removeprefix("* ").partition(" [")[0] for row in table.rows} == set(runs(measured[0]))
    assert table.rows[-1][0] == "dying [over 0 sessions alone]"
    assert {"openai", "errors"} <= set(table.heads)
    needs = [row[table.heads.index("by\nneeds")] for row in table.rows if row[0].endswith(("balanced", "newest"))]
    assert max(needs) == DASH
    assert float(min(needs)) >= 1
    assert by_group(budget).heads == ("cost / far", "issue solving\n1 session", "chat\n1 session")
    assert stress_table(budget) is None
    said = "\n".join(notes(budget))
    assert "dying: its process ended early: the core was dumped; 2 sessions not finished" in said
    assert "first error: ValueError: more than I can take" in said
    assert "asking: 54 summary calls" in said


def test_the_result_is_plain_json(measured: tuple[BenchResult, list[BenchProgress]]) -> None:
    assert json.loads(json.dumps(measured[0], allow_nan=False)) == measured[0]


def test_what_is_not_done_in_time_is_said(folder: Path) -> None:
    result = bench(plan(folder, "slow", cap_seconds=3.0))
    slow = runs(result)["slow"]
    assert (slow["died"], slow["unfinished"], slow["apart"]) == (None, ["long"], False)
    assert result["budgets"][0]["common"] == ["short"]


def test_stopped_it_gives_what_was_finished_and_nothing_before_that(folder: Path) -> None:
    def stop_at(system: str) -> BenchResult:
        def on_step(step: BenchProgress) -> None:
            if step.system == system:
                raise KeyboardInterrupt

        return bench(plan(folder, "balanced", peers="no such folder", budgets_tokens=(2_000, 2_500)), on_step)

    result = stop_at("balanced")
    assert result["partial"]
    assert [each["budget_tokens"] for each in result["budgets"]] == [2_000]
    figures = runs(result)["none"]["figures"]
    assert figures is not None
    assert figures["sessions"] == 2
    with pytest.raises(KeyboardInterrupt):
        stop_at("none")


def test_systems_can_count_by_their_own_counter(folder: Path) -> None:
    result = bench(briefly(folder, "newest*", own_counter=True))
    assert list(runs(result)) == ["none", "newest (own counter)"]


def test_the_long_session_is_run_at_one_budget(folder: Path) -> None:
    result = bench(briefly(folder, "none", peers="no such folder", budgets_tokens=(2_500, 2_000), stress=True))
    small, large = result["budgets"]
    assert (small["budget_tokens"], large["budget_tokens"]) == (2_000, 2_500)
    assert large["runs"][0]["stress"] is None
    stress = small["runs"][0]["stress"]
    assert stress is not None
    assert [(each["messages"], each["turns"]) for each in stress["lengths"]][:2] == [(250, 100), (1_000, 100)]
    table = stress_table(small)
    assert table is not None
    assert table.rows[0][0] == "none"


@pytest.mark.parametrize(
    ("systems", "changes", "message"),
    [
        (("best",), {}, r"unknown policy 'best'; known are none, .*balanced"),
        (("balanced@nobody",), {}, r"unknown prices 'nobody'; known are anthropic"),
        ((), {"budgets_tokens": (1_000, 1_000_000)}, r"no session is 1.2 times 1,000,000 tokens; the largest has"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(
    folder: Path, systems: Sequence[str], changes: dict[str, Any], message: str
) -> None:
    steps: list[BenchProgress] = []
    with pytest.raises(InvalidInput, match=message):
        bench(briefly(folder, *systems, peers="no such folder", **changes), steps.append)
    assert steps == []


def test_sessions_of_other_dialects_are_measured_as_chat(folder: Path, tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Mend it."}]}]
    for turn in range(12):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"path": f"src/module_{turn}.py"}}
        answer = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": FILLER}
        blocks += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"messages": blocks, "system": "Be brief."}), "utf-8")
    result = bench(plan(folder, "newest", paths=(str(path),)))
    [row] = result["sessions"]
    assert (row["messages"], row["requests"]) == (26, 12)
    figures = runs(result)["newest"]["figures"]
    assert figures is not None
    assert figures["sound"]
