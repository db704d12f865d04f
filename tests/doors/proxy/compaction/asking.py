"""A conversation that asks a proxy for compaction, over an upstream that knows nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.doors.proxy.proxies import Recording, proxied

from foldline.testing import FakeProvider

SUMMARY = "Goal: fix the bug in src/app.py. Decisions: keep sqlite. Open: run the linter. Word: QUARTZ."
TASK = "Fix the bug in src/app.py. Never touch the tests."
WINDOW_TOKENS = 60_000
TRIGGER = 8_000


def messages(rounds: int = 12, words: int = 300) -> list[dict[str, Any]]:
    """A session of Messages: about 1,000 tokens a round."""
    out: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for n in range(rounds):
        call = {"type": "tool_use", "id": f"c{n}", "name": "read_file", "input": {"path": f"src/{n}.py", "a": 1}}
        out.append({"role": "assistant", "content": [{"type": "text", "text": f"Step {n}."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line of file {n} here " * words}
        out.append({"role": "user", "content": [result]})
    return out


def items(rounds: int = 12, words: int = 300) -> list[dict[str, Any]]:
    """The same session in Responses."""
    out: list[dict[str, Any]] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": TASK}]
    for n in range(rounds):
        path = json.dumps({"path": f"src/{n}.py"})
        out.append({"type": "function_call", "call_id": f"c{n}", "name": "read_file", "arguments": path})
        out.append({"type": "function_call_output", "call_id": f"c{n}", "output": f"line of file {n} here " * words})
    return out


def script(body: Mapping[str, Any]) -> str:
    """A summary to a question for one; else a reply that says how many messages it was sent."""
    if "You write the checkpoint" in json.dumps(body):
        return SUMMARY
    return f"Read {len(body.get('messages') or body['input'])} messages."


@dataclass(slots=True)
class Asking:
    """A client of a proxy, and what reached the upstream."""

    url: str
    fake: FakeProvider
    upstream: Recording
    lines: list[str]
    key: str = "sk-one"

    def post(
        self, path: str, body: Mapping[str, Any], *, key: str = "", seconds: float = 60, **headers: str
    ) -> httpx.Response:
        """Send a body."""
        key = key or self.key
        named = {"x-api-key": key, "authorization": f"Bearer {key}", "anthropic-version": "2023-06-01", **headers}
        return httpx.post(self.url + path, json=body, headers=named, timeout=seconds)

    def ask(self, found: Any, *, key: str = "", path: str = "/v1/messages", **more: Any) -> Any:
        """Send messages of Anthropic."""
        return self.post(path, {"model": "m", "max_tokens": 400, "messages": found, **more}, key=key)

    def respond(self, found: Any, *, key: str = "", path: str = "/v1/responses", **more: Any) -> Any:
        """Send items of Responses."""
        return self.post(path, {"model": "m", "input": found, **more}, key=key)

    def sent(self) -> Any:
        """The newest body that reached the upstream."""
        return json.loads(self.upstream.bodies[-1])


@contextmanager
def asking(home: Path, *, fake: FakeProvider | None = None, **settings: Any) -> Iterator[Asking]:
    """A proxy with summaries over a fake upstream."""
    fake = fake or FakeProvider(script, window_tokens=WINDOW_TOKENS)
    upstream = Recording(fake)
    with proxied(upstream, home, **{"summaries": True, **settings}) as running:
        yield Asking(running.url, fake, upstream, running.lines)


def compacting(**more: Any) -> dict[str, Any]:
    """The edit that compacts at a threshold."""
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": TRIGGER}, **more}
    return {"edits": [edit]}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream."""
    lines = response.text.splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line.strip() != "data: [DONE]"]
