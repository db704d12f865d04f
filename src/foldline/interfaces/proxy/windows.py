"""The window of each model that clients ask for: set, learned, asked of the upstream, or in the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from foldline.catalog.models import lookup
from foldline.errors import InvalidInput
from foldline.providers.asked import ask_window
from foldline.providers.bodies import load_httpx
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["Window", "Windows", "endpoint_of", "key_headers"]

Source: TypeAlias = Literal["setting", "learned", "asked", "catalogue", "default"]

_AGAIN_SECONDS: Final = 3_600.0
"""A server may be started anew with another window."""

_AGAIN_AFTER_NONE_SECONDS: Final = 60.0
_MOST_MODELS: Final = 1_000

_KEY_HEADERS: Final = frozenset(
    "authorization x-api-key api-key x-goog-api-key openai-organization openai-project anthropic-version".split()
)
"""What a provider wants to know of who asks. Sources: the API references of OpenAI, Anthropic, Azure and Google."""

_LARGE: Final = b"context-1m"
_LARGE_TOKENS: Final = 1_000_000
"""Anthropic, "Context windows": the beta that makes the window of some models 1,000,000 tokens."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window in tokens, and where it is known from."""

    tokens: int
    source: Source


class Windows:
    """The windows of one upstream. Asked once for each model, with the key of the client that asks; that is not kept.

    `setting` is the window of every model, where the user named one. `learned` are those that refusals told, by
    (address, model). To be used on one event loop; close it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        setting: int | None,
        learned: MutableMapping[tuple[str, str], int],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.endpoint = endpoint_of(base_url, "openai-chat", "", ()).root_url
        self._base_url, self._setting, self._learned, self._clock = base_url, setting, learned, clock
        self._asked: dict[tuple[str, str], tuple[float, int | None]] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[int | None]] = {}
        self._client: httpx.AsyncClient | None = None

    async def of(self, dialect: str, model: str, headers: Iterable[tuple[bytes, bytes]]) -> Window:
        """The window of a model for a request with these headers. Takes 2 s at most, when it has to be asked for."""
        if self._setting is not None:
            return Window(self._setting, "setting")
        learned = self._learned.get((self.endpoint, model))
        if learned is not None:
            return Window(learned, "learned")
        asked = await self._ask(dialect, model, headers)
        known = lookup(model)
        large = any(name == b"anthropic-beta" and _LARGE in value for name, value in headers)
        if large and (asked or known.window_tokens) < _LARGE_TOKENS:
            return Window(_LARGE_TOKENS, "catalogue")
        if asked is not None:
            return Window(asked, "asked")
        return Window(known.window_tokens, "catalogue" if known.known else "default")

    async def aclose(self) -> None:
        """Close the connections that were opened for asking."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, dialect: str, model: str, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
        """What the upstream says; who asks for the same model meanwhile waits for the same answer."""
        key = dialect, model
        known = self._asked.get(key)
        if known is not None:
            wait_seconds = _AGAIN_AFTER_NONE_SECONDS if known[1] is None else _AGAIN_SECONDS
            if self._clock() - known[0] < wait_seconds:
                return known[1]
        task = self._asking.get(key)
        if task is None:
            try:
                endpoint = endpoint_of(self._base_url, dialect, model, headers)
            except InvalidInput:  # a header that httpx could not send
                return None
            task = self._asking[key] = asyncio.create_task(self._told(key, endpoint))
        return await asyncio.shield(task)  # one client that leaves is no reason not to tell the others

    async def _told(self, key: tuple[str, str], endpoint: Endpoint) -> int | None:
        try:
            if self._client is None:
                self._client = load_httpx().AsyncClient(trust_env=not endpoint.is_local, follow_redirects=False)
            found = await ask_window(endpoint, self._client)
            if len(self._asked) >= _MOST_MODELS:
                self._asked.clear()
            self._asked[key] = self._clock(), found
            return found
        finally:
            del self._asking[key]


def endpoint_of(base_url: str, dialect: str, model: str, headers: Iterable[tuple[bytes, bytes]]) -> Endpoint:
    """The upstream as a client with these headers reaches it. Raises InvalidInput."""
    return Endpoint(
        name="upstream", dialect=dialect, base_url=versioned(base_url), model=model, headers=key_headers(headers)
    )


def versioned(base_url: str) -> str:
    """The address with a version, as OpenAI's clients take it: one without a path has none of its own."""
    plain = base_url.rstrip("/")
    return plain if plain.count("/") > 2 else f"{plain}/v1"


def key_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by which a provider knows who asks."""
    named = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return {name: value for name, value in named if name in _KEY_HEADERS}
