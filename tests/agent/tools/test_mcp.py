from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.mcp_plain import LONG
from tests.agent.tools.support import Person, scope

from foldline.agent.tools.base import CONSENT_NEEDED, PermissionRequest, ToolOutcome
from foldline.agent.tools.mcp import McpServer, mcp_tools
from foldline.agent.tools.toolbox import Toolbox
from foldline.errors import InvalidInput
from foldline.messages import ToolCall

HERE = Path(__file__).parent
Call = Callable[..., Awaitable[ToolOutcome]]
Steps = Callable[[Call, Toolbox], Awaitable[None]]


def child(script: str = "mcp_child.py", **settings: Any) -> McpServer:
    given: dict[str, Any] = {"name": "child", "command": sys.executable, "allow": True}
    return McpServer(**given | {"args": (str(HERE / script), "stdio")} | settings)


def with_server(steps: Steps, config: McpServer, person: Person | None = None) -> None:
    """Run some steps with a server that is started for them."""

    async def session() -> None:
        async with mcp_tools(config.name, config) as tools:
            box = Toolbox(tools)

            async def call(tool: str, **arguments: Any) -> ToolOutcome:
                name = f"{config.name}_{tool}"
                return await box.run(ToolCall("1", name, json.dumps(arguments)), scope(person or Person(answer=False)))

            await steps(call, box)

    asyncio.run(session())


def test_tools_of_a_server_are_called_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_API_KEY", "s3cret")

    async def steps(call: Call, box: Toolbox) -> None:
        assert await call("add", first=1, second=2) == ToolOutcome("3")
        wrong = await call("add", first="1", second=2)
        assert wrong == ToolOutcome('child_add was not run: first: must be an integer, not "1"', is_error=True)
        assert await call("picture") == ToolOutcome("[image: image/png, 100 bytes; not shown]")
        assert await call("structured") == ToolOutcome('{"a": [1, "é"]}')
        assert await call("mixed") == ToolOutcome(
            "first\n[resource note://1]\nof a note\n[link to resource note://2: second note]"
        )
        assert await call("empty") == ToolOutcome("[an empty result]")
        failed = await call("fail")
        assert failed.is_error
        assert "Error executing tool fail" in failed.text

        # It gets what its settings name, and nothing else of ours.
        environment = (await call("environment")).text
        assert "NAMED=yes" in environment
        assert "s3cret" not in environment

        # Nothing that a server says or wants has an effect: no instructions for the model, no model for the server.
        assert (await call("ask")).is_error
        assert "compact the context" not in json.dumps(box.wires("openai-chat"))

    with_server(steps, child(env={"NAMED": "yes"}))


def test_names_are_such_that_every_provider_takes_them() -> None:
    async def steps(call: Call, box: Toolbox) -> None:
        (long,) = [name for name in box.names if name.startswith("child_dotted_name_with_spaces_x")]
        assert len(long) == 64
        same = [name for name in box.names if name.startswith("child_same_name_")]
        assert len(same) == 2
        texts = {(await call(name.removeprefix("child_"))).text for name in [long, *same]}
        assert texts == {LONG, "same.name", "same_name"}

    with_server(steps, child("mcp_plain.py"))


def test_each_call_is_asked_for_unless_settings_allow_the_server() -> None:
    person = Person()

    async def steps(call: Call, box: Toolbox) -> None:
        assert (await call("chatter", words="a")).text == "words"
        person.answer = False
        assert await call("chatter") == ToolOutcome(CONSENT_NEEDED, is_error=True)

    with_server(steps, child("mcp_plain.py", allow=False), person)
    assert person.asked == [
        PermissionRequest("child_chatter", 'chatter of MCP server child: {"words": "a"}'),
        PermissionRequest("child_chatter", "chatter of MCP server child: {}"),
    ]


def test_a_server_that_keeps_no_rules_does_no_harm() -> None:
    """Its list never ends, it writes no JSON, it logs, it wants a model, and its schema refers to nothing."""

    async def steps(call: Call, box: Toolbox) -> None:
        assert {"child_chatter", "child_hang", "child_refuse"} <= set(box.names)
        assert len(box.names) == 7
        assert await call("chatter") == ToolOutcome("words")
        assert await call("refuse") == ToolOutcome("the call to the MCP server child failed: not today", is_error=True)
        assert await call("chatter") == ToolOutcome("words")

    with_server(steps, child("mcp_plain.py"))


def test_a_server_that_dies_is_an_error_that_says_so_at_this_call_and_the_next() -> None:
    async def steps(call: Call, box: Toolbox) -> None:
        expected = ToolOutcome(
            "the MCP server child has ended, and its tools with it (it wrote: out of cheese)", is_error=True
        )
        assert await call("die") == expected
        assert await call("chatter") == expected

    with_server(steps, child("mcp_plain.py"))


def test_a_cancelled_call_leaves_the_server_usable(tmp_path: Path) -> None:
    async def steps(call: Call, box: Toolbox) -> None:
        mark = tmp_path / "hangs"
        hanging = asyncio.ensure_future(call("hang", path=str(mark)))
        while not mark.exists():
            await asyncio.sleep(0.01)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert await call("chatter") == ToolOutcome("words")

    with_server(steps, child("mcp_plain.py"))


def test_a_call_that_takes_too_long_is_an_error() -> None:
    async def session() -> None:
        config = child("mcp_plain.py")
        async with mcp_tools(config.name, config) as tools:
            (hang,) = [tool for tool in tools if tool.name == "child_hang"]
            hang.link.config = replace(config, timeout_seconds=0.1)  # type: ignore[attr-defined]  # the start takes longer
            outcome = await Toolbox(tools).run(ToolCall("1", hang.name, "{}"), scope(Person(answer=False)))
            assert outcome.is_error
            assert "timed out" in outcome.text

    asyncio.run(session())


NEVER = ("-c", "import sys; sys.stdin.read()")
BROKEN = ("-c", "import sys; print('no such database', file=sys.stderr); sys.exit(3)")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"command": "no-such-program-anywhere"}, "No such file or directory: 'no-such-program-anywhere'"),
        ({"command": sys.executable, "args": BROKEN}, "Connection closed (it wrote: no such database)"),
        ({"command": sys.executable, "args": NEVER, "timeout_seconds": 0.2}, "no answer within 0.2 seconds"),
        ({"url": "http://127.0.0.1:1/mcp"}, "All connection attempts failed"),
    ],
)
def test_a_server_that_does_not_start_is_one_clear_line(settings: dict[str, Any], expected: str) -> None:
    async def start() -> None:
        async with mcp_tools("broken", McpServer(name="broken", **settings)):
            raise AssertionError("it started")

    with pytest.raises(InvalidInput) as caught:
        asyncio.run(start())
    assert str(caught.value).startswith("MCP server broken: did not start: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_start_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    waits = ("-c", f"import os, sys; open({str(mark)!r}, 'w').write(str(os.getpid())); sys.stdin.read()")

    async def start() -> None:
        async def enter() -> None:
            async with mcp_tools("slow", McpServer(name="slow", command=sys.executable, args=waits)):
                raise AssertionError("it started")

        starting = asyncio.create_task(enter())
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(start())
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


@contextmanager
def web_server() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen(
        [sys.executable, str(HERE / "mcp_child.py"), "http"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()


def test_a_server_on_the_web_gets_its_headers_and_its_end_is_told() -> None:
    with web_server() as (url, process):

        async def steps(call: Call, box: Toolbox) -> None:
            assert await call("add", first=1, second=2) == ToolOutcome("3")
            assert await call("header") == ToolOutcome("of-ours")
            process.send_signal(signal.SIGKILL)
            process.wait()
            outcome = await call("add", first=1, second=2)
            assert outcome.is_error
            assert "MCP server web" in outcome.text
            assert "\n" not in outcome.text

        config = McpServer(name="web", url=url, headers={"X-Test": "of-ours"}, allow=True, timeout_seconds=20)
        with_server(steps, config)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "two words", "command": "x"}, "'two words': name: must have 1 to 32"),
        ({"name": "", "command": "x"}, "name: must have 1 to 32"),
        ({"name": "a"}, "a: needs either a command or a url"),
        ({"name": "a", "command": "x", "url": "http://y"}, "a: needs either a command or a url"),
        ({"name": "a", "url": "ftp://y"}, "a: url: must be an http or https address"),
        ({"name": "a", "url": "http://y", "args": ("-x",)}, "a: args and env belong to a command"),
        ({"name": "a", "url": "http://y", "env": {"X": "1"}}, "a: args and env belong to a command"),
        ({"name": "a", "command": "x", "headers": {"X": "1"}}, "a: headers belong to a url"),
        ({"name": "a", "command": "x", "timeout_seconds": 0}, "a: timeout_seconds: must be a positive number"),
        ({"name": "a", "command": "x", "timeout_seconds": float("nan")}, "a: timeout_seconds"),
    ],
)
def test_a_wrong_setting_is_named(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        McpServer(**fields)
    assert expected in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "s3cret" not in repr(McpServer(name="a", url="https://example.com", headers={"Authorization": "s3cret"}))
    assert "s3cret" not in repr(McpServer(name="a", command="x", env={"TOKEN": "s3cret"}))
