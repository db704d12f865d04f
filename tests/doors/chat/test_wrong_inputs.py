"""A mistake of the user is one clear line on standard error, with the right exit code; nothing is sent or stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.serving import serve

from foldline.cli.main import cli
from foldline.store import FileStore
from foldline.store import paths as places
from foldline.testing import FakeProvider, FakeReply

NOWHERE = "http://127.0.0.1:1/v1"
ASIDE = ("model ", "session ", "⟲ ", "[tokens: ", "model 'x' is not in the catalogue")
"""Lines that belong to every run, or that tell of a try before the last one."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its code, and the lines that say what was wrong."""

    code: int
    out: str
    message: list[str]


def chat(folder: Path, *arguments: str, **environ: str) -> Ran:
    """`foldline chat` with one prompt, in a folder of its own."""
    variables = {"FOLDLINE_HOME": str(folder / "home"), **environ}
    done = CliRunner(env=variables).invoke(cli, ["chat", "--workspace", str(folder), *arguments, "--once", "hi"])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return Ran(done.exit_code, done.stdout, [line for line in done.stderr.splitlines() if not line.startswith(ASIDE)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agents: [", "agents.yaml: line 2: column 1: is not YAML: "),
        ("- a\n", "agents.yaml: must hold blocks of settings"),
        ("defaults:\n  modle: x\n", "agents.yaml: line 2: defaults.modle: is not a setting; nearest is 'model'"),
        ("defaults:\n  compact_threshold: 7\n", "agents.yaml: line 2: defaults.compact_threshold: must be above 0"),
        ("defaults:\n  compact_threshold: high\n", "agents.yaml: line 2: defaults.compact_threshold: "),
        ("defaults:\n  policy: nope\n", "agents.yaml: line 2: defaults.policy"),
        (
            "defaults:\n  tools:\n    allow: [rm]\n",
            "tools.allow: 'rm' is no tool; write_file, edit_file, run_command are off",
        ),
        ("defaults:\n  model:\n    max_input_tokens: many\n", "agents.yaml: line 3: defaults.model.max_input_tokens: "),
        ("defaults:\n  model:\n    base_url: ftp://x\n", "agents.yaml: line 3: defaults.model.base_url: "),
        (f"defaults:\n  model: {{base_url: '{NOWHERE}', api_key_env: NO_KEY}}\n", "the variable NO_KEY is not set"),
        (
            f"defaults:\n  model: {{base_url: '{NOWHERE}', name: x}}\n  summariser: {{provider: nope}}\n",
            "summariser.provider: unknown provider 'nope'",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(text)
    ran = chat(tmp_path, "--config", str(file))
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.message
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "."), "cannot be read: "),
        (("--workspace", __file__), "is no folder"),
        (("--base-url", "not a url"), "--base-url: must be an http or https address, not 'not a url'"),
        (("--base-url", "http://"), "--base-url: must be an http or https address"),
        (("--model", "nowhere.gguf"), "cannot read 'nowhere.gguf': No such file or directory"),
        (("--model", ""), "--model: must be a text"),
        (("--base-url", NOWHERE, "--model", "x", "--resume", "latest"), "session: "),
        (("--base-url", NOWHERE, "--model", "x", "--resume", "../../etc"), "there is no session '../../etc'"),
        (("--base-url", NOWHERE, "--model", "x", "--agent", ""), "--agent: there is no agent ''"),
        (("what", "is", "this"), "got unexpected extra arguments (what is this)"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = chat(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.message
    assert message in line


def test_a_model_file_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "letter.gguf"
    file.write_text("Dear all,")
    ran = chat(tmp_path, "--model", str(file))
    assert ran.code == 2
    (line,) = ran.message
    assert str(file) in line


def test_a_session_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    environ = {"FOLDLINE_HOME": str(tmp_path / "home")}
    store = FileStore(places.sessions_path(environ))
    held = store.create(dialect="openai-chat", model="x", policy="balanced", window=8_192, parent=None)
    try:
        ran = chat(tmp_path, "--base-url", NOWHERE, "--model", "x", "--resume", held.id)
    finally:
        held.close()
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.message
    assert held.id in line


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = chat(tmp_path, "--base-url", NOWHERE, "--model", "x", FOLDLINE_HOME=str(tmp_path / "file" / "home"))
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.message
    assert f"{tmp_path / 'file' / 'home'}" in line
    assert "Not a directory" in line


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """A server that knows one key and one model, and says so."""
    with serve(FakeProvider(FakeReply("ok"), api_key="right", models=["real"], window_tokens=4_000)) as served:
        yield f"{served.url}/v1"


@pytest.mark.parametrize(
    ("key", "model", "message"),
    [
        ("not-it", "name: real", "auth: Incorrect API key provided"),
        ("right", "name: unreal", "unreal"),
        ("right", "name: real, max_input_tokens: 300", "does not fit: what must stay needs "),
    ],
)
def test_what_the_server_does_not_know_is_its_own_line(
    tmp_path: Path, strict: str, key: str, model: str, message: str
) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(f"defaults:\n  model: {{base_url: '{strict}', {model}, api_key_env: SOME_KEY}}\n")
    ran = chat(tmp_path, "--config", str(file), SOME_KEY=key)
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.message
    assert message in line
    assert key not in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--base-url", NOWHERE, "--model", "x"), f"{NOWHERE}: cannot connect: "),
        (("--provider", "openai"), "openai needs a key: set OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_had_says_why(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = chat(tmp_path, *arguments, OPENAI_API_KEY="")
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.message
    assert message in line
