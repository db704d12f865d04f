"""Print the time of a turn in long sessions and the time of the import: `python -m foldline.bench [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from foldline.bench.speed import SIZES, import_time, run, speed
from foldline.policy import POLICIES
from foldline.report.words import DASH, share

__all__ = ["main"]

WINDOWS: Final = {"never full": 100_000_000, "16,000 tokens": 16_000}
"""One in which nothing is ever folded, so that all messages are sent; one in which folds come all the time."""


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m foldline.bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--messages", type=int, default=max(SIZES), help="length of the session (default: %(default)s)")
    parser.add_argument("--policy", default="balanced,economical", help="policies, or all (default: %(default)s)")
    parser.add_argument("--imports", type=int, default=5, help="times the import is measured (default: %(default)s)")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print. Takes about a second for each policy and window."""
    asked = _arguments(given)
    policies = list(POLICIES) if asked.policy == "all" else asked.policy.split(",")
    unknown = [name for name in policies if name not in POLICIES]
    wrong = "--messages: 2 or more" if asked.messages < 2 else "--imports: 1 or more" if asked.imports < 1 else ""
    if unknown:
        wrong = f"unknown policy {unknown[0]!r}; known are {', '.join(POLICIES)}"
    if wrong:
        sys.stderr.write(f"foldline.bench: {wrong}\n")
        sys.exit(2)
    sizes = [size for size in SIZES if size <= asked.messages] or [asked.messages]
    start = import_time(asked.imports)
    measured = []
    for policy in policies:
        for name, window in WINDOWS.items():
            found, growth = speed(run(policy, asked.messages, window), sizes)
            figures = {"growth": growth.plain, "folding_growth": growth.folding, "sizes": [asdict(s) for s in found]}
            measured.append({"policy": policy, "window": name, **figures})
    report = {"import_seconds": start.seconds, "import_loads": start.foreign_modules, "turns": measured}
    sys.stdout.write(f"{json.dumps(report, indent=2)}\n" if asked.json else _table(report))


def _time(turns: int, seconds: float, width: int = 9) -> str:
    """Milliseconds, or a dash where there was no such turn."""
    return f"{seconds * 1e3:>{width}.3f}" if turns else f"{DASH:>{width}}"


def _table(report: dict[str, Any]) -> str:
    loads = ", ".join(report["import_loads"]) or "no third-party module"
    lines = [
        f"import foldline: {report['import_seconds'] * 1e3:.0f} ms, loads {loads}",
        "",
        "CPU milliseconds of one turn (append a call and its result, prepare a request)",
        f"{'policy':<12}{'window':<16}{'messages':>9}{'median':>9}{'p95':>9}{'folding':>9}{'median':>8}{'p95':>8}",
    ]
    for one in report["turns"]:
        for size in one["sizes"]:
            plain = size["turns"] - size["folding_turns"]
            lines.append(
                f"{one['policy']:<12}{one['window']:<16}{size['messages']:>9,}"
                f"{_time(plain, size['p50_seconds'])}{_time(plain, size['p95_seconds'])}"
                f"{size['folding_turns']:>9,}{_time(size['folding_turns'], size['folding_p50_seconds'], 8)}"
                f"{_time(size['folding_turns'], size['folding_p95_seconds'], 8)}"
            )
        lines.append(f"{'':<12}{'growth':<16}{'':>9}{share(one['growth']):>9}{'':>18}{share(one['folding_growth']):>8}")
    note = f"growth: k of time ~ messages^k, over all such turns; {DASH}: there were too few"
    return "\n".join((*lines, "", note, ""))


if __name__ == "__main__":
    main()
