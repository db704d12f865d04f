"""Admission: token, hosts, origins and request rates; and the security headers of every response."""

from __future__ import annotations

import hmac
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.doors.http.responses import Problem, problem_response

__all__ = ["SAFE_HEADERS", "Guard", "GuardRules", "Rates"]

WRONG_TOKENS: Final = 20
"""Wrong tokens a minute from one address. No number of guesses finds a token, but they would flood a log."""

# Some megabytes. Somebody with more addresses (IPv6 gives out billions) only displaces the oldest of them.
_MOST_ADDRESSES: Final = 10_000
# Scripts and styles from this server only, none inline: a text of a model that became HTML could not run anything.
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS: Final = (
    (b"content-security-policy", _CSP.encode()),
    # No other site may load a response into its own process, where Spectre could read it: CORS does not prevent that.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),  # the id of a session is in the address
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),  # for browsers that do not know frame-ancestors
)
"""Security headers of every response, for pages above all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """The rules of admission.

    `token` is what a client must present (None: nothing). `hosts` are the names that requests may address, None for
    any: on loopback they shut out foreign pages whose own name resolves to this machine (DNS rebinding). `rate` is the
    number of requests a minute from one address, 0 for any.
    """

    token: str | None = None
    hosts: frozenset[str] | None = None
    rate: int = 0


class Rates:
    """A rate limit per key, by one token bucket each. Memory is bounded: the keys used longest ago are dropped."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._per_second, self._clock = per_minute, per_minute / 60, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, key: str, *, take: bool = True) -> float:
        """0 if the key may go on now, which `take` counts; else the seconds until it may."""
        if not self._most:
            return 0.0
        now = self._clock()
        left, since = self._left.get(key, (float(self._most), now))
        # Refilled by elapsed time at each use: no timer, and no state for addresses that stay away.
        left = min(float(self._most), left + (now - since) * self._per_second)
        allowed = left >= 1
        self._left[key] = left - 1 if allowed and take else left, now
        self._left.move_to_end(key)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second

    def __len__(self) -> int:
        return len(self._left)


class Guard:
    """Admits what the rules allow. `free` paths, and those under `free_under`, need no token."""

    def __init__(
        self,
        app: ASGIApp,
        rules: GuardRules,
        *,
        free: frozenset[str],
        free_under: str,
        on_refused: Callable[[int], None],
    ) -> None:
        self._app, self._rules = app, rules
        self._free, self._free_under, self._on_refused = free, free_under, on_refused
        self._token = None if rules.token is None else rules.token.encode()
        self._rates, self._wrong = Rates(rules.rate), Rates(WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["foldline.began"] = perf_counter()

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                own = [*message["headers"], *SAFE_HEADERS]
                # Sessions are private: no cache on the way may keep a response that does not allow it.
                message["headers"] = own if b"cache-control" in names else [*own, (b"cache-control", b"no-store")]
            await send(message)

        # Foreign pages first: they must not learn whether a token is needed.
        headers, address = Headers(scope=scope), (scope.get("client") or ("", 0))[0]
        problem = self._foreign_problem(scope, headers) or self._token_problem(headers, scope["path"], address)
        if problem is None and scope["path"] != "/health":  # a health check that is refused restarts the process
            wait_seconds = self._rates.wait_seconds(address)
            problem = _too_many("this address asks too often", wait_seconds) if wait_seconds else None
        if problem is None:
            await self._app(scope, receive, marked)
            return
        self._on_refused(problem.status)
        await problem_response(problem)(scope, receive, marked)

    def _foreign_problem(self, scope: Scope, headers: Headers) -> Problem | None:
        if len(headers.getlist("host")) > 1:  # servers and proxies differ in which one counts
            return Problem(name="bad-request", detail="there are several of it", field="Host")
        # Without a list of names the server is public, and needs a token (`access.names_of`).
        hosts = self._rules.hosts
        if hosts is None:
            return None
        host = headers.get("host", "").lower()
        if host_name(host) not in hosts and not may_omit_host(scope, "host" in headers):
            detail = f"this server is not {host[:100]!r} (--allow-host adds a name)"
            return Problem(name="foreign", detail=detail, field="Host")
        origin = headers.get("origin")
        # Compared without the scheme: behind a reverse proxy the page is https, and this server sees http.
        if origin is not None and origin.lower().partition("://")[2] != host:
            return Problem(name="foreign", detail="a page of another origin may ask nothing", field="Origin")
        # Browsers that send no Origin with GET send this. Links to the page itself may come from anywhere.
        elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if elsewhere and scope["path"].startswith("/v1/"):
            return Problem(name="foreign", detail="a page of another site may ask nothing", field="Sec-Fetch-Site")
        return None

    def _token_problem(self, headers: Headers, path: str, address: str) -> Problem | None:
        if self._token is None or path in self._free or path.startswith(self._free_under):
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # In constant time: a comparison that stops at the first difference would reveal the token byte by byte.
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token):
            return None  # also after wrong ones: behind a reverse proxy all clients share one address
        # A request without any token is no guess, and is not counted.
        wait_seconds = self._wrong.wait_seconds(address, take=bool(token))
        if wait_seconds:
            return _too_many("too many wrong tokens came from this address", wait_seconds)
        detail = "this is not the token" if token else "send the header Authorization: Bearer TOKEN"
        return Problem(
            name="unauthorized", detail=detail, field="Authorization", headers={"WWW-Authenticate": "Bearer"}
        )


# A name or an address, and a port (RFC 9110, section 7.2; RFC 3986, section 3.2).
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+(?:%[0-9a-z.-]+)?)\]|([^\[\]:@/?#\s]+))(?::\d*)?", re.IGNORECASE)


def host_name(host: str) -> str:
    """The name in a Host header, without its port; "" for a malformed one, such as "localhost@example.org"."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2].rstrip(".")


def may_omit_host(scope: Scope, has_host: bool) -> bool:
    """Whether a request may lack Host: HTTP/1.0 has none (RFC 9112, section 3.2), and no browser speaks it."""
    return not has_host and scope.get("http_version") == "1.0"


def _too_many(detail: str, wait_seconds: float) -> Problem:
    return Problem(name="rate", detail=detail, headers={"Retry-After": str(math.ceil(wait_seconds))})
