"""Select the model to talk to: the user's setting, an API key, a local server or the embedded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from foldline.catalog.models import lookup
from foldline.codecs import dialect_named
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json
from foldline.providers.base import Provider
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import DEFAULT_ADDRESSES, LocalServer, ServerAddress, fetch_models, find_local_servers
from foldline.providers.embedded import INSTALL, WINDOW_TOKENS, Embedded, weights
from foldline.providers.endpoint import HOSTED, Endpoint, HostedProvider, endpoint_from_environment
from foldline.providers.http import provider_for
from foldline.providers.tool_emulation import SchemaTools

__all__ = ["ModelPreference", "SelectedModel", "select_model"]

_EMBEDDED: Final = "embedded"
_BASE_URLS: Final = {hosted.name: hosted for hosted in HOSTED}
_NO_MODEL: Final = (
    "no model: set OPENAI_API_KEY or ANTHROPIC_API_KEY, start a server (Ollama, llama.cpp, LM Studio, vLLM), "
    f"or install the embedded one: {INSTALL}"
)
_UNTRUSTED: Final = (
    "{model} talks, it cannot be trusted: much of what it says is wrong. Its summaries are refused: a fold gets a "
    "mechanical digest instead."
)
_WITHOUT_TOOLS: Final = "It gets no tools: set tools to schema in its model settings to see it call them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPreference:
    """The model settings of a user, from a file or from options; None where the user left the choice open.

    `provider` names a hosted provider, a kind of local server, or "embedded"; with `base_url` any name is allowed.
    `model` of the embedded provider is the path of a GGUF file. `api_key_env` is the variable that holds the key.
    `window` is in tokens and only starts the embedded model. `extra` is added to each request of the other providers.
    `session_id` groups requests for a provider's cache.
    """

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    dialect: str | None = None
    api_key_env: str | None = None
    window: int | None = None
    tools: Literal["native", "schema"] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """A provider, the reason for its selection, and notes for the user. The caller closes the provider.

    `summaries` is False for a model too small to be trusted with them. `tools` is then False too unless the user set
    tools explicitly: such a model calls the first tool of the schema forever and never answers.
    """

    provider: Provider
    why: str
    notes: tuple[str, ...] = ()
    summaries: bool = True
    tools: bool = True

    @property
    def line(self) -> str:
        """The selection and its reason, in one line."""
        return f"{self.provider.model or 'the default model'} by {self.provider.name}: {self.why}"


async def select_model(
    preference: ModelPreference, environ: Mapping[str, str], *, addresses: Sequence[ServerAddress] = DEFAULT_ADDRESSES
) -> SelectedModel:
    """Select a provider: the user's setting, then keys in the environment, a server at `addresses`, the embedded model.

    Raises InvalidInput for an invalid setting, MissingExtra, and FoldlineError that says what to set or to install.
    Probes for a server only if nothing else decides. Starts the embedded model without waiting for it.
    """
    if preference.base_url is not None:
        return await _select_address(preference, preference.base_url, environ)
    if preference.provider == _EMBEDDED or (preference.provider is None and _is_file(preference.model)):
        return _select_embedded(preference, "as set")
    if preference.provider is not None:
        return await _select_named(preference, preference.provider, environ, addresses)
    endpoint = endpoint_from_environment(environ, model=preference.model)
    if endpoint is not None:
        return await _select_endpoint(
            _with_overrides(endpoint, preference, environ), preference, f"{_variable(endpoint, environ)} is set"
        )
    # Last before the embedded model, because probing takes up to two seconds and a key is a clear wish.
    found = [local for local in await find_local_servers(addresses) if _served_name(local, preference.model)]
    if found:
        return _select_local(found[0], preference, "it answers, and no key is set")
    if preference.model is not None:
        raise FoldlineError(
            f"no key is set, and no local server has the model {preference.model!r}: set provider as well"
        )
    try:
        return _select_embedded(preference, "no key is set and no local server answers")
    except InvalidInput:
        raise
    # An embedded model that is not installed is no error of the user's: the message lists all ways to a model.
    except FoldlineError:
        raise FoldlineError(_NO_MODEL) from None


async def _select_named(
    preference: ModelPreference, name: str, environ: Mapping[str, str], addresses: Sequence[ServerAddress]
) -> SelectedModel:
    if name in _BASE_URLS:
        hosted = _BASE_URLS[name]
        # `endpoint_from_environment` reads the usual variable only, so a key under another name is copied there.
        given = {**environ, hosted.variable: _api_key(preference, environ) or environ.get(hosted.variable, "")}
        endpoint = endpoint_from_environment(given, name=name, model=preference.model)
        if endpoint is None:
            raise FoldlineError(f"{name} needs a key: set {preference.api_key_env or hosted.variable}")
        return await _select_endpoint(_with_overrides(endpoint, preference, environ), preference, "as set")
    own = [address for address in addresses if name in ("local", address.kind)]
    if not own:
        known = ", ".join([*_BASE_URLS, *(address.kind for address in addresses), "local", _EMBEDDED])
        raise InvalidInput(f"unknown provider {name!r} without base_url; known are {known}", place="provider")
    found = await find_local_servers(own)
    if not found:
        where = ", ".join(address.root_url for address in own)
        raise FoldlineError(f"no {name} server with a model answers at {where}: start it, or set base_url")
    fitting = [local for local in found if _served_name(local, preference.model)]
    if not fitting:
        models = ", ".join(model for local in found for model in local.models)
        raise InvalidInput(f"{name} has no {preference.model!r}; it has {models}", place="model")
    return _select_local(fitting[0], preference, "as set")


async def _select_address(preference: ModelPreference, base_url: str, environ: Mapping[str, str]) -> SelectedModel:
    hosted = _BASE_URLS.get(preference.provider or "")
    usual = environ.get(hosted.variable, "").strip() if hosted else ""
    endpoint = Endpoint(
        name=preference.provider or "custom",
        dialect=preference.dialect or (_dialect_of(hosted, base_url) if hosted else "openai-chat"),
        base_url=base_url,
        model=preference.model or "",
        api_key=_api_key(preference, environ) or usual,
    )
    return await _select_endpoint(endpoint, preference, "as set")


def _dialect_of(hosted: HostedProvider, base_url: str) -> str:
    """Return the dialect at another address of a hosted provider: its own, but Chat for OpenAI's."""
    # Servers that call themselves compatible with OpenAI mean Chat. Google's such address ends in "/openai".
    is_chat = dialect_named(hosted.dialect).maker == "openai" or base_url.rstrip("/").endswith("/openai")
    return "openai-chat" if is_chat else hosted.dialect


async def _select_endpoint(endpoint: Endpoint, preference: ModelPreference, why: str) -> SelectedModel:
    """Select the provider at an endpoint. A local server is asked for its model and whether it supports tools."""
    httpx = load_httpx()
    by_schema = preference.tools == "schema"
    if not endpoint.model:
        async with httpx.AsyncClient(trust_env=not endpoint.is_local, timeout=2.0) as client:
            models = await fetch_models(endpoint, client)
        # An unnamed model is a server with one model. Guessing one of several hosted models would cost money.
        if not models:
            raise InvalidInput(f"{endpoint.base_url} does not say which models it has: set model", place="model")
        endpoint = replace(endpoint, model=models[0])
    # At an address of the user's own only llama.cpp is asked: any other server is believed to have tools.
    if preference.tools is None and endpoint.is_local and endpoint.dialect == "openai-chat":
        found = await find_local_servers((ServerAddress("llama.cpp", endpoint.root_url),))
        by_schema = any(not local.has_tools for local in found)
    return _build(endpoint, by_schema, preference, why)


def _select_local(local: LocalServer, preference: ModelPreference, why: str) -> SelectedModel:
    endpoint = Endpoint(
        name=local.kind,
        dialect=preference.dialect or "openai-chat",
        base_url=local.base_url,
        model=_served_name(local, preference.model) or "",
    )
    by_schema = not local.has_tools if preference.tools is None else preference.tools == "schema"
    return _build(endpoint, by_schema and endpoint.dialect == "openai-chat", preference, f"{why} ({local.base_url})")


def _build(endpoint: Endpoint, by_schema: bool, preference: ModelPreference, why: str) -> SelectedModel:
    def with_fields(fields: Mapping[str, Json]) -> Provider:
        return provider_for(
            replace(endpoint, extra={**endpoint.extra, **preference.extra, **fields}, session_id=preference.session_id)
        )

    if not by_schema:
        return _selected(with_fields({}), preference, why)
    note = "The server's template has no tools: calls are held to a JSON schema."
    return _selected(SchemaTools(with_fields), preference, why, note)


def _select_embedded(preference: ModelPreference, why: str) -> SelectedModel:
    found = weights(preference.model)
    by_schema = None if preference.tools is None else preference.tools == "schema"
    return _selected(
        Embedded(found, window_tokens=preference.window or WINDOW_TOKENS, by_schema=by_schema), preference, why
    )


def _selected(provider: Provider, preference: ModelPreference, why: str, *notes: str) -> SelectedModel:
    # Settings take precedence: a user who sets tools for a small model gets them.
    trusted = lookup(provider.model, local=True).summaries != "off"
    tools = trusted or preference.tools is not None
    honest = () if trusted else (_UNTRUSTED.format(model=provider.model),)
    without = () if tools else (_WITHOUT_TOOLS,)
    return SelectedModel(provider, why, (*honest, *without, *notes), trusted, tools)


def _with_overrides(endpoint: Endpoint, preference: ModelPreference, environ: Mapping[str, str]) -> Endpoint:
    key = _api_key(preference, environ) or endpoint.api_key
    return replace(endpoint, dialect=preference.dialect or endpoint.dialect, api_key=key)


def _api_key(preference: ModelPreference, environ: Mapping[str, str]) -> str:
    """Return the key from the variable that the user named; "" without one."""
    # A variable that is named and not set is an error: another key would be sent to an address it is not for.
    if preference.api_key_env is None:
        return ""
    key = environ.get(preference.api_key_env, "").strip()
    if not key:
        raise InvalidInput(f"the variable {preference.api_key_env} is not set", place="api_key_env")
    return key


def _variable(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    hosted = _BASE_URLS[endpoint.name]
    return hosted.variable if environ.get(hosted.variable, "").strip() else hosted.base_variable


def _served_name(local: LocalServer, model: str | None) -> str | None:
    """Return the name by which the server lists the model; its first model if the user named none."""
    if model is None:
        return local.models[0]
    return next((name for name in local.models if name in (model, f"{model}:latest")), None)


def _is_file(model: str | None) -> bool:
    return model is not None and model.lower().endswith(".gguf")
