"""Installs what a folder pins, each file of pins by itself: a virtual environment or an npm prefix.

usage: install.py [--newest] PINS TARGET [NAME ...]

PINS is the folder with the pins, TARGET where the environments go; without a NAME all are installed. `--newest` takes
the newest versions in place of those that are pinned.

NAME.txt lists packages for pip, NAME.npm.txt one of npm. What is there in the version wanted is left alone. A client
that cannot be installed is said, and the rest go on: its tests are skipped. Packages of npm run no script of their own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NPM = "npm install --silent --no-audit --no-fund --ignore-scripts --no-package-lock --no-save --fetch-retries 1".split()


def install(pins: Path, target: Path, *, newest: bool) -> bool:
    """Install one client; False if that failed."""
    name = pins.name.removesuffix(".txt").removesuffix(".npm")
    folder, wanted = target / name, pins.read_text("utf-8")
    if newest:
        wanted = re.sub(r"[=<>~]=.*$", "", wanted, flags=re.MULTILINE)
    mark = folder / "installed"
    if mark.exists() and mark.read_text("utf-8") == wanted:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"installing {name}", flush=True)
    if pins.name.endswith(".npm.txt"):
        done = run([*NPM, "--prefix", str(folder), *wanted.split()])
    else:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = run([sys.executable, "-m", "venv", str(folder)]) and run([*pip, *wanted.split()])
    if done:
        mark.write_text(wanted, "utf-8")
    else:
        print(f"not installed: {wanted.strip()}", flush=True)
    return done


def run(command: Sequence[str]) -> bool:
    """Whether the command succeeds; False where its program is not there."""
    try:
        return subprocess.run(command, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--newest"]
    source, target, *chosen = given
    for pins in sorted(Path(source).glob("*.txt")):
        if not chosen or pins.name.split(".")[0] in chosen:
            install(pins, Path(target), newest="--newest" in sys.argv)
