"""Each row of the table can be filled in, and each client's requests go where it would have sent them itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from foldline.doors.proxy.startup import ProxySettings
from foldline.doors.proxy.windows import url_at
from foldline.doors.wrap.clients import APIS, CLIENTS, any_command, client_named, filled
from foldline.doors.wrap.own_settings import claude_settings, codex_settings, gemini_settings
from foldline.doors.wrap.run import ClientRun, program_of, upstream_of, version_of
from foldline.errors import InvalidInput

PATHS = {"openai": "/chat/completions", "anthropic": "/v1/messages", "gemini": "/v1beta/models/m:generateContent"}
VALUES = {
    **{name: f"http://127.0.0.1:1/{name}" for name in APIS},
    **{f"{name}_host": "http://127.0.0.1:1" for name in APIS},
    "folder": "/folder",
    "key": "openai_base_url",
    "mcp_program": '"python"',
    "mcp_arguments": '["-m", "foldline"]',
    "mcp_command": '["python", "-m", "foldline"]',
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_each_template_of_a_row_is_filled(client: Any) -> None:
    texts = [*client.environ.values(), *client.mcp_environ.values(), *client.arguments, *client.mcp_arguments]
    texts += [*client.files.values(), *client.mcp_files.values()]
    assert texts
    assert not any("$" in filled(text, VALUES) for text in texts)
    for name, text in [*client.mcp_files.items(), *client.mcp_environ.items()]:
        if name.endswith((".json", "_CONTENT")):
            json.loads(filled(text, VALUES))
    assert client.install
    assert set(client.apis) <= APIS.keys()


@pytest.mark.parametrize("name", ["claude-code", "qwen", "gemini", "mini"])
def test_a_client_is_also_found_by_the_name_of_its_program_or_package(name: str) -> None:
    assert client_named(name).name in CLIENTS


def test_an_unknown_client_is_told_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"nope: is not a known client \(claude, codex, .*foldline wrap -- nope"):
        client_named("nope")


def test_a_missing_program_is_told_with_the_line_that_installs_it() -> None:
    with pytest.raises(InvalidInput, match="codex: is not installed, or not in PATH: npm install -g @openai/codex"):
        program_of(client_named("codex"), {"PATH": "/nowhere"})


# --- where requests go ------------------------------------------------------------------------------------------------


def asked_at(api: str, environ: Mapping[str, str], upstream: str | None = None) -> str:
    """The address at which the upstream is asked, for a client with this base URL."""
    wrapped = ClientRun(
        client=any_command("any"),
        arguments=(),
        environ=environ,
        settings=ProxySettings(upstream=""),
        upstream=upstream,
    )
    found = upstream_of(wrapped, APIS[api])
    return url_at(found.address, version_of(APIS[api], found) + PATHS[api])


@pytest.mark.parametrize(
    "address",
    ["https://a.example/v1", "https://a.example/api/v1/", "https://a.example", "https://a.example/v1beta/openai"],
)
def test_the_address_of_a_variable_is_asked_as_its_client_would_have(address: str) -> None:
    assert asked_at("openai", {"OPENAI_BASE_URL": address}) == f"{address.rstrip('/')}/chat/completions"


@pytest.mark.parametrize("address", ["https://a.example", "https://a.example/anthropic"])
def test_the_address_of_anthropics_variable_is_asked_at_its_version(address: str) -> None:
    assert asked_at("anthropic", {"ANTHROPIC_BASE_URL": address}) == f"{address}/v1/messages"


@pytest.mark.parametrize("upstream", ["http://localhost:8080", "http://localhost:8080/v1"])
def test_the_option_takes_an_address_with_and_without_its_version(upstream: str) -> None:
    assert asked_at("openai", {"OPENAI_BASE_URL": "https://b.example"}, upstream).startswith(
        "http://localhost:8080/v1/c"
    )
    assert asked_at("anthropic", {}, upstream) == "http://localhost:8080/v1/messages"


@pytest.mark.parametrize(
    ("api", "address"),
    [
        ("openai", "https://api.openai.com/v1/chat/completions"),
        ("anthropic", "https://api.anthropic.com/v1/messages"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"),
    ],
)
def test_without_a_variable_the_provider_itself_is_asked(api: str, address: str) -> None:
    assert asked_at(api, {}) == address


# --- the clients' own settings ----------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_an_address_in_claudes_settings_is_the_upstream_and_is_set_over(home: Path) -> None:
    assert claude_settings({"HOME": str(home)}).upstreams == {}
    write(home / ".claude" / "settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://one.example"}}')
    write(home / "work" / ".claude" / "settings.local.json", '{"env": {"ANTHROPIC_BASE_URL": "https://two.example"}}')
    found = claude_settings({"HOME": str(home)})
    assert found.upstreams == {"anthropic": "https://two.example"}
    option, text = (filled(one, VALUES) for one in found.arguments)
    assert (option, json.loads(text)) == ("--settings", {"env": {"ANTHROPIC_BASE_URL": VALUES["anthropic"]}})


def test_claude_at_a_cloud_is_told_what_to_do_instead(home: Path) -> None:
    with pytest.raises(InvalidInput, match="CLAUDE_CODE_USE_BEDROCK: asks a cloud"):
        claude_settings({"HOME": str(home), "CLAUDE_CODE_USE_BEDROCK": "1"})
    assert claude_settings({"HOME": str(home), "CLAUDE_CODE_USE_BEDROCK": "0"}).upstreams == {}


@pytest.mark.parametrize(
    ("config", "key", "address"),
    [
        ("", "openai_base_url", None),
        ('openai_base_url = "https://one.example/v1"', "openai_base_url", "https://one.example/v1"),
        (
            'model_provider = "own"\n[model_providers.own]\nbase_url = "http://localhost:1/v1"',
            "model_providers.own.base_url",
            "http://localhost:1/v1",
        ),
        (
            'profile = "p"\n[profiles.p]\nmodel_provider = "own"\n[model_providers.own]\nbase_url = "http://localhost:1"',
            "model_providers.own.base_url",
            "http://localhost:1",
        ),
        ("damaged = [", "openai_base_url", None),
    ],
    ids=["none", "built-in", "named", "profile", "damaged"],
)
def test_codex_is_pointed_by_the_key_of_its_provider(config: str, key: str, address: str | None, home: Path) -> None:
    write(home / ".codex" / "config.toml", config)
    found = codex_settings({"HOME": str(home)})
    assert found.values == {"key": key}
    assert found.upstreams == ({} if address is None else {"openai": address})


def test_gemini_without_a_sign_in_in_its_settings_gets_a_hint(home: Path) -> None:
    assert "selectedType" in gemini_settings({"HOME": str(home)}).hint
    write(home / ".gemini" / "settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    assert gemini_settings({"HOME": str(home)}).hint == ""
