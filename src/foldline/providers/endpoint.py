"""The address and key of a model, as a value, and the environment variables that set them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from foldline.codecs import codec, dialect_named
from foldline.codecs.dialect import ROWS
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["HOSTED", "TIMEOUT_SECONDS", "Endpoint", "HostedProvider", "endpoint_from_environment"]

TIMEOUT_SECONDS: Final = 300.0
"""The longest silence of a server. On a slow machine a model reads 50 tokens a second, so the first byte after a prompt
of 8,192 tokens comes after 164 s."""

# Fields that the session sets, in any dialect: `extra` is written before the dialect is tried out.
_RESERVED: Final = frozenset(
    {"model", "tools", "stream"}
    | {row.body.messages for row in ROWS.values()}
    | {row.body.system for row in ROWS.values() if row.body.system}
)
_HOST: Final = re.compile(r"[^\s/\\<>^`{|}%\"]+")
_SECRET_HEADERS: Final = re.compile(r"(?i)auth|key|token|cookie|secret")
_LOCAL_NAMES: Final = re.compile(r"(?:localhost|host\.docker\.internal|.+\.local(?:host)?|.+\.internal|[^.:]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One model at one address.

    `base_url` is the address as in the dialect's own clients: with `/v1` for OpenAI, without for Anthropic (both forms
    work; a local server needs no path at all). `model` may be "" for a server with one model. `extra` are additional
    fields of the request body (`temperature`, `reasoning_effort`, …); None removes a field. `timeout_seconds` is the
    longest silence. `session_id` groups the requests of one session for a provider's cache. `request_url` replaces
    `base_url` and the dialect's path for requests: a whole address at the same host, with a query if needed. Key,
    request URL and header values are in no repr. Raises InvalidInput that names the field.
    """

    name: str
    dialect: str
    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra: Mapping[str, Json] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    session_id: str | None = None
    request_url: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        codec(self.dialect)
        if not isinstance(self.model, str):
            raise InvalidInput(f"must be a text, not {self.model!r}", place="model")
        if not 0 < self.timeout_seconds < float("inf"):
            raise InvalidInput(f"must be greater than 0, not {self.timeout_seconds}", place="timeout_seconds")
        for place, value in (("api_key", self.api_key), *((f"headers.{k}", v) for k, v in self.headers.items())):
            # The message has no value, because that may be a key.
            if not isinstance(value, str) or not value.isascii() or not (value == "" or value.isprintable()):
                raise InvalidInput("holds characters that no header can carry (a line break?)", place=place)
        if taken := sorted(_RESERVED & self.extra.keys()):
            raise InvalidInput(f"{', '.join(taken)} cannot be set here: the session sets them", place="extra")
        object.__setattr__(self, "base_url", _base_url(self.base_url, self.dialect))
        if self.request_url and urlsplit(self.request_url)[:2] != urlsplit(self.base_url)[:2]:
            raise InvalidInput("must be an address at the host of base_url", place="request_url")  # the key goes along

    @property
    def host(self) -> str:
        """The host of the address, in lower case."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine or network: it needs no key, and no proxy leads there."""
        return _is_local(self.host)

    @property
    def root_url(self) -> str:
        """The address without its version, at which servers describe themselves."""
        return re.sub(r"/v\d+$", "", self.base_url)

    @property
    def request_headers(self) -> dict[str, str]:
        """The headers of every request: the key in the dialect's header, and the configured ones."""
        row = dialect_named(self.dialect)
        own = {"user-agent": "foldline", **row.headers}
        if self.api_key:
            name, value = row.key_header
            own[name] = value + self.api_key
        return {**own, **{name.lower(): value for name, value in self.headers.items()}}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to keep out of messages: the key, and secrets in headers and in the query."""
        given = [*self.headers.items(), *parse_qsl(urlsplit(self.request_url).query)]
        named = [value for name, value in given if _SECRET_HEADERS.search(name)]
        bare = [value.partition(" ")[2].strip() for value in named]  # of "Bearer KEY" servers repeat the key alone
        return tuple(value for value in (self.api_key, *named, *bare) if len(value) >= 4)


@dataclass(frozen=True, slots=True)
class HostedProvider:
    """A hosted provider and the variable for its key. `base_variable` is a variable that overrides the address."""

    name: str
    variable: str
    base_url: str
    dialect: str
    model: str
    base_variable: str = ""


HOSTED: Final = (
    HostedProvider(
        "openai", "OPENAI_API_KEY", "https://api.openai.com/v1", "openai-responses", "gpt-5.4", "OPENAI_BASE_URL"
    ),
    HostedProvider(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com",
        "anthropic",
        "claude-sonnet-5-5",
        "ANTHROPIC_BASE_URL",
    ),
    HostedProvider(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        "openai-chat",
        "anthropic/claude-sonnet-5.5",
    ),
    HostedProvider(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini",
        "gemini-3.8-flash",
    ),
    HostedProvider(
        "google",
        "GOOGLE_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini",
        "gemini-3.8-flash",
    ),
    HostedProvider("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", "openai-chat", "deepseek-v4-flash"),
    HostedProvider("mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1", "openai-chat", "mistral-large-latest"),
    HostedProvider("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", "openai-chat", "openai/gpt-oss-120b"),
    HostedProvider("xai", "XAI_API_KEY", "https://api.x.ai/v1", "openai-chat", "grok-4.7"),
    HostedProvider("together", "TOGETHER_API_KEY", "https://api.together.xyz/v1", "openai-chat", "openai/gpt-oss-120b"),
    HostedProvider("moonshot", "MOONSHOT_API_KEY", "https://api.moonshot.ai/v1", "openai-chat", "kimi-k3"),
)
"""Hosted providers in the order in which their variables are read. Addresses: each provider's API reference."""


def endpoint_from_environment(
    environ: Mapping[str, str], *, name: str | None = None, model: str | None = None
) -> Endpoint | None:
    """Return the endpoint set by the environment: the first of `HOSTED` with a key, or the one called `name`, or None.

    OPENAI_BASE_URL is enough, because a self-hosted server needs no key. At an address other than the provider's own
    the dialect is Chat, which every compatible server speaks, and the model is "" unless `model` or OPENAI_MODEL names
    it. Pure. Raises InvalidInput that names the variable.
    """
    for hosted in HOSTED:
        key = environ.get(hosted.variable, "").strip()
        base = environ.get(hosted.base_variable, "").strip() if hosted.base_variable else ""
        if name not in (None, hosted.name) or not (key or base):
            continue
        moved = bool(base) and urlsplit(base).hostname != urlsplit(hosted.base_url).hostname
        if not (key or moved):
            continue
        compatible = moved and hosted.dialect == "openai-responses"
        chosen = model or environ.get(f"{hosted.name.upper()}_MODEL", "").strip() or ("" if moved else hosted.model)
        try:
            return Endpoint(
                name=hosted.name,
                dialect="openai-chat" if compatible else hosted.dialect,
                base_url=base or hosted.base_url,
                model=chosen,
                api_key=key,
            )
        except InvalidInput as error:
            named = {"base_url": hosted.base_variable, "api_key": hosted.variable}.get(error.place or "", error.place)
            raise InvalidInput(error.reason, place=named) from None
    return None


def _base_url(given: str, dialect: str) -> str:
    """Normalise an address. Errors show nothing of it, because it may have a password."""
    try:
        parts = urlsplit(given.strip() if isinstance(given, str) else "")
        port = parts.port
    except ValueError:
        raise InvalidInput("is no address", place="base_url") from None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.hostname or ""):
        raise InvalidInput("must begin with http:// or https:// and name a host", place="base_url")
    if parts.username or parts.password or "@" in parts.netloc:
        raise InvalidInput("must not hold a name or password: use api_key or headers", place="base_url")
    if parts.query or parts.fragment:
        raise InvalidInput("must not have a query or fragment", place="base_url")
    path, host = parts.path.rstrip("/"), parts.hostname or ""
    for known in ROWS.values():  # people copy the whole address out of a document, of another dialect too
        path = known.paths[0].ending.sub("", path)
    row = dialect_named(dialect)
    if not path and row.version_in_base and _is_local(host):
        path = f"/{row.version}"  # the only path of Ollama, vLLM and LM Studio
    if not row.version_in_base:
        path = path.removesuffix(f"/{row.version}")
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}{'' if port is None else f':{port}'}{path}"


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(_LOCAL_NAMES.fullmatch(host))
    return address.is_loopback or address.is_private or address.is_link_local
