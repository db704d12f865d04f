"""Clients under `foldline wrap`: five windows in two runs, the second by the client's own way to go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.clients.reader import COMMAND, DONE, Reader
from tests.clients.running import PAGE, PLACES, RUN_SECONDS, TEST_KEY, Home, environment
from tests.clients.test_agents import CLAUDE_QUIET, CODEX_KEY, MORE, OPENCODE_QUIET, PROGRAMS, TASK
from tests.real.parts import missing
from tests.serving import serve

from foldline.testing import FakeProvider, FakeReply

PINS = sorted((Path(__file__).parent / "wrapped").glob("*.txt"))
LINE = re.compile(r"foldline: ([\d,]+) requests, ([\d,]+) folds: ([\d,]+) tokens in place of ([\d,]+)")
WINDOWS = 4
"""How many windows the requests of the second run have on average: the last ones have five and more."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A client, how it is run and run again, and what its log is like. `$up` stands for the provider's address.

    `questions` are typed into a client that has no tools. `forgiven` are kinds of refusal that the client provokes.
    """

    folder: str
    program: str
    client: str
    window_tokens: int
    parts: int
    lines: int
    first: tuple[str, ...]
    again: tuple[str, ...]
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    questions: bool = False
    forgiven: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)


UP = ("--upstream", "$up")
BIN = "node_modules/.bin/"
CLAUDE_MODEL = ("-m", "anthropic/claude-sonnet-4-5")
GEMINI = ("-y", "--skip-trust", "-m", "gemini-3.1-pro-preview")
AIDER = (
    "--model openai/gpt-4o --no-git --yes-always --no-fancy-input --no-pretty --no-show-model-warnings"
    " --no-check-update --analytics-disable --max-chat-history-tokens 1000000 --restore-chat-history"
    " --map-tokens 0 --no-detect-urls"
)
CLIENTS = (
    Wrapped(
        "claude-code",
        "node_modules/" + PROGRAMS["claude-code"],
        "claude",
        32_000,
        *(28, 350),
        ("-p", TASK, "--allowedTools", "Bash"),
        ("-p", MORE, "--continue", "--allowedTools", "Bash"),
        environ={**CLAUDE_QUIET, "ANTHROPIC_BASE_URL": "$up"},
        forgiven=frozenset({"role"}),
    ),
    Wrapped(
        "codex",
        "node_modules/" + PROGRAMS["codex"],
        "codex",
        24_000,
        *(36, 220),
        ("exec", "--sandbox", "danger-full-access", "-m", "gpt-5.5", TASK),
        ("exec", "--sandbox", "danger-full-access", "-m", "gpt-5.5", "resume", "--last", MORE),
        UP,
        CODEX_KEY,
    ),
    Wrapped(
        "opencode",
        "node_modules/" + PROGRAMS["opencode"],
        "opencode",
        20_000,
        *(30, 220),
        ("run", *CLAUDE_MODEL, TASK),
        ("run", *CLAUDE_MODEL, "--continue", MORE),
        UP,
        OPENCODE_QUIET,
    ),
    Wrapped(
        "qwen-code",
        BIN + "qwen",
        "qwen-code",
        32_000,
        *(52, 400),
        ("-y", TASK),
        ("-y", "--continue", MORE),
        environ={"OPENAI_BASE_URL": "$up/v1", "OPENAI_MODEL": "qwen3-coder-plus"},
    ),
    Wrapped(
        "gemini-cli",
        BIN + "gemini",
        "gemini-cli",
        24_000,
        *(50, 350),
        (*GEMINI, "-p", TASK),
        (*GEMINI, "--resume", "latest", "-p", MORE),
        environ={"GOOGLE_GEMINI_BASE_URL": "$up"},
        # It begins without knowing the window. Its resumed history has each result twice, and its router begins with a
        # call of the model: both are repaired before they are refused.
        forgiven=frozenset({"route", "overflow"}),
        files={".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'},
    ),
    Wrapped(
        "pi",
        BIN + "pi",
        "pi",
        20_000,
        *(30, 220),
        ("-p", "--model", CLAUDE_MODEL[1], TASK),
        ("-p", "--continue", "--model", CLAUDE_MODEL[1], MORE),
        UP,
        forgiven=frozenset({"output-overflow"}),
    ),
    Wrapped(
        "aider",
        "bin/aider",
        "aider",
        12_000,
        *(28, 160),
        tuple(AIDER.split()),
        tuple(AIDER.split()),
        UP,
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        questions=True,
    ),
    Wrapped(
        "llm",
        "bin/llm",
        "llm",
        8_000,
        *(28, 160),
        ("chat", "-m", "gpt-4o"),
        ("chat", "-c", "-m", "gpt-4o"),
        environ={"OPENAI_BASE_URL": "$up/v1"},
        questions=True,
    ),
)


def talking(lines: int) -> Callable[[Mapping[str, Any]], FakeReply]:
    """A model that prints a part of the log as its answer."""
    said = 0

    def reply(body: Mapping[str, Any]) -> FakeReply:
        nonlocal said
        newest = json.dumps(body["messages"][-2:])
        if "of the log." not in newest or "<<<record" in newest:
            return FakeReply("The log was read, part after part.")
        said += 1
        return FakeReply("\n".join(f"part {said} line {line}: {COMMAND[30:67]}" for line in range(lines)))

    return reply


@pytest.mark.clients
@pytest.mark.parametrize("one", CLIENTS, ids=[one.folder for one in CLIENTS])
def test_a_client_holds_five_windows_behind_a_proxy_of_its_own(one: Wrapped, tmp_path: Path) -> None:
    program = environment(one.folder) / one.program
    if not program.exists():
        missing("clients", f"{one.folder} has no program here for this kind of machine")
    home = Home.inside(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(home.work)], check=True)
    for name, text in one.files.items():
        (home.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (home.folder / name).write_text(text, "utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / Path(one.program).name).symlink_to(program.resolve() if one.program.startswith(BIN) else program)
    reader = Reader(parts=one.parts, lines=one.lines, in_a_turn=one.parts // 2)
    fake = FakeProvider(talking(one.lines) if one.questions else reader, window_tokens=one.window_tokens)
    with serve(fake) as served:
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), TEST_KEY)
        environ = {name: text.replace("$up", served.url) for name, text in one.environ.items()}
        environ |= {"HOME": str(home.folder), "PATH": f"{programs}:{PLACES}", "LANG": "C.UTF-8"}
        runs = []
        for arguments in (one.first, one.again):
            options = [text.replace("$up", served.url) for text in one.options]
            command = [sys.executable, "-m", "foldline", "wrap", *options, one.client, "--", *arguments]
            asked = "".join(f"Read part {part} of the log.\n" for part in range(one.parts // 2)) + "quit\n"
            done = subprocess.run(
                command,
                cwd=home.work,
                env={**keys, **environ},
                input=asked if one.questions else "",
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
            runs.append(done)
    assert one.questions or DONE in runs[-1].stdout
    assert one.questions or reader.read == reader.parts
    assert [kind for kind in fake.refusals if kind not in one.forgiven] == []
    assert fake.largest_tokens <= one.window_tokens
    found = LINE.search(runs[-1].stderr)
    assert found is not None, runs[-1].stderr[-1_000:]
    requests, folds, sent, given = (int(text.replace(",", "")) for text in found.groups())
    assert "none refused" in runs[-1].stderr
    assert given / requests >= WINDOWS * one.window_tokens
    assert folds > 0
    print(
        f"\n{one.folder} wrapped: {runs[-1].stderr.strip().splitlines()[-2]}; on average {given // requests:,} tokens"
    )
    assert sent / requests <= one.window_tokens


@pytest.mark.parametrize("pins", PINS, ids=[pins.name.split(".")[0] for pins in PINS])
def test_the_page_names_the_versions_that_are_tried(pins: Path) -> None:
    name, version = pins.name.split(".")[0], re.split("==|@", pins.read_text("utf-8").strip())[-1]
    assert f"| {name} | {version} |" in PAGE.read_text("utf-8")
