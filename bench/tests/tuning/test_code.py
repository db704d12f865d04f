from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from bench.tests.tuning.support import write_sessions
from foldline_bench.tuning.code import modules_of

import foldline

ROOT = Path(__file__).parents[3]
TUNE = """
import sys
from pathlib import Path
from bench.tests.tuning.support import tuned
import foldline
assert foldline.__file__.startswith(sys.argv[1]), foldline.__file__
print(tuned(Path(sys.argv[2]), Path(sys.argv[3])).known)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    source = Path(foldline.__file__).parent
    return shutil.copytree(source, tmp_path / "copy" / "foldline")


def known(package: Path, sessions: Path) -> int:
    """How many results a tuning by this package takes from before."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ = {**kept, "PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", TUNE, str(package), str(sessions), str(sessions.parent / "state")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_results_of_other_code_are_not_taken(package: Path, tmp_path: Path) -> None:
    sessions = write_sessions(tmp_path / "sessions", 1)
    assert known(package, sessions) == 0
    page = package / "interfaces" / "cli_tune.py"
    page.write_text(page.read_text() + "# what no replay runs\n")
    assert known(package, sessions) > 0
    policy = package / "policy.py"
    policy.write_text(policy.read_text() + "# other figures\n")
    assert known(package, sessions) == 0


def test_the_code_of_a_replay_is_all_that_it_imports_and_nothing_that_shows_it() -> None:
    found = modules_of("foldline_bench.tuning.work", files("foldline"))
    replayed = {
        "foldline.engine.policy",
        "foldline.view.economics",
        "foldline.replay.cache",
        "foldline.replay.run",
        "foldline.tokens.estimate",
    }
    assert replayed <= set(found)
    reducers = {f"foldline.reducers.{path.stem}" for path in Path(foldline.__file__).parent.glob("reducers/*.py")}
    assert reducers - {"foldline.reducers.__init__"} <= set(found)
    assert found["foldline.engine.policy"] == Path(foldline.__file__).with_name("policy.py").read_bytes()
    assert not any(name.startswith("foldline.interfaces") for name in found)
