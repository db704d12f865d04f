"""Ask servers for their windows and models, and find the servers on this machine.

A running model takes precedence over its file: a model of 131,072 tokens that is loaded with 4,096 has a window of
4,096. Any program may listen on port 8000 or 8080, so a local server counts only if its answers have the documented
shape. Sources: llama-server's README (`/props`), vLLM and llama-server (`/v1/models`, owned by "vllm"), Ollama's API
reference (`/api/version`, `/api/tags`, `/api/ps`, `/api/show`), LM Studio's REST API (`/api/v0/models`), OpenRouter
(`/models`), Anthropic's API reference (`/v1/models/{id}`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from foldline.codecs import dialect_named
from foldline.messages import Json
from foldline.providers.bodies import load_httpx
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = [
    "DEFAULT_ADDRESSES",
    "LocalServer",
    "ServerAddress",
    "fetch_models",
    "fetch_window",
    "find_local_servers",
    "has_tools",
]

# A server nearby answers within milliseconds, and nobody should wait for one that is off.
_SECONDS: Final = 2.0

_MAX_BYTES: Final = 16 * 1024 * 1024  # OpenRouter lists several hundred models, with descriptions

# The window with which Ollama loads a model by default (its FAQ, "context window size"). It cuts longer prompts
# silently, so a low guess is the safe one.
_OLLAMA_DEFAULT_TOKENS: Final = 4_096

_FIELDS: Final = ("max_model_len", "context_window", "context_length", "max_context_length", "max_input_tokens")

# Hosts whose model lists have no windows.
_SILENT: Final = frozenset({"api.openai.com", "generativelanguage.googleapis.com", "api.deepseek.com"})


async def fetch_window(endpoint: Endpoint, client: httpx.AsyncClient) -> int | None:
    """Return the window in tokens that the server names for the endpoint's model, or None.

    Sends its requests together, so it takes 4 s at most. Raises nothing for a server that is off or answers nonsense.
    """
    if endpoint.host in _SILENT:
        return None
    ask = _JsonClient(client, endpoint.request_headers)
    model = endpoint.model
    models = f"{_versioned(endpoint)}/models"
    # Where a model has a card of its own, the list, which comes in pages, need not be searched.
    card = dialect_named(endpoint.dialect).card_window
    if card and not endpoint.is_local:
        return _tokens(await ask.get(f"{models}/{quote(model.removeprefix('models/'), safe='')}"), *card)
    if not endpoint.is_local:
        return _listed(await ask.get(models), model)
    root = endpoint.root_url
    # llama-server and vLLM answer these two, and would log the other requests as errors.
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


async def fetch_models(endpoint: Endpoint, client: httpx.AsyncClient) -> tuple[str, ...]:
    """Return the names of the models that the server lists; () without an answer. Takes 2 s at most."""
    listed = await _JsonClient(client, endpoint.request_headers).get(f"{_versioned(endpoint)}/models")
    return tuple(str(entry["id"]) for entry in _entries(listed.get("data")) if isinstance(entry.get("id"), str))


def _versioned(endpoint: Endpoint) -> str:
    """Return the address with its version. Anthropic's clients add it to the base URL themselves."""
    row = dialect_named(endpoint.dialect)
    return endpoint.base_url if row.version_in_base else f"{endpoint.base_url}/{row.version}"


class _JsonClient:
    def __init__(self, client: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
        self._client, self._headers = client, dict(headers)

    async def get(self, url: str) -> Mapping[str, Json]:
        return await self._ask("GET", url, None)

    async def post(self, url: str, body: Json) -> Mapping[str, Json]:
        return await self._ask("POST", url, body)

    async def _ask(self, method: str, url: str, body: Json) -> Mapping[str, Json]:
        """Return the JSON object of the answer; {} for any other answer and for none."""
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


def _entries(value: Json) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _entry(value: Json, model: str) -> Mapping[str, Any]:
    """Return the entry of the model by any of its name fields, or the only entry for an unnamed model."""
    entries = _entries(value)
    wanted = {model, f"{model}:latest"}
    for entry in entries:
        if wanted & {entry.get(name) for name in ("id", "model", "name") if isinstance(entry.get(name), str)}:
            return entry
    # Another model's window would be worse than none: folding by it would come too late.
    return entries[0] if len(entries) == 1 and not model else {}


def _listed(listed: Mapping[str, Json], model: str) -> int | None:
    entry = _entry(listed.get("data"), model)
    return _tokens(entry, *_FIELDS) or _tokens(entry.get("top_provider"), "context_length")


def _ollama(shown: Mapping[str, Json]) -> int | None:
    """Return the window with which Ollama would load an idle model: that of its file, or the default."""
    info = shown.get("model_info")
    fields = info if isinstance(info, Mapping) else {}
    most = next((value for name, value in fields.items() if str(name).endswith(".context_length")), None)
    if not isinstance(most, int):
        return None
    parameters = shown.get("parameters")
    found = re.search(r"(?m)^num_ctx\s+(\d{3,9})\b", parameters) if isinstance(parameters, str) else None
    return min(most, int(found[1]) if found else _OLLAMA_DEFAULT_TOKENS)


def _tokens(entry: Json, *names: str) -> int | None:
    """Return the first of these fields with a plausible window."""
    for name in names:
        value = entry.get(name) if isinstance(entry, Mapping) else None
        # Some servers answer 0 for "unknown", or a sentinel such as 2**63 - 1 for "no limit".
        if isinstance(value, int) and not isinstance(value, bool) and 256 <= value <= 100_000_000:
            return value
    return None


# On loopback a closed port refuses immediately, except on Windows, where it takes two seconds.
_CONNECT_SECONDS: Final = 0.5

# A server answers in milliseconds unless the machine is busy, and a busy one must not be missed.
_PROBE_SECONDS: Final = 2.0

_MAX_PROBE_BYTES: Final = 1024 * 1024
_MODELS_TRIED: Final = 5  # models of Ollama, newest first, until one can chat


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A kind of server and its usual address, without a path."""

    kind: str
    root_url: str


DEFAULT_ADDRESSES: Final = (
    ServerAddress("ollama", "http://127.0.0.1:11434"),
    ServerAddress("llama.cpp", "http://127.0.0.1:8080"),
    ServerAddress("lm-studio", "http://127.0.0.1:1234"),
    ServerAddress("vllm", "http://127.0.0.1:8000"),
)
"""The usual addresses, preferred ones first."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered. `models` begins with the preferred one. `window_tokens` is None if it names none.

    `has_tools` is False if the server says that the template of that model has no tools.
    """

    kind: str
    base_url: str
    models: tuple[str, ...]
    has_tools: bool = True
    window_tokens: int | None = None


_Get = Callable[..., Awaitable[Mapping[str, Json]]]


async def find_local_servers(
    addresses: Sequence[ServerAddress] = DEFAULT_ADDRESSES, *, timeout_seconds: float = _PROBE_SECONDS
) -> tuple[LocalServer, ...]:
    """Return the servers among `addresses` that have a model, in that order. Raises only MissingExtra, without httpx.

    Asks all at once. Without any server it takes half a second at most; with one that accepts and never answers,
    `timeout_seconds`. Only a recognised server is asked for its window, with a longer timeout.
    """
    httpx = load_httpx()
    patience = httpx.Timeout(timeout_seconds, connect=min(_CONNECT_SECONDS, timeout_seconds))
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=patience) as client:
        found = await asyncio.gather(*(_identify(client, address, timeout_seconds) for address in addresses))
        return tuple(await asyncio.gather(*(_with_window(client, local) for local in found if local and local.models)))


def has_tools(props: Mapping[str, Json]) -> bool:
    """Whether the template of a llama.cpp server has tools, by its `/props`; True if that does not say."""
    caps = props.get("chat_template_caps")
    if isinstance(caps, Mapping) and isinstance(caps.get("supports_tools"), bool):
        return bool(caps["supports_tools"])
    template = props.get("chat_template")
    return "tools" in template if isinstance(template, str) else True


async def _identify(client: httpx.AsyncClient, address: ServerAddress, seconds: float) -> LocalServer | None:
    async def get(path: str, body: Json = None) -> Mapping[str, Json]:
        return await _answer(client, f"{address.root_url}{path}", body)

    httpx = load_httpx()
    try:
        async with asyncio.timeout(seconds):
            return await _KINDS[address.kind](get, f"{address.root_url}/v1")
    except (TimeoutError, httpx.HTTPError, ValueError, RecursionError):
        return None  # nothing there, or another kind of program


async def _with_window(client: httpx.AsyncClient, local: LocalServer) -> LocalServer:
    endpoint = Endpoint(name=local.kind, dialect="openai-chat", base_url=local.base_url, model=local.models[0])
    return replace(local, window_tokens=await fetch_window(endpoint, client))


async def _answer(client: httpx.AsyncClient, url: str, body: Json) -> Mapping[str, Json]:
    """Return the JSON object of an answer; {} for any other answer. Raises what the connection raises."""
    content = bytearray()
    async with client.stream("GET" if body is None else "POST", url, json=body) as response:
        if not response.is_success:
            return {}
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > _MAX_PROBE_BYTES:
                return {}
    value = json.loads(content)
    return value if isinstance(value, dict) else {}


def _names(value: Json, field: str) -> tuple[str, ...]:
    return tuple(entry[field] for entry in _entries(value) if isinstance(entry.get(field), str) and entry[field])


async def _find_ollama(get: _Get, base_url: str) -> LocalServer | None:
    if not isinstance((await get("/api/version")).get("version"), str):
        return None
    names = _names((await get("/api/tags")).get("models"), "name")
    for name in names[:_MODELS_TRIED]:
        able = (await get("/api/show", {"model": name})).get("capabilities")
        if not isinstance(able, list):  # versions before 0.6.4 do not say
            return LocalServer("ollama", base_url, names)
        if "completion" in able:
            others = tuple(other for other in names if other != name)
            return LocalServer("ollama", base_url, (name, *others), "tools" in able)
    return None


async def _find_llama(get: _Get, base_url: str) -> LocalServer | None:
    props = await get("/props")
    settings = props.get("default_generation_settings")
    if not isinstance(settings, Mapping) or not isinstance(settings.get("n_ctx", props.get("n_ctx")), int):
        return None
    return LocalServer("llama.cpp", base_url, _names((await get("/v1/models")).get("data"), "id"), has_tools(props))


async def _find_lm_studio(get: _Get, base_url: str) -> LocalServer | None:
    listed = _entries((await get("/api/v0/models")).get("data"))
    # It lists embedding models too. A loaded model answers at once, any other is loaded first, which takes minutes.
    able = [entry for entry in listed if entry.get("type") in ("llm", "vlm") and isinstance(entry.get("state"), str)]
    loaded_first = sorted(able, key=lambda entry: entry["state"] != "loaded")
    return LocalServer("lm-studio", base_url, _names(loaded_first, "id")) if able else None


async def _find_vllm(get: _Get, base_url: str) -> LocalServer | None:
    # Any compatible server answers here, and a proxy too; only vLLM calls itself the owner of its models.
    listed = [entry for entry in _entries((await get("/v1/models")).get("data")) if entry.get("owned_by") == "vllm"]
    return LocalServer("vllm", base_url, _names(listed, "id")) if listed else None


_KINDS: Final[Mapping[str, Callable[[_Get, str], Awaitable[LocalServer | None]]]] = {
    "ollama": _find_ollama,
    "llama.cpp": _find_llama,
    "lm-studio": _find_lm_studio,
    "vllm": _find_vllm,
}
