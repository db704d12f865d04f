"""Finds the model servers that run on this machine, by their usual ports and by what they answer.

Anything may listen on port 8000 or 8080, so a server counts only when its answer has the shape that its documentation
gives: llama-server's README (`/props`), Ollama's API reference (`/api/version`, `/api/tags`, `/api/show`), LM Studio's
REST API (`/api/v0/models`), vLLM's OpenAI-compatible server (`/v1/models`, owned by "vllm").
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from foldline.messages import Json
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import ask_window
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["PLACES", "Local", "Place", "find_local", "has_tools"]

_CONNECT_SECONDS: Final = 0.5
"""On loopback a closed port refuses at once, except on Windows, where it takes two seconds."""

_PROBE_SECONDS: Final = 2.0
"""What listens answers in milliseconds, unless the machine is busy: then it must not be taken for none."""

_MAX_BYTES: Final = 1024 * 1024
_MODELS_TRIED: Final = 5  # of Ollama's, newest first, until one can chat


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of server, and where it usually is: an address without path."""

    kind: str
    root_url: str


PLACES: Final = (
    Place("ollama", "http://127.0.0.1:11434"),
    Place("llama.cpp", "http://127.0.0.1:8080"),
    Place("lm-studio", "http://127.0.0.1:1234"),
    Place("vllm", "http://127.0.0.1:8000"),
)
"""The usual places, best first."""


@dataclass(frozen=True, slots=True)
class Local:
    """A server that answered. `models` begins with the one to take; `window_tokens` is None where it does not say.

    `has_tools` is False when the server says that the template of that model has none.
    """

    kind: str
    base_url: str
    models: tuple[str, ...]
    has_tools: bool = True
    window_tokens: int | None = None


_Get = Callable[..., Awaitable[Mapping[str, Json]]]


async def find_local(places: Sequence[Place] = PLACES, *, timeout_seconds: float = _PROBE_SECONDS) -> tuple[Local, ...]:
    """The servers with a model among `places`, in that order. Raises MissingExtra without httpx, else nothing.

    All are asked at once; with nothing there it takes half a second at most, with a server that accepts and never
    answers `timeout_seconds`. Only a server that was recognised is asked for its window, with more patience.
    """
    httpx = load_httpx()
    patience = httpx.Timeout(timeout_seconds, connect=min(_CONNECT_SECONDS, timeout_seconds))
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=patience) as client:
        found = await asyncio.gather(*(_found(client, place, timeout_seconds) for place in places))
        return tuple(await asyncio.gather(*(_measured(client, local) for local in found if local and local.models)))


def has_tools(props: Mapping[str, Json]) -> bool:
    """Whether the template of a llama.cpp server has tools, by its `/props`; True where that does not say."""
    caps = props.get("chat_template_caps")
    if isinstance(caps, Mapping) and isinstance(caps.get("supports_tools"), bool):
        return bool(caps["supports_tools"])
    template = props.get("chat_template")
    return "tools" in template if isinstance(template, str) else True


async def _found(client: httpx.AsyncClient, place: Place, seconds: float) -> Local | None:
    async def get(path: str, body: Json = None) -> Mapping[str, Json]:
        return await _answer(client, f"{place.root_url}{path}", body)

    httpx = load_httpx()
    try:
        async with asyncio.timeout(seconds):
            return await _KINDS[place.kind](get, f"{place.root_url}/v1")
    except (TimeoutError, httpx.HTTPError, ValueError, RecursionError):
        return None  # nothing there, or nothing that talks as such a server does


async def _measured(client: httpx.AsyncClient, local: Local) -> Local:
    endpoint = Endpoint(name=local.kind, dialect="openai-chat", base_url=local.base_url, model=local.models[0])
    return replace(local, window_tokens=await ask_window(endpoint, client))


async def _answer(client: httpx.AsyncClient, url: str, body: Json) -> Mapping[str, Json]:
    """The object that a server answers with; an empty one for anything else."""
    content = bytearray()
    async with client.stream("GET" if body is None else "POST", url, json=body) as response:
        if not response.is_success:
            return {}
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > _MAX_BYTES:
                return {}
    value = json.loads(content)
    return value if isinstance(value, dict) else {}


def _entries(value: Json) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _names(value: Json, field: str) -> tuple[str, ...]:
    return tuple(entry[field] for entry in _entries(value) if isinstance(entry.get(field), str) and entry[field])


async def _ollama(get: _Get, base_url: str) -> Local | None:
    if not isinstance((await get("/api/version")).get("version"), str):
        return None
    names = _names((await get("/api/tags")).get("models"), "name")
    for name in names[:_MODELS_TRIED]:
        able = (await get("/api/show", {"model": name})).get("capabilities")
        if not isinstance(able, list):  # versions before 0.6.4 do not say
            return Local("ollama", base_url, names)
        if "completion" in able:
            others = tuple(other for other in names if other != name)
            return Local("ollama", base_url, (name, *others), "tools" in able)
    return None


async def _llama(get: _Get, base_url: str) -> Local | None:
    props = await get("/props")
    settings = props.get("default_generation_settings")
    if not isinstance(settings, Mapping) or not isinstance(settings.get("n_ctx", props.get("n_ctx")), int):
        return None
    return Local("llama.cpp", base_url, _names((await get("/v1/models")).get("data"), "id"), has_tools(props))


async def _lm_studio(get: _Get, base_url: str) -> Local | None:
    listed = _entries((await get("/api/v0/models")).get("data"))
    able = [entry for entry in listed if entry.get("type") in ("llm", "vlm") and isinstance(entry.get("state"), str)]
    loaded_first = sorted(able, key=lambda entry: entry["state"] != "loaded")
    return Local("lm-studio", base_url, _names(loaded_first, "id")) if able else None


async def _vllm(get: _Get, base_url: str) -> Local | None:
    listed = [entry for entry in _entries((await get("/v1/models")).get("data")) if entry.get("owned_by") == "vllm"]
    return Local("vllm", base_url, _names(listed, "id")) if listed else None


_KINDS: Final[Mapping[str, Callable[[_Get, str], Awaitable[Local | None]]]] = {
    "ollama": _ollama,
    "llama.cpp": _llama,
    "lm-studio": _lm_studio,
    "vllm": _vllm,
}
