"""The environments of peers, and the worker processes that run in them."""

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
from typing import IO, Any, Final

import foldline
from foldline.errors import FoldlineError
from foldline_bench.peers import PEERS
from foldline_bench.workers.jobs import BenchJob

__all__ = [
    "OFF",
    "DiedError",
    "Peer",
    "WorkerFolder",
    "ended_like_ctrl_c",
    "peers_in",
    "run_job",
    "worker_environment",
    "worker_folder",
]


# The packages of peers read variables on their own. LangChain sends each conversation to LangSmith if LANGSMITH_TRACING
# and a key are set; others look for OpenTelemetry collectors, models and keys. The bench promises that nothing is sent
# anywhere, so a worker gets the variables of a list. A list of what to remove would miss those of the next package.
_NEEDED: Final = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),  # a Python that is built with a shared library is found by them
        *("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"),  # where the exact counter may find its vocabulary
    )
)

OFF: Final[Mapping[str, str]] = {
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "LITELLM_MODE": "PRODUCTION",  # else it reads keys from the nearest `.env`
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks its own server for a price list
}
"""Settings against telemetry, for packages that would also find one elsewhere, such as in a file in `HOME`."""


def worker_environment() -> dict[str, str]:
    """Return the environment of a process that runs a peer's code. None of its variables holds a key."""
    passed = {name: value for name, value in os.environ.items() if name in _NEEDED or name.startswith("LC_")}
    return {**passed, **OFF}


if sys.platform != "win32":
    import fcntl


_PACKAGES = (Path(foldline.__file__).parent, Path(__file__).parents[1])

_PREFIX = "foldline-bench-"

# A file that a running bench keeps locked. The lock ends with the process, even if it is killed. So the next bench can
# tell abandoned folders from those in use, which a process id could not: it may have been used again.
_LOCK = "lock"

# Of the last line of a worker that died: a traceback ends with its error, which may quote a whole message.
_LAST_LINE_CHARS = 300


class DiedError(FoldlineError):
    """A worker ended before its job was done. The text is the last line that it wrote."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer: its name, its interpreter, and the file of its module if that is not one of this package."""

    name: str
    python: str
    file: str = ""

    @property
    def module(self) -> str:
        """The name of its module in foldline_bench.peers."""
        return f"{self.name}_peer"


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """A folder with the two packages for workers, and nothing else."""

    path: str

    def environment(self) -> Mapping[str, str]:
        """Return the environment of a worker: no keys, no telemetry, both packages on its path."""
        # A fixed hash seed: packages iterate over sets, and figures must be the same in each run.
        return {**worker_environment(), "PYTHONPATH": self.path, "PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}


@contextmanager
def worker_folder() -> Iterator[WorkerFolder]:
    """Copy foldline and this package into a temporary folder, until the end of the block."""
    # With this environment's site-packages on the path, its packages would shadow those of a peer. And all systems run
    # the same code, even if it is edited meanwhile.
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _locked(Path(folder)):
        for package in _PACKAGES:
            shutil.copytree(package, Path(folder) / package.name)
        yield WorkerFolder(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The file gets its name once locked, as a free lock means an abandoned folder."""
    with (folder / f"{_LOCK}.new").open("wb") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)
        yield


def _remove_abandoned() -> None:
    """Remove the folders of this user's benches that were killed. Those of running benches and other users stay."""
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
            # In use, or another bench was faster.
            continue


def peers_in(folder: str) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers with an environment in the folder, shipped ones first; and those without, with the reason."""
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


def run_job(
    job: BenchJob, folder: WorkerFolder, *, python: str = sys.executable, limit_seconds: float
) -> Iterator[dict[str, Any]]:
    """Start a worker for a job and yield its messages as they arrive. Raises DiedError if it ends early.

    The worker is killed when the generator is closed, by an error or Ctrl-C too, and when it is silent for
    `limit_seconds`.
    """
    command = [python, "-P", "-m", "foldline_bench.workers.worker"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(folder.environment()),
            # Ctrl-C reaches this process only, which then kills the worker and its children.
            start_new_session=True,
        )
        timer = _SilenceTimer(process, limit_seconds)
        ended = False
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send_job(process.stdin, job)
            for line in process.stdout:
                timer.restart()
                message = json.loads(line)
                ended = ended or "done" in message or "offer" in message
                yield message
            if not ended:
                raise DiedError(_exit_reason(process, errors, timer))
        finally:
            timer.cancel()
            _end(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _SilenceTimer:
    """Kills a worker that is silent for so many seconds, and records that it did."""

    def __init__(self, process: subprocess.Popen[bytes], limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.fired = False
        self._process = process
        self._timer = self._started()

    def restart(self) -> None:
        """Restart the timer: the worker wrote something."""
        self.cancel()
        self._timer = self._started()

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _started(self) -> Timer:
        timer = Timer(self.limit_seconds, self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.fired = self._process.poll() is None
        _end(self._process)


def _send_job(pipe: IO[bytes], job: BenchJob) -> None:
    try:
        pipe.write(f"{job.as_json()}\n".encode())
        pipe.flush()
    except BrokenPipeError:
        # It died at once, and its last line says why.
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the worker and its children, unless it has ended already."""
    # SIGKILL, as a package may ignore everything else, and nothing of a worker is worth saving.
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _exit_reason(process: subprocess.Popen[bytes], errors: IO[bytes], timer: _SilenceTimer) -> str:
    code = process.wait()
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if timer.fired:
        return f"killed; it said nothing for {timer.limit_seconds:,.0f} seconds"
    if code == -signal.SIGKILL:
        return "killed from outside, perhaps since memory ran out"
    return lines[-1][:_LAST_LINE_CHARS] if lines else f"ended with code {code} and said nothing"


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that workers are killed, folders removed, and what is done is kept."""
    # By default SIGTERM ends Python without `finally`: the worker would measure on, in a session of its own.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
