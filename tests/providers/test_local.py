"""Looking for model servers on this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest
from tests.providers.serving import Answer, as_json, serving

from foldline.providers.local import PLACES, Local, Place, find_local, has_tools

OLLAMA = {
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
LM_STUDIO = {
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


def found(kind: str, routes: Mapping[str, Answer]) -> Local | None:
    """What a server with these answers is taken for; its address is replaced by "here"."""

    async def run() -> Local | None:
        async with serving(routes=routes) as server:
            (local,) = await find_local((Place(kind, server.url),)) or (None,)
        if local is not None:
            assert local.base_url == f"{server.url}/v1"
        return local

    return asyncio.run(run())


def test_each_kind_is_known_by_its_answers() -> None:
    ollama, llama = found("ollama", OLLAMA), found("llama.cpp", LLAMA)
    studio, vllm = found("lm-studio", LM_STUDIO), found("vllm", VLLM)
    assert ollama is not None and llama is not None and studio is not None and vllm is not None
    assert (ollama.models, ollama.has_tools, ollama.window_tokens) == (("qwen3:8b", "gemma3:4b"), True, 8_192)
    assert (llama.models, llama.has_tools, llama.window_tokens) == (("SmolLM2-135M-Instruct.Q4_1.gguf",), False, 2_048)
    assert (studio.models, studio.has_tools, studio.window_tokens) == (("ready", "waiting"), True, 16_384)
    assert (vllm.models, vllm.has_tools, vllm.window_tokens) == (("org/model",), True, 32_768)


def test_a_model_of_ollama_that_cannot_chat_is_not_taken() -> None:
    shown = {"/api/show": as_json({"capabilities": ["embedding"]})}
    assert found("ollama", {**OLLAMA, **shown}) is None


def test_an_old_ollama_that_says_nothing_of_capabilities_is_taken() -> None:
    local = found("ollama", {**OLLAMA, "/api/show": as_json({})})
    assert local is not None
    assert local.models == ("qwen3:8b", "gemma3:4b")


def test_a_server_without_models_is_of_no_use() -> None:
    assert found("ollama", {**OLLAMA, "/api/tags": as_json({"models": []})}) is None
    assert found("llama.cpp", {**LLAMA, "/v1/models": as_json({"data": []})}) is None


@pytest.mark.parametrize("kind", [place.kind for place in PLACES])
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
        assert asyncio.run(find_local(tuple(Place(place.kind, url) for place in PLACES))) == ()


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert asyncio.run(find_local((Place("ollama", url),), timeout_seconds=0.05)) == ()


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
            return [local.kind for local in await find_local((Place("vllm", f"http://127.0.0.1:{port}"),))]

    assert asyncio.run(run()) == ["vllm"]


def test_servers_are_found_in_the_order_of_places() -> None:
    async def run() -> list[str]:
        async with serving(routes=VLLM) as vllm, serving(routes=LLAMA) as llama:
            places = (Place("llama.cpp", llama.url), Place("vllm", vllm.url))
            return [local.kind for local in await find_local(places)]

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
