"""Admission to the proxy: the rules, the removal of the token, and the form of refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from foldline.doors.http.guard import SAFE_HEADERS, WRONG_TOKENS
from foldline.doors.proxy.gate import Gate, GateRules
from foldline.doors.proxy.page import FREE_PATHS, HEALTH
from foldline.doors.proxy.startup import ProxySettings, open_proxy

TOKEN = "a-token-of-some-length"
LOCAL = GateRules(hosts=frozenset({"127.0.0.1", "localhost", "::1"}))
OPEN = GateRules(token=TOKEN)
MESSAGES = "/v1/messages"


class Seen:
    """An application that records its requests. `status` is that of its response."""

    def __init__(self, rules: GateRules) -> None:
        self.gate = Gate(self, rules)
        self.scopes: list[dict[str, Any]] = []
        self.status, self.headers, self.body = 0, dict[bytes, bytes](), b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        headers = [(b"x-odd", b"1"), (b"X-Odd", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def ask(
        self,
        path: str = MESSAGES,
        method: str = "POST",
        *,
        client: str = "10.0.0.1",
        second_host: str = "",
        **headers: str,
    ) -> int:
        """The status. The scope is as uvicorn makes it."""
        given = {"host": "localhost:8790", **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw_path, _, query = path.encode().partition(b"?")
        scope = {
            "type": "http",
            "method": method,
            "path": path.partition("?")[0].replace("%2F", "/"),
            "raw_path": raw_path,
            "query_string": query,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
            + ([(b"host", second_host.encode())] if second_host else []),
            "client": (client, 1),
            "foldline.cut": self.ask,
        }
        before = dict(scope)

        async def receive() -> Any:
            raise AssertionError("the gate reads no body")

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status, self.sent = message["status"], message["headers"]
                self.headers = dict(message["headers"])
            else:
                self.body = message["body"]

        asyncio.run(self.gate(scope, receive, send))
        assert scope == before, "what was given is not changed"
        return self.status

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


def test_on_loopback_no_token_is_needed_and_nothing_is_touched() -> None:
    seen = Seen(LOCAL)
    assert seen.ask("/v1/messages?beta=true", authorization="Bearer sk-1", x_api_key="sk-2", accept="*/*") == 200
    scope = seen.scopes[0]
    assert scope["headers"] == [
        (b"host", b"localhost:8790"),
        (b"authorization", b"Bearer sk-1"),
        (b"x-api-key", b"sk-2"),
        (b"accept", b"*/*"),
    ]
    assert (scope["raw_path"], scope["query_string"]) == (b"/v1/messages", b"beta=true")
    assert seen.sent == [(b"x-odd", b"1"), (b"X-Odd", b"2")]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8790",
        "127.0.0.1.evil.example",
        "",
        "localhost.evil",
        "[::1].evil.example",
        "[::1]evil.example",
        "127.0.0.1:evil.com",
        "localhost:80:90",
        "localhost@evil.example",
        "user@localhost",
        "localhost/evil.example",
    ],
)
def test_a_name_that_is_not_ours_is_refused(host: str) -> None:
    seen = Seen(LOCAL)
    for path in (MESSAGES, "/v1/models", "/foldline", "/metrics"):
        assert seen.ask(path, host=host) == 403
    assert seen.scopes == []
    assert "--allow-host" in seen.error["message"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8790", "localhost."])
def test_names_of_this_machine_are_ours(host: str) -> None:
    assert Seen(LOCAL).ask(host=host) == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "file://", "http://[", ""]
)
def test_a_page_of_another_origin_may_ask_nothing(origin: str) -> None:
    seen = Seen(LOCAL)
    assert (seen.ask(origin=origin), seen.ask("/foldline/state", "GET", origin=origin)) == (403, 403)
    assert b"access-control-allow-origin" not in seen.headers
    assert seen.scopes == []


def test_the_own_page_may_ask_and_other_sites_may_only_link_to_it() -> None:
    seen = Seen(LOCAL)
    assert seen.ask("/foldline/events", "GET", origin="http://localhost:8790", sec_fetch_site="same-origin") == 200
    assert seen.ask("/foldline", "GET", sec_fetch_site="cross-site") == 200
    assert seen.ask("/v1/models", "GET", sec_fetch_site="cross-site") == 403
    assert seen.ask("/v1/models", "GET", sec_fetch_site="same-site") == 403
    assert seen.ask("/v1/models", "GET", sec_fetch_site="none") == 200


def test_the_header_opens_and_goes_no_further() -> None:
    seen = Seen(OPEN)
    assert seen.ask(x_foldline_token=TOKEN, authorization="Bearer sk-1", x_foldline_session="s") == 200
    names = [name for name, _ in seen.scopes[0]["headers"]]
    assert names == [b"host", b"authorization", b"x-foldline-session"]


@pytest.mark.parametrize(
    ("path", "raw_path", "plain"),
    [
        (f"/~{TOKEN}/v1/messages?beta=true", b"/v1/messages", "/v1/messages"),
        (f"/~{TOKEN}/v1/files/a%2Fb", b"/v1/files/a%2Fb", "/v1/files/a/b"),
        (f"/~{TOKEN.replace('-', '%2D')}/v1/models", b"/v1/models", "/v1/models"),
        (f"/~{TOKEN}/foldline", b"/foldline", "/foldline"),
        (f"/~{TOKEN}/~{TOKEN}/v1/messages", b"/v1/messages", "/v1/messages"),  # a base URL that was put together twice
        (f"/~{TOKEN}/~wrong/v1/messages", b"/v1/messages", "/v1/messages"),
        (f"/~{TOKEN}", b"/", "/"),
        (f"/~{TOKEN}/", b"/", "/"),
    ],
)
def test_a_token_in_the_path_opens_and_goes_no_further(path: str, raw_path: bytes, plain: str) -> None:
    seen = Seen(OPEN)
    assert seen.ask(path) == 200
    assert (seen.scopes[0]["raw_path"], seen.scopes[0]["path"]) == (raw_path, plain)
    assert "foldline.cut" in seen.scopes[0]


def test_of_two_tokens_in_a_path_the_first_decides() -> None:
    assert Seen(OPEN).ask(f"/~wrong/~{TOKEN}/v1/messages") == 401


def test_a_token_goes_no_further_where_none_is_needed() -> None:
    seen = Seen(LOCAL)
    assert seen.ask(f"/~{TOKEN}/v1/messages", x_foldline_token=TOKEN) == 200
    assert TOKEN not in str({**seen.scopes[0], "foldline.cut": None})


@pytest.mark.parametrize("given", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"])
def test_anything_else_is_refused(given: str) -> None:
    seen = Seen(OPEN)
    assert seen.ask(x_foldline_token=given) == 401
    assert seen.ask(f"/~{given}/v1/messages") == 401
    assert seen.ask(authorization=f"Bearer {TOKEN}") == 401, "there it is the client's own key"
    assert seen.headers[b"www-authenticate"] == b"Bearer"
    assert TOKEN not in seen.body.decode()
    assert seen.scopes == []


def test_the_page_itself_needs_no_token_as_it_asks_for_one() -> None:
    for path in FREE_PATHS:
        assert Seen(OPEN).ask(path, "GET") == 200
        assert Seen(OPEN).ask(path, "POST") == 401
    assert Seen(OPEN).ask("/foldline/nothing.js", "GET") == 401


def test_a_health_check_needs_no_token_and_may_use_any_name() -> None:
    """One that is refused would have the process restarted."""
    seen = Seen(GateRules(hosts=LOCAL.hosts, token=TOKEN))
    assert seen.ask(HEALTH, "GET", host="pod-3.example.com:8790") == 200
    assert seen.ask("/foldline/state", "GET", host="pod-3.example.com:8790") == 403
    assert seen.ask(HEALTH, "POST") == 401


@pytest.mark.parametrize("path", ["/foldline/events", "/foldline/state", "/metrics"])
def test_what_the_proxy_answers_itself_takes_a_bearer_too(path: str) -> None:
    seen = Seen(OPEN)
    assert seen.ask(path, "GET", authorization=f"bearer {TOKEN}") == 200
    assert seen.ask(path, "GET", x_foldline_token=TOKEN) == 200
    for wrong in ("", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"):
        assert seen.ask(path, "GET", authorization=wrong) == 401
    assert seen.ask(path + "x" if path == "/metrics" else "/foldlinex", "GET", authorization=f"Bearer {TOKEN}") == 401


def test_with_a_token_any_name_will_do_unless_some_are_given() -> None:
    assert Seen(OPEN).ask(host="proxy.example", x_foldline_token=TOKEN) == 200
    named = Seen(GateRules(token=TOKEN, hosts=frozenset({"proxy.example"})))
    assert named.ask(host="proxy.example", x_foldline_token=TOKEN) == 200
    assert named.ask(host="other.example", x_foldline_token=TOKEN) == 403


def test_wrong_tokens_are_counted_by_address_and_never_keep_the_right_one_out() -> None:
    seen = Seen(OPEN)
    for number in range(WRONG_TOKENS):
        assert (seen.ask(x_foldline_token="wrong") if number % 2 else seen.ask("/~wrong/v1/messages")) == 401
    assert seen.ask(x_foldline_token="wrong") == 429
    assert 1 <= int(seen.headers[b"retry-after"]) <= 60
    assert seen.ask(x_foldline_token=TOKEN) == 200
    assert seen.ask(x_foldline_token="wrong", client="10.0.0.2") == 401


def test_a_client_that_shows_nothing_is_not_counted() -> None:
    seen = Seen(OPEN)
    assert [seen.ask() for _ in range(WRONG_TOKENS + 5)] == [401] * (WRONG_TOKENS + 5)


def test_refusals_have_the_form_of_the_dialect() -> None:
    seen = Seen(OPEN)
    seen.ask("/v1/messages")
    assert json.loads(seen.body)["type"] == "error"
    assert seen.error["type"] == "authentication_error"
    seen.ask("/~wrong/v1/chat/completions")
    assert seen.error["code"] == "invalid_api_key"
    assert seen.headers[b"content-type"] == b"application/json"
    assert seen.headers[b"content-length"] == b"%d" % len(seen.body)


def test_a_websocket_is_refused_so_that_clients_fall_back_to_http() -> None:
    seen = Seen(LOCAL)
    assert seen.ask("/v1/responses", "GET", connection="Upgrade", upgrade="websocket") == 426
    assert seen.headers[b"connection"] == b"close"
    assert Seen(OPEN).ask("/v1/responses", "GET", connection="Upgrade", upgrade="websocket") == 401


def test_what_is_no_request_is_handed_on() -> None:
    seen = Seen(OPEN)

    async def nothing(*_: Any) -> Any:
        return None

    async def work() -> None:
        await seen.gate({"type": "lifespan"}, nothing, nothing)

    asyncio.run(work())
    assert seen.scopes == [{"type": "lifespan"}]


@pytest.mark.parametrize("rules", [LOCAL, GateRules(token="t")])
def test_a_request_with_two_hosts_is_refused(rules: GateRules) -> None:
    seen = Seen(rules)
    assert seen.ask(second_host="localhost:8790", x_foldline_token="t") == 400
    assert not seen.scopes


def test_a_slash_too_many_leads_back_under_the_prefix_of_a_token(tmp_path: Path) -> None:
    settings = ProxySettings(upstream="http://127.0.0.1:9", store=None)

    async def work() -> list[httpx.Response]:
        environ = {"FOLDLINE_HOME": str(tmp_path)}
        async with open_proxy(settings, GateRules(token="tok"), environ, notice=lambda line: None) as opened:
            way = httpx.ASGITransport(app=opened.app)
            async with httpx.AsyncClient(transport=way, base_url="http://a/~tok/") as api:
                return [await api.get(path) for path in ("foldline/state/?a=b", "foldline/a/b", "foldline/")]

    led, missing, home = asyncio.run(work())
    assert (led.status_code, led.headers["location"]) == (307, "../state?a=b")
    assert str(led.next_request and led.next_request.url) == "http://a/~tok/foldline/state?a=b"
    assert missing.status_code == 404
    assert str(home.next_request and home.next_request.url) == "http://a/~tok/foldline"
    for answer in (led, missing, home):
        assert {name.decode() for name, _ in SAFE_HEADERS} <= set(answer.headers)


@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        ("1.0", [], 200),
        ("1.0", [(b"host", b"evil.example")], 403),
        ("1.0", [(b"host", b"")], 403),
        ("1.0", [(b"origin", b"http://evil.example")], 403),
        ("1.1", [], 403),
    ],
)
def test_only_a_client_of_http_1_0_may_name_no_host(
    version: str, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    seen = Seen(LOCAL)

    async def send(message: Any) -> None:
        seen.status = message.get("status", seen.status)

    scope = {"type": "http", "http_version": version, "method": "POST", "path": MESSAGES, "headers": headers}
    asyncio.run(seen.gate(scope, receive_nothing, send))
    assert seen.status == status


async def receive_nothing() -> Any:
    raise AssertionError("the gate reads no body")
