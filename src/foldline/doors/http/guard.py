"""Who may come in: the token, hosts and origins that are ours, and how often; and what browsers are told."""

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

from foldline.doors.http.problems import Problem, answer

__all__ = ["SAFE_HEADERS", "Guard", "GuardRules", "Rates"]

WRONG_TOKENS: Final = 20
"""Wrong tokens a minute from one address: a token cannot be guessed in any number, but a log can be flooded."""

_MOST_ADDRESSES: Final = 10_000
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS: Final = (
    (b"content-security-policy", _CSP.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""What goes with every answer of ours, pages above all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """Who may come in.

    `token` is what a client must show (None: nothing). `hosts` are the names under which the server may be asked for,
    None for any: on loopback they keep pages of other people, whose names may lead here too (DNS rebinding), from
    asking. `rate` are requests a minute from one address, 0 for any number.
    """

    token: str | None = None
    hosts: frozenset[str] | None = None
    rate: int = 0


class Rates:
    """How often something may happen per minute, for each of many keys (a token bucket each). Memory is bounded."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._per_second, self._clock = per_minute, per_minute / 60, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, key: str, *, take: bool = True) -> float:
        """0 when it may happen now, which is counted if `take`; else the seconds until it may."""
        if not self._most:
            return 0.0
        now = self._clock()
        left, since = self._left.get(key, (float(self._most), now))
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
    """Lets through what the rules allow. `free` paths, and those under `free_under`, need no token."""

    def __init__(
        self, app: ASGIApp, rules: GuardRules, *, free: frozenset[str], free_under: str, refused: Callable[[int], None]
    ) -> None:
        self._app, self._rules = app, rules
        self._free, self._free_under, self._refused = free, free_under, refused
        self._token = None if rules.token is None else rules.token.encode()
        self._rates, self._wrong = Rates(rules.rate), Rates(WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["foldline.began"] = perf_counter()

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                own = [*message["headers"], *SAFE_HEADERS]
                message["headers"] = own if b"cache-control" in given else [*own, (b"cache-control", b"no-store")]
            await send(message)

        headers, address = Headers(scope=scope), (scope.get("client") or ("", 0))[0]
        problem = self._foreign(scope, headers) or self._unknown(headers, scope["path"], address)
        if problem is None and scope["path"] != "/health":  # whoever looks whether it lives must hear of it
            wait_seconds = self._rates.wait_seconds(address)
            problem = _too_many("this address asks too often", wait_seconds) if wait_seconds else None
        if problem is None:
            await self._app(scope, receive, marked)
            return
        self._refused(problem.status)
        await answer(problem)(scope, receive, marked)

    def _foreign(self, scope: Scope, headers: Headers) -> Problem | None:
        if len(headers.getlist("host")) > 1:
            return Problem(name="bad-request", detail="there are several of it", field="Host")
        hosts = self._rules.hosts
        if hosts is None:
            return None
        host = headers.get("host", "").lower()
        if host_name(host) not in hosts and not names_none(scope, "host" in headers):
            detail = f"this server is not {host[:100]!r} (--allow-host adds a name)"
            return Problem(name="foreign", detail=detail, field="Host")
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host:
            return Problem(name="foreign", detail="a page of another origin may ask nothing", field="Origin")
        elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if elsewhere and scope["path"].startswith("/v1/"):
            return Problem(name="foreign", detail="a page of another site may ask nothing", field="Sec-Fetch-Site")
        return None

    def _unknown(self, headers: Headers, path: str, address: str) -> Problem | None:
        if self._token is None or path in self._free or path.startswith(self._free_under):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return None  # also after wrong ones: behind a proxy all clients have one address
        wait_seconds = self._wrong.wait_seconds(address, take=bool(given))
        if wait_seconds:
            return _too_many("too many wrong tokens came from this address", wait_seconds)
        detail = "this is not the token" if given else "send the header Authorization: Bearer TOKEN"
        return Problem(
            name="unauthorized", detail=detail, field="Authorization", headers={"WWW-Authenticate": "Bearer"}
        )


_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+(?:%[0-9a-z.-]+)?)\]|([^\[\]:@/?#\s]+))(?::\d*)?", re.IGNORECASE)
"""A name or an address, and a port (RFC 9110, section 7.2; RFC 3986, section 3.2)."""


def host_name(host: str) -> str:
    """The name in a Host header, without its port; "" for what is none: no name begins with one of ours and goes on."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2].rstrip(".")


def names_none(scope: Scope, has_host: bool) -> bool:
    """Whether a client may leave out the host: those of HTTP/1.0 may (RFC 9112, section 3.2), and no browser is one."""
    return not has_host and scope.get("http_version") == "1.0"


def _too_many(detail: str, wait_seconds: float) -> Problem:
    return Problem(name="rate", detail=detail, headers={"Retry-After": str(math.ceil(wait_seconds))})
