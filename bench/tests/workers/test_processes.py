from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from foldline_bench.workers.jobs import BenchJob
from foldline_bench.workers.processes import DiedError, Peer, WorkerFolder, peers_in, run_job, worker_folder


def job(folder: Path, module: str) -> BenchJob:
    (folder / "peer.py").write_text(module, "utf-8")
    return BenchJob(peer="mine_peer", peer_file=str(folder / "peer.py"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def place(temporary: Path) -> WorkerFolder:
    del temporary
    return WorkerFolder(str(Path(__file__).parents[3] / "src"))


def test_other_peoples_code_sees_no_key_and_is_told_to_send_nothing(
    place: WorkerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANGSMITH_API_KEY", "OPENAI_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LITELLM_MODE", "OTEL_SDK_DISABLED", "CLIFF_MODEL"):
        monkeypatch.setenv(name, "of the user")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    reporting = "import os\nSYSTEMS = {}\nPACKAGES = tuple(f'{name}={value}' for name, value in os.environ.items())\n"
    [told] = run_job(job(tmp_path, reporting), place, limit_seconds=60)
    seen = dict(each.split("=", 1) for each in told["offer"]["packages"])
    assert "secret" not in seen.values()
    assert "of the user" not in seen.values()
    assert (seen["LANGSMITH_TRACING"], seen["LANGCHAIN_TRACING_V2"], seen["OTEL_SDK_DISABLED"]) == (
        "false",
        "false",
        "true",
    )
    assert seen["LC_TIME"] == "C.UTF-8"
    assert {"PATH", "HOME", "PYTHONPATH"} <= seen.keys()


def test_a_worker_that_was_killed_from_outside_was_not_silent(place: WorkerFolder, tmp_path: Path) -> None:
    killed = job(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(DiedError, match=r"^killed from outside, perhaps since memory ran out$"):
        list(run_job(killed, place, limit_seconds=60))


def test_a_worker_that_says_nothing_is_ended(place: WorkerFolder, tmp_path: Path) -> None:
    silent = job(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(DiedError, match=r"^killed; it said nothing for 1 seconds$"):
        list(run_job(silent, place, limit_seconds=1))


def test_peers_may_have_any_name_that_a_folder_can_have(tmp_path: Path) -> None:
    for name in ("my.env", "no such", "my.peer"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "my.peer" / "peer.py").write_text("SYSTEMS, PACKAGES = {}, ()\n", "utf-8")
    found, absent = peers_in(str(tmp_path))
    assert found == [Peer("my.peer", *(str(tmp_path / "my.peer" / part) for part in ("bin/python", "peer.py")))]
    assert "langchain" in absent
    [told] = run_job(
        BenchJob(peer=found[0].module, peer_file=found[0].file),
        WorkerFolder(str(Path(__file__).parents[3] / "src")),
        limit_seconds=60,
    )
    assert told["offer"]["systems"] == []


def test_a_running_bench_keeps_its_folder_and_leaves_those_of_others_alone(temporary: Path) -> None:
    strange = temporary / "foldline-bench-strange"
    strange.mkdir()
    with worker_folder() as one, worker_folder() as other:
        assert (Path(one.path) / "foldline_bench").is_dir()
        assert (Path(other.path) / "foldline_bench").is_dir()
    assert list(temporary.iterdir()) == [strange]
