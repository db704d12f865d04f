"""The settings of the documented systems, as their own files have them: read, checked, in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldline.agent.settings.file import check_file, load_settings
from foldline.agent.settings.model import AgentSettings, SessionSettings
from foldline.engine.presets import confirm, layered
from foldline.engine.settings import ContextSettings
from foldline.errors import InvalidInput

LAYERED = """\
model:
  provider: anthropic
  name: claude-sonnet-4-20250514
  max_input_tokens: 150000   # optional
  max_output_tokens: 8192
session:
  on_disconnect: pause
  max_tool_iterations: 25
  context:
    max_history_tokens: 20000
    max_tool_result_tokens: 8000
    tool_result_truncation: head
    tool_result_keep_first: 2
    tool_result_keep_last: 5
"""


def loaded(folder: Path, text: str, agent: str | None = None) -> AgentSettings:
    path = folder / "agents.yaml"
    path.write_text(text, "utf-8")
    return load_settings(agent, config=path).settings


def test_s3_01_the_window_is_that_of_the_agents_model(tmp_path: Path) -> None:
    settings = loaded(tmp_path, LAYERED)
    assert settings.model.limit_tokens == 150_000
    assert (settings.model.provider, settings.model.max_output_tokens) == ("anthropic", 8_192)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("claude-sonnet-4-20250514", 200_000),
        ("gpt-4.1-mini", 1_000_000),
        ("gpt-4o", 128_000),
        ("grok-4", 2_000_000),
        ("a-model-of-nobody", 128_000),
    ],
)
def test_s3_01_without_it_the_name_of_the_model_decides(tmp_path: Path, name: str, window: int) -> None:
    assert loaded(tmp_path, f"main: {{model: {name}}}\n").model.limit_tokens == window


def test_s3_01_without_a_model_it_is_128_000(tmp_path: Path) -> None:
    assert loaded(tmp_path, "main: {}\n").model.limit_tokens == 128_000


def test_s3_08_the_documented_block_is_read_and_kept_to(tmp_path: Path) -> None:
    settings = loaded(tmp_path, LAYERED)
    assert settings.session == SessionSettings()
    assert settings.policy_value() == layered(ContextSettings())


@pytest.mark.parametrize("block", ["session:", "session: {}", "session: {context: }", "session: {context: {}}"])
def test_s3_08_every_block_and_field_may_be_left_out(tmp_path: Path, block: str) -> None:
    settings = loaded(tmp_path, f"main:\n  {block}\n")
    assert settings.session == SessionSettings()
    assert settings.max_tool_iterations == 25


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("max_history_tokens", "-1", "must be 0 or more, not -1"),
        ("max_tool_result_tokens", "0", "must be greater than 0, not 0"),
        ("tool_result_truncation", "middle", "must be one of head, tail, both, not 'middle'"),
        ("tool_result_keep_first", "two", "must be a whole number, not 'two'"),
        ("tool_result_keep_last", "1.5", "must be a whole number, not 1.5"),
    ],
)
def test_s3_08_a_bad_value_is_refused_with_file_line_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"agents:\n  main:\n    session:\n      context:\n        {field}: {value}\n"
    expected = f"agents.yaml: line 5: agents.main.session.context.{field}: {reason}"
    with pytest.raises(InvalidInput) as caught:
        loaded(tmp_path, text)
    assert str(caught.value) == str(tmp_path / expected) or str(caught.value) == expected
    assert [str(fault) for fault in check_file(Path("agents.yaml"))] == [expected]


def test_s3_08_another_tool_may_have_another_limit(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "main: {session: {context: {tool_result_limits: {bash: 2000}}}}\n")
    assert settings.policy_value() == layered(ContextSettings(tool_result_limits={"bash": 2_000}))


def test_s4_03_the_threshold_is_per_agent_and_for_all(tmp_path: Path) -> None:
    text = "compact_threshold: 0.8\nmain:\n  compact_threshold: 0.7\nother: {}\n"
    assert loaded(tmp_path, text).threshold == 0.7
    assert loaded(tmp_path, text, "other").threshold == 0.8
    assert loaded(tmp_path, "main: {}\n").threshold == 0.9


def test_s4_03_who_sets_a_threshold_is_asked_and_nothing_is_folded_unasked(tmp_path: Path) -> None:
    assert loaded(tmp_path, "main: {compact_threshold: 0.9}\n").policy_value() == confirm(0.9)
    assert loaded(tmp_path, "main: {policy: confirm}\n").policy_value() == confirm(0.9)


@pytest.mark.parametrize("value", ["0", "1.01", "90%", "true", "high"])
def test_s4_03_a_threshold_that_is_no_share_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 1: main\.compact_threshold: must be above 0 and at most 1"):
        loaded(tmp_path, f"main: {{compact_threshold: {value}}}\n")
