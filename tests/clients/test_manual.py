"""docs/clients.md names the versions that are tried, and has the settings of each client. Part of `make test`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.clients.running import PAGE, settings_of

PINS = sorted(Path(__file__).parent.glob("*.txt"))
ROW = re.compile(r"^\| \[([^\]]+)\]\(#([^)]+)\) \| ([\d.]+) \|", re.MULTILINE)
ROWS = {anchor: (title, version) for title, anchor, version in ROW.findall(PAGE.read_text("utf-8"))}


def test_every_client_that_is_installed_has_a_section_and_no_other_has() -> None:
    assert sorted(ROWS) == sorted(pins.name.split(".")[0] for pins in PINS)


@pytest.mark.parametrize("pins", PINS, ids=[pins.name.split(".")[0] for pins in PINS])
def test_a_section_has_the_version_that_is_installed_and_says_where_the_client_is_pointed(pins: Path) -> None:
    title, version = ROWS[pins.name.split(".")[0]]
    assert re.split("==|@", pins.read_text("utf-8").strip())[-1] == version
    assert settings_of(title, "http://elsewhere")
