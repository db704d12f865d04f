"""Measure how long a server takes to answer while fifty calls of its models search with hostile patterns, and while
five more sessions fold messages of two megabytes of short lines, one after the other.

    .venv/bin/python -m tools.bench_slow_calls

Prints the load of the machine and the times of /health and of the list of sessions, asked by a process of its own, of a
cancellation of all, and of a stop by two signals. The same server is what
tests/doors/http/test_slow_calls.py asks, without a clock.
"""

from __future__ import annotations

import json
import signal
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from os import getloadavg
from pathlib import Path
from time import perf_counter

import httpx
from tests.doors.http.test_slow_calls import asks, running, slow_calls, until
from tests.serving import serve

from foldline.testing import FakeProvider

ROUNDS = 50
# Sessions that fold.
FOLDING = 5
LARGE = json.dumps({"text": "\n".join(f"{number % 97} ok" for number in range(350_000))}).encode()
JSON = {"content-type": "application/json"}


@contextmanager
def folding(url: str) -> Iterator[list[float]]:
    """Sessions that take up a message too large for any window, and fold it in their next turn; seconds of these."""
    stop, seconds = threading.Event(), list[float]()

    def fold() -> None:
        with httpx.Client(base_url=url, timeout=600) as client:
            while not stop.is_set():
                name = client.post("/v1/sessions", json={}).raise_for_status().json()["id"]
                path = f"/v1/sessions/{name}/messages"
                assert client.post(path, content=LARGE, headers=JSON).json()["reason"] == "does_not_fit"
                began = perf_counter()
                assert client.post(path, json={"text": "Hello?"}).json()["text"] == "Done."
                seconds.append(perf_counter() - began)

    threads = [threading.Thread(target=fold) for _ in range(FOLDING)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: bool(seconds))  # the first of them is there: more are under way
        yield seconds
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def taken(what: Callable[[], object]) -> float:
    """Seconds."""
    began = perf_counter()
    what()
    return perf_counter() - began


def answers(url: str, path: str, times: int) -> list[float]:
    """Seconds of so many requests, one after the other: to be called in a process that does nothing else."""
    with httpx.Client(base_url=url, timeout=60) as client:
        return [taken(lambda: client.get(path).raise_for_status()) for _ in range(times)]


def told(name: str, seconds: list[float]) -> None:
    """One line of figures."""
    ordered = sorted(1_000 * each for each in seconds)
    median, most = statistics.median(ordered), ordered[-1]
    print(f"{name:<28} median {median:7.1f} ms   95 % {ordered[len(ordered) * 19 // 20]:7.1f} ms   most {most:7.1f} ms")


def main() -> None:
    """Measure, and print."""
    print(f"load {getloadavg()[0]:.1f}")
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(FakeProvider(asks, repeat=True, window_tokens=400_000)) as model,
    ):
        with slow_calls(model, Path(folder)) as door, ProcessPoolExecutor(1, get_context("spawn")) as apart:
            for path in ("/health", "/v1/sessions"):
                told(path, apart.submit(answers, door.url, path, ROUNDS).result())
            with folding(door.url) as seconds:
                for path in ("/health", "/v1/sessions"):
                    told(f"{path}, and folds", apart.submit(answers, door.url, path, 4 * ROUNDS).result())
            told("a turn that folds 2 MB", seconds)
            made = taken(lambda: httpx.post(f"{door.url}/v1/sessions", json={}, timeout=60))
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
