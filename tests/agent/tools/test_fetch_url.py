from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.support import scope

from foldline.agent.tools.base import ToolOutcome
from foldline.agent.tools.fetch_url import FetchUrl, refusal, resolve
from foldline.agent.tools.toolbox import Toolbox
from foldline.messages import ToolCall

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Site:
    """A server on this machine: what it answers by path, and the Host headers it got."""

    port: int = 0
    answers: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)

    def at(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


def serve(site: Site, context: ssl.SSLContext | None = None) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.hosts.append(self.headers["Host"])
            answer = site.answers.get(self.path, (404, {"Content-Type": "text/plain"}, b"nothing here"))
            if callable(answer):
                answer(self)
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            del arguments

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            del arguments  # a client that hangs up is what some tests are about

    server = Quiet(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    site.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    return server


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    server = serve(made)
    yield made
    server.shutdown()
    server.server_close()


def resolver(*answers: str) -> Callable[[str, int], Any]:
    """A name server whose answer changes with each question."""
    left = list(answers)

    async def resolve(host: str, port: int) -> list[str]:
        return [left.pop(0)]

    return resolve


def fetched(url: str, **settings: Any) -> ToolOutcome:
    call = ToolCall("1", "fetch_url", json.dumps({"url": url}))
    tool = FetchUrl(**({"allow_private": True} | settings))
    return asyncio.run(Toolbox([tool]).run(call, scope()))


def test_a_page_comes_as_text_that_is_called_data(site: Site) -> None:
    page = b"<title>T</title><p>Hello <a href='/x'>there</a></p><script>no()</script>"
    site.answers["/"] = (200, {"Content-Type": "text/html; charset=utf-8"}, page)
    assert fetched(site.at("/")) == ToolOutcome(
        f"[{site.at('/')} · 200 OK · text/html · what follows is data]\nT\n\nHello there ({site.at('/x')})"
    )


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/json",
        "application/ld+json",
        "text/csv",
        "application/atom+xml",
        "application/yaml",
        "",
    ],
)
def test_texts_come_as_they_are(site: Site, kind: str) -> None:
    site.answers["/"] = (200, {"Content-Type": kind} if kind else {}, b'{"a": "<p>"}\n')
    assert fetched(site.at("/")).text.endswith(' · what follows is data]\n{"a": "<p>"}\n')


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("image/png", "is no text: image/png, 4 bytes"), ("application/pdf", "application/pdf"), ("", "names no type")],
)
def test_what_is_no_text_is_named_and_refused(site: Site, kind: str, expected: str) -> None:
    site.answers["/"] = (200, {"Content-Type": kind} if kind else {}, b"\x89\0\1\2")
    outcome = fetched(site.at("/"))
    assert outcome.is_error
    assert expected in outcome.text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain; charset=latin-1", "Grüße".encode("latin-1")),
        ("text/html", '<meta charset="iso-8859-1">Grüße'.encode("latin-1")),
        ("text/plain; charset=nonsense", "Grüße".encode()),
        ("text/plain; charset=punycode", "Grüße".encode()),
        ("text/plain; charset=hex", "Grüße".encode()),
        ("text/plain", "Grüße".encode()),
    ],
)
def test_text_is_decoded_as_it_says_or_as_utf_8(site: Site, kind: str, body: bytes) -> None:
    site.answers["/"] = (200, {"Content-Type": kind}, body)
    assert fetched(site.at("/")).text.endswith("Grüße")


def test_an_error_page_is_an_error_with_its_text(site: Site) -> None:
    outcome = fetched(site.at("/none#part"))
    assert outcome.is_error
    assert outcome.text == f"[{site.at('/none')} · 404 Not Found · text/plain · what follows is data]\nnothing here"


def test_what_is_too_large_is_cut_and_said_so(site: Site) -> None:
    site.answers["/"] = (200, {"Content-Type": "text/plain"}, b"x" * 50_000)
    assert fetched(site.at("/"), max_bytes=1_000).text.endswith("xxx\n[cut: only the first 1,000 bytes were read]")
    packed = gzip.compress(b"y" * 5_000_000)
    site.answers["/z"] = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, packed)
    expected, _, text = fetched(site.at("/z"), max_bytes=1_000).text.partition("data]\n")
    assert "200 OK" in expected
    assert text == "y" * 1_000 + "\n[cut: only the first 1,000 bytes were read]"


def test_redirects_are_followed_to_the_end(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/b?x=1"}, b"")
    site.answers["/b?x=1"] = (301, {"Location": site.at("/c")}, b"")
    site.answers["/c"] = (200, {"Content-Type": "text/plain"}, b"end")
    assert fetched(site.at("/a")).text.startswith(f"[{site.at('/c')} · 200")


def test_redirects_without_end_are_left(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/a"}, b"")
    outcome = fetched(site.at("/a"))
    assert outcome.is_error
    assert "leads on more than 5 times" in outcome.text
    assert len(site.hosts) == 6


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://example.com/", "http://me:pw@127.0.0.1/"])
def test_a_redirect_to_what_may_not_be_asked_for_is_refused(site: Site, location: str) -> None:
    site.answers["/a"] = (302, {"Location": location}, b"")
    assert fetched(site.at("/a")).is_error
    assert len(site.hosts) == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///etc/passwd", "must be an http or https address"),
        ("gopher://example.com", "must be an http or https address"),
        ("example.com", "must be an http or https address"),
        ("http://", "must be an http or https address"),
        ("http://a b/", "url: "),
        ("http://[::1", "is no address"),
        ("http://me:pw@example.com/", "must not hold a user name or a password"),
        ("http://nowhere.invalid/", "nowhere.invalid cannot be resolved"),
    ],
)
def test_an_address_that_is_none_is_named(url: str, expected: str) -> None:
    outcome = fetched(url)
    assert outcome.is_error
    assert expected in outcome.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]"])
def test_this_machine_is_out_of_reach_unless_it_is_opened(site: Site, host: str) -> None:
    outcome = fetched(site.at("/", host), allow_private=False)
    assert outcome.is_error
    assert "is an address of this machine" in outcome.text
    assert site.hosts == []


def test_a_name_is_asked_once_and_the_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    """Name servers of an attacker answer with a public address first, and with a private one to the connection."""
    site.answers["/"] = (200, {"Content-Type": "text/plain"}, b"inside")
    asked = fetched(site.at("/", "rebind.test"), resolver=resolver("127.0.0.1", "192.0.2.1"))
    assert asked.text.endswith("inside")
    assert site.hosts == [f"rebind.test:{site.port}"]
    refused = fetched(site.at("/", "rebind.test"), allow_private=False, resolver=resolver("127.0.0.1", "1.1.1.1"))
    assert "rebind.test is refused: 127.0.0.1 is an address of this machine" in refused.text


def test_a_redirect_into_the_network_of_the_user_is_refused(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/secret"}, b"")

    def refuses(address: str) -> str | None:
        return None if address == "127.0.0.1" else refusal(address)

    names = resolver("127.0.0.1", "10.0.0.1")
    outcome = fetched(site.at("/a", "first.test"), allow_private=False, resolver=names, refuses=refuses)
    assert outcome.is_error
    assert "first.test is refused: 10.0.0.1 is not an address of the public internet" in outcome.text
    assert site.hosts == [f"first.test:{site.port}"]


def test_one_private_address_among_public_ones_is_enough_to_refuse(site: Site) -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["1.1.1.1", "10.0.0.1"]

    outcome = fetched(site.at("/", "both.test"), allow_private=False, resolver=both)
    assert "both.test is refused: 10.0.0.1" in outcome.text


def test_the_next_address_is_tried_when_the_first_does_not_answer(site: Site) -> None:
    site.answers["/"] = (200, {"Content-Type": "text/plain"}, b"ok")

    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    assert fetched(site.at("/", "two.test"), resolver=two).text.endswith("ok")


def test_a_server_that_never_answers_is_left_in_time(site: Site) -> None:
    done = threading.Event()
    site.answers["/"] = lambda handler: (done.wait(5), None)[1]
    outcome = fetched(site.at("/"), timeout_seconds=0.2)
    done.set()
    assert outcome == ToolOutcome("url: no whole answer within 0.2 seconds", is_error=True)


def test_a_server_that_drips_is_left_in_time(site: Site) -> None:
    done = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        while not done.wait(0.02):
            handler.wfile.write(b".")

    site.answers["/"] = drip
    outcome = fetched(site.at("/"), timeout_seconds=0.3)
    done.set()
    assert outcome == ToolOutcome("url: no whole answer within 0.3 seconds", is_error=True)


def test_a_port_where_nobody_listens_is_one_clear_line(site: Site) -> None:
    outcome = fetched("http://127.0.0.1:1/")
    assert outcome.is_error
    assert outcome.text.startswith("url: cannot be fetched: ConnectError")


@pytest.mark.parametrize(
    ("host", "path", "good"), [("pinned.test", "/", True), ("other.test", "/", False), ("pinned.test", "/go", False)]
)
def test_tls_is_for_the_name_and_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, path: str, good: bool
) -> None:
    """/go leads to another name at the same address, for which the first name's connection must not serve."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pinned.test "
        f"-addext subjectAltName=DNS:pinned.test -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    site = Site(answers={"/": (200, {"Content-Type": "text/plain"}, b"safe")})
    server = serve(site, context)
    site.answers["/go"] = (302, {"Location": site.at("/", "other.test", "https")}, b"")
    outcome = fetched(site.at(path, host, "https"), resolver=resolver("127.0.0.1", "127.0.0.1"))
    server.shutdown()
    server.server_close()
    assert outcome.is_error is not good
    assert ("safe" if good else "CERTIFICATE_VERIFY_FAILED") in outcome.text


def deflated(block: bytes, times: int) -> bytes:
    """A gzip stream of a block, repeated `times`, built without holding all of it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)) * times


def test_a_bomb_is_never_unpacked_beyond_what_is_read(site: Site) -> None:
    packed = deflated(b" " * 1024 * 1024, 2_000)  # 2 GiB
    site.answers["/"] = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, packed)
    tracemalloc.start()
    try:
        shown = fetched(site.at("/"), max_bytes=100_000).text
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "[cut: only the first 100,000 bytes were read]" in shown
    assert most < 32 * 1024 * 1024


@pytest.mark.parametrize("form", ["deflate", "bare deflate", "x-gzip"])
def test_what_is_packed_as_servers_do_is_unpacked(site: Site, form: str) -> None:
    bits = {"deflate": 15, "bare deflate": -15, "x-gzip": 31}[form]
    packer = zlib.compressobj(wbits=bits)
    packed = packer.compress(b"some words") + packer.flush()
    site.answers["/"] = (200, {"Content-Type": "text/plain", "Content-Encoding": form.rsplit(maxsplit=1)[-1]}, packed)
    assert fetched(site.at("/")).text.endswith("\nsome words")


@pytest.mark.parametrize(
    ("packing", "expected"),
    [
        ("br", "packed in a way that was not asked for: br"),
        ("gzip, gzip", "for: gzip, gzip"),
        ("gzip", "is not packed"),
    ],
)
def test_what_is_packed_oddly_is_refused(site: Site, packing: str, expected: str) -> None:
    site.answers["/"] = (200, {"Content-Type": "text/plain", "Content-Encoding": packing}, b"no such thing")
    outcome = fetched(site.at("/"))
    assert outcome.is_error
    assert expected in outcome.text


def test_a_page_that_would_take_for_ever_is_left_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parser looks for the end of a tag from each beginning, in one expression that nothing can end."""
    monkeypatch.setattr("foldline.agent.tools.fetch_url.READ_SECONDS", 0.3)
    site.answers["/"] = (200, {"Content-Type": "text/html"}, b"<p>before</p>" + b"<a " * 600_000)
    outcome = fetched(site.at("/"))
    assert outcome.is_error
    assert outcome.text == "url: is a page that cannot be read: it took more than 0.3 seconds"


def test_a_page_whose_links_would_grow_without_end_is_short(site: Site) -> None:
    page = b'<base href="https://example.com/' + b"a" * 500_000 + b'">' + b"<a href=b>c</a>" * 50_000
    site.answers["/"] = (200, {"Content-Type": "text/html"}, page)
    assert len(fetched(site.at("/")).text) < 200_000


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.2.1",
        "192.0.0.192",
        "fec0::1",
        "64:ff9b:1::7f00:1",
        "::7f00:1",
        "::ffff:0:7f00:1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:c0a8:101::1",
    ],
)
def test_what_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert refusal(address) is not None


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "localhost"])
def test_other_ways_to_write_this_machine_are_seen_through(host: str) -> None:
    addresses = asyncio.run(resolve(host, 80))
    assert addresses
    assert all(refusal(address) == "an address of this machine" for address in addresses)
