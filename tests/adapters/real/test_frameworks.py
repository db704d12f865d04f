"""Every adapter in its real framework: a conversation of more than ten windows, with parallel tools.

Whole and streamed, sync and async, with the right window, a wrong one and none, resumed from the framework's own
checkpoint after half of it: no refusal reaches the framework, and its history is what it would be without the adapter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.real.readers import PARTS_IN_A_TURN, ParallelReader, StepReader
from tests.real.parts import missing
from tests.serving import serve

from foldline.testing import FakeProvider

pytestmark = pytest.mark.adapters

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENTS = ROOT / os.environ.get("FOLDLINE_ADAPTERS", ".adapters")
PAGE = ROOT / "docs" / "adapters.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_SECONDS = 300

WINDOW_TOKENS = 8_000
PART_CHARS = 4_000
TURNS = 30  # of three parts, 1,000 tokens each: 90,000 tokens at the end
WINDOWS = {"told": WINDOW_TOKENS, "wrong": 4 * WINDOW_TOKENS, "untold": 0}


@dataclass(frozen=True)
class Framework:
    """One driver: the environment (the name of its pins), the interfaces that it can use, and where the page has it.

    `reader` is the model that it talks to.
    """

    driver: str
    environment: str
    apis: tuple[str, ...]
    section: str
    sync: bool = True
    reader: type[ParallelReader] = ParallelReader


FRAMEWORKS = (
    Framework("langchain", "langchain", ("chat", "responses", "anthropic"), "LangChain, LangGraph"),
    Framework("deepagents", "langchain", ("chat",), "deepagents"),
    Framework("openai_agents", "openai-agents", ("responses", "chat"), "openai-agents"),
    Framework("agent_framework", "agent-framework", ("chat", "responses", "anthropic"), "Agent Framework"),
    Framework("llama_index", "llama-index", ("chat", "responses", "anthropic"), "LlamaIndex"),
    Framework("google_adk", "google-adk", ("gemini", "contents"), "Google's ADK"),
    Framework("smolagents", "smolagents", ("tools", "code"), "smolagents", reader=StepReader),
    Framework("litellm", "litellm", ("chat", "anthropic", "hook", "proxy"), "LiteLLM"),
    Framework("pydantic_ai", "pydantic-ai", ("chat", "responses", "anthropic"), "Pydantic AI"),
    Framework("strands", "strands", ("chat", "responses", "anthropic"), "Strands Agents"),
)


def ways() -> list[Any]:
    """Each framework and interface in every way and on every side; the three windows go round."""
    found = []
    for framework in FRAMEWORKS:
        sides = ("sync", "async") if framework.sync else ("async",)
        every = [(api, way, side) for api in framework.apis for way in ("whole", "streamed") for side in sides]
        every += [every[0]] * max(0, len(WINDOWS) - len(every))
        for given, told in zip(every, cycle(WINDOWS)):
            found.append(pytest.param(framework, given, told, id="-".join((framework.driver, *given, told))))
    return found


def python_of(framework: Framework) -> Path:
    """The Python of its environment."""
    folder = ENVIRONMENTS / framework.environment
    if not (folder / "installed").exists():
        missing("adapters", f"{framework.environment} is not installed (make .adapters)")
    return folder / "bin" / "python"


def run(framework: Framework, *arguments: str, **variables: str) -> str:
    """What a program prints that runs in its environment; the end of its output where it fails."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [str(python_of(framework)), *arguments],
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "PART_CHARS": str(PART_CHARS), **variables},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


@pytest.mark.parametrize(("framework", "given", "told"), ways())
def test_ten_windows_are_held_without_a_refusal_and_the_history_is_untouched(
    framework: Framework, given: tuple[str, str, str], told: str, tmp_path: Path
) -> None:
    reader = framework.reader()
    server = FakeProvider(reader, window_tokens=WINDOW_TOKENS, repeat=True)
    with serve(server) as served:
        scenario = str(HERE / "drivers" / "scenario.py")
        settings = [served.url, str(WINDOWS[told]), str(TURNS), str(tmp_path)]
        found = json.loads(run(framework, scenario, framework.driver, *given, *settings).splitlines()[-1])
    assert len(found["answers"]) == TURNS
    assert reader.read == TURNS * PARTS_IN_A_TURN
    assert str(reader.read) in found["answers"][-1]
    # The framework has everything, whole: each part of the log as the tool gave it.
    history = "\n".join(found["history"])
    assert all(f"part {part} line 1: " in history for part in range(1, reader.read + 1))
    assert len(history) > 10 * 3 * WINDOW_TOKENS  # the log has about three characters to a token
    assert history.count("request ") >= reader.read * (PART_CHARS // 60)
    # No other refusal than of the size, and those were retried inside of the call: none where the window is right.
    assert set(server.refusals) <= ({"overflow"} if told != "told" else set()), [r.message for r in server.refused]
    assert found["laws"] > 0
    print(
        f"\n{framework.driver} {' '.join(given)}, window {told}: {server.served} replies, "
        f"{server.refusals['overflow']} refusals inside, largest request {server.largest_tokens:,}"
    )


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[framework.driver for framework in FRAMEWORKS])
def test_the_example_of_the_page_runs(framework: Framework, tmp_path: Path) -> None:
    """As it is printed: its environment variables lead to the fake."""
    section = PAGE.read_text("utf-8").partition(f"\n## {framework.section}\n")[2].partition("\n## ")[0]
    (code,) = BLOCK.findall(section)
    assert len(code.splitlines()) <= 15
    server = FakeProvider(framework.reader(), window_tokens=WINDOW_TOKENS, repeat=True)
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    with serve(server) as served:
        run(
            framework,
            str(script),
            OPENAI_API_KEY="sk-of-a-test",
            OPENAI_BASE_URL=f"{served.url}/v1",
            OPENAI_API_BASE=f"{served.url}/v1",
            ANTHROPIC_API_KEY="sk-of-a-test",
            ANTHROPIC_BASE_URL=served.url,
            OPENAI_AGENTS_DISABLE_TRACING="1",
            GOOGLE_API_KEY="key-of-a-test",
            GOOGLE_GEMINI_BASE_URL=served.url,
        )
    assert server.served >= 1
    assert not server.refusals
