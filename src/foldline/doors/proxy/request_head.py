"""The head of a request: the dialect and model of its path, its headers, and the credential in them."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from foldline.codecs.base import Path
from foldline.codecs.dialect import ROWS
from foldline.conversations.request_body import RequestBody
from foldline.messages import Json

__all__ = [
    "ENCODING",
    "Headers",
    "as_event_stream",
    "client_of",
    "dialect_of",
    "encoding",
    "evidence",
    "header",
    "is_credential",
    "is_streamed_at",
    "media_type",
    "model_at",
    "path_of",
    "session_name",
    "with_model_at",
]

Headers: TypeAlias = list[tuple[bytes, bytes]]

ENCODING: Final = b"content-encoding"

# Headers that identify the caller, or whom it acts for, at providers and gateways: authorization, x-api-key, api-key,
# x-goog-api-key, ocp-apim-subscription-key, x-portkey-virtual-key, cf-aig-authorization, helicone-auth, x-auth-token,
# openai-organization, openai-project, chatgpt-account-id. Cookies and signatures are not among them: they change with
# each request.
_CREDENTIAL: Final = re.compile(
    r"(?:^|-)(?:auth|authorization|api-?key|(?:access|api|auth)-?token|(?:subscription|virtual)-key"
    r"|organization|project|account-id|account)$"
)

# Query parameters that may hold a key: Google's `key`, and those of Azure's gateways.
_KEY_PARAMETERS: Final = frozenset({"key", "api-key", "api_key", "apikey", "access_token", "subscription-key"})

# AWS, "Signature Version 4": each request has a signature of its own, by the key of this id.
_SIGNED: Final = re.compile(rb"AWS4-[A-Z0-9-]+ .*?Credential=([^/,\s]+)")

# Claims that stay when a token is renewed. Sources: RFC 7519, section 4.1; RFC 9068, section 2.2; Microsoft, "Access
# token claims reference". The signature is not checked here: an upstream that checks tokens refuses a forged one.
_LASTING_CLAIMS: Final = ("iss", "sub", "azp", "client_id", "appid", "tid", "oid")

# Above it a header is no token that a server accepts; parsing it would only cost time.
_MAX_TOKEN_CHARS: Final = 16_384
_MAX_NAME_BYTES: Final = 1_000  # hashed, so it is bounded for time and not for memory

# Where a path names the model: Azure (`/openai/deployments/{name}/…`), Vertex and Gemini (`/models/{name}:method`),
# hosts that put a repository before a dialect's path (`/models/{owner}/{name}/v1/…`), Bedrock (`/model/{id}/invoke`).
# Sources: "Azure OpenAI REST API reference"; Vertex AI, "publishers.models"; Bedrock, "InvokeModel" and "Converse".
_MODEL_IN_PATH: Final = (
    re.compile(r"/deployments/(?P<model>[^/]+)/"),
    re.compile(r"/models?/(?P<model>[^/:]+(?:/[^/:]+)?):[A-Za-z]+$"),
    re.compile(
        r"/models?/(?P<model>.+?)/(?:v\d\w*/)?(?:chat/completions|responses|messages(?:/count_tokens)?|embeddings)$"
    ),
    re.compile(r"/model/(?P<model>[^/]+)/"),
)

_MAX_MODEL_CHARS: Final = 500
_GENERATE: Final = re.compile(r":(?:stream)?[gG]enerateContent$")

# OpenAI's Assistants add messages to threads at a path that ends like Anthropic's.
_OTHER_PATHS: Final = re.compile(r"/threads/[^/]*/messages$")


# --- path -------------------------------------------------------------------------------------------------------------


def path_of(method: str, path: str) -> tuple[str, Path | None]:
    """The dialect of a path, known by its ending: providers differ in what stands before. "" and None for none."""
    if method == "POST":
        plain = path.rstrip("/")
        for row in ROWS.values():
            for form in row.paths:
                if form.ending.search(plain) and not _OTHER_PATHS.search(plain):
                    return row.name, form
    return "", None


def dialect_of(method: str, path: str) -> tuple[str, bool]:
    """The dialect of a path ("" for none), and whether the path only counts tokens."""
    dialect, form = path_of(method, path)
    return dialect, form is not None and form.counting


def is_streamed_at(path: str) -> bool:
    """Whether the path requests a stream, so that the body need not (Gemini, Vertex AI, Bedrock)."""
    form = path_of("POST", path)[1]
    return form is not None and form.streamed


def model_at(path: str) -> str:
    """The model in a path, decoded; "" without one."""
    found = _model_match(path)
    name = unquote(found["model"]) if found else ""
    # A longer one is no model, and would be stored with limits and in logs.
    return name if len(name) <= _MAX_MODEL_CHARS else ""


def with_model_at(path: str, model: str) -> str:
    """The path with another model; unchanged if it names none."""
    found = _model_match(path)
    if found is None:
        return path
    start, stop = found.span("model")
    return path[:start] + quote(model, safe="/" if "/" in found["model"] else "") + path[stop:]


def as_event_stream(target: str) -> str:
    """A path and query of Gemini, changed so that the reply is a stream of events; any other unchanged."""
    path, _, query = target.partition("?")
    if _GENERATE.search(path) is None:
        return target
    # Without alt=sse, Gemini streams one JSON array that cannot be parsed before its end.
    pairs = [pair for pair in query.split("&") if pair and not pair.startswith("alt=")]
    return f"{_GENERATE.sub(':streamGenerateContent', path)}?{'&'.join([*pairs, 'alt=sse'])}"


def _model_match(path: str) -> re.Match[str] | None:
    plain = path.rstrip("/")
    return next((found for found in (named.search(plain) for named in _MODEL_IN_PATH) if found), None)


# --- headers ----------------------------------------------------------------------------------------------------------


def header(headers: Headers, wanted: bytes) -> str:
    """The value of a header, named in lower case; "" if there is none."""
    found = next((value for name, value in headers if name.lower() == wanted), b"")
    return found.decode("latin-1").strip()


def media_type(headers: Headers) -> str:
    """The media type of a body, without its parameters."""
    return header(headers, b"content-type").partition(";")[0].strip().lower()


def encoding(headers: Headers) -> str:
    """The content codings of a body, in the order in which they were applied (RFC 9110, 8.4); "" for none."""
    codings = [value.decode("latin-1").strip() for name, value in headers if name.lower() == ENCODING]
    return ", ".join(codings).lower()


# --- credentials ------------------------------------------------------------------------------------------------------


def client_of(headers: Headers, query: bytes = b"") -> bytes:
    """A hash of the credential of a request; b"" if it has none. O(size of the headers).

    What is learned from one client, and summaries written for it, serve requests with the same hash only. A token that
    is renewed in mid-conversation keeps its hash if it names its owner.
    """
    # Sorted: the order of headers says nothing, and differs between a client's connections.
    found = sorted(_credentials(headers, query))
    if not found:
        return b""
    # Only the hash is stored, never a key. The lengths keep ("ab", "c") apart from ("a", "bc").
    digest = blake2b(digest_size=16, person=b"foldline client")
    for name, value in found:
        digest.update(b"%d:%b=%d:%b" % (len(name), name, len(value), value))
    return digest.digest()


def is_credential(header: str) -> bool:
    """Whether the header of this name, in lower case, identifies the caller."""
    return _CREDENTIAL.search(header) is not None


def session_name(headers: Headers, client: bytes) -> str:
    """A hash of the name that a client gives its conversation, keyed by `client`: two clients may choose the same."""
    name = next((value for key, value in headers if key == b"x-foldline-session"), b"").strip()
    return blake2b(name[:_MAX_NAME_BYTES], key=client, digest_size=16).hexdigest() if name else ""


def _credentials(headers: Headers, query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        plain = name.lower()
        if is_credential(plain.decode("latin-1")) and value.strip():
            yield plain, _lasting_part(value.strip())
    for field, text in parse_qsl(query.decode("latin-1")):
        if field.lower() in _KEY_PARAMETERS:
            yield field.lower().encode("latin-1"), text.encode("latin-1", "replace")


def _lasting_part(value: bytes) -> bytes:
    """The part of a credential that stays when it is renewed: its owner if it names one, else all of it."""
    signed = _SIGNED.match(value)
    if signed:
        return b"aws4 " + signed[1]
    token = value.rpartition(b" ")[2]  # after a scheme such as Bearer
    claims = _claims(token.split(b".")) if len(token) <= _MAX_TOKEN_CHARS else {}
    if not isinstance(claims.get("sub"), str) or not isinstance(claims.get("iss"), str):
        return value
    return b"jwt " + json.dumps([claims.get(name) for name in _LASTING_CLAIMS]).encode()


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
    """All texts of a request, as it came and as it was sent: an upstream may repeat any of them in an error."""
    texts: list[Json] = [unquote_plus(target), *(value.decode("latin-1") for _, value in headers)]
    if body is not None:
        texts.append(dict(body.fields))
    if body is None or sent != body.raw:
        try:
            texts.append(json.loads(sent))
        except (ValueError, RecursionError):
            texts.append(sent.decode("utf-8", "replace"))
    return texts
