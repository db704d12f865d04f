"""Whether the fake takes a request: the checks of a provider, in its order."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from foldline.codecs.dialect import caps_of, dialect_named
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.testing.forms.base import Form, Prompt, missing
from foldline.testing.values import Body, Refusal
from foldline.testing.wording import (
    broken_rule,
    no_such_model,
    output_above_cap,
    output_does_not_fit,
    prompt_too_long,
    wrong_key,
)

__all__ = ["Taken", "Terms", "judge", "key_fault", "parsed"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the fake insists on; None where it does not care."""

    window_tokens: int
    count: Callable[[Body], int]
    models: Collection[str] | None
    api_key: str | None
    max_output_tokens: int | None
    max_images: int | None = None
    alternates: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A request that is good, and its size."""

    prompt: Prompt
    tokens: int


def key_fault(form: Form, headers: Mapping[str, str], terms: Terms) -> Refusal | None:
    """Refuses a key that is missing or wrong, and an Anthropic request that names no version of the API."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    name = dialect_named(form.dialect).key_header[0]
    given = bearer if name == "authorization" else headers.get(name, bearer)
    if terms.api_key is not None and given != terms.api_key:
        return wrong_key(form.dialect, given=bool(given))
    if form.dialect == "anthropic" and "anthropic-version" not in headers:
        return Refusal(400, "header", "anthropic-version: header is required")
    return None


def parsed(form: Form, data: bytes) -> Body | Refusal:
    """The JSON object of a request, or why there is none."""
    try:
        body = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return _no_json(form, str(error))
    if not isinstance(body, dict):
        return _no_json(form, f"expected an object, not {type(body).__name__}")
    return body


def judge(form: Form, body: Body, terms: Terms, *, path: str, counting: bool = False) -> Taken | Refusal:
    """Take the request, or refuse it as the provider would; with `counting` its size is only asked. O(size)."""
    prompt = form.read(body, path)
    if isinstance(prompt, Refusal):
        return prompt
    if form.dialect == "anthropic" and prompt.max_output_tokens is None and not counting:
        return missing("max_tokens", anthropic=True)
    if terms.models is not None and prompt.model not in terms.models:
        return no_such_model(form.dialect, prompt.model)
    fault = _fault(form, prompt, terms)
    if fault is not None:
        return fault
    tokens = terms.count(body)
    if counting:
        return Taken(prompt, tokens)
    output, cap = prompt.max_output_tokens or 0, terms.max_output_tokens
    if cap is not None and output > cap:
        return output_above_cap(form.dialect, output, cap, prompt.model)
    if tokens > terms.window_tokens:
        return prompt_too_long(form.dialect, tokens, terms.window_tokens)
    if tokens + output > terms.window_tokens:
        refusal = output_does_not_fit(form.dialect, tokens, output, terms.window_tokens)
        if refusal is not None:
            return refusal
    return Taken(prompt, tokens)


def _fault(form: Form, prompt: Prompt, terms: Terms) -> Refusal | None:
    """The first rule of the dialect that the history breaks."""
    try:
        found = check(
            prompt.messages,
            dialect=form.dialect,
            system=prompt.system,
            tools=prompt.tools,
            caps=caps_of(form.dialect, terms.window_tokens).learned(max_images=terms.max_images),
            alternating=terms.alternates,
        )
    except InvalidInput as error:
        code = None if form.dialect == "anthropic" else "invalid_type"
        return Refusal(400, "field", f"{error.place}: {error.reason}", code, error.place)
    if found:
        return broken_rule(form.dialect, found[0])
    return None


def _no_json(form: Form, why: str) -> Refusal:
    if form.dialect == "anthropic":
        return Refusal(400, "json", f"The request body is not valid JSON: {why}")
    return Refusal(400, "json", f"We could not parse the JSON body of your request: {why}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
