from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foldline.store import paths as places

PATHS = (
    places.sessions_path,
    places.calls_path,
    places.config_path,
    places.history_path,
    places.learned_path,
    places.trusted_path,
    places.cache_folder,
)


def test_one_variable_moves_all(tmp_path: Path) -> None:
    environ = {"FOLDLINE_HOME": str(tmp_path / "home")}
    found = [path(environ) for path in PATHS]
    assert len(set(found)) == len(PATHS)
    assert all(path.is_relative_to(tmp_path / "home") for path in found)
    assert not (tmp_path / "home").exists()


def test_a_relative_home_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.data_folder({"FOLDLINE_HOME": "here"}) == tmp_path / "here" / "data"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG is for the other systems")
def test_without_it_the_folders_are_those_of_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOLDLINE_HOME", raising=False)
    for kind in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    assert places.sessions_path() == tmp_path / "data" / "foldline" / "sessions"
    assert places.config_path() == tmp_path / "config" / "foldline" / "agents.yaml"
    assert places.history_path() == tmp_path / "state" / "foldline" / "history"
    assert places.cache_folder() == tmp_path / "cache" / "foldline"
    assert places.data_folder({"FOLDLINE_HOME": ""}) == tmp_path / "data" / "foldline"
