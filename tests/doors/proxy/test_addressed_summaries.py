"""A summary is requested at the path of its client's request: an Azure deployment, a gateway's path, a query."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from tests.doors.proxy.proxies import PATHS, proxied

from foldline.doors.proxy.request_head import with_model_at
from foldline.doors.proxy.windows import url_at
from foldline.errors import InvalidInput
from foldline.providers.endpoint import Endpoint
from foldline.testing import FakeProvider
from foldline.testing.scripted_model import session

CHECKPOINT = "Goal: fix the failing test. Done: many files were read, all are in order. Open: the rest."
VERSION = "2024-10-21"


def answer(body: Mapping[str, Any]) -> str:
    return CHECKPOINT if is_summary(body) else "Noted."


def is_summary(body: Mapping[str, Any]) -> bool:
    said = json.dumps(body)
    return "[A checkpoint is due]" in said or "You write the checkpoint" in said


@dataclass
class Elsewhere:
    """An upstream that answers at paths of one form only, to whoever shows the key in the header that it wants."""

    form: str
    key: tuple[str, str] | None
    query: Mapping[str, list[str]]
    fake: FakeProvider = field(default_factory=lambda: FakeProvider(answer, window_tokens=16_000, keep=200))
    refused: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.fake(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = parse_qs(scope["query_string"].decode())
        found = re.fullmatch(self.form, scope["path"])
        shown = self.key is None or headers.get(self.key[0]) == self.key[1]
        if found is None or not shown or query != self.query:
            self.refused.append(scope["path"])
            await self.fake({**scope, "path": "/nowhere"}, receive, send)
            return
        self.taken.append(scope["path"])
        await self.fake({**scope, "path": f"/v1{found['rest']}"}, receive, send)

    @property
    def summaries(self) -> list[str]:
        """The paths at which summaries were asked for."""
        asked = zip(self.taken, self.fake.requests, strict=True)
        return [path for path, request in asked if is_summary(request.body)]


def talked(url: str, dialect: str, headers: Mapping[str, str]) -> None:
    """A client that resends all it has, a little more each time."""
    messages = session(14, result="This line of the file is in order. " * 220, dialect=dialect)
    name = "input" if dialect == "openai-responses" else "messages"
    with httpx.Client(headers={"anthropic-version": "2023-06-01", **headers}, timeout=60) as client:
        for count in range(1, len(messages) + 1, 2):
            body = {"model": "some-model", "max_tokens": 300, name: messages[:count]}
            body |= {"max_output_tokens": body.pop("max_tokens")} if dialect == "openai-responses" else {}
            assert client.post(url, json=body).status_code == 200


AZURE = r"/openai/deployments/(?P<name>[^/]+)(?P<rest>/.*)"
DEPLOYMENT = f"/openai/deployments/our-4o/chat/completions?api-version={VERSION}"
PLACES = [
    ("openai-chat", AZURE, DEPLOYMENT, ("api-key", "azure-secret")),
    ("openai-chat", AZURE, DEPLOYMENT, ("authorization", "Bearer entra-token")),
    ("openai-chat", AZURE, DEPLOYMENT, ("ocp-apim-subscription-key", "apim-secret")),
    ("openai-responses", r"/openai(?P<rest>/responses)", f"/openai/responses?api-version={VERSION}", ("api-key", "k")),
    ("openai-chat", r"/api/v1(?P<rest>/.*)", "/api/v1/chat/completions", ("authorization", "Bearer router-key")),
    ("openai-chat", r"/v1beta/openai(?P<rest>/.*)", "/v1beta/openai/chat/completions?key=google-secret", None),
    ("anthropic", r"/anthropic/v1(?P<rest>/.*)", "/anthropic/v1/messages?beta=true", ("x-api-key", "a-key")),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_summary_goes_to_the_path_of_its_conversation_with_query_and_key(
    place: tuple[str, str, str, tuple[str, str] | None], tmp_path: Path
) -> None:
    dialect, form, target, key = place
    path, _, query = target.partition("?")
    upstream = Elsewhere(form, key, parse_qs(query))
    with proxied(upstream, tmp_path, summaries=True, policy="sliding") as proxy:
        talked(proxy.url + target, dialect, dict([key] if key else []))
    assert upstream.summaries
    assert set(upstream.summaries) == {path}
    assert upstream.refused == []


def test_a_summary_model_takes_the_place_of_the_deployment(tmp_path: Path) -> None:
    upstream = Elsewhere(AZURE, ("api-key", "azure-secret"), {"api-version": [VERSION]})
    with proxied(upstream, tmp_path, summaries=True, policy="sliding", summary_model="our-mini") as proxy:
        talked(proxy.url + DEPLOYMENT, "openai-chat", {"api-key": "azure-secret"})
    assert set(upstream.summaries) == {"/openai/deployments/our-mini/chat/completions"}


def test_an_address_with_a_version_is_that_of_the_clients_path() -> None:
    for dialect, path in PATHS.items():
        assert url_at("http://host:1/v1/", path) == f"http://host:1{path}", dialect
        assert url_at("http://host:1/prefix", path) == f"http://host:1/prefix{path}"


@pytest.mark.parametrize(
    ("path", "model", "expected"),
    [
        ("/v1/chat/completions", "m", "/v1/chat/completions"),
        ("/openai/deployments/a%20b/chat/completions", "c/d e", "/openai/deployments/c%2Fd%20e/chat/completions"),
        ("/models/owner/name/v1/chat/completions", "other/one", "/models/other/one/v1/chat/completions"),
    ],
)
def test_a_path_takes_another_model_where_it_names_one(path: str, model: str, expected: str) -> None:
    assert with_model_at(path, model) == expected


def test_the_key_goes_to_no_other_host_and_stands_in_no_repr() -> None:
    with pytest.raises(InvalidInput, match="request_url"):
        Endpoint(name="x", dialect="openai-chat", base_url="http://a/v1", model="m", request_url="http://b/v1")
    url = "http://a/v1/chat/completions?key=google-secret"
    endpoint = Endpoint(name="x", dialect="openai-chat", base_url="http://a/v1", model="m", request_url=url)
    assert "google-secret" not in repr(endpoint)
    assert "google-secret" in endpoint.secrets
