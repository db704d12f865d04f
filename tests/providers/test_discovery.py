"""What servers say of their window and their models."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests import idle_clock
from tests.providers.serving import Answer, as_json, endpoint, serving

from foldline.providers.discovery import (
    DEFAULT_ADDRESSES,
    LocalServer,
    ServerAddress,
    fetch_models,
    fetch_window,
    find_local_servers,
    has_tools,
)
from foldline.providers.http import provider_for


def window(routes: dict[str, Any], model: str = "m", dialect: str = "openai-chat") -> int | None:
    async def work() -> int | None:
        answers = {path: body if isinstance(body, Answer) else as_json(body) for path, body in routes.items()}
        async with serving(routes=answers) as server, httpx.AsyncClient(verify=False) as client:
            return await fetch_window(endpoint(server.url, dialect, model=model), client)

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
            return await fetch_window(gone, client), await fetch_models(gone, client)

    assert asyncio.run(work()) == (None, ())


def asked_of(host: str, dialect: str, answers: dict[str, Any], model: str) -> tuple[int | None, list[str]]:
    """What a hosted provider is asked, by a transport that stands for the network."""
    seen: list[str] = []

    def answer(sent: httpx.Request) -> httpx.Response:
        seen.append(sent.url.raw_path.decode())
        return httpx.Response(200, json=answers[seen[-1]]) if seen[-1] in answers else httpx.Response(404)

    async def work() -> int | None:
        async with httpx.AsyncClient(verify=False, transport=httpx.MockTransport(answer)) as client:
            return await fetch_window(endpoint(host, dialect, model=model), client)

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
            assert await fetch_models(served, client) == ("a", "b")
            assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer key-1234"}

    asyncio.run(work())


OLLAMA_ROUTES = {
    "/api/version": as_json({"version": "0.18.2"}),
    "/api/tags": as_json({"models": [{"name": "qwen3:8b"}, {"name": "gemma3:4b"}]}),
    "/api/show": as_json({"capabilities": ["completion", "tools"], "model_info": {"qwen3.context_length": 40_960}}),
    "/api/ps": as_json({"models": [{"name": "qwen3:8b", "context_length": 8_192}]}),
}
LLAMA = {
    "/props": as_json(
        {"default_generation_settings": {"n_ctx": 2_048}, "chat_template_caps": {"supports_tools": False}}
    ),
    "/v1/models": as_json({"object": "list", "data": [{"id": "SmolLM2-135M-Instruct.Q4_1.gguf"}]}),
}
LM_STUDIO_ROUTES = {
    "/api/v0/models": as_json(
        {
            "data": [
                {"id": "nomic", "type": "embeddings", "state": "loaded"},
                {"id": "waiting", "type": "llm", "state": "not-loaded"},
                {"id": "ready", "type": "vlm", "state": "loaded", "loaded_context_length": 16_384},
            ]
        }
    )
}
VLLM = {"/v1/models": as_json({"data": [{"id": "org/model", "owned_by": "vllm", "max_model_len": 32_768}]})}


def found(kind: str, routes: Mapping[str, Answer]) -> LocalServer | None:
    """What a server with these answers is taken for; its address is replaced by "here"."""

    async def run() -> LocalServer | None:
        async with serving(routes=routes) as server:
            (local,) = await find_local_servers((ServerAddress(kind, server.url),)) or (None,)
        if local is not None:
            assert local.base_url == f"{server.url}/v1"
        return local

    return asyncio.run(run())


def test_each_kind_is_known_by_its_answers() -> None:
    ollama, llama = found("ollama", OLLAMA_ROUTES), found("llama.cpp", LLAMA)
    studio, vllm = found("lm-studio", LM_STUDIO_ROUTES), found("vllm", VLLM)
    assert ollama is not None and llama is not None and studio is not None and vllm is not None
    assert (ollama.models, ollama.has_tools, ollama.window_tokens) == (("qwen3:8b", "gemma3:4b"), True, 8_192)
    assert (llama.models, llama.has_tools, llama.window_tokens) == (("SmolLM2-135M-Instruct.Q4_1.gguf",), False, 2_048)
    assert (studio.models, studio.has_tools, studio.window_tokens) == (("ready", "waiting"), True, 16_384)
    assert (vllm.models, vllm.has_tools, vllm.window_tokens) == (("org/model",), True, 32_768)


def test_a_model_of_ollama_that_cannot_chat_is_not_taken() -> None:
    shown = {"/api/show": as_json({"capabilities": ["embedding"]})}
    assert found("ollama", {**OLLAMA_ROUTES, **shown}) is None


def test_an_old_ollama_that_says_nothing_of_capabilities_is_taken() -> None:
    local = found("ollama", {**OLLAMA_ROUTES, "/api/show": as_json({})})
    assert local is not None
    assert local.models == ("qwen3:8b", "gemma3:4b")


def test_a_server_without_models_is_of_no_use() -> None:
    assert found("ollama", {**OLLAMA_ROUTES, "/api/tags": as_json({"models": []})}) is None
    assert found("llama.cpp", {**LLAMA, "/v1/models": as_json({"data": []})}) is None


@pytest.mark.parametrize("kind", [place.kind for place in DEFAULT_ADDRESSES])
@pytest.mark.parametrize(
    "answer",
    [
        as_json({}),
        as_json([1, 2]),
        as_json({"data": [{"id": "m"}], "models": [{"name": "m"}], "status": "ok"}),
        as_json({"version": 3, "data": "many", "default_generation_settings": {"n_ctx": "big"}}),
        as_json({"error": "no"}, 500),
        Answer([b"<html>a page</html>"], media="text/html"),
        Answer([b"[" * 100_000], media="application/json"),
        Answer([b" " * 70_000] * 20, media="application/json"),
        Answer([b'{"version": "1'], media="application/json", cut=True),
        Answer([], 302, {"location": "http://127.0.0.1:1/"}),
    ],
    ids=["empty", "list", "alike", "types", "fault", "page", "deep", "large", "cut", "elsewhere"],
)
def test_anything_else_on_the_port_is_not_taken_for_a_model_server(kind: str, answer: Answer) -> None:
    paths = ("/api/version", "/api/tags", "/api/show", "/props", "/v1/models", "/api/v0/models")
    assert found(kind, dict.fromkeys(paths, answer)) is None


def test_with_nothing_there_nothing_is_found() -> None:
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert (
            asyncio.run(find_local_servers(tuple(ServerAddress(place.kind, url) for place in DEFAULT_ADDRESSES))) == ()
        )


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert asyncio.run(find_local_servers((ServerAddress("ollama", url),), timeout_seconds=0.05)) == ()


def test_a_busy_server_is_waited_for() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.6)  # longer than it has to accept the connection
        body = b"".join(VLLM["/v1/models"].chunks)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async def run() -> list[str]:
        async with await asyncio.start_server(late, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return [
                local.kind for local in await find_local_servers((ServerAddress("vllm", f"http://127.0.0.1:{port}"),))
            ]

    assert idle_clock.run(run()) == ["vllm"]


def test_servers_are_found_in_the_order_of_places() -> None:
    async def run() -> list[str]:
        async with serving(routes=VLLM) as vllm, serving(routes=LLAMA) as llama:
            addresses = (ServerAddress("llama.cpp", llama.url), ServerAddress("vllm", vllm.url))
            return [local.kind for local in await find_local_servers(addresses)]

    assert asyncio.run(run()) == ["llama.cpp", "vllm"]


@pytest.mark.parametrize(
    ("props", "expected"),
    [
        ({"chat_template_caps": {"supports_tools": True}, "chat_template": ""}, True),
        ({"chat_template_caps": {"supports_tools": False}, "chat_template": "{{ tools }}"}, False),
        ({"chat_template": "{% if tools %}"}, True),
        ({"chat_template": "{{ messages }}"}, False),
        ({}, True),
    ],
)
def test_a_template_has_tools_when_the_server_says_so(props: dict[str, Any], expected: bool) -> None:
    assert has_tools(props) is expected
