"""Who asks: the credential of a request, as a hash.

What one client teaches, and what is written for it, is for requests with the same credential. Tokens that are renewed
in mid-conversation stay the same credential where they say of whom they are.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final
from urllib.parse import parse_qsl, unquote_plus

from foldline.conversations.request_body import RequestBody
from foldline.doors.proxy.headers import Headers
from foldline.messages import Json

__all__ = ["client_of", "evidence", "name_in", "says_who"]

_CREDENTIAL: Final = re.compile(
    r"(?:^|-)(?:auth|authorization|api-?key|(?:access|api|auth)-?token|(?:subscription|virtual)-key"
    r"|organization|project|account-id|account)$"
)
"""Names of headers that say who asks, or for whom, at providers and gateways: authorization, x-api-key, api-key,
x-goog-api-key, ocp-apim-subscription-key, x-portkey-virtual-key, cf-aig-authorization, helicone-auth, x-auth-token,
openai-organization, openai-project, chatgpt-account-id. Cookies and signatures of one request are not among them."""

_QUERY: Final = frozenset({"key", "api-key", "api_key", "apikey", "access_token", "subscription-key"})
"""Where a key may stand in the query: Google's `key`, and what gateways of Azure take."""

_SIGNED: Final = re.compile(rb"AWS4-[A-Z0-9-]+ .*?Credential=([^/,\s]+)")
"""AWS, "Signature Version 4": each request is signed anew, by the key of this id."""

_OF_WHOM: Final = ("iss", "sub", "azp", "client_id", "appid", "tid", "oid")
"""Claims of a token that stay when it is renewed. Sources: RFC 7519, section 4.1; RFC 9068, section 2.2; Microsoft,
"Access token claims reference". Whoever makes such a token up is refused by an upstream that looks at tokens."""

_LONGEST_TOKEN: Final = 16_384
_MOST_NAME_BYTES: Final = 1_000


def client_of(headers: Headers, query: bytes = b"") -> bytes:
    """A hash of the credential of a request; b"" where it shows none. O(size of the headers)."""
    found = sorted(_shown(headers, query))
    if not found:
        return b""
    made = blake2b(digest_size=16, person=b"foldline client")
    for name, value in found:
        made.update(b"%d:%b=%d:%b" % (len(name), name, len(value), value))
    return made.digest()


def says_who(header: str) -> bool:
    """Whether a header of this name, in lower case, says who asks."""
    return _CREDENTIAL.search(header) is not None


def name_in(headers: Headers, client: bytes) -> str:
    """The client's own name of its conversation, apart for each credential: two clients may choose the same one."""
    given = next((value for name, value in headers if name == b"x-foldline-session"), b"").strip()
    return blake2b(given[:_MOST_NAME_BYTES], key=client, digest_size=16).hexdigest() if given else ""


def _shown(headers: Headers, query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        plain = name.lower()
        if says_who(plain.decode("latin-1")) and value.strip():
            yield plain, _lasting(value.strip())
    for field, text in parse_qsl(query.decode("latin-1")):
        if field.lower() in _QUERY:
            yield field.lower().encode("latin-1"), text.encode("latin-1", "replace")


def _lasting(value: bytes) -> bytes:
    """What of a credential stays when it is renewed: of whom it is, where it says so; else all of it."""
    signed = _SIGNED.match(value)
    if signed:
        return b"aws4 " + signed[1]
    token = value.rpartition(b" ")[2]
    claims = _claims(token.split(b".")) if len(token) <= _LONGEST_TOKEN else {}
    if not isinstance(claims.get("sub"), str) or not isinstance(claims.get("iss"), str):
        return value
    return b"jwt " + json.dumps([claims.get(name) for name in _OF_WHOM]).encode()


def _claims(parts: Iterable[bytes]) -> dict[str, object]:
    """The claims of a JSON Web Token (RFC 7519); {} for anything else."""
    pieces = list(parts)
    if len(pieces) != 3:
        return {}
    try:
        first, second = (json.loads(urlsafe_b64decode(piece + b"=" * (-len(piece) % 4))) for piece in pieces[:2])
    except (ValueError, RecursionError):
        return {}
    return second if isinstance(first, dict) and isinstance(second, dict) and "alg" in first else {}


def evidence(body: RequestBody | None, sent: bytes, headers: Headers, target: str) -> list[Json]:
    """All that a client wrote in a request, and what was written for it: what an upstream may repeat in an error."""
    said: list[Json] = [unquote_plus(target), *(value.decode("latin-1") for _, value in headers)]
    if body is not None:
        said.append(dict(body.fields))
    if body is None or sent != body.raw:
        try:
            said.append(json.loads(sent))
        except (ValueError, RecursionError):
            said.append(sent.decode("utf-8", "replace"))
    return said
