"""Measure how long a server takes to answer while fifty calls of its models search with hostile patterns.

    .venv/bin/python -m tools.bench_slow_calls

Prints the times of /health and of the list of sessions, of a cancellation of all, and of a stop by two signals. The
same server is what tests/interfaces/serving/test_slow_calls.py asks, without a clock.
"""

from __future__ import annotations

import signal
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import httpx
from tests.interfaces.serving.test_slow_calls import asks, running, slow_calls, until
from tests.serving import serve

from foldline.testing import FakeProvider

ROUNDS = 50


def taken(what: Callable[[], object]) -> float:
    """Seconds."""
    began = perf_counter()
    what()
    return perf_counter() - began


def told(name: str, seconds: list[float]) -> None:
    """One line of figures."""
    ordered = sorted(1_000 * each for each in seconds)
    median, most = statistics.median(ordered), ordered[-1]
    print(f"{name:<28} median {median:7.1f} ms   95 % {ordered[len(ordered) * 19 // 20]:7.1f} ms   most {most:7.1f} ms")


def main() -> None:
    """Measure, and print."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(FakeProvider(asks, repeat=True, window_tokens=400_000)) as model,
    ):
        with slow_calls(model, Path(folder)) as door, httpx.Client(base_url=door.url, timeout=60) as client:
            for path in ("/health", "/v1/sessions"):
                told(path, [taken(lambda path=path: client.get(path)) for _ in range(ROUNDS)])  # type: ignore[misc]
            made = taken(lambda: client.post("/v1/sessions", json={}))
            print(f"{'a session is created':<28} {1_000 * made:7.1f} ms")
            assert door.process is not None
            door.process.send_signal(signal.SIGTERM)
            log = door.folder / f"serve-{door.port}.log"
            until(lambda: "Stopping" in log.read_text())  # two signals at once are one
            print(f"{'the second signal ends it':<28} {1_000 * taken(lambda: door.kill(signal.SIGTERM)):7.1f} ms")
        with slow_calls(model, Path(tempfile.mkdtemp(dir=folder))) as door:
            names = [one["id"] for one in httpx.get(f"{door.url}/v1/sessions").json()["sessions"]]

            def cancelled() -> None:
                for name in names:
                    httpx.post(f"{door.url}/v1/sessions/{name}/cancel")
                until(lambda: not running(door))

            print(f"{'all turns are cancelled':<28} {1_000 * taken(cancelled):7.1f} ms")


if __name__ == "__main__":
    main()
