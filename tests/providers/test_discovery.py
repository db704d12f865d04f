"""What servers say of their window and their models."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.providers.serving import Answer, as_json, endpoint, serving

from foldline.providers.discovery import ask_window, served_models
from foldline.providers.http import provider_for


def window(routes: dict[str, Any], model: str = "m", dialect: str = "openai-chat") -> int | None:
    async def work() -> int | None:
        answers = {path: body if isinstance(body, Answer) else as_json(body) for path, body in routes.items()}
        async with serving(routes=answers) as server, httpx.AsyncClient(verify=False) as client:
            return await ask_window(endpoint(server.url, dialect, model=model), client)

    return asyncio.run(work())


LM_STUDIO = {"id": "m", "max_context_length": 131_072}
OLLAMA = {"model_info": {"general.architecture": "llama", "llama.context_length": 131_072}}


@pytest.mark.parametrize(
    ("routes", "tokens"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 2_048}}}, 2_048),
        ({"/props": {"n_ctx": 4_096}}, 4_096),
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": 32_768}]}}, 32_768),
        ({"/v1/models": {"data": [{"id": "x", "max_model_len": 1_024}, {"id": "m", "context_length": 9_000}]}}, 9_000),
        ({"/api/v0/models": {"data": [{**LM_STUDIO, "loaded_context_length": 8_192}]}}, 8_192),
        ({"/api/v0/models": {"data": [LM_STUDIO]}}, None),
        ({"/api/ps": {"models": [{"name": "m:latest", "context_length": 16_384}]}, "/api/show": OLLAMA}, 16_384),
        ({"/api/show": {**OLLAMA, "parameters": 'stop "x"\nnum_ctx                8192'}}, 8_192),
        ({"/api/show": OLLAMA}, 4_096),
        ({"/api/show": {"model_info": {"x.context_length": 2_048}}}, 2_048),
    ],
    ids=[
        "llama.cpp", "older llama.cpp", "vLLM", "a list", "LM Studio", "LM Studio, not loaded",
        "Ollama, running", "Ollama, set", "Ollama, default", "Ollama, a small model",
    ],
)  # fmt: skip
def test_each_kind_of_server_is_understood(routes: dict[str, Any], tokens: int | None) -> None:
    assert window(routes) == tokens


@pytest.mark.parametrize(
    "nonsense",
    [
        Answer([b"<html>"], media="text/html"),
        Answer([b"{"], media="application/json"),
        [1, 2],
        {"n_ctx": "many", "default_generation_settings": []},
        {"n_ctx": 0},
        {"n_ctx": True},
        Answer(cut=True),
        Answer(status=500),
    ],
)
def test_nonsense_is_no_answer(nonsense: Any) -> None:
    assert window({"/props": nonsense, "/api/show": nonsense, "/v1/models": nonsense, "/api/ps": nonsense}) is None


def test_a_server_that_is_off_is_no_error() -> None:
    async def work() -> tuple[int | None, tuple[str, ...]]:
        async with serving() as server:
            gone = endpoint(server.url)
        async with httpx.AsyncClient(verify=False) as client:
            return await ask_window(gone, client), await served_models(gone, client)

    assert asyncio.run(work()) == (None, ())


def asked_of(host: str, dialect: str, answers: dict[str, Any], model: str) -> tuple[int | None, list[str]]:
    """What a hosted provider is asked, by a transport that stands for the network."""
    seen: list[str] = []

    def answer(sent: httpx.Request) -> httpx.Response:
        seen.append(sent.url.raw_path.decode())
        return httpx.Response(200, json=answers[seen[-1]]) if seen[-1] in answers else httpx.Response(404)

    async def work() -> int | None:
        async with httpx.AsyncClient(verify=False, transport=httpx.MockTransport(answer)) as client:
            return await ask_window(endpoint(host, dialect, model=model), client)

    return asyncio.run(work()), seen


def test_hosted_providers_are_asked_one_question_and_openai_none() -> None:
    claude = {"/v1/models/claude-x": {"id": "claude-x", "max_input_tokens": 1_000_000}}
    assert asked_of("https://api.anthropic.com", "anthropic", claude, "claude-x") == (
        1_000_000,
        ["/v1/models/claude-x"],
    )
    listed = {"/api/v1/models": {"data": [{"id": "a/b", "context_length": 64_000}]}}
    assert asked_of("https://openrouter.ai/api/v1", "openai-chat", listed, "a/b") == (64_000, ["/api/v1/models"])
    assert asked_of("https://api.openai.com/v1", "openai-responses", {}, "gpt-5") == (None, [])


def test_a_models_name_cannot_leave_its_place_in_the_path() -> None:
    _, seen = asked_of("https://api.anthropic.com", "anthropic", {}, "../x?y")
    assert seen == ["/v1/models/..%2Fx%3Fy"]


def test_a_provider_asks_with_its_key_and_the_models_are_listed() -> None:
    async def work() -> None:
        models = as_json({"data": [{"id": "a", "max_model_len": 5_000}, {"id": "b"}]})
        async with serving(routes={"/v1/models": models}) as server, httpx.AsyncClient(verify=False) as client:
            served = endpoint(server.url, model="a", api_key="key-1234")
            provider = provider_for(served, client=client)
            assert await provider.window_tokens() == 5_000
            assert await served_models(served, client) == ("a", "b")
            assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer key-1234"}

    asyncio.run(work())
