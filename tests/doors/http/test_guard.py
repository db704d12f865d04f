"""Admission: by token, by origin and by rate."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.doors.http.support import Api, serving

from foldline.doors.http.guard import WRONG_TOKENS, GuardRules, Rates, host_name
from foldline.doors.http.routes import ROUTES

TOKEN = "a-token-of-some-length"
OURS = frozenset({"127.0.0.1", "localhost", "::1"})


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    rules = GuardRules(token=TOKEN, hosts=OURS)
    with serving(tmp_path_factory.mktemp("served"), "Hi.", rules=rules) as served:
        yield served


def asked(api: Api, path: str = "/v1/sessions", method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, f"{api.url}{path}", headers={name.replace("_", "-"): v for name, v in headers.items()})


def test_the_token_opens_and_nothing_else_does(api: Api) -> None:
    assert asked(api, authorization=f"Bearer {TOKEN}").status_code == 200
    assert asked(api, authorization=f"bearer {TOKEN}").status_code == 200
    for wrong in ("", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN):
        reply = asked(api, **({"authorization": wrong} if wrong else {}))
        assert (reply.status_code, reply.json()["field"]) == (401, "Authorization")
        assert reply.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in reply.text


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_only_what_says_nothing_of_sessions_is_open(api: Api, route: object) -> None:
    path = route.path.format(id="x", seq=0, name="page.js")  # type: ignore[attr-defined]
    reply = asked(api, path, route.method)  # type: ignore[attr-defined]
    is_free = path in {"/", "/static/page.js", "/health", "/ready", "/openapi.json"}
    assert (reply.status_code != 401) == is_free == route.free  # type: ignore[attr-defined]


def test_what_is_nowhere_needs_the_token_too(api: Api) -> None:
    assert asked(api, "/v1/nothing").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8791", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_that_is_not_ours_is_refused(api: Api, host: str) -> None:
    for path in ("/", "/health", "/v1/sessions"):
        reply = asked(api, path, host=host, authorization=f"Bearer {TOKEN}")
        assert (reply.status_code, reply.json()["field"]) == (403, "Host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8791", "localhost."])
def test_names_of_this_machine_are_ours(api: Api, host: str) -> None:
    assert asked(api, host=host, authorization=f"Bearer {TOKEN}").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "file://", "http://[", ""]
)
def test_a_page_of_another_origin_may_ask_nothing(api: Api, origin: str) -> None:
    reply = asked(api, "/v1/sessions", "POST", origin=origin, authorization=f"Bearer {TOKEN}")
    assert (reply.status_code, reply.json()["field"]) == (403, "Origin")
    assert "access-control-allow-origin" not in reply.headers


def test_the_own_page_may_ask_and_other_sites_may_not(api: Api) -> None:
    own = asked(api, origin=api.url, sec_fetch_site="same-origin", authorization=f"Bearer {TOKEN}")
    assert own.status_code == 200
    other = asked(api, sec_fetch_site="cross-site", authorization=f"Bearer {TOKEN}")
    assert (other.status_code, other.json()["field"]) == (403, "Sec-Fetch-Site")
    assert asked(api, "/", sec_fetch_site="cross-site").status_code == 200  # a link to the page


def test_browsers_are_told_what_the_page_may_do(api: Api) -> None:
    for path in ("/", "/static/page.js", "/static/page.css", "/static/icon.svg", "/v1/nothing"):
        reply = asked(api, path)
        policy = reply.headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
            assert rule in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
    kinds = {"/": "text/html", "/static/page.js": "text/javascript", "/static/page.css": "text/css"}
    for path, kind in kinds.items():
        assert asked(api, path).headers["content-type"] == f"{kind}; charset=utf-8"


def test_a_page_that_has_not_changed_is_not_sent_again(api: Api) -> None:
    first = asked(api, "/")
    again = asked(api, "/", if_none_match=f'"x", W/{first.headers["etag"]}')
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


def test_whoever_asks_too_often_is_told_when_to_come_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("rated"), "Hi.", rules=GuardRules(token=TOKEN, rate=5)) as api:
        good = {"authorization": f"Bearer {TOKEN}"}
        statuses = [asked(api, **good).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        reply = asked(api, **good)
        assert (reply.json()["type"], 1 <= int(reply.headers["retry-after"]) <= 12) == ("/problems/rate", True)
        assert asked(api, "/health").status_code == 200
        for _ in range(WRONG_TOKENS):
            assert asked(api, authorization="Bearer wrong").status_code == 401
        assert asked(api, authorization="Bearer wrong").status_code == 429
        assert 'foldline_refused_total{status="429"} ' in api.state.metrics.text().decode()


def test_wrong_tokens_of_one_client_keep_no_other_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Behind a proxy all have one address."""
    with serving(tmp_path_factory.mktemp("shared"), "Hi.", rules=GuardRules(token=TOKEN)) as api:
        replies = [asked(api, authorization="Bearer wrong") for _ in range(WRONG_TOKENS + 1)]
        assert [replies[0].status_code, replies[-1].status_code] == [401, 429]
        assert asked(api, authorization=f"Bearer {TOKEN}").status_code == 200


def test_what_was_used_comes_back_with_time_and_keys_are_bounded() -> None:
    now = 0.0
    rates = Rates(60, clock=lambda: now)
    assert [rates.wait_seconds("a") for _ in range(60)] == [0.0] * 60
    assert rates.wait_seconds("a") == 1.0
    assert rates.wait_seconds("b") == 0.0
    now = 1.0
    assert rates.wait_seconds("a", take=False) == 0.0
    assert [rates.wait_seconds("a") for _ in range(2)] == [0.0, 1.0]
    for number in range(20_000):
        rates.wait_seconds(str(number))
    assert len(rates) == 10_000
    assert Rates(0).wait_seconds("a") == 0.0


def test_hosts_are_told_from_their_ports() -> None:
    names = ["a", "a:1", "[::1]", "[::1]:1", "a.", "a.:1", "", ":1", "[::1", "[::1].b", "[::1]b", "a:b", "a:1:2", "c@a"]
    assert [host_name(name) for name in names] == ["a", "a", "::1", "::1", "a", "a"] + [""] * 8
