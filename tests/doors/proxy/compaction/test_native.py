"""Who compacts is decided by the model and by what the upstream is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from foldline.catalog.models import lookup
from foldline.cli.main import cli
from foldline.doors.proxy.compaction.native import CompactionSetting, upstream_compacts


@pytest.mark.parametrize(
    ("dialect", "model", "expected"),
    [
        ("anthropic", "claude-opus-5", True),
        ("anthropic", "anthropic/claude-sonnet-4.6", True),
        ("anthropic", "claude-opus-9-preview", True),  # newer than the catalogue
        ("anthropic", "claude-haiku-4-5-20251001", False),  # older than the feature
        ("anthropic", "qwen3-coder", False),
        ("anthropic", "gpt-6.1-sol", False),  # translated by a gateway, which drops the field
        ("openai-responses", "gpt-6.1-sol", True),
        ("openai-responses", "gpt-9", True),
        ("openai-responses", "grok-4.7", True),
        ("openai-responses", "gpt-oss-120b", False),  # its makers do not serve it
        ("openai-responses", "claude-opus-5", False),
        ("openai-responses", "", False),
        ("openai-chat", "gpt-6.1-sol", False),
    ],
)
def test_the_makers_of_a_model_compact_in_their_own_dialect(dialect: str, model: str, expected: bool) -> None:
    assert upstream_compacts(dialect, model, "auto", local=False, summaries=True) is expected
    assert upstream_compacts(dialect, model, "auto", local=True, summaries=True) is False


def test_every_claude_clears_old_results_by_itself() -> None:
    assert upstream_compacts("anthropic", "claude-haiku-4-5", "auto", local=False, summaries=False)


@pytest.mark.parametrize(("setting", "expected"), [("foldline", False), ("upstream", True)])
def test_a_setting_decides_for_all_models(setting: CompactionSetting, expected: bool) -> None:
    for local in (False, True):
        assert upstream_compacts("anthropic", "claude-opus-5", setting, local=local, summaries=True) is expected


def test_the_catalogue_says_whose_models_compact() -> None:
    assert lookup("claude-opus-5").compacts
    assert not lookup("claude-3-5-sonnet").compacts
    assert not lookup("qwen3-coder").compacts


def test_a_key_that_cannot_be_used_ends_the_command_with_one_line(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("no key")
    options = ["--upstream", "http://127.0.0.1:9", "--port", "0", "--compaction-key"]
    for path, words in ((key, "hexadecimal"), (tmp_path, "cannot be used")):
        done = CliRunner().invoke(cli, ["proxy", *options, str(path)], env={"FOLDLINE_HOME": str(tmp_path)})
        assert done.exit_code == 2
        (line,) = done.output.strip().splitlines()
        assert str(path) in line
        assert words in line
