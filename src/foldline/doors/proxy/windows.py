"""The window of each model that clients use: set, learned, reported by the upstream, or from the catalogue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from foldline.catalog.models import lookup
from foldline.codecs import dialect_named
from foldline.conversations.request_plan import LimitStore
from foldline.doors.proxy.request_head import is_credential
from foldline.errors import InvalidInput
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import fetch_window
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

__all__ = ["ModelWindow", "ModelWindows", "endpoint_of", "key_headers", "upstream_client", "url_at", "versioned"]

Source: TypeAlias = Literal["setting", "learned", "asked", "catalogue", "default"]

_Key: TypeAlias = tuple[str, str]  # dialect and model

# A server may be restarted with another window, so its report expires.
_REFRESH_SECONDS: Final = 3_600.0
# A key without access to the list of models may gain it, but each failed question delays a request by up to 2 s.
_RETRY_SECONDS: Final = 60.0
_MAX_MODELS: Final = 1_000
_MAX_NAME_CHARS: Final = 500
_VERSION: Final = re.compile(r"/v\d\w*(?:/|$)")

# For an HTTP proxy between the client and this one, not for the upstream.
_PROXY_CREDENTIAL: Final = "proxy-authorization"

_BEARER: Final = "Bearer "
# Anthropic, "Context windows": the beta that makes the window of some models 1,000,000 tokens.
_LARGE: Final = b"context-1m"
_LARGE_TOKENS: Final = 1_000_000

# The beta without which Anthropic accepts no token of a sign-in (public clients of Claude subscriptions).
_SIGN_IN: Final = "oauth-"


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A window in tokens, and its source.

    `learned_as` is the name under which a window that a refusal states is stored: the model, with all that its window
    depends on (the beta in the request, the server's report). It holds for requests with the same name only.
    """

    tokens: int
    source: Source
    learned_as: str = field(default="", compare=False)

    @property
    def guessed(self) -> bool:
        """Whether no source knows the window. A guess causes no refusal and no fold."""
        return self.source == "default"

    @property
    def warning(self) -> str:
        """The warning about a guessed window; "" for any other."""
        if not self.guessed:
            return ""
        guess = f"the window of this model is not known: {self.tokens:,} tokens are taken (--window)"
        return f"{guess} to judge refusals by, and nothing is folded before one"


class ModelWindows:
    """The windows of one upstream, which is queried once for each model, with the client's key. The key is not stored.

    An answer is fresh for an hour, and a missing one for a minute, for this client only: its key may be wrong. A stale
    answer serves until the upstream has answered again. `setting` is the user's window for every model. `learned` are
    the windows that refusals stated, by (address, `ModelWindow.learned_as`, client). For one event loop; close it.
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
        self._reported: dict[_Key, tuple[float, int]] = {}  # until when it is fresh, and the window
        self._unreported: dict[tuple[_Key, bytes], float] = {}  # until when not to ask again for a client
        self._pending: dict[tuple[_Key, bytes], asyncio.Task[int | None]] = {}
        self._client: httpx.AsyncClient | None = None

    async def of(
        self,
        dialect: str,
        model: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        client: bytes = b"",
        anew: bool = False,
    ) -> ModelWindow:
        """The window of a model for a request with these headers. Takes up to 2 s for a new model.

        `client` is a hash of the credential. With `anew` the upstream is queried again, as after a refusal: it may have
        been restarted with another window.
        """
        headers = tuple(headers)
        large = any(name.lower() == b"anthropic-beta" and _LARGE in value for name, value in headers)
        learned_as = f"{model} ({_LARGE.decode()})" if large else model
        # The user's word comes first, even against the upstream's.
        if self._setting is not None:
            return ModelWindow(self._setting, "setting", learned_as)
        reported = await self._ask(dialect, model, headers, client, anew=anew)
        if reported is not None:
            # The report is part of the name: a server that was restarted with another window is not judged by an old
            # refusal.
            learned_as = f"{learned_as} (told {reported})"
        learned = self._learned.get((self.endpoint, learned_as, client))
        if learned is not None:
            return ModelWindow(learned, "learned", learned_as)
        entry = lookup(model, local=self._is_local)
        # A local server ignores betas: what it reports is its window.
        if large and (reported is None or not self._is_local) and (reported or entry.window_tokens) < _LARGE_TOKENS:
            return ModelWindow(_LARGE_TOKENS, "catalogue", learned_as)
        if reported is not None:
            return ModelWindow(reported, "asked", learned_as)
        return ModelWindow(entry.window_tokens, "catalogue" if entry.known else "default", learned_as)

    async def aclose(self) -> None:
        """Cancel pending questions and close the connections."""
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _ask(
        self, dialect: str, model: str, headers: Sequence[tuple[bytes, bytes]], client: bytes, *, anew: bool
    ) -> int | None:
        """The upstream's report. Requests of one client for the same model wait for the same answer."""
        if len(model) > _MAX_NAME_CHARS:  # no model's name, and it would stay in memory
            return None
        key = dialect, model
        report, task = self._reported.get(key), self._pending.get((key, client))
        until = self._unreported.get((key, client), 0.0) if report is None else report[0]
        if task is None and (anew or self._clock() >= until):
            try:
                endpoint = endpoint_of(self._base_url, dialect, model, headers)
            except InvalidInput:  # a header that httpx could not send
                return None if report is None else report[1]
            task = self._pending[key, client] = asyncio.create_task(self._fetch(key, client, endpoint))
        # A stale report serves this request; the answer to the question serves the next ones.
        if report is not None and not anew:
            return report[1]
        if task is None:
            return None
        return await asyncio.shield(task)  # shielded: other requests wait for the same answer

    async def _fetch(self, key: _Key, client: bytes, endpoint: Endpoint) -> int | None:
        try:
            if self._client is None:
                self._client = upstream_client(endpoint)
            found = await fetch_window(endpoint, self._client)
            # Cleared as a whole: no order to keep, and a thousand models in use are no usual case.
            for table in (self._reported, self._unreported):
                if len(table) >= _MAX_MODELS:
                    table.clear()
            report = self._reported.get(key)
            if found is not None:
                self._reported[key] = self._clock() + _REFRESH_SECONDS, found
            elif report is not None:  # the server is down, or the key of this client is wrong
                found = report[1]
                self._reported[key] = max(report[0], self._clock() + _RETRY_SECONDS), found
            else:
                self._unreported[key, client] = self._clock() + _RETRY_SECONDS
            return found
        finally:
            del self._pending[key, client]


def endpoint_of(base_url: str, dialect: str, model: str, headers: Iterable[tuple[bytes, bytes]]) -> Endpoint:
    """The upstream as a client with these headers reaches it. Raises InvalidInput."""
    own, api_key = key_headers(headers), ""
    name, prefix = dialect_named(dialect).key_header
    if not prefix:
        api_key = own.pop(name, "")
    # Another scheme (Basic, a signature) is no key that a provider class could send; it stays a header.
    elif own.get("authorization", "").startswith(_BEARER):
        api_key = own.pop("authorization").removeprefix(_BEARER)
    return Endpoint(
        name="upstream",
        dialect=dialect,
        base_url=versioned(base_url, dialect),
        model=model,
        api_key=api_key,
        headers=own,
    )


def versioned(base_url: str, dialect: str = "openai-chat") -> str:
    """The address with a version, as OpenAI's clients expect it and the proxy's clients use it (`/v1/…`)."""
    plain = base_url.rstrip("/")
    return plain if _VERSION.search(plain.partition("://")[2]) else f"{plain}/{dialect_named(dialect).version}"


def url_at(base_url: str, target: str) -> str:
    """The upstream's URL for a path and query. A version that both have appears once."""
    parts = urlsplit(base_url.strip())
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    versioned = base.endswith("/v1") and (target.startswith("/v1/") or target == "/v1")
    return base + (target[3:] if versioned else target)


def key_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that identify a client to its provider."""
    found: dict[str, str] = {}
    for name, value in ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers):
        if (is_credential(name) and name != _PROXY_CREDENTIAL) or name == "anthropic-version":
            found[name] = value
        elif name == "anthropic-beta":
            betas = [beta.strip() for beta in value.split(",") if beta.strip().startswith(_SIGN_IN)]
            found |= {name: ",".join(betas)} if betas else {}
    return found


def upstream_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """An HTTP client that many clients of the proxy share. Raises MissingExtra.

    It stores no cookies, which would pass from one client to the next, and follows no redirects, which would carry the
    key to another host.
    """
    return load_httpx().AsyncClient(  # type: ignore[no-any-return]
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        timeout=endpoint.timeout_seconds,
        # The environment's proxy does not know the addresses of a local network.
        trust_env=not endpoint.is_local,
        # Certificates take 0.2 s to load, for nothing without TLS.
        verify=endpoint.base_url.startswith("https:"),
    )
