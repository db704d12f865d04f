"""Parts of the world that some tests need and not every machine has: what becomes of a test whose part is missing.

It is skipped, and the reason says what to install; where FOLDLINE_REQUIRE lists the part, it fails. `.ci/run` lists all
of them: "postgresql chromium telegram".
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["missing"]


def missing(part: str, reason: str) -> NoReturn:
    """End the test that needs `part`."""
    if part in os.environ.get("FOLDLINE_REQUIRE", "").split():
        pytest.fail(f"FOLDLINE_REQUIRE lists {part}, but {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
