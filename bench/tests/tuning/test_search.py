from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from bench.tests.tuning.support import FEW, Imagined, recorded, session, tuned, write_sessions

from foldline.errors import InvalidInput
from foldline_bench.tuning import Conditions, InProcess, NothingToTune, Setting, TuneProgress, located, tune
from foldline_bench.tuning.candidates import first_settings, own_figures
from foldline_bench.tuning.search import round_sizes

Given = TypeVar("Given")
Got = TypeVar("Got")


def test_rounds_double_until_all_sessions_are_in() -> None:
    assert round_sizes(1) == [1]
    assert round_sizes(6) == [4, 6]
    assert round_sizes(100) == [13, 26, 52, 100]


def worth(_session: str, setting: Setting) -> tuple[float, float]:
    """Our policies: the lower they land, the cheaper and the poorer; others are dear."""
    if setting.policy not in {"economical", "balanced"}:
        return 0.9, 0.5
    figures = own_figures(setting.value())
    spoilt = abs(figures["keep"] - 0.3) + abs(figures["arrival_share"] - 0.06) + (setting.policy == "balanced") * 0.1
    return 0.2 + 0.5 * figures["landing"] + 0.2 * spoilt, 0.4 + 0.6 * figures["landing"] - 0.3 * spoilt


def noisy(session: str, setting: Setting) -> tuple[float, float]:
    chance = Random(f"{session} {setting.name}")
    cost, far = worth(session, setting)
    return cost + chance.uniform(-0.02, 0.02), min(1.0, far + chance.uniform(-0.02, 0.02))


def test_many_sessions_are_searched_with_a_fraction_of_all_replays(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 40, rounds=1, result_lines=1)
    conditions = Conditions(window=4_000, model="claude-sonnet-4-5")
    sources = located([str(folder)])
    found = tune(sources, conditions, engine=Imagined(noisy), state=tmp_path / "state", min_far=0.75)
    assert found.replayed < 0.55 * found.whole
    assert found.settings > len(first_settings(4_000))
    assert found.telling == 40
    # Nothing that the search could have tried is much better than what it chose.
    assert found.chosen.far is not None
    assert found.chosen.far.value >= 0.75
    everything = [worth("", setting) for setting in first_settings(4_000)]
    assert found.chosen.cost.value <= min(cost for cost, far in everything if far >= 0.75) + 0.01
    assert all(figures.setting.policy == "economical" for figures in found.front)
    assert all(figures.sessions == 40 for figures in found.front)


def test_what_is_chosen_for_its_recall_has_a_row_though_it_keeps_hardly_more(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1, rounds=1, result_lines=1)
    points = {"sliding": (0.30, 0.848), "autopilot": (0.31, 0.852), "layered": (0.60, 0.90)}

    def costs(min_far: float | None) -> tuple[float, list[float]]:
        found = tune(
            located([str(folder)]),
            Conditions(window=4_000),
            engine=Imagined(lambda _session, setting: points.get(setting.policy, (0.9, 0.5))),
            state=tmp_path / "state",
            settings=FEW,
            min_far=min_far,
        )
        return found.chosen.cost.value, [figures.cost.value for figures in found.front]

    assert costs(0.85) == (0.31, [0.30, 0.31, 0.60])
    assert costs(None)[1] == [0.30, 0.60]


def test_a_setting_that_breaks_the_window_once_is_out(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 3, rounds=1, result_lines=1)
    hashes: list[str] = []

    def breaks(session: str, setting: Setting) -> tuple[float, float]:
        hashes.append(session)
        if setting.policy == "layered" and session == hashes[0]:
            return -0.1, 1.0  # the cheapest and the best, but for one request over the window
        return 0.5, 0.8

    found = tune(
        located([str(folder)]),
        Conditions(window=4_000),
        engine=Imagined(breaks),
        state=tmp_path / "state",
        settings=FEW,
    )
    assert {figures.setting.policy for figures in found.front} == {"sliding"}
    assert found.unfit == 1


def test_when_no_setting_keeps_to_the_window_that_is_said(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1, rounds=1, result_lines=1)
    with pytest.raises(InvalidInput, match="no setting kept every request valid and inside the window"):
        tune(
            located([str(folder)]),
            Conditions(window=4_000),
            engine=Imagined(lambda _session, _setting: (-1.0, 1.0)),
            state=tmp_path / "state",
            settings=FEW,
        )


def test_a_session_that_can_never_fit_is_left_out_before_the_first_round(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2)
    large = session(7, rounds=3)
    large["messages"].insert(0, {"role": "user", "content": "word " * 5_000})
    large["messages"].insert(1, {"role": "assistant", "content": "I see."})
    (folder / "large.json").write_text(json.dumps(large))
    steps: list[TuneProgress] = []
    found = tuned(folder, tmp_path / "state", on_step=steps.append)
    assert len(found.looks) == 2
    [out] = found.left_out
    assert out.place == str(folder / "large.json")
    assert re.match(
        r"cannot fit into the window of 4,000, whatever the setting: what must stay needs 5,\d{3} tokens, "
        r"and there is room for 3,\d{3} \(1 of 5 requests refused\)",
        out.reason,
    )
    assert "round 1 of 3 settings on 2 sessions" in {step.doing for step in steps}


def test_when_none_can_fit_all_are_named(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 5, rounds=1, result_lines=1)
    with pytest.raises(
        NothingToTune, match=r"none of them can be tuned; .*/000\.json: cannot fit .*; and 2 more"
    ) as gone:
        tune(
            located([str(folder)]),
            Conditions(window=4_000),
            engine=Imagined(lambda _session, _setting: (-9.0, 1.0)),
            state=tmp_path / "state",
        )
    assert [Path(one.place).name for one in gone.value.left_out] == [f"00{number}.json" for number in range(5)]


def test_replays_are_counted_of_the_sessions_compared_and_all_settings(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2)
    recorded(folder / "small.json", 7, rounds=2)
    found = tuned(folder, tmp_path / "state")
    settings = 3 + 2  # none and the one that shows what can be fitted
    assert (found.replayed, found.known, found.whole, found.aside) == (2 * settings, 0, 2 * settings, 1)
    again = tuned(folder, tmp_path / "state")
    assert (again.replayed, again.known, again.whole, again.aside) == (0, 2 * settings, 2 * settings, 1)


def test_a_session_without_a_reply_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1)
    (folder / "asked.json").write_text(json.dumps([{"role": "user", "content": "word " * 9_000}]))
    [out] = tuned(folder, tmp_path / "state").left_out
    assert (Path(out.place).name, out.reason) == ("asked.json", "no reply is recorded in it, and so no request")


def test_real_replays_save_money_and_say_what_they_kept(tmp_path: Path) -> None:
    found = tuned(write_sessions(tmp_path / "sessions", 1, rounds=16), tmp_path / "state", settings=[Setting("cost")])
    assert found.chosen.fits
    assert found.chosen.cost.value < 0.8
    assert found.chosen.far is not None
    assert 0 < found.chosen.far.value <= 1
    assert found.none.far is not None
    assert (found.none.cost.value, found.none.far.value) == (1.0, 1.0)
    assert found.none.over_budget > 0
    assert found.none.input_usd is not None
    assert found.chosen.input_usd is not None
    assert found.chosen.input_usd.value == pytest.approx(found.none.input_usd.value * found.chosen.cost.value)
    assert found.chosen.reply_usd == pytest.approx(found.none.reply_usd)


def test_sessions_that_fit_are_the_same_or_cannot_be_read_are_left_out_and_named(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1)
    (folder / "copy.jsonl").write_text("\n".join(map(json.dumps, session(0)["messages"])))
    recorded(folder / "small.json", 7, rounds=2)
    (folder / "text.json").write_text("no JSON")
    (folder / "image.json").write_text(json.dumps([{"role": "user", "content": [{"type": "image_url"}]}]))
    found = tuned(folder, tmp_path / "state")
    assert [look.name for look in found.looks] == ["session-0"]
    left_out = {Path(one.place).name: one.reason for one in found.left_out}
    assert left_out["copy.jsonl"].startswith("is the same session as ")
    assert left_out["small.json"].startswith("fits into the window of 4,000 as it is (")
    assert left_out["text.json"].startswith("line 1 column 1: not JSON")  # its name stands beside it
    assert "image.json" in left_out


def test_when_all_sessions_fit_the_largest_is_named(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2, rounds=2)
    with pytest.raises(
        InvalidInput, match=r"all sessions fit into the window of 4,000 tokens .*the largest has 2,\d\d\d"
    ):
        tuned(folder, tmp_path / "state")


def test_when_none_can_be_read_the_first_reason_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"none of them can be replayed; .*a\.json: .*not JSON"):
        tuned(tmp_path / "a.json", tmp_path / "state")


class Interrupted(InProcess):
    """An engine that is stopped with Ctrl-C after so many pieces of work."""

    def __init__(self, pieces: int) -> None:
        self._left = pieces

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        for piece in pieces:
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            yield work(piece)


def test_what_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2)
    whole = tuned(folder, tmp_path / "other")
    with pytest.raises(KeyboardInterrupt):
        tuned(folder, tmp_path / "state", engine=Interrupted(7))
    found = tuned(folder, tmp_path / "state")
    assert found.known == 5  # two of the seven were looks
    assert found.replayed + found.known == whole.replayed
    assert (found.front, found.chosen, found.none) == (whole.front, whole.chosen, whole.none)


def test_each_step_says_how_far_it_is(tmp_path: Path) -> None:
    steps: list[TuneProgress] = []
    tuned(write_sessions(tmp_path / "sessions", 1), tmp_path / "state", on_step=steps.append)
    assert [step.done for step in steps if step.doing == "without management"] == [0, 1]
    first = [step for step in steps if step.doing == "round 1 of 3 settings on 1 session"]
    assert [(step.done, step.total) for step in first] == [(0, 3), (1, 3), (2, 3), (3, 3)]
