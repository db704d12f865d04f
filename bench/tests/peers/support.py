"""What the tests of the peers share: where an environment is, and one session through one peer in it."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "bench" / "src" / "foldline_bench" / "peers"
DRIVER = Path(__file__).with_name("driver.py")
LIMIT_SECONDS = 240


def python_of(peer: str) -> Path:
    """The Python of the peer's environment; skips the test where there is none."""
    python = ROOT / ".bench" / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no .bench/{peer}: run `make bench-peers`")
    return python


@cache
def run_through(peer: str, session: str, budget_tokens: int, requests: int) -> list[dict[str, Any]]:
    """What the peer's systems made of a session of the examples: one record for each system."""
    done = subprocess.run(
        [
            python_of(peer),
            DRIVER,
            peer,
            ROOT / "examples" / "sessions" / f"{session}.json.gz",
            str(budget_tokens),
            str(requests),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT_SECONDS,
        env={"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "bench" / "src")))},
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
