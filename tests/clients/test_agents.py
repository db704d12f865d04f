"""Every agent reads a log of five windows by its own shell tool through the proxy, and goes on with it when resumed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.clients.provided import ASGIApp, MidConversationSystem, as_it_is
from tests.clients.proxied import proxied
from tests.clients.reader import DONE, Reader
from tests.clients.running import Home, environment, settings_of
from tests.real.parts import missing

pytestmark = pytest.mark.clients

TASK = "Read all parts of the log with the shell, and tell what is unusual."
MORE = "Go on with the other parts."
# The packages bring a program for each kind of machine; their launchers need a newer Node.js, or a script at install.
PROGRAMS = {
    "codex": "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "opencode": "opencode-linux-x64/bin/opencode",
    "claude-code": "@anthropic-ai/claude-code-linux-x64/claude",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A work folder with a repository, which the agents look for."""
    made = Home.inside(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(made.work)], check=True)
    return made


def program_of(client: str) -> str:
    """The path of an agent's program."""
    path = environment(client) / "node_modules" / PROGRAMS[client]
    if not path.exists():
        missing("clients", f"{client} has no program here for this kind of machine")
    return str(path)


def with_exports(block: str, command: Sequence[str]) -> list[str]:
    """The command in a shell that was told what the block says."""
    return ["sh", "-c", f'{block}\nexec "$@"', "sh", *command]


MINI_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
}


def test_mini_swe_agent_reads_five_windows(home: Home) -> None:
    """It shows a model at most 10,000 characters of what a command printed."""
    programs = environment("mini-swe-agent") / "bin"
    reader = Reader(parts=17, lines=180, last="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    with proxied(reader, window_tokens=8_000) as way:
        command = [str(programs / "mini"), "-m", "openai/fake-model", "-y", "--exit-immediately", "-t", TASK]
        home.run(
            with_exports(settings_of("mini-swe-agent", way.url)["sh"], [*command, "-o", str(home.folder / "run.json")]),
            MINI_QUIET,
        )
    assert json.loads((home.folder / "run.json").read_text("utf-8"))["info"]["exit_status"] == "Submitted"
    assert way.faults() == []
    print(f"\nmini-swe-agent: {way.growth}")


# --- Codex -------------------------------------------------------------------------------------------------------

CODEX_KEY = {"CODEX_API_KEY": "sk-of-a-test"}


# The second model is not in Codex's own list: of what a command printed it is shown 10,000 bytes.
CODEX_WAYS = {"built-in": ("toml", "gpt-5.5", 36), "named": ("ini", "gpt-5.2-codex", 44)}


@pytest.mark.parametrize(("block", "model", "parts"), CODEX_WAYS.values(), ids=list(CODEX_WAYS))
def test_codex_reads_five_windows(home: Home, block: str, model: str, parts: int) -> None:
    program = program_of("codex")
    reader = Reader(parts=parts, lines=220, in_a_turn=parts // 2)
    with proxied(reader, window_tokens=24_000) as way:
        folder = home.folder / ".codex"
        folder.mkdir()
        settings = f'model = "{model}"\n{settings_of("Codex", way.url)[block]}'
        own = "check_for_update_on_startup = false\n"  # before the tables
        (folder / "config.toml").write_text(own + settings + "\n[analytics]\nenabled = false\n", "utf-8")
        command = [program, "exec", "--sandbox", "danger-full-access"]
        home.run([*command, TASK], CODEX_KEY)
        printed = home.run([*command, "resume", "--last", MORE], CODEX_KEY)
    assert DONE in printed
    assert way.faults() == []
    assert way.relay.paths["GET /v1/responses"] <= 2, "asked for a WebSocket again and again"
    print(f"\nCodex, {block}: {way.growth}")


# --- opencode ----------------------------------------------------------------------------------------------------

OPENCODE_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}


@pytest.mark.parametrize("block", ["json", "jsonc"], ids=["chat", "anthropic"])
def test_opencode_reads_five_windows(home: Home, block: str) -> None:
    program = program_of("opencode")
    reader = Reader(parts=30, lines=220, in_a_turn=15)
    with proxied(reader, window_tokens=20_000) as way:
        settings = json.loads(settings_of("opencode", way.url)[block])
        settings |= {"autoupdate": False, "share": "disabled", "permission": {"bash": "allow"}}
        (home.work / "opencode.json").write_text(json.dumps(settings), "utf-8")
        home.run([program, "run", TASK], OPENCODE_QUIET)
        printed = home.run([program, "run", "--continue", MORE], OPENCODE_QUIET)
    assert DONE in printed
    assert reader.beside >= 1, "no title was asked for beside the conversation"
    assert way.faults() == []
    print(f"\nopencode, {block}: {way.growth}")


# --- Claude Code -------------------------------------------------------------------------------------------------

CLAUDE_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}


# How a provider takes the system text that Claude Code puts among the messages.
ROLE_SYSTEM = {"taken": MidConversationSystem, "refused": as_it_is}


@pytest.mark.parametrize("provider", ROLE_SYSTEM.values(), ids=list(ROLE_SYSTEM))
def test_claude_code_reads_five_windows(home: Home, provider: Callable[[ASGIApp], ASGIApp]) -> None:
    """Where system text among the messages is refused, it asks once more without, and stays so."""
    program = program_of("claude-code")
    reader = Reader(parts=28, lines=350, in_a_turn=14)
    with proxied(reader, window_tokens=32_000, provider=provider) as way:
        exports = settings_of("Claude Code", way.url)["sh"]
        home.run(with_exports(exports, [program, "-p", TASK, "--allowedTools", "Bash"]), CLAUDE_QUIET)
        command = [program, "-p", MORE, "--continue", "--allowedTools", "Bash"]
        printed = home.run(with_exports(exports, command), CLAUDE_QUIET)
    assert DONE in printed
    assert way.faults(forgiven={"role"}) == []
    assert way.fake.refusals["role"] == (provider is as_it_is)
    body = way.fake.requests[-1].body
    if provider is MidConversationSystem:
        assert "# Environment" in json.dumps((body["system"], body["messages"])), "the system text was lost"
    print(f"\nClaude Code: {way.growth}")
