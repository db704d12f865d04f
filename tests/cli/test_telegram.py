"""`foldline telegram`: what it needs before it starts, and that it never shows its token."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from foldline.cli.main import cli

TOKEN = "123456789:AAF0123456789abcdefghijklmnopqrstuv"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FOLDLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOLDLINE_TELEGRAM_TOKEN", TOKEN)
    return folder


def refused(*arguments: str) -> str:
    """The one line that a command ends with, which must not have the token in it."""
    result = CliRunner().invoke(cli, ["telegram", *arguments])
    assert result.exit_code == 2
    assert TOKEN not in result.output
    return result.stderr.strip()


def test_nobody_is_allowed_unless_named(here: Path) -> None:
    assert refused() == (
        "foldline: --user: nobody may write to the bot: name users by their ids, with --user or as telegram.users"
    )


def test_the_file_of_a_cloned_repository_allows_nobody(here: Path) -> None:
    (here / "agents.yaml").write_text("telegram: {users: [666]}\n")
    assert refused().endswith("(those of this folder's agents.yaml count once you trust it: foldline config trust)")


@pytest.mark.parametrize("user", ["0", "-5", "name"])
def test_a_user_is_a_number_that_telegram_gives(here: Path, user: str) -> None:
    assert "--user" in refused("--user", user)


def test_the_token_comes_from_a_file_or_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOLDLINE_TELEGRAM_TOKEN")
    assert "FOLDLINE_TELEGRAM_TOKEN: is not set, and there is no --token-file" in refused("--user", "7")
    assert "--token-file: nosuch: cannot be read: No such file" in refused("--user", "7", "--token-file", "nosuch")
    (here / "token").write_bytes(b"\xff\xfe")
    assert "--token-file: token: holds no token of a bot" in refused("--user", "7", "--token-file", "token")
    (here / "token").write_text("secret-that-is-none\n")
    told = refused("--user", "7", "--token-file", "token")
    assert "holds no token of a bot" in told
    assert "secret-that-is-none" not in told


def test_a_workspace_that_is_no_folder_is_refused_before_anybody_is_answered(here: Path) -> None:
    assert "--workspace: nosuch: is no folder" in refused("--user", "7", "--workspace", "nosuch")
