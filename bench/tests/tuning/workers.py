"""Work that worker processes can be given: a function that is sent by its name must be in a module."""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["dies_always", "dies_once", "doubled", "pid_of", "refuses"]


def doubled(number: int) -> int:
    return 2 * number


def pid_of(_piece: object) -> int:
    return os.getpid()


def refuses(number: int) -> int:
    raise ValueError(f"not {number}")


def dies_once(marker: Path) -> str:
    """Ends its process by force the first time."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.name


def dies_always(_piece: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
