from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from bench.tests.tuning.support import FEW, tuned, write_sessions

import foldline
import foldline_bench
from foldline.errors import InvalidInput
from foldline_bench.tuning import Conditions, InProcess, located, tune
from foldline_bench.tuning.trial_store import FILE, modules_of, open_trial_store, trial_count


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions", 2)


def test_the_second_time_nothing_is_replayed_and_the_result_is_the_same(sessions: Path, tmp_path: Path) -> None:
    first = tuned(sessions, tmp_path / "state")
    again = tuned(sessions, tmp_path / "state")
    assert (first.known, again.replayed) == (0, 0)
    assert again.known == first.replayed > 0
    assert (again.front, again.none, again.chosen) == (first.front, first.none, first.chosen)


def test_another_window_or_price_is_another_result(sessions: Path, tmp_path: Path) -> None:
    def known(**conditions: object) -> int:
        given = Conditions(**{"window": 4_000, "model": "claude-sonnet-4-5", **conditions})  # type: ignore[arg-type]
        sources = located([str(sessions)])
        return tune(sources, given, engine=InProcess(), state=tmp_path / "state", settings=FEW).known

    assert known() == 0
    assert known() > 0
    assert known(window=5_000) == 0
    assert known(model="gpt-4.1-mini") == 0


def test_fresh_replays_all_and_keeps_the_new_results(sessions: Path, tmp_path: Path) -> None:
    first = tuned(sessions, tmp_path / "state")
    fresh = tuned(sessions, tmp_path / "state", fresh=True)
    assert (fresh.known, fresh.replayed) == (0, first.replayed)
    assert tuned(sessions, tmp_path / "state").replayed == 0


def test_results_are_for_their_owner_only_and_hold_no_word_of_a_session(sessions: Path, tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    tuned(sessions, state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / FILE).stat().st_mode) == 0o600
    text = (state / FILE).read_text()
    assert "value_0" not in text
    assert "read_file" not in text
    assert "session-0" not in text


def test_a_half_line_at_the_end_costs_that_run_only(sessions: Path, tmp_path: Path) -> None:
    first = tuned(sessions, tmp_path / "state")
    file = tmp_path / "state" / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    again = tuned(sessions, tmp_path / "state")
    assert again.replayed == 1
    assert again.front == first.front
    assert file.read_bytes().count(b"\n") == whole.count(b"\n")
    assert tuned(sessions, tmp_path / "state").replayed == 0


def test_lines_that_say_nothing_are_passed_over(sessions: Path, tmp_path: Path) -> None:
    tuned(sessions, tmp_path / "state")
    file = tmp_path / "state" / FILE
    first, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(
        b"".join([b"\xff\xfe no line\n", b'{"v": 1}\n', b"[]\n", first.replace(b'"v":3', b'"v":9'), *rest])
    )
    assert tuned(sessions, tmp_path / "state").replayed == 1


def test_a_file_in_place_of_the_folder_is_named(sessions: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(InvalidInput, match=r"/README\.md: is no folder: results cannot be kept in it"):
        tuned(sessions, tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == "mine"


def test_kept_results_are_counted(sessions: Path, tmp_path: Path) -> None:
    assert trial_count(tmp_path / "state") == 0
    found = tuned(sessions, tmp_path / "state")
    assert trial_count(tmp_path / "state") == found.replayed > 0


def test_one_tuning_at_a_time_has_the_folder(sessions: Path, tmp_path: Path) -> None:
    with (
        open_trial_store(tmp_path / "state"),
        pytest.raises(InvalidInput, match=r"another tuning uses this folder; .*--state"),
    ):
        tuned(sessions, tmp_path / "state")


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
    unused = {"foldline.reducers.__init__", "foldline.reducers.plain_messages"}  # JSON functions, for callers alone
    assert reducers - unused <= set(found)
    assert found["foldline.engine.policy"] == (Path(foldline.__file__).parent / "engine" / "policy.py").read_bytes()
    assert not any(
        name.startswith(("foldline.cli", "foldline.doors", "foldline_bench.tuning.command")) for name in found
    )
