"""Asks a server for its window and its models, where it can tell.

What runs goes before what could run: a model of 131,072 tokens that a server has loaded with 4,096 has a window of
4,096. Sources: llama-server's README (`/props`), vLLM and llama-server (`/v1/models`), Ollama's API reference
(`/api/ps`, `/api/show`), LM Studio's REST API (`/api/v0/models`), OpenRouter (`/models`), Anthropic's API reference
(`/v1/models/{id}`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from foldline.messages import Json
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["ask_window", "served_models"]

_SECONDS: Final = 2.0
"""A server at hand answers within milliseconds; nobody is kept waiting for one that is off."""

_MAX_BYTES: Final = 16 * 1024 * 1024  # OpenRouter lists several hundred models, with descriptions

_OLLAMA_DEFAULT_TOKENS: Final = 4_096
"""What Ollama loads a model with where nobody says (its FAQ, "context window size"). It cuts longer prompts silently,
so a guess too low is the safe one."""

_FIELDS: Final = ("max_model_len", "context_window", "context_length", "max_context_length", "max_input_tokens")
_SILENT: Final = frozenset({"api.openai.com", "generativelanguage.googleapis.com", "api.deepseek.com"})
"""Hosts whose lists of models say nothing about windows."""


async def ask_window(endpoint: Endpoint, client: httpx.AsyncClient) -> int | None:
    """The window in tokens that the server names for the endpoint's model; None where it does not say.

    Questions are asked together, so it takes 4 s at most. Raises nothing for a server that is off or talks nonsense.
    """
    if endpoint.host in _SILENT:
        return None
    ask = _Asker(client, endpoint.request_headers)
    model = endpoint.model
    models = f"{_versioned(endpoint)}/models"
    if endpoint.dialect == "anthropic" and not endpoint.is_local:
        return _tokens(await ask.get(f"{models}/{quote(model, safe='')}"), "max_input_tokens", "context_window")
    if not endpoint.is_local:
        return _listed(await ask.get(models), model)
    root = endpoint.root_url
    # llama-server and vLLM tell by these, and would log the others as errors.
    props, listed = await asyncio.gather(ask.get(f"{root}/props"), ask.get(models))
    found = _tokens(props.get("default_generation_settings"), "n_ctx") or _tokens(props, "n_ctx")
    if found := found or _listed(listed, model):
        return found
    lm_studio, running, shown = await asyncio.gather(
        ask.get(f"{root}/api/v0/models"),
        ask.get(f"{root}/api/ps"),
        ask.post(f"{root}/api/show", {"model": model}),
    )
    return (
        _tokens(_entry(lm_studio.get("data"), model), "loaded_context_length")
        or _tokens(_entry(running.get("models"), model), "context_length")
        or _ollama(shown)
    )


async def served_models(endpoint: Endpoint, client: httpx.AsyncClient) -> tuple[str, ...]:
    """The names of the models that the server lists; none where it does not answer. Takes 2 s at most."""
    listed = await _Asker(client, endpoint.request_headers).get(f"{_versioned(endpoint)}/models")
    return tuple(str(entry["id"]) for entry in _entries(listed.get("data")) if isinstance(entry.get("id"), str))


def _versioned(endpoint: Endpoint) -> str:
    """The address with its version, which Anthropic's clients add themselves."""
    return f"{endpoint.base_url}/v1" if endpoint.dialect == "anthropic" else endpoint.base_url


class _Asker:
    def __init__(self, client: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
        self._client, self._headers = client, dict(headers)

    async def get(self, url: str) -> Mapping[str, Json]:
        return await self._ask("GET", url, None)

    async def post(self, url: str, body: Json) -> Mapping[str, Json]:
        return await self._ask("POST", url, body)

    async def _ask(self, method: str, url: str, body: Json) -> Mapping[str, Json]:
        """The object that the server answers with; an empty one for any other answer, and for none."""
        import httpx

        try:
            async with asyncio.timeout(_SECONDS):
                return await self._answer(method, url, body)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            return {}

    async def _answer(self, method: str, url: str, body: Json) -> Mapping[str, Json]:
        content = bytearray()
        async with self._client.stream(
            method, url, headers=self._headers, json=body, follow_redirects=False
        ) as response:
            if not response.is_success:
                return {}
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _MAX_BYTES:
                    return {}
        value = json.loads(content)
        return value if isinstance(value, dict) else {"data": value}


def _entries(value: Json) -> Iterator[Mapping[str, Any]]:
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, Mapping):
            yield entry


def _entry(value: Json, model: str) -> Mapping[str, Any]:
    """The entry of the model, by any of the names lists use; the only entry if there is just one."""
    entries = list(_entries(value))
    wanted = {model, f"{model}:latest"}
    for entry in entries:
        if wanted & {entry.get(name) for name in ("id", "model", "name") if isinstance(entry.get(name), str)}:
            return entry
    return entries[0] if len(entries) == 1 and not model else {}


def _listed(listed: Mapping[str, Json], model: str) -> int | None:
    entry = _entry(listed.get("data"), model)
    return _tokens(entry, *_FIELDS) or _tokens(entry.get("top_provider"), "context_length")


def _ollama(shown: Mapping[str, Json]) -> int | None:
    """What a model that does not run yet would be loaded with: what its file says, or the default; not above its own
    largest."""
    info = shown.get("model_info")
    fields = info if isinstance(info, Mapping) else {}
    most = next((value for name, value in fields.items() if str(name).endswith(".context_length")), None)
    if not isinstance(most, int):
        return None
    parameters = shown.get("parameters")
    found = re.search(r"(?m)^num_ctx\s+(\d{3,9})\b", parameters) if isinstance(parameters, str) else None
    return min(most, int(found[1]) if found else _OLLAMA_DEFAULT_TOKENS)


def _tokens(entry: Json, *names: str) -> int | None:
    """The first of these fields that can be a window."""
    for name in names:
        value = entry.get(name) if isinstance(entry, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and 256 <= value <= 100_000_000:
            return value
    return None
