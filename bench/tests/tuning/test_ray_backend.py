"""On a real Ray cluster of this machine; it takes seconds to start, so all of it is one test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.tests.tuning.support import tuned, write_sessions

from foldline.errors import InvalidInput
from foldline_bench.tuning.backends import BackendFailed, InProcess
from foldline_bench.tuning.ray_backend import Ray


@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_cluster_finds_the_same_and_tries_again_what_failed(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2)

    def fails_once(marker: Path) -> str:
        if not marker.exists():
            marker.touch()
            raise ConnectionResetError("the network is gone")
        return marker.name

    def dies_once(marker: Path) -> str:
        import os

        if not marker.exists():
            marker.touch()
            os._exit(1)
        return marker.name

    def refuses(number: int) -> None:
        raise InvalidInput(f"not {number}", place="here")

    class Tried(Ray):
        """Before the work is done, other work is, so that one cluster does for all."""

        def __enter__(self) -> Tried:
            super().__enter__()
            assert list(self.each(fails_once, [tmp_path / "network"])) == ["network"]
            assert list(self.each(dies_once, [tmp_path / "death"])) == ["death"]
            with pytest.raises(InvalidInput, match="here: not 7"):
                list(self.each(refuses, [7]))
            return self

    here = tuned(folder, tmp_path / "here", engine=InProcess())
    there = tuned(folder, tmp_path / "there", engine=Tried(workers=2))
    assert (there.front, there.chosen, there.none) == (here.front, here.chosen, here.none)
    assert there.replayed == here.replayed
    again = tuned(folder, tmp_path / "there", engine=InProcess())
    assert (again.known, again.replayed) == (there.replayed, 0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_said_in_one_line(address: str) -> None:
    with pytest.raises(BackendFailed, match=r"^[^\n]+$"), Ray(address):
        pass


def test_without_ray_the_install_line_is_shown(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['ray'] = None; from foldline.cli.main import main; main()"
    folder = write_sessions(tmp_path / "sessions", 1)
    done = subprocess.run(
        [sys.executable, "-c", hidden, "tune", str(folder), "--engine", "ray", "--state", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=False,
    )
    line = "foldline: --engine ray needs an extra: pip install 'foldline-bench[ray]'"
    assert (done.returncode, done.stderr.strip()) == (2, line)
