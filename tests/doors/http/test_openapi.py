"""Schemathesis checks the server against its own document, in both directions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, unsupported_method
from tests.doors.http.support import Api, serving

from foldline.doors.http.openapi import document
from foldline.doors.http.routes import ROUTES, Route
from foldline.hosting.session_actor import ActorLimits

EXAMPLES = 8
SOAK_EXAMPLES = 400
STREAMS = {"follow_session", "follow_all"}
"""They never end, so no validator sees their end: test_streams.py has them."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    limits = ActorLimits(warm=8, idle_seconds=1.0)
    with serving(tmp_path_factory.mktemp("served"), "Noted.", actor_limits=limits) as served:
        yield served


def asked(api: Api, route: Route, examples: int, *, good: bool = True) -> Counter[int]:
    """How an operation answers what schemathesis makes up for it, in numbers of each status.

    What is made up is as the document says, or (not `good`) against it in some place.
    """
    schema = schemathesis.openapi.from_dict(json.loads(api.client.get("/openapi.json").text))
    found = (one.ok() for one in schema.get_all_operations() if isinstance(one, Ok))
    operation = next(one for one in found if one.definition.raw["operationId"] == route.name)
    known = api.create_session()
    statuses: Counter[int] = Counter()
    fixed: dict[str, Any] = {"path_parameters": {"id": known}} if not good and route.fields.path else {}

    @seeded(20261128)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(case=operation.as_strategy(GenerationMode.POSITIVE if good else GenerationMode.NEGATIVE, **fixed))
    def ask(case: Any) -> None:
        if good and statuses.total() % 2 == 0 and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = known  # else nearly all would be 404
        response = case.call(base_url=api.url)
        statuses[response.status_code] += 1
        if response.status_code != 200 or "text/event-stream" not in response.headers["content-type"][0]:
            case.validate_response(response, excluded_checks=[ignored_auth, unsupported_method])

    ask()
    return statuses


OPERATIONS = [route for route in ROUTES if route.name not in STREAMS]
REFUSING = [
    route for route in OPERATIONS if route.fields.query or route.fields.headers or route.fields.body is not None
]
"""Wrong paths are made by hand in test_bad_input.py: schemathesis needs seconds to find one."""
each = pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: route.name)


@each
def test_the_server_takes_what_its_document_says(api: Api, route: Route) -> None:
    statuses = asked(api, route, EXAMPLES)
    assert statuses
    assert not [status for status in statuses if status >= 500]


@pytest.mark.parametrize("route", REFUSING, ids=lambda route: route.name)
def test_the_server_refuses_what_its_document_does_not_say(api: Api, route: Route) -> None:
    statuses = asked(api, route, EXAMPLES, good=False)
    assert statuses
    assert not [status for status in statuses if status >= 500]


@pytest.mark.soak
def test_ten_thousand_requests_bring_no_fault(api: Api) -> None:
    total: Counter[int] = Counter()
    for route in OPERATIONS:
        total += asked(api, route, SOAK_EXAMPLES)
    for route in REFUSING:
        total += asked(api, route, SOAK_EXAMPLES, good=False)
    assert total.total() >= 10_000
    assert [status for status in total if status >= 500] == []


def test_the_document_is_made_of_the_routes() -> None:
    made = document(ROUTES, version="1")
    assert made["openapi"].startswith("3.1")
    received = {(method.upper(), path) for path, own in made["paths"].items() for method in own}
    assert received == {(route.method, route.path) for route in ROUTES}
    assert len({route.name for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_wrong_method_is_refused_with_those_that_are_right(api: Api, route: Route) -> None:
    path = route.path.format(id="x", seq=0, name="page.js")
    reply = api.client.put(path)
    allowed = {one.method for one in ROUTES if one.path == route.path}
    assert (reply.status_code, reply.headers["content-type"]) == (405, "application/problem+json")
    assert set(reply.headers["allow"].split(", ")) == allowed
