"""Runs a client as its user would: a program of its own, in a home of its own, with the settings of docs/clients.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.real.parts import missing

__all__ = ["ADDRESS", "Home", "environment", "settings_of"]

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".clients"
DRIVERS: Final = Path(__file__).parent / "drivers"
PAGE: Final = ROOT / "docs" / "clients.md"
ADDRESS: Final = "http://127.0.0.1:8790"
TEST_KEY: Final = "sk-of-a-test"
RUN_SECONDS: Final = 600
SHOWN_CHARS: Final = 4_000
PLACES: Final = "/usr/local/bin:/usr/bin:/bin"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment(name: str) -> Path:
    """The folder that a client was installed in."""
    folder = ENVIRONMENTS / name
    if not (folder / "installed").exists():
        missing("clients", f"{name} is not installed (make .clients)")
    return folder


def settings_of(name: str, url: str) -> dict[str, str]:
    """The blocks of a client's section of docs/clients.md by their language, with the proxy at `url`."""
    section = PAGE.read_text("utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    blocks = {language: text.replace(ADDRESS, url) for language, text in BLOCK.findall(section)}
    assert any(url in text for text in blocks.values()), f"docs/clients.md does not say how {name} is pointed anywhere"
    return blocks


@dataclass(frozen=True, slots=True)
class Home:
    """What a client takes for its user's home, and the folder that it works in. No settings of the user are seen."""

    folder: Path
    work: Path

    @classmethod
    def inside(cls, folder: Path) -> Home:
        """A new one. An agent's record of its work folder must not hold the records that it keeps at home."""
        made = cls(folder / "home", folder / "work")
        made.folder.mkdir()
        made.work.mkdir()
        return made

    def run(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
        """What the command prints; AssertionError with the end of its output when it fails."""
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self._environment(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        ends = f"{done.stdout[-SHOWN_CHARS:]}\n{done.stderr[-SHOWN_CHARS:]}"
        assert done.returncode == 0, f"{command[0]} returned {done.returncode}\n{ends}"
        return done.stdout

    def drive(
        self, client: str, driver: str, url: str, arguments: Sequence[str], *, part_chars: int, key: str = TEST_KEY
    ) -> str:
        """Run a driver of tests/clients/drivers in the environment of `client`, on the settings of the manual."""
        python = environment(client) / "bin" / "python"
        (self.work / "settings.py").write_text(settings_of(client, url)["py"], "utf-8")
        for name in ("tool", driver):
            shutil.copy(DRIVERS / f"{name}.py", self.work)
        variables = {
            "PART_CHARS": str(part_chars),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_KEY": key,
            "ANTHROPIC_API_KEY": key,
        }
        return self.run([str(python), f"{driver}.py", *arguments], variables)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
        keys = {"OPENAI_API_KEY": TEST_KEY, "ANTHROPIC_API_KEY": TEST_KEY}
        return {**kept, "HOME": str(self.folder), "PATH": PLACES, **keys, **variables}
