"""Whether the fake accepts a request: the checks of a provider, in its order."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from foldline.codecs.dialect import caps_of, dialect_named
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.testing.forms.base import Form, Prompt, refuse_rule
from foldline.testing.script import Body, Refusal

__all__ = ["AcceptedRequest", "Requirements", "judge", "key_fault", "parsed"]


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the fake requires of a request; None for no requirement."""

    window_tokens: int
    count: Callable[[Body], int]
    models: Collection[str] | None
    api_key: str | None
    max_output_tokens: int | None
    max_images: int | None = None
    alternates: bool = False


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A valid request, and its size."""

    prompt: Prompt
    tokens: int


def key_fault(form: Form, headers: Mapping[str, str], required: Requirements) -> Refusal | None:
    """Refuse a request with a missing or wrong key, or without a header that the dialect requires."""
    row = dialect_named(form.dialect)
    # Gateways accept a bearer token in every dialect, so it counts where the header of the dialect is missing.
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    name = row.key_header[0]
    given = bearer if name == "authorization" else headers.get(name, bearer)
    # The key before the version: a provider does not explain its API to strangers.
    if required.api_key is not None and given != required.api_key:
        return form.refuse_key(given=bool(given))
    missing = next((name for name in row.headers if name not in headers), None)
    return Refusal(400, "header", f"{missing}: header is required") if missing is not None else None


def parsed(form: Form, data: bytes) -> Body | Refusal:
    """Return the JSON object of a request, or why there is none."""
    try:
        # Python would read NaN and Infinity, which no provider does.
        body = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return form.refuse_json(str(error))
    if not isinstance(body, dict):
        return form.refuse_json(f"expected an object, not {type(body).__name__}")
    return body


def judge(
    form: Form, body: Body, required: Requirements, *, path: str, counting: bool = False
) -> AcceptedRequest | Refusal:
    """Accept a request, or refuse it as the provider would; `counting` asks only for its size. O(size)."""
    prompt = form.read(body, path)
    if isinstance(prompt, Refusal):
        return prompt
    if required.models is not None and prompt.model not in required.models:
        return form.refuse_model(prompt.model)
    # Rules before sizes: a provider validates the body before it counts tokens, and clients must tell both apart.
    fault = _fault(form, prompt, required)
    if fault is not None:
        return fault
    tokens = required.count(body)
    if counting:  # a count of a request over the window is an answer, not an error
        return AcceptedRequest(prompt, tokens)
    output, cap = prompt.max_output_tokens or 0, required.max_output_tokens
    if cap is not None and output > cap:
        return form.refuse_output(output, cap, prompt.model)
    if tokens > required.window_tokens:
        return form.refuse_prompt(tokens, required.window_tokens)
    if tokens + output > required.window_tokens:
        refusal = form.refuse_sum(tokens, output, required.window_tokens)
        if refusal is not None:
            return refusal
    return AcceptedRequest(prompt, tokens)


def _fault(form: Form, prompt: Prompt, required: Requirements) -> Refusal | None:
    """Return the first rule of the dialect that the messages break."""
    try:
        found = check(
            prompt.messages,
            dialect=form.dialect,
            system=prompt.system,
            tools=prompt.tools,
            # The limits of the dialect for a window of this size, with the number that the test sets in their place.
            caps=caps_of(form.dialect, required.window_tokens).learned(max_images=required.max_images),
            alternating=required.alternates,
        )
    except InvalidInput as error:
        return form.refuse_field(error.place, error.reason)
    return refuse_rule(form, found[0]) if found else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
