"""`foldline wrap` as a program over a FakeProvider, and clients that are small scripts."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving import serve

from foldline.testing import FakeProvider, FakeReply

START_SECONDS = 120
KEY = "sk-of-a-test"
CAP = 97
"""The output cap of the client: no other request has it."""

# A client that keeps its history in a file, as real ones do, and says what its arguments say.
TALKING = """
    import json, os, sys, urllib.request
    place = os.path.join(os.environ["HOME"], "history.json")
    messages = json.load(open(place)) if os.path.exists(place) else []
    for words in [one for one in sys.argv[1:] if not one.startswith("--")]:
        said = words if words.endswith("?") else f"{words}: request answered in time, nothing unusual. " * 80
        messages.append({"role": "user", "content": said})
        body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 97, "messages": messages}).encode()
        head = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
        head["x-api-key"] = os.environ["ANTHROPIC_API_KEY"]
        url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
        with urllib.request.urlopen(urllib.request.Request(url, body, head)) as answer:
            messages.append({"role": "assistant", "content": json.load(answer)["content"]})
    json.dump(messages, open(place, "w"))
    print(f"{len(messages)} messages")
"""


@dataclass
class Place:
    """A home, a folder of programs, and the environment of a user who has them."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("home", "bin", "work"):
            (self.folder / name).mkdir()
        self.environ = {
            "HOME": str(self.home),
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "FOLDLINE_HOME": str(self.folder / "foldline"),
            "ANTHROPIC_API_KEY": KEY,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def program(self, name: str, code: str) -> Path:
        """Install a program of Python."""
        path = self.folder / "bin" / name
        path.write_text(f"#!{sys.executable} -S\n{textwrap.dedent(code)}", "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def start(self, *arguments: str, **named: Any) -> subprocess.Popen[str]:
        """Start `foldline wrap` with these arguments."""
        command = [sys.executable, "-m", "foldline", "wrap", *arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        work = self.folder / "work"
        return subprocess.Popen(command, cwd=work, env=self.environ, text=True, **{**pipes, **named})

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `foldline wrap` to its end."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=START_SECONDS)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@contextmanager
def provider(place: Place, window_tokens: int = 4_000) -> Iterator[FakeProvider]:
    """A provider at the address that the user's variable names."""

    def reply(body: Mapping[str, Any]) -> FakeReply:
        del body
        return FakeReply("So it is.")

    fake = FakeProvider(reply, window_tokens=window_tokens, keep=1_000)
    with serve(fake) as served:
        place.environ["ANTHROPIC_BASE_URL"] = served.url
        yield fake
