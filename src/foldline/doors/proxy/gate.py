"""Admission to the proxy: host names, origins and the token, which is removed from requests here."""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from foldline.doors.http.guard import WRONG_TOKENS, Rates, host_name, may_omit_host
from foldline.doors.proxy.error_responses import ErrorResponse, error_response
from foldline.doors.proxy.page import FREE_PATHS, HEALTH
from foldline.doors.proxy.request_head import dialect_of

__all__ = ["TOKEN_HEADER", "Gate", "GateRules"]

TOKEN_HEADER: Final = b"x-foldline-token"
_TOKEN_PREFIX: Final = b"/~"  # of a token in a path: /~TOKEN/v1/…

_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)
_NO_SOCKETS: Final = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"close"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """The rules of admission.

    `token` is what a client must present (None: nothing). `hosts` are the names that requests may address, None for
    any: on loopback they shut out foreign pages whose own name resolves to this machine (DNS rebinding).
    """

    token: str | None = None
    hosts: frozenset[str] | None = None


class Gate:
    """Admits what the rules allow, without the token. Responses pass unchanged."""

    def __init__(self, app: ASGIApp, rules: GateRules) -> None:
        self._app, self._hosts = app, rules.hosts
        self._token = None if rules.token is None else rules.token.encode()
        self._wrong = Rates(WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        token = headers.get(TOKEN_HEADER, b"")
        # The token is the proxy's own: the upstream must not see it.
        if token:
            scope = {**scope, "headers": [header for header in scope["headers"] if header[0] != TOKEN_HEADER]}
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        # A loop: a client that puts the token into a base URL that has it already should still get through.
        while raw_path.startswith(_TOKEN_PREFIX):
            quoted, slash, rest = raw_path[len(_TOKEN_PREFIX) :].partition(b"/")
            token = token or unquote_to_bytes(quoted)
            raw_path = slash + rest or b"/"
            scope = {**scope, "raw_path": raw_path, "path": unquote(raw_path.decode("latin-1"))}
        refusal = (
            self._foreign_refusal(scope, headers)
            or self._token_refusal(scope, headers, token)
            or _socket_refusal(scope, headers)
        )
        if refusal is None:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": refusal.status, "headers": list(refusal.headers)})
        await send({"type": "http.response.body", "body": refusal.body})

    def _foreign_refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorResponse | None:
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # servers differ in which one counts
            return _refused(scope, 400, "there are several headers Host")
        if self._hosts is None or scope["path"] == HEALTH:  # a health check that is refused restarts the process
            return None
        # A page of any site can send requests to a server on this machine, and read the answers after DNS rebinding.
        # Host, Origin and Sec-Fetch-Site are what a browser does not let it forge.
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host_name(host) not in self._hosts and not may_omit_host(scope, b"host" in headers):
            return _refused(scope, 403, f"this proxy is not {host[:100]!r} (--allow-host adds a name)")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            return _refused(scope, 403, "a page of another origin may ask nothing")
        if headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"} and not _is_own(scope["path"]):
            return _refused(scope, 403, "a page of another site may ask nothing")
        return None

    def _token_refusal(self, scope: Scope, headers: dict[bytes, bytes], token: bytes) -> ErrorResponse | None:
        if self._token is None or (scope["path"] in FREE_PATHS and scope["method"] in {"GET", "HEAD"}):
            return None
        if not token and _is_own(scope["path"]):
            scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
            token = credentials.strip() if scheme.lower() == b"bearer" else b""
        # In constant time: a comparison that stops at the first difference would reveal the token byte by byte.
        if hmac.compare_digest(token, self._token):
            return None  # also after wrong ones: behind a load balancer all clients share one address
        address = (scope.get("client") or ("", 0))[0]
        wait_seconds = self._wrong.wait_seconds(address, take=bool(token))
        if wait_seconds:
            after = ((b"retry-after", b"%d" % math.ceil(wait_seconds)),)
            return _refused(scope, 429, "too many wrong tokens came from this address", after)
        ways = "send the header X-Foldline-Token, or put /~TOKEN before /v1 in the base URL"
        detail = "this is not the token of the proxy" if token else f"the proxy wants its token: {ways}"
        return _refused(scope, 401, detail, _CHALLENGE)


def _is_own(path: str) -> bool:
    """Whether the proxy itself answers at a path. Elsewhere Authorization holds the client's key for the upstream."""
    return path in {"/foldline", "/metrics"} or path.startswith("/foldline/")


def _socket_refusal(scope: Scope, headers: dict[bytes, bytes]) -> ErrorResponse | None:
    # Refused in words: some clients try a websocket first, and fall back to HTTP after a refusal (RFC 9110, 15.5.22).
    if headers.get(b"upgrade", b"").strip().lower() != b"websocket":
        return None
    return _refused(scope, 426, "the proxy speaks HTTP, not websockets", _NO_SOCKETS)


def _refused(scope: Scope, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> ErrorResponse:
    dialect, _ = dialect_of(scope["method"], scope["path"])
    return error_response(dialect, status, message, headers=headers)
