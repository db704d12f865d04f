from __future__ import annotations

import pytest
from click.testing import CliRunner

from foldline.cli.main import cli

pytest.importorskip("aiohttp")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["claude"], "foldline: claude: is not installed, or not in PATH: npm install -g @anthropic-ai/claude-code"),
        (["nope"], "foldline: nope: is not a known client (claude, "),
        (["--", "nope"], "foldline: nope: is not installed, or not in PATH\n"),
        ([], "foldline wrap: a client or a command is missing"),
        (["--"], "foldline wrap: a client or a command is missing"),
        (["claude", "-p", "x"], "foldline wrap: no such option '-p': the client's own arguments come after --"),
        (
            ["claude", "hello"],
            "foldline wrap: got unexpected extra argument (hello): the client's own arguments come after --",
        ),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = CliRunner().invoke(cli, ["wrap", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_an_upstream_that_is_no_address_is_an_error_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(cli, ["wrap", "--upstream", "ftp://example.org", "--no-store", "--", "true"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("foldline: --upstream: must ")
    monkeypatch.setenv("OPENAI_BASE_URL", "example")
    result = CliRunner().invoke(cli, ["wrap", "--no-store", "--", "true"])
    assert result.stderr.startswith("foldline: OPENAI_BASE_URL: must ")


def test_the_known_clients_are_listed_with_what_installs_them() -> None:
    result = CliRunner().invoke(cli, ["wrap", "--list"])
    assert result.exit_code == 0
    assert "claude           claude     npm install -g @anthropic-ai/claude-code\n" in result.stdout
