"""The agent at work in this repository, on a model that runs here: no key, no network.

    python examples/demo_agent.py [--calls 40] [--seconds 60] [--window 2048]

A model of 135 million parameters cannot be trusted with anything, so it is held to tool calls by a schema: it chooses
files and lines, the tools really read them, and the window of 2,048 tokens fills again and again. What can be seen is
what the agent does about that: folds, the size of each request as we count it, and as the server counted it.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import AgentEvent, Notice, ReplyFinished, ToolFinished, TurnEnded
from foldline.agent.settings.model import AgentSettings, ModelSettings, PolicySettings, ToolSettings
from foldline.agent.tools.base import CallScope, PermissionRequest, Tool, ToolOutcome
from foldline.agent.tools.files.find import SearchFiles
from foldline.agent.tools.files.read_file import ReadFile
from foldline.agent.tools.workspace import Workspace
from foldline.engine.events import FoldFinished
from foldline.messages import Json
from foldline.providers.base import Provider
from foldline.providers.embedded import EmbeddedServer, weights
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.providers.tool_emulation import SchemaTools
from foldline.providers.tool_emulation_prompt import SMALL
from foldline.store.folders import FileStore

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/concepts.md",
    "docs/policies.md",
    "src/foldline/engine/engine.py",
    "src/foldline/view/view.py",
    "src/foldline/engine/context.py",
    "src/foldline/view/pairing.py",
    "src/foldline/engine/policy.py",
)
SAMPLING: Mapping[str, Json] = {"temperature": 0.8, "top_p": 0.95, "repeat_penalty": 1.15}


@dataclass(frozen=True, slots=True)
class Narrow:
    """A tool whose arguments are held to what a tiny model can choose among."""

    inner: Tool
    parameters: Mapping[str, Json]

    @property
    def name(self) -> str:
        """The tool's own name."""
        return self.inner.name

    @property
    def description(self) -> str:
        """The tool's own description."""
        return self.inner.description

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Run it. Lines are given by their first one: forty of them are read."""
        start = arguments.get("start_line")
        more = {} if start is None else {"start_line": start, "end_line": start + 40}
        return await self.inner.run({**arguments, **more}, scope)


def narrow_tools(workspace: Workspace) -> tuple[Tool, ...]:
    """`read_file` and `search_files` over some files of this repository."""
    path = {"type": "string", "enum": list(FILES)}
    lines = {"type": "integer", "minimum": 1, "maximum": 99}
    word = {"type": "string", "enum": ["fold", "archive", "tokens", "group", "summary", "window"]}
    return (
        Narrow(ReadFile(workspace), _object(path=path, start_line=lines)),
        Narrow(SearchFiles(workspace), _object(pattern=word, path=path)),
    )


def _object(**properties: Json) -> Mapping[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def calls_only(endpoint: Endpoint) -> Provider:
    """The provider of a server that is held to tool calls, one per reply."""

    def with_fields(fields: Mapping[str, Json]) -> Provider:
        extra = copy.deepcopy({**SAMPLING, **fields})
        if (form := extra.get("response_format")) is not None:
            schema = form["json_schema"]["schema"]
            schema["anyOf"] = [one for one in schema["anyOf"] if "tool" in one["properties"]]
        return provider_for(_with(endpoint, extra))

    return SchemaTools(with_fields, bounds=SMALL)


def _with(endpoint: Endpoint, extra: Mapping[str, Json]) -> Endpoint:
    fields: dict[str, Any] = {name: getattr(endpoint, name) for name in Endpoint.__slots__}
    return Endpoint(**{**fields, "extra": extra})


@dataclass(slots=True)
class Score:
    """What happened, counted."""

    say: Callable[[str], None]
    calls: int = 0
    folds: int = 0
    refused: int = 0
    result_tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    ours: list[int] = field(default_factory=list)
    theirs: list[int] = field(default_factory=list)
    last: str = ""

    def __call__(self, event: AgentEvent) -> None:
        """Take one event of the agent and say it."""
        if isinstance(event, ReplyFinished):
            self.ours.append(event.expected_tokens)
            self.theirs.append(event.prompt_tokens)
            self.last = (
                f"request: ours {event.expected_tokens:>5,}  server {event.prompt_tokens:>5,} tokens "
                f"({event.cached_tokens:,} cached)"
            )
        elif isinstance(event, ToolFinished):
            self.calls += 1
            self.result_tokens += event.tokens
            self.errors[event.tool] += event.is_error
            self.say(f"{self.calls:>4}  {event.tool:<13}{event.tokens:>6,} tokens   {self.last}")
        elif isinstance(event, FoldFinished):
            self.folds += len(event.folds)
            for fold in event.folds:
                what = f"{fold.stop - fold.start} messages" if fold.stop - fold.start > 1 else "1 message"
                sizes = f"{fold.before_tokens:,} -> {fold.tokens:,} tokens"
                self.say(f"      folded {what}: {sizes} ({fold.reducer})")
        elif isinstance(event, Notice):
            self.say(f"      {event.text}")
        elif isinstance(event, TurnEnded) and event.reason not in ("iterations", "done"):
            self.refused += event.reason in ("failed", "does_not_fit")
            self.say(f"      {event.reason}: {event.message}")


async def nobody(ask: PermissionRequest) -> bool:
    """There is nobody to ask."""
    del ask
    return False


async def explore(
    provider: Provider, score: Score, *, window_tokens: int, calls: int, seconds: float, sessions: Path
) -> None:
    """Let the agent read in this repository until so many calls were made, or so much time has passed."""
    workspace = Workspace(ROOT)
    off = ("read_file", "list_files", "search_files", "fetch_url", "recall", "compact_context", "spawn_agent")
    settings = AgentSettings(
        model=ModelSettings(max_output_tokens=96),
        policy=PolicySettings(name="cost"),  # lands low: in so small a window a result needs the room
        tools=ToolSettings(off=frozenset(off)),
        summaries=False,
    )
    parts = Parts(
        settings=settings,
        provider=provider,
        workspace=workspace,
        window_tokens=window_tokens,
        allowed=nobody,
        more_tools=narrow_tools(workspace),
    )
    stored = FileStore(sessions).create(dialect=provider.dialect, model=provider.model)
    agent = assemble(parts, tell=score, stored=stored)
    agent.max_iterations = 4  # a short turn, so that time and calls are looked at often
    until = time.monotonic() + seconds
    turn = 0
    try:
        while score.calls < calls and time.monotonic() < until:
            turn += 1
            before = score.calls
            await agent.run(f"Part {turn}: look further into how {FILES[turn % len(FILES)]} works.")
            agent.session.save()
            if score.calls == before:
                break
    finally:
        agent.session.close()


async def main() -> int:
    """Run the demo; 1 when a request was refused."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=200, help="stop after so many tool calls")
    options.add_argument("--seconds", type=float, default=60, help="stop after so much time")
    options.add_argument("--window", type=int, default=2_048, help="the window of the model, in tokens")
    given = options.parse_args()
    score = Score(say=lambda line: print(line, flush=True))
    server = EmbeddedServer(weights(), window_tokens=given.window)
    print(f"smollm2-135m, in a window of {given.window:,} tokens, reads in {ROOT.name}: what it says is worth nothing")
    try:
        base_url = f"{await server.address()}/v1"
        endpoint = Endpoint(
            name="embedded",
            dialect="openai-chat",
            base_url=base_url,
            model="smollm2-135m-instruct",
            api_key=server.api_key,
        )
        provider = calls_only(endpoint)
        with tempfile.TemporaryDirectory() as folder:
            await explore(
                provider,
                score,
                window_tokens=given.window,
                calls=given.calls,
                seconds=given.seconds,
                sessions=Path(folder),
            )
        await provider.aclose()
    finally:
        server.close()
    share = score.result_tokens / given.window
    print(
        f"{score.calls} tool calls brought {score.result_tokens:,} tokens, {share:.1f} windows; {score.folds} folds; "
        f"{score.refused} requests refused; largest request by the server's count {max(score.theirs, default=0):,}"
    )
    return 1 if score.refused or not score.calls else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
