from __future__ import annotations

from pathlib import Path

from foldline.agent.settings.effective import EffectiveSetting, effective_settings
from foldline.agent.settings.file import load_settings


def rows(folder: Path, text: str, environ: dict[str, str] | None = None) -> dict[str, EffectiveSetting]:
    path = folder / "agents.yaml"
    path.write_text(text, "utf-8")
    found = effective_settings(load_settings(config=path), environ or {})
    assert len({row.name for row in found}) == len(found)
    return {row.name: row for row in found}


def test_every_setting_has_a_value_and_a_source(tmp_path: Path) -> None:
    found = rows(tmp_path, "main:\n  model: claude-sonnet-4-20250514\n  tools: {max_result_tokens: {read_file: 5}}\n")
    file = tmp_path / "agents.yaml"
    assert found["model.name"] == EffectiveSetting("model.name", "claude-sonnet-4-20250514", f"{file}:2")
    assert found["model.max_input_tokens"] == EffectiveSetting("model.max_input_tokens", 200_000, "by the model's name")
    assert found["policy.name"] == EffectiveSetting("policy.name", "balanced", "built in")
    assert found["session.max_tool_iterations"] == EffectiveSetting("session.max_tool_iterations", 50, "built in")
    assert found["tools.max_result_tokens"] == EffectiveSetting(
        "tools.max_result_tokens", {"read_file": 5}, f"{file}:3"
    )
    assert found["summariser"].value == "the model itself"


def test_a_policy_that_was_not_named_says_what_it_goes_with(tmp_path: Path) -> None:
    layered = rows(tmp_path, "main: {session: {context: {max_history_tokens: 5}}}\n")["policy.name"]
    assert (layered.value, layered.source) == ("layered", "goes with session.context")
    confirm = rows(tmp_path, "main: {compact_threshold: 0.8}\n")["policy.name"]
    assert (confirm.value, confirm.source) == ("confirm", "goes with compact_threshold")


def test_of_the_environment_only_is_said_what_is_there(tmp_path: Path) -> None:
    text = 'main: {model: {name: x, api_key_env: MY_KEY}, mcp: {a: {command: x, env: {T: "${MY_T}"}}}}\n'
    found = rows(tmp_path, text, {"MY_KEY": "not to be shown", "MY_T": "not to be shown"})
    assert found["model key"] == EffectiveSetting("model key", "set", "environment MY_KEY")
    assert found["mcp.a.env"].value == {"T": "${MY_T}"}
    assert "not to be shown" not in str(found)
    assert rows(tmp_path, text)["model key"].value == "not set"
