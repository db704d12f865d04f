from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.tests.tuning.support import tuned, write_sessions
from bench.tests.tuning.workers import dies_always, dies_once, doubled, pid_of, refuses

from foldline_bench.tuning.backends import BackendFailed, InProcess, LocalProcesses, core_count


def test_processes_do_all_of_the_work_and_none_of_it_here() -> None:
    with LocalProcesses(2) as engine:
        assert sorted(engine.each(doubled, range(40))) == list(range(0, 80, 2))
        assert os.getpid() not in set(engine.each(pid_of, range(4)))
        assert list(engine.each(doubled, [])) == []


def test_processes_and_one_process_find_the_same(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 3)
    here = tuned(folder, tmp_path / "here", engine=InProcess())
    there = tuned(folder, tmp_path / "there", engine=LocalProcesses(2))
    assert (there.front, there.chosen, there.none) == (here.front, here.chosen, here.none)
    assert there.replayed == here.replayed


def test_a_worker_that_dies_is_replaced_and_its_work_done_again(tmp_path: Path) -> None:
    with LocalProcesses(1) as engine:
        markers = [tmp_path / "a", tmp_path / "b"]
        assert sorted(engine.each(dies_once, markers)) == ["a", "b"]


def test_workers_that_die_again_and_again_end_it() -> None:
    with LocalProcesses(1) as engine, pytest.raises(BackendFailed, match="died 3 times; is there memory enough"):
        list(engine.each(dies_always, [1]))


def test_an_error_of_the_work_comes_here() -> None:
    with LocalProcesses(1) as engine, pytest.raises(ValueError, match="not 7"):
        list(engine.each(refuses, [7]))


def test_there_is_at_least_one_core() -> None:
    assert 1 <= core_count() <= (os.cpu_count() or 1)
