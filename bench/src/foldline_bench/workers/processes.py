"""The environments of peers, and the processes that the bench starts in them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO, Any

import foldline
from foldline.errors import FoldlineError
from foldline_bench.peers import PEERS
from foldline_bench.workers.environment import surroundings
from foldline_bench.workers.jobs import BenchJob

if sys.platform != "win32":
    import fcntl

__all__ = ["DiedError", "Peer", "WorkerFolder", "peers_in", "said", "workplace"]

_PACKAGES = (Path(foldline.__file__).parent, Path(__file__).parents[1])

_PREFIX = "foldline-bench-"

# A file in the folder that the bench keeps locked while it runs: the lock ends with its process, however that does.
_LOCK = "lock"

# Characters of a worker's last line that are told: a traceback ends with its error, which may hold a whole message.
_LAST_WORDS = 300


class DiedError(FoldlineError):
    """A worker ended before its job was done; the text is the last line that it said."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer by its name, its interpreter, and the file of its module where that is not one of ours."""

    name: str
    python: str
    file: str = ""

    @property
    def module(self) -> str:
        """The name of its module in foldline_bench.peers."""
        return f"{self.name}_peer"


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """Where workers find the two packages: a folder with nothing else in it."""

    path: str

    def environment(self) -> Mapping[str, str]:
        """The environment of a worker: what it needs of this one, both packages on its path, and text hashed alike.

        Nothing of it is a key, and what would send sessions away is turned off.
        """
        return {**surroundings(), "PYTHONPATH": self.path, "PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}


@contextmanager
def workplace() -> Iterator[WorkerFolder]:
    """A folder with a copy of foldline and of this package, and nothing else.

    Other packages are not a peer's business, and all systems meet the same code, whatever is changed while they run.
    """
    _clear()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _locked(Path(folder)):
        for package in _PACKAGES:
            shutil.copytree(package, Path(folder) / package.name)
        yield WorkerFolder(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a workplace. It gets its name when it is held: whoever finds it free may remove the folder."""
    with (folder / f"{_LOCK}.new").open("wb") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)
        yield


def _clear() -> None:
    """Remove the workplaces of benches of this user that were killed. Those of running ones and of others stay."""
    if sys.platform == "win32":
        return
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            if lock.parent.lstat().st_uid != os.getuid():
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent)
        except OSError:
            continue  # it is in use, or another bench was faster


def peers_in(folder: str) -> tuple[list[Peer], dict[str, str]]:
    """The peers that have an environment in the folder, the known ones first; and those that have none, with why."""
    root = Path(folder)
    there = {path.name for path in root.iterdir() if path.is_dir()} if root.is_dir() else set()
    found, absent = [], {}
    for name in (*PEERS, *sorted(there - set(PEERS))):
        python, file = root / name / "bin" / "python", root / name / "peer.py"
        if not (file.is_file() or name in PEERS):
            continue
        if python.exists():
            found.append(Peer(name, str(python), str(file) if file.is_file() else ""))
        else:
            absent[name] = f"not installed: there is no {python}"
    return found, absent


def said(
    job: BenchJob, place: WorkerFolder, *, python: str = sys.executable, limit_seconds: float
) -> Iterator[dict[str, Any]]:
    """Start a worker for the job and give each thing it says, as it says it. Raises DiedError when it ends early.

    It is ended when this is left, whether by an error or by Ctrl-C, and when it says nothing for so many seconds.
    """
    command = [python, "-P", "-m", "foldline_bench.workers.worker"]
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=dict(place.environment()),
            start_new_session=True,  # Ctrl-C comes to this process alone, which then ends the worker and its children
        )
        watch = _Watch(process, limit_seconds)
        ended = False
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _hand(process.stdin, job)
            for line in process.stdout:
                watch.again()
                told = json.loads(line)
                ended = ended or "done" in told or "offer" in told
                yield told
            if not ended:
                raise DiedError(_last_words(process, complaints, watch))
        finally:
            watch.cancel()
            _end(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _Watch:
    """Ends a worker that says nothing for so many seconds, and remembers that it did."""

    def __init__(self, process: subprocess.Popen[bytes], limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.ended = False
        self._process = process
        self._timer = self._started()

    def again(self) -> None:
        """Begin to wait anew: the worker said something."""
        self.cancel()
        self._timer = self._started()

    def cancel(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _started(self) -> Timer:
        timer = Timer(self.limit_seconds, self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.ended = self._process.poll() is None
        _end(self._process)


def _hand(pipe: IO[bytes], job: BenchJob) -> None:
    try:
        pipe.write(f"{job.as_json()}\n".encode())
        pipe.flush()
    except BrokenPipeError:
        return  # it died at once: what it said is read where its output ends


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker and what it started. What is gone already is left alone."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(process: subprocess.Popen[bytes], complaints: IO[bytes], watch: _Watch) -> str:
    code = process.wait()
    complaints.seek(0)
    lines = [line.strip() for line in complaints.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if watch.ended:
        return f"killed; it said nothing for {watch.limit_seconds:,.0f} seconds"
    if code == -signal.SIGKILL:
        return "killed from outside, perhaps since memory ran out"
    return lines[-1][:_LAST_WORDS] if lines else f"ended with code {code} and said nothing"
