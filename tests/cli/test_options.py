from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from foldline.cli.main import cli
from foldline.cli.options import size_list_tokens, size_or_none_tokens, size_tokens

CONTEXT = click.Context(cli)
OPTION = click.Option(["--window"])


@pytest.mark.parametrize(
    ("words", "tokens"), [("16000", 16_000), ("16k", 16_000), (" 8K ", 8_000), ("1m", 1_000_000), ("2M", 2_000_000)]
)
def test_a_size_is_plain_or_in_thousands_or_millions(words: str, tokens: int) -> None:
    assert size_tokens(CONTEXT, OPTION, words) == tokens
    assert size_or_none_tokens(CONTEXT, OPTION, words) == tokens
    assert size_list_tokens(CONTEXT, OPTION, f"{words},500") == (tokens, 500)


@pytest.mark.parametrize("words", ["", "k", "16q", "1.5k", "-1", "1_000", "1,000", "\u0663k", "16 k"])
def test_anything_else_is_refused(words: str) -> None:
    for read in (size_tokens, size_or_none_tokens):
        with pytest.raises(click.BadParameter, match="is not a size such as 16000 or 16k"):
            read(CONTEXT, OPTION, words)


def test_nothing_is_a_size_only_where_it_may_be() -> None:
    assert size_or_none_tokens(CONTEXT, OPTION, "0") == 0
    for words in ("0", "0k"):
        with pytest.raises(click.BadParameter, match=f"'{words}' is too small: 1 or more"):
            size_tokens(CONTEXT, OPTION, words)
        with pytest.raises(click.BadParameter, match="too small"):
            size_list_tokens(CONTEXT, OPTION, f"8k,{words}")


def test_what_is_not_given_stays_so() -> None:
    assert size_tokens(CONTEXT, OPTION, None) is None
    assert size_or_none_tokens(CONTEXT, OPTION, None) is None


def test_the_commands_that_replay_read_them_alike(tmp_path: Path) -> None:
    file = tmp_path / "short.json"
    file.write_text(json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]), "utf-8")
    done = CliRunner().invoke(cli, ("replay", str(file), "--json", "--window", "1m", "--max-output-tokens", "4k"))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["window"] == 1_000_000
    for command, option in (
        ("bench", "--budget"),
        ("replay", "--window"),
        ("replay", "--max-output-tokens"),
        ("tune", "--window"),
        ("tune", "--max-output-tokens"),
        ("report", "--window"),
    ):
        refused = CliRunner().invoke(cli, (command, str(file), option, "16q"))
        assert refused.exit_code == 2
        assert f"'{option}': '16q' is not a size such as 16000 or 16k" in refused.stderr
