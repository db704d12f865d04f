"""Stored sessions with folds and with sub-agents, for tests of the commands about sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.agent.support import Answers, agent_over
from tests.agent.test_assemble import by_task

from foldline.agent.assemble import Parts, assemble
from foldline.agent.settings.model import AgentSettings
from foldline.agent.tools.base import PermissionRequest
from foldline.agent.tools.workspace import Workspace
from foldline.cli.main import cli
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.store.call_log import CallLog
from foldline.store.folders import FileStore
from foldline.store.paths import calls_path, sessions_path
from foldline.testing import FakeProvider, FakeReply

__all__ = ["SECRET", "delegate", "good", "plain", "run", "store_in", "talk"]

SECRET = "sk-abcdefghijkl1234567890abcdef"


def store_in(home: Path) -> FileStore:
    return FileStore(sessions_path({"FOLDLINE_HOME": str(home)}), fsync=False)


def run(home: Path, *arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(cli, ["sessions", *arguments, "--home", str(home)], env={"COLUMNS": str(columns)})


def good(home: Path, *arguments: str, columns: int = 100) -> str:
    result = run(home, *arguments, columns=columns)
    assert result.exit_code == 0, result.output
    return result.stdout


def plain(home: Path, *arguments: str) -> Any:
    return json.loads(good(home, *arguments, "--json"))


def talk(home: Path, turns: int = 6, *, dialect: str = "openai-chat", window: int = 3_000) -> tuple[str, list[Any]]:
    """A session with folds; its id, and the messages that its agent would send next."""

    async def turn() -> tuple[str, list[Any]]:
        steps: list[FakeReply | str] = []
        for number in range(turns):
            steps += [
                FakeReply(text="Let me look.", calls=(("look", {"what": f"file {number}"}),)),
                f"Answer {number}.",
            ]
        tool = Answers(lambda arguments: f"{arguments['what']} \x1b[2J\n" + "words of a result\n" * 100)
        root = store_in(home).root
        async with agent_over(FakeProvider(steps), tool, dialect=dialect, window=window, root=root) as agent:
            stored = agent.session.stored
            assert stored is not None
            stored.change(window=window)
            for number in range(turns):
                await agent.run(f"Question {number}: the key is {SECRET}?")
            agent.session.save()
            return stored.id, list((await agent.session.prepare()).messages)

    return asyncio.run(turn())


def delegate(home: Path) -> str:
    """A session whose agent started a sub-agent, its calls recorded."""

    async def nobody(ask: PermissionRequest) -> bool:
        del ask
        return False

    async def turn() -> str:
        import httpx

        work = home / "work"
        work.mkdir(parents=True)
        (work / "notes.txt").write_text("the secret word is zephyr\n" + "more\n" * 100)
        environ = {"FOLDLINE_HOME": str(home)}
        fake = FakeProvider(by_task)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=fake)) as client:
            endpoint = Endpoint(
                name="fake", dialect="openai-chat", base_url="http://fake/v1", model="fake-model", api_key="k"
            )
            stored = store_in(home).create(dialect="openai-chat", model="fake-model", window=9_000)
            with stored, CallLog(calls_path(environ)) as calls:
                parts = Parts(
                    settings=AgentSettings(),
                    provider=provider_for(endpoint, client=client),
                    workspace=Workspace(work),
                    window_tokens=9_000,
                    allowed=nobody,
                    calls=calls,
                )
                agent = assemble(parts, tell=lambda event: None, stored=stored)
                await agent.run("Delegate this.")
                request = await agent.session.prepare()
                (home / "next.json").write_text(
                    json.dumps({"system": request.system, "tools": request.tools, "messages": request.messages})
                )
                return stored.id

    return asyncio.run(turn())
