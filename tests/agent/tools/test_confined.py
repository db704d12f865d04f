"""The process that reads hostile files limits itself, however it was started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foldline.agent.tools import confined

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")

LIMITS = """
import json, resource
kinds = (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
print(json.dumps([resource.getrlimit(kind) for kind in kinds]))
"""


def limits(tmp_path: Path, before: str = "pass") -> list[list[int]]:
    """The limits that a script finds, in a process that was started under others."""
    (tmp_path / "script.py").write_text(LIMITS)
    start = f"import os, resource, sys; {before}; os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", start, sys.executable, confined.__file__, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[list[int]] = json.loads(done.stdout)
    return found


def test_a_reader_is_limited_in_time_and_writes_no_file(tmp_path: Path) -> None:
    assert limits(tmp_path) == [[confined.MAX_CPU_SECONDS] * 2, [0, 0], [0, 0]]


def test_a_lower_limit_that_it_was_started_with_stays(tmp_path: Path) -> None:
    """Raising it would be refused, and nothing could be read."""
    assert limits(tmp_path, "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))")[0] == [30, 30]
