from __future__ import annotations

from pathlib import Path

import pytest

from foldline.agent.settings.file import load_settings
from foldline.engine.presets import POLICIES
from foldline_bench.tuning import Setting, agents_yaml
from foldline_bench.tuning.candidates import first_settings, neighbours, own_figures

NEAR = neighbours(
    [Setting("economical"), Setting("quality"), Setting("balanced", (("landing", 0.45),)), Setting("sliding")]
)


@pytest.mark.parametrize("window", [4_000, 16_000, 200_000, 1_000_000])
def test_the_net_has_every_policy_as_it_stands_and_many_more(window: int) -> None:
    found = first_settings(window)
    assert {Setting(name) for name in POLICIES} <= set(found)
    assert len(found) == len(set(found)) >= 45


@pytest.mark.parametrize("setting", [*first_settings(16_000), *NEAR], ids=lambda setting: setting.name)
def test_what_is_written_for_a_setting_is_read_as_that_setting(setting: Setting, tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(agents_yaml(setting, model="claude-sonnet-4-5", window=16_000, comments=("a: [comment",)))
    settings = load_settings(config=file).settings
    assert settings.policy_value() == setting.value()
    assert (settings.model.name, settings.model.limit_tokens) == ("claude-sonnet-4-5", 16_000)
    assert settings.summaries is False


def test_model_and_window_are_written_only_where_they_were_named(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(agents_yaml(Setting("cost"), model=None, window=None))
    assert "model" not in file.read_text()
    assert load_settings(config=file).settings.policy_value() == POLICIES["cost"]


def test_neighbours_lie_one_step_beside_in_one_figure() -> None:
    here = own_figures(Setting("economical").value())
    found = [own_figures(near.value()) for near in neighbours([Setting("economical")])]
    changed = [frozenset(name for name in here if abs(here[name] - there[name]) > 1e-9) for there in found]
    assert set(changed) == {
        frozenset({"trigger"}), frozenset({"landing"}), frozenset({"keep"}),
        frozenset({"arrival_share", "arrival_of_result"}),
    }  # fmt: skip
    assert len(found) == 7  # a trigger above the limit is none
    assert all(there["landing"] < there["trigger"] for there in found)


def test_what_was_tried_and_other_systems_policies_are_no_neighbours() -> None:
    near = neighbours([Setting("economical")])
    assert not set(near) & set(neighbours([Setting("economical"), *near]))
    assert neighbours([Setting("sliding"), Setting("layered")]) == ()
