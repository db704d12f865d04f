"""The backend for many machines: the same work as tasks of a Ray cluster. Needs the extra `ray`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from foldline.errors import FoldlineError, MissingExtra
from foldline_bench.tuning.backends import BackendFailed

try:
    import ray
except ImportError as error:
    raise MissingExtra("ray", "--engine ray", install="pip install 'foldline-bench[ray]'") from error

__all__ = ["Ray"]

Given = TypeVar("Given")
Got = TypeVar("Got")

_PACKAGE: Final = str(Path(__file__).parents[2])

# Retries of a task whose machine died, or which could not read its session over the network.
_RETRIES: Final = 3

_REACH_SECONDS: Final = 10.0
_TOKEN: Final = "; if the cluster asks for a token, Ray takes it from RAY_AUTH_TOKEN"

# Tasks submitted for each core, so that none waits for this process.
_AHEAD: Final = 4


class Ray:
    """Tasks on a cluster: the one at an address, or one of this machine that is started for the run and ended with it.

    Sessions are read by the tasks: files must be where each machine can read them. A cluster of others gets this
    version of the package with the tasks.
    """

    batch = 8
    """A task is worth some seconds: sending one takes milliseconds, and reading its session again takes more."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._address = address
        self._workers = workers
        self.about = f"Ray at {address}" if address else "a Ray cluster of this machine"

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """Yield the result of each piece, in order of completion. Raises BackendFailed."""
        # Ray's annotations cover fewer forms than its functions accept.
        cluster: Any = ray
        task = cluster.remote(max_retries=_RETRIES, retry_exceptions=[OSError])(work)
        most = _AHEAD * max(1, int(cluster.cluster_resources().get("CPU", 1)))
        waiting = iter(pieces)
        under_way: list[Any] = []
        while True:
            under_way += [task.remote(piece) for piece in islice(waiting, most - len(under_way))]
            if not under_way:
                return
            done, under_way = ray.wait(under_way)
            for reference in done:
                yield self._result(reference)

    @staticmethod
    def _result(reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FoldlineError | OSError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise BackendFailed(_line(error)) from error

    def __enter__(self) -> Self:
        """Join the cluster, or start one. Raises BackendFailed."""
        # Ray reports each cluster to its developers by default, and this project promises to send nothing anywhere.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self._address:
            _reach(self._address)
        arguments: dict[str, Any] = {"address": "local", "num_cpus": self._workers, "include_dashboard": False}
        if self._address:
            arguments = {"address": self._address, "runtime_env": {"py_modules": [_PACKAGE]}}
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **arguments)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BackendFailed(f"{_line(error)}{_TOKEN if self._address else ''}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the cluster, which ends its tasks; end a cluster that was started here."""
        ray.shutdown()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _reach(address: str) -> None:
    """Check that something listens at host:port. Raises BackendFailed."""
    # Ray itself would wait for minutes there, and not react to Ctrl-C.
    host, mark, port = address.rpartition(":")
    if not mark or "//" in host or not port.isdigit():
        # "auto" or ray://…: Ray reports an error of these at once.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BackendFailed(f"nothing answers at {address}: {error}") from error
