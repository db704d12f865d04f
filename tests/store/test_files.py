"""The archive in a folder: originals come back unchanged or not at all, and no key leads out of it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import InvalidInput
from foldline.store import FileArchive
from foldline.store.files import read_json, update_json
from foldline.view.archive import Archive, MemoryArchive, key_of

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")

BAD_KEYS = [
    "",
    "..",
    "../../etc/passwd",
    "a" * 63,
    "a" * 65,
    "A" * 64,
    "g" * 64,
    "a" * 62 + "/a",
    "a" * 64 + "\n",
    "٣" * 64,
]


@pytest.fixture
def archive(tmp_path: Path) -> FileArchive:
    return FileArchive(tmp_path / "originals")


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


@costly
@given(data=st.binary())
def test_an_original_is_read_back(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive: Archive = FileArchive(folder)
        key = archive.put(data)
        assert archive.get(key) == data
        assert key in archive
        assert key == MemoryArchive().put(data)


@pytest.mark.parametrize("fsync", [False, True])
def test_putting_again_changes_nothing(tmp_path: Path, fsync: bool) -> None:
    archive = FileArchive(tmp_path, fsync=fsync)
    key = archive.put(b"once")
    before = Path(archive.where(key)).stat()
    assert archive.put(b"once") == key
    assert Path(archive.where(key)).stat().st_mtime_ns == before.st_mtime_ns
    assert len(files_in(tmp_path)) == 1


def test_an_archive_that_is_never_written_to_leaves_no_trace(tmp_path: Path) -> None:
    archive = FileArchive(tmp_path / "originals")
    assert key_of(b"x") not in archive
    with pytest.raises(KeyError):
        archive.get(key_of(b"x"))
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_opened_again(archive: FileArchive) -> None:
    key = archive.put(b"kept")
    assert FileArchive(archive.root).get(key) == b"kept"


def test_where_is_a_path_that_a_person_can_open(archive: FileArchive) -> None:
    key = archive.put(b"text")
    assert Path(archive.where(key)).read_bytes() == b"text"
    assert Path(archive.where(key_of(b"absent"))).is_relative_to(archive.root)


def test_where_stays_true_when_the_working_directory_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive = FileArchive("here")
    key = archive.put(b"text")
    monkeypatch.chdir(tmp_path.parent)
    assert archive.get(key) == b"text"
    assert Path(archive.where(key)).is_absolute()


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_malformed_key_leads_nowhere(archive: FileArchive, key: str) -> None:
    archive.put(b"something")
    with pytest.raises(KeyError):
        archive.get(key)
    with pytest.raises(KeyError):
        archive.where(key)
    assert key not in archive


@pytest.mark.parametrize("key", [None, 7, b"a" * 64, ("a",)])
def test_only_text_is_a_key(archive: FileArchive, key: object) -> None:
    assert key not in archive
    with pytest.raises(KeyError):
        archive.get(key)  # type: ignore[arg-type]


def test_damage_is_noticed_and_named(archive: FileArchive) -> None:
    key = archive.put(b"original")
    Path(archive.where(key)).write_bytes(b"tampered")
    with pytest.raises(InvalidInput, match="damaged") as error:
        archive.get(key)
    assert error.value.place == archive.where(key)


def test_an_object_cut_short_is_written_again(archive: FileArchive) -> None:
    key = archive.put(b"original")
    Path(archive.where(key)).write_bytes(b"")
    assert archive.put(b"original") == key
    assert archive.get(key) == b"original"


@posix_only
def test_only_the_owner_can_read(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        archive = FileArchive(tmp_path / "a" / "b")
        key = archive.put(b"private")
    finally:
        os.umask(before)
    path = Path(archive.where(key))
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in (path.parent, archive.root, archive.root.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


@posix_only
def test_a_link_in_place_of_an_object_is_refused(archive: FileArchive, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"original")
    key = archive.put(b"original")
    path = Path(archive.where(key))
    path.unlink()
    path.symlink_to(secret)
    for act in (lambda: archive.get(key), lambda: archive.put(b"original")):
        with pytest.raises(InvalidInput, match="link"):
            act()
    assert key not in archive


@posix_only
def test_a_link_in_place_of_a_folder_is_refused(archive: FileArchive, tmp_path: Path) -> None:
    key = key_of(b"original")
    outside = tmp_path / "outside"
    outside.mkdir()
    archive.root.mkdir()
    (archive.root / key[:2]).symlink_to(outside)
    with pytest.raises(InvalidInput, match="link"):
        archive.put(b"original")
    (outside / key).write_bytes(b"original")
    with pytest.raises(InvalidInput, match="link"):
        archive.get(key)
    assert key not in archive


@posix_only
def test_a_put_that_fails_leaves_nothing_behind(archive: FileArchive) -> None:
    key = key_of(b"x")
    Path(archive.where(key)).parent.mkdir(parents=True)
    Path(archive.where(key)).mkdir()  # a folder in the way: the rename would fail
    with pytest.raises(InvalidInput):
        archive.put(b"x")
    assert files_in(archive.root) == []


@posix_only
def test_an_object_that_the_disk_does_not_take_leaves_nothing_behind(archive: FileArchive) -> None:
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
        with pytest.raises(OSError, match="too large"):
            archive.put(b"x" * 5_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files_in(archive.root) == []
    assert key_of(b"x" * 5_000) not in archive


def test_a_leftover_of_a_crash_is_no_object(archive: FileArchive) -> None:
    key = archive.put(b"whole")
    draft = Path(archive.where(key)).with_name(f".{key}.0011223344556677.part")
    draft.write_bytes(b"who")
    assert archive.get(key) == b"whole"
    assert draft.name not in archive


def test_a_damaged_object_is_written_again(tmp_path: Path) -> None:
    archive = FileArchive(tmp_path / "archive")
    key = archive.put(b"the original")
    Path(archive.where(key)).write_bytes(b"the damaged!")
    assert archive.put(b"the original") == key
    assert archive.get(key) == b"the original"


COUNT = """
import sys
from pathlib import Path
from foldline.store.files import update_json

def more(value):
    value["n"] = value.get("n", 0) + 1

for _ in range(20):
    update_json(Path(sys.argv[1]), more)
"""


def test_changes_are_read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "kept.json"
    assert read_json(path) == {}
    update_json(path, lambda value: value.update(a=1))
    update_json(path, lambda value: value.update(b={"ü": 2}))
    assert read_json(path) == {"a": 1, "b": {"ü": 2}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_failed_change_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    update_json(path, lambda value: value.update(a=1))

    def spoil(value: dict[str, object]) -> None:
        value["a"] = object()

    with pytest.raises(TypeError):
        update_json(path, spoil)
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
