"""Where the conversation of a client is: a running proxy, or a store."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from foldline.agent.tools.base import ToolOutcome
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.recall import ReadableConversation, call_tool, stored_conversation
from foldline.doors.proxy.own_tools import OWNER_HEADER, ROOT
from foldline.doors.proxy.request_head import client_of, session_name
from foldline.errors import InvalidInput
from foldline.providers.bodies import load_httpx
from foldline.store.addresses import open_store

if TYPE_CHECKING:
    import httpx

__all__ = [
    "LINK",
    "ConversationSource",
    "ProxySource",
    "RunLink",
    "StoreSource",
    "key_headers_of",
    "read_link",
    "source_of_link",
]

LINK: Final = "FOLDLINE_LINK"
"""The variable that `foldline wrap` sets for its client: the file with the addresses of its proxies."""

Headers: TypeAlias = Mapping[str, str]

# A search through a long conversation takes seconds; a proxy that answers nothing at all is no longer there.
_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0

# The variables of clients' keys, and the header in which each is sent. Sources: the providers' own libraries.
_KEYS: Final[Mapping[str, str]] = {
    "ANTHROPIC_API_KEY": "x-api-key",
    "ANTHROPIC_AUTH_TOKEN": "authorization",
    "OPENAI_API_KEY": "authorization",
    "CODEX_API_KEY": "authorization",
    "GEMINI_API_KEY": "x-goog-api-key",
    "GOOGLE_API_KEY": "x-goog-api-key",
}
_SESSION: Final = "x-foldline-session"
_TOKEN: Final = "x-foldline-token"


class ConversationSource(Protocol):
    """A conversation that tools can be called on."""

    async def call(self, name: str, arguments: str) -> ToolOutcome:
        """Run a tool with its arguments as JSON. An error is an outcome that the model can act on."""


def key_headers_of(environ: Mapping[str, str], variable: str | None = None) -> list[Headers]:
    """The headers of each key in the environment, as a client sends it; the last are those of a client without one.

    With `variable` the key in it is tried in each header. Raises InvalidInput if it is not set.
    """
    if variable is not None:
        key = environ.get(variable, "").strip()
        if not key:
            raise InvalidInput("is not set", place=variable[:80])
        return [_header(name, key) for name in dict.fromkeys(_KEYS.values())]
    found = [_header(name, key) for at, name in _KEYS.items() if (key := environ.get(at, "").strip())]
    return [*found, {}]


def _header(name: str, key: str) -> Headers:
    return {name: f"Bearer {key}" if name == "authorization" else key}


# --- a running proxy --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunLink:
    """The proxies of one run of `foldline wrap`, and the secret of their owner."""

    urls: tuple[str, ...]
    owner: str = field(repr=False)

    def text(self) -> str:
        """The link as the text of a file."""
        return json.dumps({"urls": self.urls, "owner": self.owner})


def read_link(path: Path) -> RunLink:
    """Read the link of a run. Raises InvalidInput for a file that is none, and OSError."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return RunLink(tuple(map(str, found["urls"])), str(found["owner"]))
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("is no link of `foldline wrap`", place=str(path)) from None


@dataclass(slots=True)
class ProxySource:
    """The conversation of a client in the proxies at `urls`: the one that was used last, or that `session` names.

    `credentials` are tried in turn; each reaches the conversations that were held under it.
    """

    urls: Sequence[str]
    credentials: Sequence[Headers]
    token: str | None = None
    session: str | None = None

    async def call(self, name: str, arguments: str) -> ToolOutcome:
        """Run a tool at the proxy."""
        httpx = load_httpx()
        timeout = httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS)
        # No settings of the environment: an HTTP proxy for the outside must not get what is for this machine.
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False) as client:
            try:
                url, headers = await self._newest(client)
                found = await _answer(client, "POST", f"{url}{ROOT}/{name}", headers, arguments)
            except InvalidInput as error:
                return ToolOutcome(error.reason, is_error=True)
        return ToolOutcome(str(found.get("text", "")), is_error=bool(found.get("is_error")))

    async def _newest(self, client: httpx.AsyncClient) -> tuple[str, Headers]:
        """The proxy and the headers of the newest conversation. Raises InvalidInput, which says why there is none."""
        best: tuple[str, Headers] | None = None
        newest, refusal = math.inf, InvalidInput("there is no proxy")
        for url in self.urls:
            for credential in self.credentials:
                headers = {**credential, **self._own_headers()}
                try:
                    found = await _answer(client, "GET", f"{url}{ROOT}", headers)
                except InvalidInput as error:
                    refusal = error
                    continue
                idle = found.get("idle_seconds")
                if not isinstance(idle, int | float):  # some servers answer any path with an object
                    refusal = InvalidInput(f"there is no proxy of Foldline at {url}")
                elif idle < newest:
                    best, newest = (url, headers), idle
        if best is None:
            raise refusal
        return best

    def _own_headers(self) -> dict[str, str]:
        own = {_TOKEN: self.token, _SESSION: self.session}
        return {name: value for name, value in own.items() if value}


async def _answer(
    client: httpx.AsyncClient, method: str, url: str, headers: Headers, content: str = ""
) -> dict[str, Any]:
    """What the proxy answers. Raises InvalidInput with its reason if it refuses, or is not there."""
    httpx = load_httpx()
    root = url.partition(ROOT)[0]
    try:
        answer = await client.request(method, url, content=content.encode("utf-8", "replace"), headers=headers)
        found = answer.json()
    except (httpx.HTTPError, UnicodeEncodeError) as error:  # a key may be no header's value
        raise InvalidInput(f"the proxy at {root} does not answer ({type(error).__name__})") from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"there is no proxy of Foldline at {root}")
    if answer.status_code != 200:
        raise InvalidInput(str(found.get("detail") or found.get("error") or f"status {answer.status_code}"))
    return found


def source_of_link(link: RunLink, session: str | None = None) -> ProxySource:
    """The conversation of the client that `foldline wrap` runs."""
    return ProxySource(link.urls, [{OWNER_HEADER: link.owner}], session=session)


# --- a store ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoreSource:
    """The stored conversation that a client has named `session`, for reading. Its key is needed to find it."""

    place: str
    session: str
    credentials: Sequence[Headers]

    async def call(self, name: str, arguments: str) -> ToolOutcome:
        """Run a tool on what is stored now: a proxy may write to it meanwhile."""
        try:
            found = await asyncio.to_thread(self._read)
        except (OSError, InvalidInput) as error:
            return ToolOutcome(f"the store cannot be read: {error}", is_error=True)
        if found is None:
            return ToolOutcome(f"the store has no conversation of this key named {self.session!r}", is_error=True)
        return await call_tool(found, name, arguments)

    def _read(self) -> ReadableConversation | None:
        with closing(ConversationStore(partial(open_store, self.place))) as conversations:
            for credential in self.credentials:
                headers = [(name.encode(), value.encode()) for name, value in credential.items()]
                client = client_of(headers)
                named = session_name([*headers, (_SESSION.encode(), self.session.encode())], client)
                if (session := conversations.session_named(named)) is not None:
                    return stored_conversation(conversations.store.read(session))
        return None
