"""A part that is missing skips its tests, unless it is required."""

from __future__ import annotations

import pytest
from tests.real.parts import missing


@pytest.mark.parametrize("required", ["", "postgresql telegram"])
def test_a_part_that_nobody_requires_skips_and_says_why(required: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_REQUIRE", required)
    with pytest.raises(pytest.skip.Exception, match="chromium: it is not installed"):
        missing("chromium", "it is not installed")


def test_a_part_that_is_required_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_REQUIRE", "postgresql chromium telegram")
    with pytest.raises(pytest.fail.Exception, match="but it is not installed"):
        missing("chromium", "it is not installed")
