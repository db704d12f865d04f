"""Runs as a process of its own (`isolated.py`): sets limits on itself, then runs a script.

It imports nothing of this package, so that it starts fast and works however the package was found.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import nullcontext, suppress

if sys.platform != "win32":  # it has no such limits; the time limit of the caller holds there too
    import resource

__all__ = ["main"]

MAX_MEMORY_BYTES = 1024**3
# More than any caller waits or a script allows itself: this ends a process whose caller has died.
MAX_CPU_SECONDS = 60
# Behind the server, whose clients wait.
NICENESS = 10


def main() -> None:
    """Limit this process, and run the script whose path is the first argument with the others."""
    if sys.platform != "win32":
        # macOS may refuse this one ("current limit exceeds maximum limit"): there a process has more address space
        # than that at its start. The other limits hold, and the time limit of the caller.
        with suppress(ValueError) if sys.platform == "darwin" else nullcontext():
            _limit(resource.RLIMIT_AS, MAX_MEMORY_BYTES)
        _limit(resource.RLIMIT_CPU, MAX_CPU_SECONDS)
        _limit(resource.RLIMIT_FSIZE, 0)
        _limit(resource.RLIMIT_CORE, 0)
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(NICENESS)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _limit(kind: int, most: int) -> None:
    """Limit this process for good. A lower limit that it was started with stays: raising that would be refused."""
    if sys.platform != "win32":
        _, found = resource.getrlimit(kind)
        most = most if found == resource.RLIM_INFINITY else min(most, found)
        resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
