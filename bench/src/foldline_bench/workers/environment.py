"""The environment variables of a worker process: those that it needs to run, and no key.

The packages of peers read variables on their own. LangChain sends each conversation to LangSmith if `LANGSMITH_TRACING`
and a key are set; others look for OpenTelemetry collectors, models and keys. The bench promises that nothing is sent
anywhere, so a worker gets the variables of a list instead of all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

__all__ = ["OFF", "worker_environment"]

_NEEDED: Final = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),  # a Python that is built with a shared library is found by them
        *("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"),  # where the exact counter may find its vocabulary
    )
)

OFF: Final[Mapping[str, str]] = {
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "LITELLM_MODE": "PRODUCTION",  # else it reads keys from the nearest `.env`
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks its own server for a price list
}
"""Settings against telemetry, for packages that would also find one elsewhere, such as in a file in `HOME`."""


def worker_environment() -> dict[str, str]:
    """The variables of a process that runs a peer's code. None of them holds a key."""
    kept = {name: value for name, value in os.environ.items() if name in _NEEDED or name.startswith("LC_")}
    return {**kept, **OFF}
