"""Rules of a user and of a project are in every request that a real agent sends through the proxy for five windows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.clients.provided import MidConversationSystem
from tests.clients.proxied import Way, proxied
from tests.clients.reader import DONE, Reader, tool_names
from tests.clients.running import Home, settings_of
from tests.clients.test_agents import CLAUDE_QUIET, CODEX_KEY, MORE, TASK, program_of, with_exports

pytestmark = pytest.mark.clients

OF_THE_PROJECT = ("- Never push to main.", "- Run make check before each commit.", "- The wheel is named Big Wheel.")
OF_THE_USER = "From now on, write every number as a word."


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A work folder with a repository and its rules."""
    made = Home.inside(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(made.work)], check=True)
    for name in ("CLAUDE.md", "AGENTS.md"):
        (made.work / name).write_text("# Mill\n\n" + "\n".join(OF_THE_PROJECT) + "\n", "utf-8")
    return made


def lost(way: Way) -> list[str]:
    """The rules that are missing, by request of the conversation itself: those with the tools that read the log."""
    found = []
    for number, request in enumerate(way.fake.requests):
        if not {"Bash", "exec_command"} & set(tool_names(request.body)):
            continue
        text = "\n".join(strings(request.body))
        found += [f"request {number}: {rule}" for rule in (*OF_THE_PROJECT, OF_THE_USER) if rule not in text]
    return found


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in strings(item)]


def test_claude_codes_rules_stay(home: Home) -> None:
    program = program_of("claude-code")
    with proxied(
        Reader(parts=28, lines=350, in_a_turn=14), window_tokens=32_000, provider=MidConversationSystem
    ) as way:
        exports = settings_of("Claude Code", way.url)["sh"]
        asked = [program, "-p", f"{TASK} {OF_THE_USER}", "--allowedTools", "Bash"]
        home.run(with_exports(exports, asked), CLAUDE_QUIET)
        home.run(with_exports(exports, [program, "-p", MORE, "--continue", "--allowedTools", "Bash"]), CLAUDE_QUIET)
    assert way.faults(forgiven={"role"}) == []
    assert lost(way) == []
    print(f"\nClaude Code: {way.growth}")


def test_codexs_rules_stay(home: Home) -> None:
    program = program_of("codex")
    with proxied(Reader(parts=36, lines=220, in_a_turn=18), window_tokens=24_000) as way:
        folder = home.folder / ".codex"
        folder.mkdir()
        settings = f'model = "gpt-5.5"\n{settings_of("Codex", way.url)["toml"]}'
        own = "check_for_update_on_startup = false\n"
        (folder / "config.toml").write_text(own + settings + "\n[analytics]\nenabled = false\n", "utf-8")
        command = [program, "exec", "--sandbox", "danger-full-access"]
        home.run([*command, f"{TASK} {OF_THE_USER}"], CODEX_KEY)
        printed = home.run([*command, "resume", "--last", MORE], CODEX_KEY)
    assert DONE in printed
    assert way.faults() == []
    assert lost(way) == []
    print(f"\nCodex: {way.growth}")
