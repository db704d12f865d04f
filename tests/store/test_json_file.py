from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foldline.errors import InvalidInput
from foldline.store.json_file import change_json, read_json

COUNT = """
import sys
from pathlib import Path
from foldline.store.json_file import change_json

def more(value):
    value["n"] = value.get("n", 0) + 1

for _ in range(20):
    change_json(Path(sys.argv[1]), more)
"""


def test_what_was_changed_is_read_again_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "kept.json"
    assert read_json(path) == {}
    change_json(path, lambda value: value.update(a=1))
    change_json(path, lambda value: value.update(b={"ü": 2}))
    assert read_json(path) == {"a": 1, "b": {"ü": 2}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_change_that_fails_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    change_json(path, lambda value: value.update(a=1))

    def spoil(value: dict[str, object]) -> None:
        value["a"] = object()

    with pytest.raises(TypeError):
        change_json(path, spoil)
    assert read_json(path) == {"a": 1}
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="it can be deleted") as caught:
        read_json(path)
    assert caught.value.place == str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_processes_that_change_it_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    running = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert read_json(path) == {"n": 60}
