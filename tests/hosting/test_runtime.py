"""The runtime of an agent from its settings: model, window and MCP servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.agent.tools import mcp_plain
from tests.hosting.pools import nobody

from foldline.agent.settings.connections import McpSettings
from foldline.agent.settings.file import find_files
from foldline.agent.settings.model import AgentSettings, ModelSettings
from foldline.agent.tools.workspace import Workspace
from foldline.engine.context import Request
from foldline.errors import InvalidInput
from foldline.hosting.runtime import Options, Runtime, WindowSize, model_choice, settings_for, window_size
from foldline.providers.base import Piece
from foldline.providers.selection import SelectedModel, select_model

SERVER = Path(mcp_plain.__file__).with_name("mcp_child.py")


@dataclass
class Silent:
    """A provider that says only what it is."""

    model: str = "nobody-knows"
    endpoint: str = "https://models.example/v1"
    name: str = "example"
    dialect: str = "openai-chat"
    window: int | None = None
    asked: int = 0
    closed: int = 0

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        raise AssertionError(f"nothing is to be sent: {request}")
        yield

    async def window_tokens(self) -> int | None:
        self.asked += 1
        return self.window

    async def aclose(self) -> None:
        self.closed += 1


def window(settings: AgentSettings, provider: Silent, learned: dict[tuple[str, str], int]) -> WindowSize:
    return asyncio.run(window_size(settings, provider, learned))


def test_the_window_is_what_is_set_else_learned_else_told_else_in_the_catalogue() -> None:
    provider = Silent(window=5_000)
    learned = {(provider.endpoint, provider.model): 6_000}
    settings = AgentSettings(model=ModelSettings(max_input_tokens=7_000))
    assert window(settings, provider, learned) == WindowSize(7_000, "as set")
    assert window(AgentSettings(), provider, learned) == WindowSize(6_000, "learned from an error")
    assert provider.asked == 0
    assert window(AgentSettings(), provider, {}) == WindowSize(5_000, "the server says so")
    known = window(AgentSettings(), Silent(model="gpt-4.1-mini"), {})
    assert (known.tokens > 500_000, known.warning) == (True, None)


@pytest.mark.parametrize(
    ("endpoint", "tokens"), [("http://127.0.0.1:1/v1", 8_192), ("https://far.example/v1", 128_000)]
)
def test_a_window_that_is_a_guess_says_so(endpoint: str, tokens: int) -> None:
    found = window(AgentSettings(), Silent(endpoint=endpoint), {})
    assert found.tokens == tokens
    assert found.warning is not None
    assert "nobody-knows" in found.warning


def test_another_provider_is_not_looked_for_at_the_address_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("defaults:\n  model: {base_url: http://x.example/v1, name: m, api_key_env: X_KEY}\n")
    environ = {"FOLDLINE_HOME": str(tmp_path)}
    options = Options(config=str(path))
    kept = settings_for(options, environ).settings.model
    assert (kept.base_url, kept.name, kept.api_key_env) == ("http://x.example/v1", "m", "X_KEY")
    other = settings_for(replace(options, provider="openai"), environ).settings.model
    assert (other.provider, other.base_url, other.name, other.api_key_env) == ("openai", None, None, None)


def test_an_option_goes_before_the_file_and_is_named_when_it_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("defaults:\n  policy: quality\n  model: {name: m, max_input_tokens: 9000}\n")
    options = Options(config=str(path), policy="cost", window=4_000, allow=("write_file",))
    settings = settings_for(options, {"FOLDLINE_HOME": str(tmp_path)}).settings
    assert settings.policy_settings.name == "cost"
    assert (settings.model.name, settings.model.max_input_tokens) == ("m", 4_000)
    assert settings.tools.allow == {"write_file"}
    with pytest.raises(InvalidInput) as caught:
        settings_for(replace(options, window=-1), {"FOLDLINE_HOME": str(tmp_path)})
    assert caught.value.place == "--window"


def runtime(folder: Path, settings: AgentSettings, picked: SelectedModel, notices: list[str]) -> Runtime:
    return Runtime(settings, {}, picked, workspace=Workspace(folder), learned={}, notice=notices.append)


def test_servers_start_once_and_one_that_does_not_is_told_and_left_out(tmp_path: Path) -> None:
    settings = AgentSettings(
        mcp={
            "child": McpSettings(command=sys.executable, args=(str(SERVER), "stdio")),
            "broken": McpSettings(command=str(tmp_path / "nosuch")),
            "unset": McpSettings(url="http://127.0.0.1:1", headers={"authorization": "${NOT_SET}"}),
        }
    )
    notices: list[str] = []
    provider = Silent(window=9_000)

    async def run() -> None:
        made = runtime(tmp_path, settings, SelectedModel(provider, "as set"), notices)
        try:
            first = await made.parts(nobody)
            assert {tool.name.partition("_")[0] for tool in first.more_tools} == {"child"}
            assert (await made.parts(nobody)).more_tools == first.more_tools
        finally:
            await made.aclose()

    asyncio.run(run())
    assert sorted(notice.partition(":")[0] for notice in notices) == ["MCP server broken", "MCP server unset"]
    assert any("NOT_SET" in notice for notice in notices)
    assert (provider.asked, provider.closed) == (1, 1)


def test_a_model_that_would_only_call_tools_gets_none(tmp_path: Path) -> None:
    from foldline.agent.assemble import tool_names

    settings = AgentSettings(mcp={"child": McpSettings(command=sys.executable, args=(str(SERVER), "stdio"))})

    async def run() -> tuple[tuple[str, ...], int]:
        made = runtime(tmp_path, settings, SelectedModel(Silent(window=9_000), "as set", tools=False), [])
        parts = await made.parts(nobody)
        await made.aclose()
        return tool_names(parts.settings), len(parts.more_tools)

    assert asyncio.run(run()) == ((), 0)


def test_another_model_is_asked_for_its_own_window_and_the_first_is_let_go_of(tmp_path: Path) -> None:
    first, second = Silent(window=9_000), Silent(window=4_000)

    async def run() -> tuple[int, int]:
        made = runtime(tmp_path, AgentSettings(), SelectedModel(first, "as set"), [])
        before = (await made.parts(nobody)).window_tokens
        await made.change(AgentSettings(), SelectedModel(second, "as set"))
        after = (await made.parts(nobody)).window_tokens
        await made.aclose()
        return before, after

    assert asyncio.run(run()) == (9_000, 4_000)
    assert (first.closed, second.closed) == (1, 1)


def test_further_fields_of_a_model_go_into_each_request() -> None:
    from foldline.providers.selection import select_model

    model = ModelSettings(base_url="https://far.example/v1", name="m", extra={"temperature": 0.25})

    async def run() -> str:
        provider = (await select_model(model_choice(model), {})).provider
        await provider.aclose()
        return repr(provider)

    assert "{'temperature': 0.25}" in asyncio.run(run())


def test_requests_of_one_chat_share_a_name_for_the_providers_cache() -> None:
    first, second = model_choice(ModelSettings()), model_choice(ModelSettings())
    assert first.session_id
    assert first.session_id != second.session_id
    environ = {"OPENAI_API_KEY": "k"}
    provider = asyncio.run(select_model(replace(first, provider="openai", model="gpt-4.1-mini"), environ)).provider
    assert first.session_id in repr(provider)


def test_a_folder_that_is_gone_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInput, match="working directory is no longer there"):
        find_files(environ={"FOLDLINE_HOME": str(tmp_path)})
