"""Every fault of a request is a problem+json that names the field, and never a fault of the server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.doors.http.support import Api, serving

from foldline.doors.http.requests import BodyLimits
from foldline.doors.http.routes import ROUTES, Route
from foldline.doors.http.state import ServerLimits

NOBODY = "20260101-000000-00000000"
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    limits = ServerLimits(body=BodyLimits(max_bytes=300_000, seconds=0.5))
    with serving(tmp_path_factory.mktemp("served"), "Noted.", limits=limits) as served:
        yield served


@pytest.fixture(scope="module")
def session(api: Api) -> str:
    made = api.create_session()
    api.say(made, "Hi")
    return made


def problem(reply: httpx.Response, status: int, field: str | None) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    received: dict[str, Any] = reply.json()
    assert (received["status"], received.get("field")) == (status, field)
    assert received["type"] == "about:blank" or received["type"].startswith("/problems/")
    assert received["title"] and received["detail"]
    return received


WITH_BODY = [route for route in ROUTES if route.fields.body is not None]
OF_SESSION = [route for route in ROUTES if "{id}" in route.path]
named = pytest.mark.parametrize


def path_of(route: Route, session: str) -> str:
    return route.path.format(id=session, seq=0, name="page.js")


@named("route", WITH_BODY, ids=lambda route: route.name)
@named(
    ("body", "field"),
    [
        (b"{", "body"),
        (b'{"text": "a"', "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"3", "body"),
        (b'"text"', "body"),
        (b"\xff\xfe{}", "body"),
        (b"\xef\xbb\xbf{}", "body"),
        (b'{"a": NaN}', "body"),
        (b'{"a": -Infinity}', "body"),
        (b'{"a": 1' + b"0" * 5_000 + b"}", "body"),
        (DEEP.encode(), "body"),
        (b'{"a":' * 40_000 + b"1" + b"}" * 40_000, "body"),
        (b'{"unheard": 1}', "unheard"),
        (b'{"unheard": 1, "unheard": 2}', "unheard"),
        (b'{"' + b"x" * 5_000 + b'": 1}', "x" * 100),
    ],
    ids=lambda value: value[:14].decode("ascii", "replace") if isinstance(value, bytes) else "",
)
def test_a_body_that_is_none_of_the_route_is_refused(
    api: Api, session: str, route: Route, body: bytes, field: str
) -> None:
    reply = api.client.request(
        route.method, path_of(route, session), content=body, headers={"content-type": "application/json"}
    )
    problem(reply, 400, field)


BAD_TEXTS: list[Any] = [None, 3, 1.5, True, [], {}, "a\0b", "\ud800"]
BAD_NUMBERS: list[Any] = [None, "3", 1.5, True, [], {}, -1, 2**31, 2**64, 10**400, -(10**400), 1e308]
BAD_FLAGS: list[Any] = [None, "true", 0, 1, [], {}]


@named("route", WITH_BODY, ids=lambda route: route.name)
def test_a_field_of_the_wrong_kind_is_named(api: Api, session: str, route: Route) -> None:
    kinds = {"text": BAD_TEXTS, "whole": BAD_NUMBERS, "flag": BAD_FLAGS}
    good: dict[str, Any] = {"text": "Hi", "seq": 0, "policy": "balanced", "first": 0, "last": 0, "tip": 0}
    needed = {one.name: good[one.name] for one in route.fields.body or () if one.required}
    for one in route.fields.body or ():
        for value in kinds[one.kind]:
            content = json.dumps({**needed, one.name: value})
            head = {"content-type": "application/json"}
            problem(api.client.post(path_of(route, session), content=content, headers=head), 400, one.name)
    for name in needed:
        without = {other: value for other, value in needed.items() if other != name}
        problem(api.client.post(path_of(route, session), json=without), 400, name)


@named("text", ["", " ", "\n\t", "\x1f"])
def test_a_message_without_words_is_refused(api: Api, session: str, text: str) -> None:
    problem(api.client.post(f"/v1/sessions/{session}/messages", json={"text": text}), 400, "text")


@named(
    ("path", "field"),
    [
        ("?limit=0", "limit"),
        ("?limit=501", "limit"),
        ("?limit=1.5", "limit"),
        ("?limit=ten", "limit"),
        ("?limit=", "limit"),
        ("?limit=%00", "limit"),
        ("?limit=1&limit=2", "limit"),
        ("?limit=" + "9" * 5_000, "limit"),
        ("?limit=٣", "limit"),
        ("?query=%00", "query"),
        ("?query=" + "x" * 201, "query"),
        ("?unheard=1", "unheard"),
        ("?after=" + "x" * 65, "after"),
        ("/SESSION/history?after=-2", "after"),
        ("/SESSION/history?before=-1", "before"),
        ("/SESSION/history?before=x", "before"),
        ("/SESSION/history/x", "seq"),
        ("/SESSION/history/-1", "seq"),
        ("/SESSION/history/1e3", "seq"),
        ("/SESSION/history/99999999999999999999", "seq"),
        ("/SESSION/turns?limit=-5", "limit"),
    ],
)
def test_a_wrong_query_or_path_is_named(api: Api, session: str, path: str, field: str) -> None:
    problem(api.client.get(f"/v1/sessions{path.replace('SESSION', session)}"), 400, field)


@named("route", OF_SESSION, ids=lambda route: route.name)
@named("name", [NOBODY, "latest", "2026", "%00", "x" * 60, "٢٠٢٦٠١٠١-000000-00000000", "a b", "%F0%9F%98%80"])
def test_a_session_that_is_not_there_is_not_found(api: Api, session: str, route: Route, name: str) -> None:
    good: dict[str, Any] = {"text": "Hi", "seq": 0, "policy": "balanced", "first": 0, "last": 0, "tip": 0}
    body = {one.name: good[one.name] for one in route.fields.body or () if one.required}
    path = path_of(route, name if name.startswith("%") else quote(name, safe=""))
    reply = api.client.request(route.method, path, json=body if route.fields.body is not None else None)
    if name == "%00":
        problem(reply, 400, "id")
    else:
        problem(reply, 404, "id")
    assert session in [row["id"] for row in api.get("")["sessions"]]  # "latest" and the like remove nothing


@named("key", ["", "a b", "x" * 201, "ä", "a\tb"])
def test_a_key_that_is_none_is_named(api: Api, session: str, key: str) -> None:
    head = [(b"Idempotency-Key", key.encode("latin-1"))]
    reply = api.client.post(f"/v1/sessions/{session}/messages", json={"text": "Hi"}, headers=head)
    problem(reply, 400, "Idempotency-Key")


@named("media_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"])
def test_a_body_that_is_not_said_to_be_json_is_refused(api: Api, session: str, media_type: str) -> None:
    head = {"content-type": media_type} if media_type else {}
    reply = api.client.post(f"/v1/sessions/{session}/messages", content=b'{"text": "Hi"}', headers=head)
    problem(reply, 415, "Content-Type")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: Api, session: str) -> None:
    path = f"/v1/sessions/{session}/messages"
    head = {"content-type": "application/json"}
    whole = problem(api.client.post(path, json={"text": "x" * 400_000}), 413, "body")
    assert whole["max_bytes"] == 300_000
    pieces = (b"x" * 50_000 for _ in range(20))  # of no told length
    problem(api.client.post(path, content=pieces, headers=head), 413, "body")


def raw(api: Api, *pieces: bytes, half: bool = False) -> bytes:
    """What the server answers to these bytes."""
    port = int(api.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if half:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
            if b'"status":' in answer and answer.endswith(b"}"):
                break
    return answer


def head_of(session: str, length: int) -> bytes:
    return (
        f"POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_a_body_that_does_not_come_is_given_up(api: Api, session: str) -> None:
    answer = raw(api, head_of(session, 100), b'{"text": "H')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"field":"body"' in answer


def test_a_body_that_is_cut_off_says_nothing(api: Api, session: str) -> None:
    before = api.get(f"/{session}")["messages"]
    raw(api, head_of(session, 100), b'{"text": "Hi"}', half=True)
    assert api.get(f"/{session}")["messages"] == before


def test_what_is_no_http_ends_the_connection(api: Api) -> None:
    assert raw(api, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert api.client.get("/health").status_code == 200


@named(
    "path", ["/v1", "/v1/", "/v1/session", "/v1/sessions/", "/v2/sessions", "/static", "/%00", "//", "/v1/sessions/a/b"]
)
def test_what_is_nowhere_is_not_found(api: Api, path: str) -> None:
    problem(httpx.get(f"{api.url}{path}"), 404, None)


@named("name", ["nothing.js", "..%2Fapp.py", "%2e%2e%2fapp.py", "page", "__init__.py", ".%2Findex.html"])
def test_no_file_but_those_of_the_page_is_served(api: Api, name: str) -> None:
    assert httpx.get(f"{api.url}/static/{name}").status_code == 404


def test_a_text_of_any_writing_is_taken_and_given_back(api: Api, session: str, tmp_path: Path) -> None:
    text = "Grüße 你好 😀 \x07 \u2028 \ufeff <script>"
    seq = api.say(session, text)["seq"]
    assert api.get(f"/{session}/history/{seq}")["text"] == text
