"""Runs as a process of its own (`isolated.py`): sets limits on itself, then runs a script.

It imports nothing of this package, so that it starts fast and works however the package was found.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import suppress

try:
    import resource
except ImportError:  # Windows has no such limits; the time limit of the caller holds there too
    resource = None  # type: ignore[assignment]

__all__ = ["main"]

MAX_MEMORY_BYTES = 1024**3
# More than any caller waits or a script allows itself: this ends a process whose caller has died.
MAX_CPU_SECONDS = 60
# Behind the server, whose clients wait.
NICENESS = 10


def main() -> None:
    """Limit this process, and run the script whose path is the first argument with the others."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(NICENESS)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
