from __future__ import annotations

from pathlib import Path

import pytest
from bench.tests.tuning.support import FEW, Imagined, recorded, tuned, write_sessions

from foldline_bench.tuning import Conditions, Setting, TuneProgress, TuneResult, located, tune
from foldline_bench.tuning.carry_over import warnings
from foldline_bench.tuning.trials import look_at

SOURCES = ("web", "mail", "shop", "docs", "help")


def folder_of(folder: Path, sources: tuple[str, ...] = SOURCES, each: int = 2) -> Path:
    """Small sessions whose files say where they come from."""
    folder.mkdir()
    for number in range(each):
        for seed, source in enumerate(sources):
            recorded(folder / f"{source}-{number}.json", 10 * number + seed, rounds=1, result_lines=1)
    return folder


def origins(folder: Path) -> dict[str, str]:
    """The source of each session, by its hash."""
    looks = [look_at(source) for source in located([str(folder)])]
    return {look.sha256: look.origin for look in looks}


def searched(folder: Path, state: Path, worth: Imagined, **more: object) -> TuneResult:
    sources = located([str(folder)])
    given = {"engine": worth, "settings": FEW, "state": state, **more}
    return tune(sources, Conditions(window=4_000), **given)  # type: ignore[arg-type]


def test_each_part_is_measured_with_the_setting_that_was_chosen_without_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "sessions")
    where = origins(folder)

    def worth(session: str, setting: Setting) -> tuple[float, float]:
        """One setting is best for the web, and so much that the web decides wherever it has a say."""
        if setting.policy == "autopilot":
            return 0.5, 0.8
        return (0.01, 0.8) if (setting.policy == "sliding") == (where[session] == "web") else (0.9, 0.8)

    found = searched(folder, tmp_path / "state", Imagined(worth)).carry_over
    assert found is not None
    assert (found.parts.by, found.parts.sources) == ("source", 5)
    chosen = {one.sources: (one.tuned.setting.policy, one.left_out.with_rereads.value) for one in found.held_out}
    assert set(chosen) == {(source,) for source in SOURCES}
    assert chosen["web",][1] == pytest.approx(0.9)
    assert {policy for policy, _ in chosen.values()} == {"layered"}
    assert all(len(one.sessions) == 2 for one in found.held_out)
    assert [one.outside for one in found.held_out if one.sources == ("web",)] == [("with_rereads",)]
    assert found.left_out.with_rereads.value == pytest.approx((8 * 0.01 + 2 * 0.9) / 10)
    assert found.left_out.sessions == 10
    assert "in 1 of 5 parts the choice of the others is worse than their interval allows" in "\n".join(warnings(found))


def test_a_choice_that_follows_chance_does_not_carry_over(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "sessions")
    where = origins(folder)
    best = dict(zip(SOURCES, ("sliding", "autopilot", "layered", "sliding", "autopilot"), strict=True))

    def worth(session: str, setting: Setting) -> tuple[float, float]:
        """Each source has a setting of its own; what is chosen without a source is the wrong one for it."""
        return (0.2 if best[where[session]] == setting.policy else 0.8), 0.8

    found = searched(folder, tmp_path / "state", Imagined(worth)).carry_over
    assert found is not None
    for one in found.held_out:
        own = best[one.sources[0]] == one.tuned.setting.policy
        assert one.left_out.with_rereads.value == pytest.approx(0.2 if own else 0.8)
    assert found.left_out.with_rereads.value > found.tuned.with_rereads.value


def test_a_choice_that_is_best_everywhere_carries_over_without_a_word(tmp_path: Path) -> None:
    costs = {"sliding": 0.3, "autopilot": 0.5, "layered": 0.7}
    imagined = Imagined(lambda _session, setting: (costs.get(setting.policy, 0.9), 0.8))
    found = searched(folder_of(tmp_path / "sessions"), tmp_path / "state", imagined).carry_over
    assert found is not None
    assert {one.tuned.setting.policy for one in found.held_out} == {"sliding"}
    assert found.left_out.with_rereads == found.tuned.with_rereads
    assert warnings(found) == []


def test_another_candidate_that_is_better_on_the_part_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "sessions")
    where = origins(folder)

    def worth(session: str, setting: Setting) -> tuple[float, float]:
        """A dear setting keeps more, but in the shop, where it keeps no more, it is the cheap one."""
        if setting.policy == "layered":
            return (0.2 if where[session] == "shop" else 0.6), 0.9
        return (0.4, 0.5) if setting.policy == "sliding" else (0.9, 0.1)

    found = searched(folder, tmp_path / "state", Imagined(worth), min_far=0.4).carry_over
    assert found is not None
    [shop] = [one for one in found.held_out if one.sources == ("shop",)]
    assert shop.tuned.setting.policy == "sliding"
    assert shop.beaten_by == ("layered",)
    assert "in 1 of 5 parts another candidate is better in one figure and worse in none" in "\n".join(warnings(found))


def test_a_setting_that_breaks_the_window_on_the_part_is_warned_of(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "sessions")
    where = origins(folder)

    def worth(session: str, setting: Setting) -> tuple[float, float]:
        cost = {"sliding": 0.3, "autopilot": 0.5, "layered": 0.7}.get(setting.policy, 0.9)
        return (-0.3 if setting.policy == "sliding" and where[session] == "docs" else cost), 0.8

    result = searched(folder, tmp_path / "state", Imagined(worth))
    found = result.carry_over
    assert found is not None
    assert result.chosen.setting.policy == "autopilot"
    [docs] = [one for one in found.held_out if one.sources == ("docs",)]
    assert docs.outside == ("fits",)
    assert "in 1 of 5 parts the setting that was chosen without it broke the window" in warnings(found)


def test_with_fewer_than_five_sources_the_parts_are_by_hash(tmp_path: Path) -> None:
    imagined = Imagined(lambda _session, _setting: (0.5, 0.8))
    found = searched(folder_of(tmp_path / "sessions", ("web", "mail"), each=4), tmp_path / "state", imagined).carry_over
    assert found is not None
    assert found.parts.by == "hash"
    assert sorted(len(one.sessions) for one in found.held_out) == [1, 1, 2, 2, 2]
    assert "only 2 sources" in found.parts.about()


def test_one_session_or_no_check_tells_nothing(tmp_path: Path) -> None:
    imagined = Imagined(lambda _session, _setting: (0.5, 0.8))
    one = folder_of(tmp_path / "one", ("web",), each=1)
    assert searched(one, tmp_path / "state", imagined).carry_over is None
    many = folder_of(tmp_path / "many")
    assert searched(many, tmp_path / "state", imagined, check=False).carry_over is None


def test_real_replays_are_checked_and_the_few_sessions_are_said(tmp_path: Path) -> None:
    steps: list[TuneProgress] = []
    result = tuned(write_sessions(tmp_path / "sessions", 3, rounds=10), tmp_path / "state", on_step=steps.append)
    found = result.carry_over
    assert found is not None
    assert [len(one.sessions) for one in found.held_out] == [1, 1, 1]
    policies = {setting.policy for setting in FEW}
    for one in found.held_out:
        assert one.tuned.sessions == 2
        assert one.tuned.setting.policy in policies
        assert 0 < one.left_out.with_rereads.value < 2
    assert found.left_out.sessions == 3
    assert warnings(found)[0].startswith("fewer than 5 sessions")
    assert "without part 1 of 3, round 1 of 3 settings on 2 sessions" in {step.doing for step in steps}
    assert result.chosen.with_rereads.value >= result.chosen.with_rereads_low >= result.chosen.cost.value
    assert result.chosen.rereads_high >= result.chosen.rereads_low
