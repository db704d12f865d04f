"""Chooses the model to talk to: what was asked for, a key, a server that answers, the embedded model. Says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from foldline.catalog.models import lookup
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json
from foldline.providers.base import Provider
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import served_models
from foldline.providers.embedded import INSTALL, WINDOW_TOKENS, Embedded, weights
from foldline.providers.emulated_tools.provider import SchemaTools
from foldline.providers.endpoint import HOSTED, Endpoint, endpoint_from_environment
from foldline.providers.http import provider_for
from foldline.providers.local import PLACES, Local, Place, find_local

__all__ = ["Picked", "Wanted", "pick"]

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
class Wanted:
    """What the user set, in a file or by options; None for what was left open.

    `provider` is the name of a hosted one, of a kind of local server, or "embedded"; with `base_url` it is any name.
    `model` of the embedded one is a path of a GGUF file. `api_key_env` is the variable that holds the key. `window` is
    in tokens; only the embedded model is started with it. `extra` goes into each request, except to that one.
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
class Picked:
    """The provider, why it was chosen, and what the user should know of it. The caller closes the provider.

    `summaries` is False for a model that is too small to be trusted with them; `tools` then too, unless they were asked
    for: such a model calls whatever the schema begins with, and never answers.
    """

    provider: Provider
    why: str
    notes: tuple[str, ...] = ()
    summaries: bool = True
    tools: bool = True

    @property
    def line(self) -> str:
        """What was chosen and why, in one line."""
        return f"{self.provider.model or 'the default model'} by {self.provider.name}: {self.why}"


async def pick(wanted: Wanted, environ: Mapping[str, str], *, places: Sequence[Place] = PLACES) -> Picked:
    """The provider to use. In this order: what was asked for, keys in the environment, a server at one of `places`, the
    embedded model.

    Raises InvalidInput for a setting that cannot be, MissingExtra, and FoldlineError with what to set or to install.
    A server is looked for only where nothing else decides, the embedded one is started and not waited for.
    """
    if wanted.base_url is not None:
        return await _at_address(wanted, wanted.base_url, environ)
    if wanted.provider == _EMBEDDED or (wanted.provider is None and _is_file(wanted.model)):
        return _embedded(wanted, "as set")
    if wanted.provider is not None:
        return await _named(wanted, wanted.provider, environ, places)
    endpoint = endpoint_from_environment(environ, model=wanted.model)
    if endpoint is not None:
        return await _picked(_adjusted(endpoint, wanted, environ), wanted, f"{_variable(endpoint, environ)} is set")
    found = [local for local in await find_local(places) if _serves(local, wanted.model)]
    if found:
        return _local(found[0], wanted, "it answers, and no key is set")
    if wanted.model is not None:
        raise FoldlineError(f"no key is set, and no local server has the model {wanted.model!r}: set provider as well")
    try:
        return _embedded(wanted, "no key is set and no local server answers")
    except InvalidInput:
        raise
    except FoldlineError:
        raise FoldlineError(_NO_MODEL) from None


async def _named(wanted: Wanted, name: str, environ: Mapping[str, str], places: Sequence[Place]) -> Picked:
    if name in _BASE_URLS:
        hosted = _BASE_URLS[name]
        # A key under another name is as good as under the usual one.
        given = {**environ, hosted.variable: _key(wanted, environ) or environ.get(hosted.variable, "")}
        endpoint = endpoint_from_environment(given, name=name, model=wanted.model)
        if endpoint is None:
            raise FoldlineError(f"{name} needs a key: set {wanted.api_key_env or hosted.variable}")
        return await _picked(_adjusted(endpoint, wanted, environ), wanted, "as set")
    own = [place for place in places if name in ("local", place.kind)]
    if not own:
        known = ", ".join([*_BASE_URLS, *(place.kind for place in places), "local", _EMBEDDED])
        raise InvalidInput(f"unknown provider {name!r} without base_url; known are {known}", place="provider")
    found = await find_local(own)
    if not found:
        where = ", ".join(place.root_url for place in own)
        raise FoldlineError(f"no {name} server with a model answers at {where}: start it, or set base_url")
    fitting = [local for local in found if _serves(local, wanted.model)]
    if not fitting:
        models = ", ".join(model for local in found for model in local.models)
        raise InvalidInput(f"{name} has no {wanted.model!r}; it has {models}", place="model")
    return _local(fitting[0], wanted, "as set")


async def _at_address(wanted: Wanted, base_url: str, environ: Mapping[str, str]) -> Picked:
    hosted = _BASE_URLS.get(wanted.provider or "")
    usual = environ.get(hosted.variable, "").strip() if hosted else ""
    endpoint = Endpoint(
        name=wanted.provider or "custom",
        dialect=wanted.dialect or ("anthropic" if hosted and hosted.dialect == "anthropic" else "openai-chat"),
        base_url=base_url,
        model=wanted.model or "",
        api_key=_key(wanted, environ) or usual,
    )
    return await _picked(endpoint, wanted, "as set")


async def _picked(endpoint: Endpoint, wanted: Wanted, why: str) -> Picked:
    """A provider at an endpoint; a server near by is asked for its model and whether it has tools."""
    httpx = load_httpx()
    by_schema = wanted.tools == "schema"
    if not endpoint.model:
        async with httpx.AsyncClient(trust_env=not endpoint.is_local, timeout=2.0) as client:
            models = await served_models(endpoint, client)
        if not models:
            raise InvalidInput(f"{endpoint.base_url} does not say which models it has: set model", place="model")
        endpoint = replace(endpoint, model=models[0])
    if wanted.tools is None and endpoint.is_local and endpoint.dialect == "openai-chat":
        found = await find_local((Place("llama.cpp", endpoint.root_url),))
        by_schema = any(not local.has_tools for local in found)
    return _at(endpoint, by_schema, wanted, why)


def _local(local: Local, wanted: Wanted, why: str) -> Picked:
    endpoint = Endpoint(
        name=local.kind,
        dialect=wanted.dialect or "openai-chat",
        base_url=local.base_url,
        model=_serves(local, wanted.model) or "",
    )
    by_schema = not local.has_tools if wanted.tools is None else wanted.tools == "schema"
    return _at(endpoint, by_schema and endpoint.dialect == "openai-chat", wanted, f"{why} ({local.base_url})")


def _at(endpoint: Endpoint, by_schema: bool, wanted: Wanted, why: str) -> Picked:
    def with_fields(fields: Mapping[str, Json]) -> Provider:
        return provider_for(
            replace(endpoint, extra={**endpoint.extra, **wanted.extra, **fields}, session_id=wanted.session_id)
        )

    if not by_schema:
        return _told(with_fields({}), wanted, why)
    note = "The server's template has no tools: calls are held to a JSON schema."
    return _told(SchemaTools(with_fields), wanted, why, note)


def _embedded(wanted: Wanted, why: str) -> Picked:
    found = weights(wanted.model)
    by_schema = None if wanted.tools is None else wanted.tools == "schema"
    return _told(Embedded(found, window_tokens=wanted.window or WINDOW_TOKENS, by_schema=by_schema), wanted, why)


def _told(provider: Provider, wanted: Wanted, why: str, *notes: str) -> Picked:
    trusted = lookup(provider.model, local=True).summaries != "off"
    tools = trusted or wanted.tools is not None
    honest = () if trusted else (_UNTRUSTED.format(model=provider.model),)
    without = () if tools else (_WITHOUT_TOOLS,)
    return Picked(provider, why, (*honest, *without, *notes), trusted, tools)


def _adjusted(endpoint: Endpoint, wanted: Wanted, environ: Mapping[str, str]) -> Endpoint:
    key = _key(wanted, environ) or endpoint.api_key
    return replace(endpoint, dialect=wanted.dialect or endpoint.dialect, api_key=key)


def _key(wanted: Wanted, environ: Mapping[str, str]) -> str:
    """The key in the variable that was named; "" where none was."""
    if wanted.api_key_env is None:
        return ""
    key = environ.get(wanted.api_key_env, "").strip()
    if not key:
        raise InvalidInput(f"the variable {wanted.api_key_env} is not set", place="api_key_env")
    return key


def _variable(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    hosted = _BASE_URLS[endpoint.name]
    return hosted.variable if environ.get(hosted.variable, "").strip() else hosted.base_variable


def _serves(local: Local, model: str | None) -> str | None:
    """The name under which the server has the model; its first one where none is wanted."""
    if model is None:
        return local.models[0]
    return next((name for name in local.models if name in (model, f"{model}:latest")), None)


def _is_file(model: str | None) -> bool:
    return model is not None and model.lower().endswith(".gguf")
