from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foldline_bench.proxy.__main__ import main
from foldline_bench.proxy.processes import NotUpError, ServerProcess, free_port, running

linux = pytest.mark.skipif(sys.platform != "linux", reason="these figures are those of Linux")


def served(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]


@linux
def test_processor_time_and_memory_are_those_of_the_process_and_its_children() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10**7)); print(1); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "1\n"
        one = ServerProcess("", parent.pid)
        assert (one.cpu_seconds() or 0) > 0.1
        assert (one.peak_rss_bytes() or 0) > 10 * 2**20
        parent.communicate("\n")
    assert one.cpu_seconds() is None


def test_a_proxy_is_up_once_it_answers_and_ends_with_the_block(tmp_path: Path) -> None:
    port = free_port()
    with running(served(port), port, ready="/", folder=tmp_path, environment={}) as up:
        assert up.url == f"http://127.0.0.1:{port}"
    gone = [sys.executable, "-m", "no_such"]
    with (
        pytest.raises(NotUpError, match="No module named no_such"),
        running(gone, port, ready="/", folder=tmp_path, environment={}),
    ):
        pytest.fail("it cannot be up")


def test_the_whole_is_measured_end_to_end_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = "--ways direct --phases saturated --rounds 1 --seconds 0.2 --warm-seconds 0.05 --clients 2".split()
    main([*given, "--json", str(tmp_path / "figures.json")])
    printed = capsys.readouterr().out
    assert "Python" in printed
    assert "saturated" in printed
    assert (tmp_path / "figures.json").read_text("utf-8").startswith("{")


def test_unknown_ways_and_loads_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--ways", "direct,nobody"], ["--phases", "idle"]):
        with pytest.raises(SystemExit) as ended:
            main(given)
        assert ended.value.code == 2
        assert given[1].rpartition(",")[2] in capsys.readouterr().err
