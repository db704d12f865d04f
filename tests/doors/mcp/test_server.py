"""`foldline mcp` as a program: an MCP client calls the tools of one conversation, at a proxy or in its store."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner
from tests.agent.tools.support import Person, scope
from tests.doors.proxy.test_own_tools import LINE, OWNER, TOKEN, Talk, proxy

from foldline.agent.tools.mcp import McpServer, mcp_tools
from foldline.agent.tools.toolbox import Toolbox
from foldline.cli.main import cli
from foldline.doors.mcp.sources import LINK, ProxySource, RunLink
from foldline.messages import ToolCall

_NO_PASSWORD = "foldline: --proxy: must not hold a name or password: use api_key or headers\n"
Ask = Callable[..., tuple[str, bool]]


def with_server(options: Sequence[str], calls: Sequence[tuple[str, dict[str, Any]]], **environ: str) -> list[Any]:
    """The names of the tools that the program offers, and the results of these calls as (text, whether an error)."""
    config = McpServer(
        name="f", command=sys.executable, args=("-m", "foldline", "mcp", *options), env=environ, allow=True
    )

    async def session() -> list[Any]:
        async with mcp_tools("f", config) as tools:
            box = Toolbox(tools)
            found: list[Any] = [sorted(box.names)]
            for tool, arguments in calls:
                call = ToolCall("1", f"f_{tool}", json.dumps(arguments))
                outcome = await box.run(call, scope(Person(answer=True)))
                found.append((outcome.text, outcome.is_error))
            return found

    return asyncio.run(session())


def test_the_tools_of_a_running_proxy_are_found_by_the_clients_key(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        Talk(url, "sk-one").read_parts(12)
        Talk(url, "sk-two").say("Hello.")
        grep = ("recall", {"action": "grep", "pattern": "part 1 line 9:"})
        calls = [grep, ("context", {}), ("compact", {}), ("recall", {"action": "peek"})]
        names, found, context, compact, wrong = with_server(["--proxy", f"{url}/v1"], calls, OPENAI_API_KEY="sk-one")
    assert names == ["f_compact", "f_context", "f_recall"]
    assert found == (
        f"1 lines of the conversation match 'part 1 line 9:':\nentry 0, line 9: sk-one part 1 line 9: {LINE}",
        False,
    )
    assert context[0].startswith("Window: 4,000 tokens.")
    assert not context[1]
    assert "will be compacted with the next request" in compact[0]
    assert wrong == ("entry: peek needs the number of an entry; grep finds it", True)


def test_a_link_reaches_the_newest_conversation_of_any_of_its_proxies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with proxy(tmp_path / "a", owner=OWNER) as (one, _), proxy(tmp_path / "b", owner=OWNER) as (other, _):
        link = tmp_path / "link.json"
        link.write_text(RunLink((one, other), OWNER).text(), "utf-8")
        calls = [("recall", {"action": "peek", "entry": 0})]
        _, nothing = with_server(["--link", str(link)], calls)
        Talk(one, "sk-one").say("The older one.")
        Talk(other, "sk-two").say("The newer one.")
        _, newest = with_server([], calls, **{LINK: str(link)})
    assert nothing == ("this client has no conversation here yet", True)
    assert "The newer one." in newest[0]


def test_a_token_and_a_name_lead_to_a_conversation_without_a_key(tmp_path: Path) -> None:
    with proxy(tmp_path, token=TOKEN) as (url, _):
        Talk(url, headers={"x-foldline-token": TOKEN, "x-foldline-session": "mine"}).say("The first one.")
        Talk(url, headers={"x-foldline-token": TOKEN}).say("Another one.")
        calls = [("recall", {"action": "peek", "entry": 0})]
        _, found = with_server(["--proxy", url, "--session", "mine"], calls, FOLDLINE_TOKEN=TOKEN)
        _, refused = with_server(["--proxy", url], calls)
    assert "The first one." in found[0]
    assert refused[1]
    assert "the proxy wants its token" in refused[0]


def test_a_stored_conversation_is_read_by_its_name_and_key_alone(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with proxy(tmp_path, store=store) as (url, _):
        Talk(url, "sk-one", headers={"x-foldline-session": "mine"}).read_parts(12)
    options = ["--store", store, "--session", "mine"]
    calls = [("recall", {"action": "grep", "pattern": "part 1 line 9:"}), ("context", {}), ("compact", {})]
    _, found, context, compact = with_server(options, calls, OPENAI_API_KEY="sk-one")
    assert f"part 1 line 9: {LINE}" in found[0]
    assert "Folded (recall reads each entry as it was):" in context[0]
    assert compact == ("only a conversation that a running proxy serves can be compacted", True)
    _, (text, is_error) = with_server(options, calls[:1], OPENAI_API_KEY="sk-two")
    assert is_error
    assert text == "the store has no conversation of this key named 'mine'"


def test_a_proxy_that_is_not_there_is_an_error_that_the_model_reads(tmp_path: Path) -> None:
    _, (text, is_error) = with_server(["--proxy", "http://127.0.0.1:9"], [("context", {})], HOME=str(tmp_path))
    assert is_error
    assert text == "the proxy at http://127.0.0.1:9 does not answer (ConnectError)"


class _AnyPath(BaseHTTPRequestHandler):
    """A server that answers any path with an object, as LM Studio does."""

    def do_GET(self) -> None:
        body = b'{"error": "Unexpected endpoint"}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        del args


def test_another_server_at_the_address_is_told_to_the_model() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _AnyPath) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        found = asyncio.run(ProxySource([url], [{}]).call("context", "{}"))
        server.shutdown()
    assert (found.text, found.is_error) == (f"there is no proxy of Foldline at {url}", True)


def test_a_key_that_no_header_can_carry_is_told_without_it() -> None:
    found = asyncio.run(ProxySource(["http://127.0.0.1:9"], [{"x-api-key": "gehö"}]).call("context", "{}"))
    assert found.is_error
    assert "gehö" not in found.text


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--proxy", "ftp://x"], "foldline: --proxy: must begin with http:// or https:// and name a host\n"),
        (["--proxy", "http://"], "foldline: --proxy: must begin with http:// or https:// and name a host\n"),
        (["--proxy", "http://[::1"], "foldline: --proxy: is no address\n"),
        (["--proxy", "http://localhost:99999"], "foldline: --proxy: is no address\n"),
        (["--proxy", "http://me:secret@x"], _NO_PASSWORD),
        (["--store", "place"], "foldline: --store: reads a conversation by its name: --session\n"),
        (["--key-env", "NO_SUCH_KEY"], "foldline: NO_SUCH_KEY: is not set\n"),
        (["--link", "nowhere.json"], "foldline: nowhere.json: No such file or directory\n"),
    ],
)
def test_bad_options_are_told_in_one_line(options: list[str], line: str) -> None:
    result = CliRunner().invoke(cli, ["mcp", *options])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_a_damaged_link_is_told_in_one_line_without_its_secret(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.write_text('{"owner": "secret"}', "utf-8")
    result = CliRunner().invoke(cli, ["mcp", "--link", str(link)])
    assert (result.exit_code, result.stderr) == (2, f"foldline: {link}: is no link of `foldline wrap`\n")
    assert "secret" not in repr(RunLink((), "secret"))
