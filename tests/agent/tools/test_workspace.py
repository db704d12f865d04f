"""The folder that file tools see: every way in is tried, and every way out."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from foldline.agent.tools.workspace import MAX_DEPTH, FileLocation, Workspace
from foldline.errors import InvalidInput


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, with something worth stealing."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("the secret")
    return folder


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    root = tmp_path / "here"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a = 1\n")
    return Workspace(root, by_descriptor=request.param)


def content(workspace: Workspace, path: str) -> str:
    with workspace.open(path) as (file, _):
        return file.read().decode()


@pytest.mark.parametrize("path", ["src/a.py", "./src/a.py", "src/../src/a.py", "src//a.py", "src/./a.py"])
def test_relative_paths_lead_to_the_file(workspace: Workspace, path: str) -> None:
    assert content(workspace, path) == "a = 1\n"
    assert workspace.find(path).name == "src/a.py"


def test_absolute_paths_within_the_workspace_are_taken(workspace: Workspace) -> None:
    assert content(workspace, str(workspace.root / "src" / "a.py")) == "a = 1\n"
    assert workspace.find(str(workspace.root)).kind == "folder"


def test_a_workspace_that_was_given_by_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("x")
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace(tmp_path / "link")
    assert workspace.root == tmp_path / "real"
    assert [content(workspace, str(tmp_path / name / "a")) for name in ("real", "link")] == ["x", "x"]


@pytest.mark.parametrize(
    "path", ["..", "../outside/secret.txt", "src/../../outside/secret.txt", "src/../..", "../here/src/a.py"]
)
def test_two_dots_do_not_lead_out(workspace: Workspace, outside: Path, path: str) -> None:
    for method in (workspace.find, workspace.scan, workspace.writable, lambda path: content(workspace, path)):
        with pytest.raises(InvalidInput, match=r"leads out of the workspace by '\.\.'"):
            method(path)


def test_absolute_paths_outside_are_refused(workspace: Workspace, outside: Path) -> None:
    for path in (str(outside / "secret.txt"), "/etc/passwd", f"{workspace.root}-2/x", "//etc/passwd", "/"):
        with pytest.raises(InvalidInput, match="is outside the workspace") as caught:
            content(workspace, path)
        assert caught.value.place == path


def test_links_that_lead_out_are_refused_at_any_part_of_a_path(workspace: Workspace, outside: Path) -> None:
    root = workspace.root
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    (root / "src" / "up").symlink_to("../../outside")
    (root / "twice").symlink_to("folder")
    for path in ("file", "folder/secret.txt", "src/up/secret.txt", "twice/secret.txt"):
        with pytest.raises(InvalidInput, match="leads out of the workspace"):
            content(workspace, path)
    for path in ("folder", "src/up", "twice"):
        with pytest.raises(InvalidInput, match="leads out of the workspace"):
            workspace.scan(path)


def test_a_file_to_be_made_behind_a_link_out_is_refused(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "folder").symlink_to(outside)
    (workspace.root / "dangling").symlink_to(outside / "new.txt")
    for path in ("folder/new.txt", "dangling", "folder/deeper/new.txt"):
        with pytest.raises(InvalidInput, match="leads out of the workspace"):
            workspace.writable(path)
    assert sorted(os.listdir(outside)) == ["secret.txt"]


def test_links_within_are_followed_and_named_by_where_they_lead(workspace: Workspace) -> None:
    root = workspace.root
    (root / "relative").symlink_to("src/a.py")
    (root / "src" / "absolute").symlink_to(root / "src")
    (root / "src" / "up").symlink_to("..")
    (root / "new").symlink_to("src/b.py")
    for path in ("relative", "src/absolute/a.py", "src/up/src/a.py", "src/absolute/up/relative"):
        assert (workspace.find(path).name, content(workspace, path)) == ("src/a.py", "a = 1\n")
    assert workspace.find("new") == FileLocation("src/b.py")


def test_links_in_a_circle_end(workspace: Workspace) -> None:
    (workspace.root / "one").symlink_to("two")
    (workspace.root / "two").symlink_to("one")
    with pytest.raises(InvalidInput, match="link that is not followed"):
        workspace.find("one")


def test_what_is_no_file_is_not_opened(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")  # opening it to read would wait for a writer
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(workspace.root)  # a socket's path may have about 100 bytes
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        for path, kind in (("pipe", "pipe"), ("socket", "socket")):
            with pytest.raises(InvalidInput, match=f"is a {kind}, not an ordinary file"):
                content(workspace, path)
            with pytest.raises(InvalidInput, match=f"is a {kind}, not an ordinary file"):
                workspace.writable(path)
    with pytest.raises(InvalidInput, match="is a folder, not a file; list_files"):
        content(workspace, "src")
    with pytest.raises(InvalidInput, match="is a file, not a folder"):
        workspace.scan("src/a.py")
    with pytest.raises(InvalidInput, match=r"'a\.py' in it is a file, not a folder"):
        content(workspace, "src/a.py/b")


@pytest.mark.parametrize("path", ["/dev/zero", "dev/null", "/proc/self/environ", "proc/self/root", "sys"])
def test_files_of_the_kernel_are_none_even_where_the_root_is_all(path: str) -> None:
    with pytest.raises(InvalidInput, match="where no ordinary files are"):
        content(Workspace("/"), path)


def test_a_link_to_a_device_is_no_way_to_it(workspace: Workspace) -> None:
    (workspace.root / "zero").symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match="leads out of the workspace"):
        content(workspace, "zero")


def test_odd_paths_have_clear_errors(workspace: Workspace) -> None:
    for path, reason in {
        "a\0b": "has a NUL byte in it",
        "x" * 300: "file name too long",
        "/".join(["d"] * 5): "there is no such file",
        "none": "there is no such file",
        "none/../src/a.py": "goes through a folder that is not there",
        "\ud800": "surrogates not allowed",
    }.items():
        with pytest.raises(InvalidInput, match=reason):
            content(workspace, path)
    with pytest.raises(InvalidInput, match="there is no such folder"):
        workspace.scan("none")


def test_a_root_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "none"):
        with pytest.raises(InvalidInput, match="is not a folder"):
            Workspace(path)


def test_a_path_has_so_many_folders_at_most(workspace: Workspace) -> None:
    folder = workspace.root
    for _ in range(MAX_DEPTH + 1):
        folder /= "d"
    folder.mkdir(parents=True)
    (folder / "x").write_text("deep")
    with pytest.raises(InvalidInput, match="has more than 100 folders"):
        content(workspace, "d/" * (MAX_DEPTH + 1) + "x")


def test_a_folder_is_scanned_in_order_and_links_are_shown(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "out").symlink_to(outside)
    found = workspace.scan(".")
    assert [(item.path, item.kind, item.target) for item in found] == [
        ("out", "link", str(outside)),
        ("src", "folder", ""),
    ]
    assert [(item.path, item.name, item.size_bytes) for item in workspace.scan("src")] == [("src/a.py", "a.py", 6)]


def test_a_write_makes_folders_and_leaves_nothing_beside_the_file(workspace: Workspace) -> None:
    workspace.write(workspace.writable("x/y/new.txt"), b"one")
    assert (workspace.root / "x/y/new.txt").read_bytes() == b"one"
    assert os.listdir(workspace.root / "x" / "y") == ["new.txt"]


def test_a_write_keeps_the_mode_and_a_new_file_has_the_usual_one(workspace: Workspace) -> None:
    script = workspace.root / "run.sh"
    script.write_text("old")
    script.chmod(0o754)
    workspace.write(workspace.writable("run.sh"), b"new")
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o754)
    usual = workspace.root / "usual"
    usual.touch()
    workspace.write(workspace.writable("fresh"), b"")
    assert (workspace.root / "fresh").stat().st_mode == usual.stat().st_mode


def test_a_write_through_a_link_changes_what_it_leads_to(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("src/a.py")
    workspace.write(workspace.writable("link"), b"b = 2\n")
    assert (workspace.root / "src" / "a.py").read_text() == "b = 2\n"
    assert (workspace.root / "link").is_symlink()


def test_a_hard_link_to_a_file_outside_is_taken_apart_by_a_write(workspace: Workspace, outside: Path) -> None:
    os.link(outside / "secret.txt", workspace.root / "same")
    workspace.write(workspace.writable("same"), b"mine")
    assert (outside / "secret.txt").read_text() == "the secret"


def test_a_read_only_file_is_not_replaced(workspace: Workspace) -> None:
    (workspace.root / "src" / "a.py").chmod(0o444)
    with pytest.raises(InvalidInput, match="is read-only"):
        workspace.writable("src/a.py")


def test_what_changed_since_it_was_found_is_not_written(workspace: Workspace, outside: Path) -> None:
    root = workspace.root
    file, new, folder = (workspace.writable(path) for path in ("src/a.py", "new", "sub/new"))
    (root / "src" / "a.py").write_text("somebody else's")
    (root / "new").symlink_to(outside / "secret.txt")
    (root / "sub").symlink_to(outside)
    for place in (file, new, folder):
        with pytest.raises(InvalidInput):
            workspace.write(place, b"mine")
    assert (root / "src" / "a.py").read_text() == "somebody else's"
    assert (outside / "secret.txt").read_text() == "the secret"
    assert os.listdir(outside) == ["secret.txt"]


def test_a_write_that_fails_leaves_the_old_file(workspace: Workspace) -> None:
    place = workspace.writable("src/a.py")
    with pytest.raises(TypeError):
        workspace.write(place, "no bytes")  # type: ignore[arg-type]
    assert os.listdir(workspace.root / "src") == ["a.py"]
    assert content(workspace, "src/a.py") == "a = 1\n"


@pytest.fixture
def swapping(tmp_path: Path, outside: Path) -> Iterator[tuple[Workspace, Callable[[], None]]]:
    """A workspace, and what ends the swaps: another thread turns `file` and `folder` into links out and back.

    `way` is always a link, by turns to the folder `kept` and out.
    """
    root = tmp_path / "swapped"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "secret.txt").write_text("harmless")
    (root / "kept").mkdir()
    (root / "file").write_text("harmless")
    (root / "way").symlink_to("kept")
    end = threading.Event()

    def swap() -> None:
        while not end.is_set():
            for name, target in (("file", outside / "secret.txt"), ("folder", outside)):
                os.rename(root / name, root / f"{name}.kept")
                (root / name).symlink_to(target)
                (root / name).unlink()
                os.rename(root / f"{name}.kept", root / name)
            for target in (outside, Path("kept")):
                (root / "way.new").symlink_to(target)
                os.rename(root / "way.new", root / "way")

    thread = threading.Thread(target=swap)
    thread.start()

    def stop() -> None:
        end.set()
        thread.join()

    yield Workspace(root), stop
    stop()


def test_a_link_swapped_in_between_look_and_open_leads_nowhere(
    swapping: tuple[Workspace, Callable[[], None]],
) -> None:
    """Reads go well or are refused; what is outside is never read. Which of the two depends on who is faster."""
    workspace, stop = swapping
    seen = set()
    for _ in range(500):
        for path in ("file", "folder/secret.txt"):
            try:
                seen.add(content(workspace, path))
            except InvalidInput:
                seen.add("refused")
    stop()
    assert seen <= {"harmless", "refused"}
    assert {content(workspace, path) for path in ("file", "folder/secret.txt")} == {"harmless"}


def test_a_link_that_is_swapped_is_not_written_through(
    swapping: tuple[Workspace, Callable[[], None]], outside: Path
) -> None:
    workspace, stop = swapping
    for _ in range(200):
        with suppress(InvalidInput):
            workspace.write(workspace.writable("way/new.txt"), b"mine")
    stop()
    assert os.listdir(outside) == ["secret.txt"]
    workspace.write(workspace.writable("way/new.txt"), b"mine")  # the last swap leads to the folder that is inside
    assert os.listdir(workspace.root / "kept") == ["new.txt"]
    (workspace.root / "way").unlink()
    (workspace.root / "way").symlink_to(outside)
    with pytest.raises(InvalidInput):
        workspace.writable("way/new.txt")
    assert os.listdir(outside) == ["secret.txt"]


def test_threads_do_not_lose_each_others_writes(workspace: Workspace) -> None:
    """Whoever reads to write back holds the lock."""
    (workspace.root / "n").write_text("0")

    def count() -> None:
        for _ in range(20):
            with workspace.lock:
                place = workspace.writable("n")
                workspace.write(place, str(int(content(workspace, "n")) + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert content(workspace, "n") == "60"


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("x")
    workspace = Workspace(tmp_path)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for path in ("a/b/c", "a/../a/b/c", "none/x", "a/b", "../x"):
        try:
            content(workspace, path)
        except InvalidInput:
            workspace.scan("a/b")
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before
