"""Which addresses a model may have us connect to: those of the public internet, checked where the connection is made.

A page can name a host that leads into the network of the user: a router, a database, the metadata service of a cloud
machine that hands out keys. Checking the name beforehand is not enough, since its owner can answer the next question
about it with another address. So the name is resolved once, its addresses are checked, and the connection goes to the
address that was checked.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from foldline.agent.workers import NAMES
from foldline.errors import InvalidInput, MissingExtra

try:
    import httpx
except ImportError as error:
    raise MissingExtra("chat", "the tool fetch_url") from error

__all__ = ["Pinned", "Refuses", "Resolve", "refusal", "resolve"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Refuses: TypeAlias = Callable[[str], str | None]
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# Azure's platform address is a public one (learn.microsoft.com, "What is IP address 168.63.129.16?").
_OF_CLOUDS: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
# What Python 3.11 takes for global and is not: protocol assignments (RFC 6890), site-local (RFC 3879), NAT64 of one's
# own network (RFC 8215), and IPv4 addresses inside IPv6 ones by two old forms (RFC 4291 section 2.5.5.1, RFC 2765).
_SPECIAL: Final = tuple(
    ipaddress.ip_network(net) for net in ("192.0.0.0/24", "fec0::/10", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address


def refusal(text: str) -> str | None:
    """Return why an address may not be connected to; None for one of the public internet.

    An IPv6 address that stands for an IPv4 address is judged as that one too.
    """
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    for each in (address, _inner(address)):
        if each is None:
            continue
        if each in _OF_CLOUDS:
            return "an address of a cloud's own services"
        if each.is_loopback:
            return "an address of this machine"
        if any(each in network for network in _SPECIAL if network.version == each.version):
            return "not an address of the public internet"
        # Before `is_global`, for a clearer reason: metadata services hand out credentials at such addresses.
        if each.is_link_local:
            return "a link-local address, as of a cloud's metadata service"
        if each.is_multicast or not each.is_global:
            # An IPv4 address inside an IPv6 one is judged by itself; the outer form need not be global.
            # As 6to4 or NAT64 it is not global itself, although it reaches a global IPv4 address.
            if each is address and _inner(address) is not None:
                continue
            return "not an address of the public internet"
    return None


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host by the system. Raises OSError."""
    found = await NAMES.run(lambda _: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Pinned(httpx.AsyncBaseTransport):
    """Resolves the host of a request once, checks all addresses, and connects to one of them.

    The request keeps its Host header, and TLS asks for and verifies the host's own name. Proxies of the environment are
    not used: one would resolve the name again, for itself. `refuses` is None where every address is allowed. Raises
    InvalidInput for an address that is refused.
    """

    def __init__(self, refuses: Refuses | None, resolver: Resolve) -> None:
        # Kept connections are found again by address: two names behind one would share what was verified for the first.
        self._inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        self._refuses = refuses
        self._resolve = resolver

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to a checked address."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"{host} cannot be resolved: {error}", place="url") from None
        if not addresses:
            raise InvalidInput(f"{host} has no address", place="url")
        # All of them, not only the one used: a name with a private address among public ones is an attack.
        for address in addresses:
            if self._refuses and (reason := self._refuses(address)):
                raise InvalidInput(f"{host} is refused: {address} is {reason}", place="url")
        last: httpx.ConnectError | httpx.ConnectTimeout | None = None
        for address in addresses:
            try:
                return await self._inner.handle_async_request(_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                last = error
        raise last or httpx.ConnectError(f"{host} cannot be reached", request=request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _to(address: str, request: httpx.Request) -> httpx.Request:
    """Return the request, directed to an address."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        # TLS must verify the name of the host, not the address that is connected to.
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
