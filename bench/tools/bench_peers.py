"""Installs peers of `foldline bench` in .bench/, each in an environment of its own: those that are named, or all.

foldline_bench/peers/NAME.txt lists what pip installs. The exact counter of this project is installed beside it, so that
all systems are sized alike. conformance.txt is no peer, but a place for other people's measures. An environment with
the versions wanted is left alone. A peer that cannot be installed is named, and the others go on: the bench omits it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ROOT / "bench" / "src" / "foldline_bench" / "peers"
TARGET = ROOT / ".bench"


def counter() -> str:
    """The requirement of the extra `exact`, in the version that this project is tested with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [wanted] = project["optional-dependencies"]["exact"]
    name = wanted.partition(">")[0]
    pinned = [line for line in (ROOT / "constraints.txt").read_text("utf-8").split() if line.startswith(f"{name}==")]
    return pinned[0] if pinned else wanted


def install(pins: Path) -> bool:
    """Install one peer; False if that failed."""
    folder = TARGET / pins.stem
    packages = [*(line for line in pins.read_text("utf-8").splitlines() if line and line[0] != "#"), counter()]
    mark, wanted = folder / "installed", "\n".join(packages)
    if mark.exists() and mark.read_text("utf-8") == wanted:
        return True
    print(f"installing {pins.stem}", flush=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = (python.exists() or run([sys.executable, "-m", "venv", str(folder)])) and run(pip)
    if done:
        mark.write_text(wanted, "utf-8")
    else:
        print(f"not installed, and left out: {pins.stem} ({', '.join(packages)})", flush=True)
        mark.unlink(missing_ok=True)
    return done


def run(command: Sequence[str]) -> bool:
    """Whether the command succeeds; False where its program is not there."""
    try:
        return subprocess.run(command, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    chosen = set(sys.argv[1:])
    TARGET.mkdir(exist_ok=True)
    for pins in sorted([*PINS.glob("*.txt"), *PINS.parent.glob("*.txt")]):
        if not chosen or pins.stem in chosen:
            install(pins)
