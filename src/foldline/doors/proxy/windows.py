"""The window of each model that clients ask for: set, learned, asked of the upstream, or in the catalogue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from foldline.catalog.models import lookup
from foldline.conversations.planning import LimitStore
from foldline.doors.proxy.clients import says_who
from foldline.errors import InvalidInput
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import fetch_window
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["Window", "Windows", "asking_client", "endpoint_of", "key_headers", "versioned"]

Source: TypeAlias = Literal["setting", "learned", "asked", "catalogue", "default"]

_Key: TypeAlias = tuple[str, str]
"""A dialect, and a model."""

_AGAIN_SECONDS: Final = 3_600.0
"""A server may be started anew with another window."""

_AGAIN_AFTER_NONE_SECONDS: Final = 60.0
_MOST_MODELS: Final = 1_000
_LONGEST_NAME_CHARS: Final = 500
_VERSION: Final = re.compile(r"/v\d\w*(?:/|$)")

_OF_A_PROXY: Final = "proxy-authorization"
"""For whoever stands between the client and this proxy, not for the upstream."""

_BEARER: Final = "Bearer "
_LARGE: Final = b"context-1m"
_LARGE_TOKENS: Final = 1_000_000
"""Anthropic, "Context windows": the beta that makes the window of some models 1,000,000 tokens."""

_SIGNED_IN: Final = "oauth-"
"""The beta without which Anthropic takes no token of a sign-in (public clients of Claude subscriptions)."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window in tokens, and where it is known from.

    `learned_as` is the name under which the window is learned that a refusal tells: the model, with what else decides
    about its window (the beta that was asked for, what the server told). Of another window than that it says nothing.
    """

    tokens: int
    source: Source
    learned_as: str = field(default="", compare=False)

    @property
    def guessed(self) -> bool:
        """Whether nobody knows it: it refuses nothing, and nothing is folded for it."""
        return self.source == "default"

    @property
    def warning(self) -> str:
        """What is to be told of a window that is guessed; "" for any other."""
        if not self.guessed:
            return ""
        taken = f"the window of this model is not known: {self.tokens:,} tokens are taken (--window)"
        return f"{taken} to judge refusals by, and nothing is folded before one"


class Windows:
    """The windows of one upstream. Asked once for each model, with the key of the client that asks; that is not kept.

    An answer holds for an hour, none for a minute, and that for this client alone: its key may be wrong. After that it
    serves until the upstream, asked again, has answered. `setting` is the window of every model, where the user named
    one. `learned` are those that refusals told, by (address, `Window.learned_as`, client). To be used on one event
    loop; close it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        setting: int | None,
        learned: LimitStore,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        endpoint = endpoint_of(base_url, "openai-chat", "", ())
        self.endpoint, self._is_local = endpoint.root_url, endpoint.is_local
        self._base_url, self._setting, self._learned, self._clock = base_url, setting, learned, clock
        self._asked: dict[_Key, tuple[float, int]] = {}  # until when it holds, and what was told
        self._unsaid: dict[tuple[_Key, bytes], float] = {}  # until when a client need not ask what it was not told
        self._asking: dict[tuple[_Key, bytes], asyncio.Task[int | None]] = {}
        self._client: httpx.AsyncClient | None = None

    async def of(
        self,
        dialect: str,
        model: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        client: bytes = b"",
        anew: bool = False,
    ) -> Window:
        """The window of a model for a request with these headers. Takes 2 s at most, where the model is new.

        `client` is a hash of its credential. With `anew` the upstream is asked again, as after a refusal: it may have
        been started with another window.
        """
        given = tuple(headers)
        large = any(name.lower() == b"anthropic-beta" and _LARGE in value for name, value in given)
        learned_as = f"{model} ({_LARGE.decode()})" if large else model
        if self._setting is not None:
            return Window(self._setting, "setting", learned_as)
        asked = await self._ask(dialect, model, given, client, anew=anew)
        if asked is not None:
            learned_as = f"{learned_as} (told {asked})"
        learned = self._learned.get((self.endpoint, learned_as, client))
        if learned is not None:
            return Window(learned, "learned", learned_as)
        known = lookup(model, local=self._is_local)
        # A server of one's own knows nothing of betas: what it tells is its window.
        if large and (asked is None or not self._is_local) and (asked or known.window_tokens) < _LARGE_TOKENS:
            return Window(_LARGE_TOKENS, "catalogue", learned_as)
        if asked is not None:
            return Window(asked, "asked", learned_as)
        return Window(known.window_tokens, "catalogue" if known.known else "default", learned_as)

    async def aclose(self) -> None:
        """Close the connections that were opened for asking."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _ask(
        self, dialect: str, model: str, headers: Sequence[tuple[bytes, bytes]], client: bytes, *, anew: bool
    ) -> int | None:
        """What the upstream says. A client that asks for the same model meanwhile waits for the same answer."""
        if len(model) > _LONGEST_NAME_CHARS:  # no model's name, and it would be kept
            return None
        key = dialect, model
        known, task = self._asked.get(key), self._asking.get((key, client))
        until = self._unsaid.get((key, client), 0.0) if known is None else known[0]
        if task is None and (anew or self._clock() >= until):
            try:
                endpoint = endpoint_of(self._base_url, dialect, model, headers)
            except InvalidInput:  # a header that httpx could not send
                return None if known is None else known[1]
            task = self._asking[key, client] = asyncio.create_task(self._told(key, client, endpoint))
        if known is not None and not anew:
            return known[1]
        if task is None:
            return None
        return await asyncio.shield(task)  # one client that leaves is no reason not to tell the others

    async def _told(self, key: _Key, client: bytes, endpoint: Endpoint) -> int | None:
        try:
            if self._client is None:
                self._client = asking_client(endpoint)
            found = await fetch_window(endpoint, self._client)
            for kept in (self._asked, self._unsaid):
                if len(kept) >= _MOST_MODELS:
                    kept.clear()
            known = self._asked.get(key)
            if found is not None:
                self._asked[key] = self._clock() + _AGAIN_SECONDS, found
            elif known is not None:  # it told once, and is off, or the key of this client is wrong
                found = known[1]
                self._asked[key] = max(known[0], self._clock() + _AGAIN_AFTER_NONE_SECONDS), found
            else:
                self._unsaid[key, client] = self._clock() + _AGAIN_AFTER_NONE_SECONDS
            return found
        finally:
            del self._asking[key, client]


def endpoint_of(base_url: str, dialect: str, model: str, headers: Iterable[tuple[bytes, bytes]]) -> Endpoint:
    """The upstream as a client with these headers reaches it. Raises InvalidInput."""
    given, api_key = key_headers(headers), ""
    if dialect == "anthropic":
        api_key = given.pop("x-api-key", "")
    elif given.get("authorization", "").startswith(_BEARER):
        api_key = given.pop("authorization").removeprefix(_BEARER)
    return Endpoint(
        name="upstream", dialect=dialect, base_url=versioned(base_url), model=model, api_key=api_key, headers=given
    )


def versioned(base_url: str) -> str:
    """The address with a version, as OpenAI's clients take it and as the proxy's clients ask for it (`/v1/…`)."""
    plain = base_url.rstrip("/")
    return plain if _VERSION.search(plain.partition("://")[2]) else f"{plain}/v1"


def key_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by which a provider knows who asks."""
    found: dict[str, str] = {}
    for name, value in ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers):
        if (says_who(name) and name != _OF_A_PROXY) or name == "anthropic-version":
            found[name] = value
        elif name == "anthropic-beta":
            betas = [beta.strip() for beta in value.split(",") if beta.strip().startswith(_SIGNED_IN)]
            found |= {name: ",".join(betas)} if betas else {}
    return found


def asking_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client that asks the upstream in the name of many: it keeps no cookie of one for the next, follows no redirect
    (the key would go along). Raises MissingExtra."""
    return load_httpx().AsyncClient(  # type: ignore[no-any-return]
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        timeout=endpoint.timeout_seconds,
        # A proxy of the environment does not know the addresses of one's own network.
        trust_env=not endpoint.is_local,
        # Certificates take 0.2 s to load, and nothing is checked against them without TLS.
        verify=endpoint.base_url.startswith("https:"),
    )
