from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from bench.tests.tuning.support import write_sessions

import foldline
import foldline_bench
from foldline_bench.tuning.code_hash import modules_of

ROOT = Path(__file__).parents[3]
TUNE = """
import sys
from pathlib import Path
from bench.tests.tuning.support import tuned
import foldline
import foldline_bench
for one in (foldline, foldline_bench):
    assert one.__file__.startswith(sys.argv[1]), one.__file__
print(tuned(Path(sys.argv[2]), Path(sys.argv[3])).known)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The folder with a copy of both packages, to be changed."""
    for package in (foldline, foldline_bench):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, tmp_path / "copy" / source.name)
    return tmp_path / "copy"


def known(copy: Path, sessions: Path) -> int:
    """How many results a tuning by this package takes from before."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ = {**kept, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", TUNE, str(copy), str(sessions), str(sessions.parent / "state")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_results_of_other_code_are_not_taken(copy: Path, tmp_path: Path) -> None:
    sessions = write_sessions(tmp_path / "sessions", 1)
    assert known(copy, sessions) == 0
    page = copy / "foldline_bench" / "tuning" / "command.py"
    page.write_text(page.read_text() + "# what no replay runs\n")
    assert known(copy, sessions) > 0
    policy = copy / "foldline" / "engine" / "policy.py"
    policy.write_text(policy.read_text() + "# other figures\n")
    assert known(copy, sessions) == 0


def test_the_code_of_a_replay_is_all_that_it_imports_and_nothing_that_shows_it() -> None:
    found = modules_of("foldline_bench.tuning.trials", {name: files(name) for name in ("foldline", "foldline_bench")})
    replayed = {
        "foldline.engine.policy",
        "foldline.view.economics",
        "foldline.replay.run",
        "foldline.replay.results",
        "foldline.tokens.estimate",
    }
    assert replayed <= set(found)
    reducers = {f"foldline.reducers.{path.stem}" for path in Path(foldline.__file__).parent.glob("reducers/*.py")}
    assert reducers - {"foldline.reducers.__init__"} <= set(found)
    assert found["foldline.engine.policy"] == (Path(foldline.__file__).parent / "engine" / "policy.py").read_bytes()
    assert not any(
        name.startswith(("foldline.cli", "foldline.doors", "foldline_bench.tuning.command")) for name in found
    )
