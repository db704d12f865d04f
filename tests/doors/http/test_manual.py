"""docs/http.md is complete, and its session with curl works as printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.doors.http.support import serving
from tests.real.parts import missing

from foldline.agent import events
from foldline.agent.events import EndReason
from foldline.doors.http.responses import NAMES
from foldline.doors.http.routes import ROUTES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "http.md").read_text("utf-8")


def test_the_session_with_curl_does_what_the_page_says(tmp_path: Path) -> None:
    for program in ("bash", "curl", "jq"):
        if shutil.which(program) is None:
            missing(program, "it is not installed")
    session = re.search(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert session is not None
    commands = re.split(r"^\$ ", session[1], flags=re.MULTILINE)[1:]
    with serving(tmp_path, ["Basel lies at the Rhine.", "Worms, too."]) as api:
        for command in commands:
            line, _, promised = command.partition("\n")
            environ = {"URL": api.url, "PATH": "/usr/local/bin:/usr/bin:/bin"}
            given: dict[str, Any] = {"cwd": tmp_path, "env": environ}
            done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, **given)
            pattern = re.escape(promised).replace("…", ".*")
            assert re.fullmatch(pattern, done.stdout), (line, done.stdout, done.stderr)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_and_all_that_it_takes_is_in_the_manual(route: Any) -> None:
    line = next((line for line in PAGE.splitlines() if f"`{route.method} {route.path}`" in line), None)
    assert line is not None
    named = [one.name for one in (*route.fields.query, *(route.fields.body or ()))]
    assert [name for name in named if name not in line] == []


def test_every_problem_event_reason_and_figure_is_in_the_manual() -> None:
    assert [name for name in NAMES if f"`/problems/{name}`" not in PAGE] == []
    assert [name for name in get_args(EndReason) if f"`{name}`" not in PAGE] == []
    assert [name for name in events._NAMES.values() if f"`{name}`" not in PAGE] == []


def test_every_figure_for_prometheus_is_in_the_manual(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        api.say(api.create_session(), "Hi")
        names = re.findall(r"^# TYPE (\w+?)(?:_created)? ", api.client.get("/metrics").text, re.MULTILINE)
    assert len(names) >= 9
    assert [name for name in names if name.removesuffix("_total") not in PAGE] == []
