from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from foldline.catalog.models import lookup, models
from foldline.cli.main import cli
from foldline.cli.models import nearest


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["models", *arguments])


def test_all_models_are_listed_with_the_day_they_were_read() -> None:
    result = invoke()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for model in models():
        [line] = [line for line in lines if line.split()[:1] == [model.name]]
        assert line.rstrip().endswith(model.read_on.isoformat())
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("columns", "gone"), [(60, "least, as of, stays, reply"), (40, "least, as of, stays, reply, cache, window")]
)
def test_a_narrow_terminal_gets_fewer_columns_and_whole_names(
    monkeypatch: pytest.MonkeyPatch, columns: int, gone: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = invoke().stdout
    lines = text.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [model.name for model in models()]
    assert all(len(line) <= columns for line in lines)
    assert f"No room here for {gone}: a wider terminal or --json has them." in " ".join(text.split())


def test_the_name_that_is_most_like_an_unknown_one_is_told() -> None:
    assert "the nearest name is 'claude-sonnet-4-5'" in invoke("claude-sonet-4-5").stderr
    assert nearest("openrouter/anthropic/claude-sonet-4-5") == "claude-sonnet-4-5"
    assert nearest("zzzzzz") is None


def test_a_name_filters_by_what_it_contains() -> None:
    report = json.loads(invoke("SONNET", "--json").stdout)
    assert report
    assert {model["name"] for model in report} == {model.name for model in models() if "sonnet" in model.name}
    assert report[0]["cache"]["read_ratio"] < 1
    assert isinstance(report[0]["read_on"], str)


def test_what_would_be_taken_for_an_unknown_name_is_said() -> None:
    result = invoke("claude-of-tomorrow", "--json")
    assert result.exit_code == 0
    [model] = json.loads(result.stdout)
    assert (model["known"], model["window_tokens"]) == (False, lookup("claude-of-tomorrow").window_tokens)
    assert "is not in the catalogue" in result.stderr


def test_a_name_with_a_prefix_finds_its_model() -> None:
    known = models()[0].name
    result = invoke(f"openrouter/vendor/{known}", "--json")
    assert json.loads(result.stdout)[0]["name"] == known
    assert "stands for" in result.stderr


def test_dearer_long_requests_and_caches_on_request_are_told_below_the_table() -> None:
    text = " ".join(invoke("claude-haiku").stdout.split())
    assert "A whole request over 100k tokens 5x in, 5x out: claude-haiku-5-5." in text
    assert "Cache on request 1h at 0.1/2: claude-haiku-4-5, claude-haiku-5-5." in text
    assert "on request" not in invoke("mistral").stdout


def test_json_has_the_steps_and_the_other_caches() -> None:
    [model] = json.loads(invoke("claude-haiku-5-5", "--json").stdout)
    assert model["cache"]["steps"] == [{"above_tokens": 100_000, "input_ratio": 5.0, "output_ratio": 5.0}]
    assert [(each["lifetime_seconds"], each["write_ratio"]) for each in model["caches"]] == [(3_600, 2.0)]
