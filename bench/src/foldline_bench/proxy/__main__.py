"""Measure the overhead of the proxy, beside LiteLLM's: `python -m foldline_bench.proxy [--json FILE]`.

One upstream, one kind of client, one run: the ways take turns, round after round. Under "light" and "busy" each client
asks at fixed times and the upstream takes its time, as models do; under "saturated" neither waits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from foldline_bench.proxy.figures import DIRECT, RoundReport, figures, table
from foldline_bench.proxy.load import LoadPlan, LoadReport
from foldline_bench.proxy.processes import NotUpError, ServerProcess, upstream_running
from foldline_bench.proxy.programs import KEY, PROGRAMS, WAYS

__all__ = ["PHASES", "main"]

# Text events of each answer, as in a short chat reply or a tool call.
_WORDS: Final = 40

PHASES: Final[dict[str, dict[str, float]]] = {
    "light": {"every_seconds": 12.8, "first_seconds": 1.0, "pause_seconds": 0.25},
    "busy": {"every_seconds": 2.0, "first_seconds": 0.4, "pause_seconds": 0.03},
    "saturated": {},
}
"""Under the first two the connections are kept busy by the upstream, as by models: 64 of them ask 5 times a second,
which LiteLLM can hold on one slow core, and 32 times. Under the last nobody waits."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.proxy", description=__doc__)
    parser.add_argument("--ways", default=",".join((DIRECT, *WAYS)), help="what to compare (default: %(default)s)")
    parser.add_argument("--phases", default=",".join(PHASES), help="loads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of one measurement (default: %(default)s)")
    parser.add_argument("--warm-seconds", type=float, default=4.0, help="not counted before it (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="connections (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=20, help="turns of a conversation (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    for name, program in PROGRAMS.items():
        parser.add_argument(f"--{name}", default=program.command, metavar="COMMAND", help="default: %(default)s")
    return parser.parse_args(argv)


def _loads(options: argparse.Namespace, url: str) -> dict[str, LoadPlan]:
    def load(**more: Any) -> LoadPlan:
        return LoadPlan(
            url=url,
            key=KEY,
            clients=options.clients,
            seconds=options.seconds,
            warm_seconds=options.warm_seconds,
            words=_WORDS,
            turns=options.turns,
            **more,
        )

    return {name: load(**paced) for name, paced in PHASES.items()}


def _once(way: str, phase: str, number: int, wanted: LoadPlan, watched: dict[str, ServerProcess]) -> RoundReport:
    """One measurement; the clients are a process of their own, new each time."""
    before = {name: one.cpu_seconds() for name, one in watched.items()}
    command = [sys.executable, "-m", "foldline_bench.proxy.load", json.dumps(asdict(wanted))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seen = LoadReport(**json.loads(done.stdout))
    cpu: dict[str, float | None] = {"clients": seen.cpu_seconds}
    for name, one in watched.items():
        start, end = before[name], one.cpu_seconds()
        cpu[name] = None if start is None or end is None else end - start
    peak = {"clients": seen.peak_rss_bytes, **{name: one.peak_rss_bytes() for name, one in watched.items()}}
    return RoundReport(way, phase, number, seen, cpu, peak)


def _machine(options: argparse.Namespace) -> dict[str, Any]:
    """The machine and versions that the figures depend on."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    versions = {name: version(name) for name in ("foldline",)}
    if "litellm" in options.ways:
        versions["litellm"] = _version_of(options.litellm)
    return {
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "processor": model or platform.processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average_before": load,
        "versions": versions,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []


def _version_of(command: str) -> str:
    """The version of LiteLLM next to its command."""
    asks = "from importlib.metadata import version as v; print(v('litellm'))"
    python = str(Path(command).with_name("python"))
    return subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print; takes about (seconds + warm-up) × ways × phases × rounds."""
    options = _arguments(argv)
    ways, phases = options.ways.split(","), options.phases.split(",")
    for what, names, known in (("way", ways, (DIRECT, *WAYS)), ("load", phases, tuple(PHASES))):
        unknown = [name for name in names if name not in known]
        if unknown:
            sys.stderr.write(f"foldline_bench.proxy: unknown {what} {unknown[0]!r}; known are {', '.join(known)}\n")
            sys.exit(2)
    machine = _machine(options)
    try:
        measured = list(_measured(options, ways, phases))
    except NotUpError as error:
        sys.stderr.write(f"foldline_bench.proxy: {error}\n")
        sys.exit(1)
    rows = figures(measured)
    if options.json:
        report = {"machine": machine, "asked": vars(options), "figures": [row.as_json() for row in rows]}
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    sys.stdout.write(f"{_head(machine, options)}{table(rows)}")


def _measured(options: argparse.Namespace, ways: Sequence[str], phases: Sequence[str]) -> Iterator[RoundReport]:
    """All measurements in their order: load after load, round after round, way after way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(upstream_running(_WORDS))
        programs: dict[str, ServerProcess] = {}
        for name in dict.fromkeys(WAYS[way].program for way in ways if way != DIRECT):
            command = str(Path(getattr(options, name)).absolute())
            programs[name] = stack.enter_context(PROGRAMS[name].start(upstream.url, folder, command))
        for phase in phases:
            for number in range(options.rounds):
                for way in ways:
                    proxy = None if way == DIRECT else programs[WAYS[way].program]
                    path = "/v1/chat/completions" if way == DIRECT else WAYS[way].path
                    wanted = _loads(options, f"{(proxy or upstream).url}{path}")[phase]
                    watched = {"upstream": upstream, **({"proxy": proxy} if proxy else {})}
                    one = _once(way, phase, number, wanted, watched)
                    _print_round(one)
                    yield one


def _print_round(one: RoundReport) -> None:
    rate = one.seen.requests / one.seen.seconds
    sys.stderr.write(f"{one.phase} {one.round + 1} {one.way}: {rate:.1f} requests/s {dict(one.seen.faults) or ''}\n")


def _head(machine: dict[str, Any], options: argparse.Namespace) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{machine['cores']} cores ({machine['processor']}), Python {machine['python']}, {versions}\n"
        f"{options.clients} connections, {options.rounds} rounds of {options.seconds:g} s, answers of {_WORDS} events\n"
    )


if __name__ == "__main__":
    main()
