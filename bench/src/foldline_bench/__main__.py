"""Print the time of a turn in long sessions and the time of the import: `python -m foldline_bench [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from foldline.engine.presets import POLICIES
from foldline.text.formatting import DASH, share
from foldline_bench.measure.speed import LOOP_SIZES, SIZES, CostGrowth, TurnSpeed, import_time, run, run_loop, speed

__all__ = ["main"]

# One in which nothing is ever folded, so that all messages are sent; one in which folds come all the time.
WINDOWS: Final = {"never full": 100_000_000, "16,000 tokens": 16_000}

# The window of a loop: the one of those two in which there are folds.
LOOP_WINDOW_TOKENS: Final = 16_000


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m foldline_bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--loop", action="store_true", help="one tool loop of 10,000 turns that begins with thinking")
    usual, longest = f"{max(SIZES)}, with --loop {max(LOOP_SIZES)}", "length of the session"
    parser.add_argument("--messages", type=int, help=f"{longest} (default: {usual})")
    parser.add_argument("--policy", help="policies, or all (default: balanced,economical, with --loop all)")
    parser.add_argument("--imports", type=int, default=5, help="times the import is measured (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print. Takes about a second for each policy and window; with `--loop` half a minute for each."""
    options = _arguments(argv)
    sizes: tuple[int, ...] = LOOP_SIZES if options.loop else SIZES
    messages = max(sizes) if options.messages is None else options.messages
    wanted = options.policy or ("all" if options.loop else "balanced,economical")
    policies = list(POLICIES) if wanted == "all" else wanted.split(",")
    unknown = [name for name in policies if name not in POLICIES]
    wrong = "--messages: 2 or more" if messages < 2 else "--imports: 1 or more" if options.imports < 1 else ""
    if unknown:
        wrong = f"unknown policy {unknown[0]!r}; known are {', '.join(POLICIES)}"
    if wrong:
        sys.stderr.write(f"foldline_bench: {wrong}\n")
        sys.exit(2)
    sizes = tuple(size for size in sizes if size <= messages) or (messages,)
    start = import_time(options.imports)
    measured = []
    for policy in policies:
        measured += [_loop(policy, messages, sizes)] if options.loop else _session(policy, messages, sizes)
    report = {"import_seconds": start.seconds, "import_loads": start.foreign_modules, "turns": measured}
    sys.stdout.write(f"{json.dumps(report, indent=2)}\n" if options.json else _table(report))


def _session(policy: str, messages: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    return [_row(policy, name, *speed(run(policy, messages, window), sizes)) for name, window in WINDOWS.items()]


def _loop(policy: str, messages: int, sizes: Sequence[int]) -> dict[str, Any]:
    """The row of a loop; with the most entries that were in memory between each length and the one before."""
    turns, held = run_loop(policy, messages, LOOP_WINDOW_TOKENS)
    row = _row(policy, "thinking first", *speed(turns, sizes))
    before = 0
    for size in row["sizes"]:
        size["entries"] = max(n for n, turn in zip(held, turns, strict=True) if before < turn[0] <= size["messages"])
        before = size["messages"]
    return row


def _row(policy: str, window: str, found: Sequence[TurnSpeed], growth: CostGrowth) -> dict[str, Any]:
    figures = {"growth": growth.plain, "folding_growth": growth.folding, "sizes": [asdict(size) for size in found]}
    return {"policy": policy, "window": window, **figures}


def _place(row: dict[str, Any], size: dict[str, Any]) -> str:
    """The window; of a loop the entries in memory, as its window is the same in each row."""
    return f"{size['entries']:,} in memory" if "entries" in size else str(row["window"])


def _heading(report: dict[str, Any]) -> str:
    loop = any("entries" in size for row in report["turns"] for size in row["sizes"])
    return "entries, most" if loop else "window"


def _time(turns: int, seconds: float, width: int = 9) -> str:
    """Milliseconds, or a dash where there was no such turn."""
    return f"{seconds * 1e3:>{width}.3f}" if turns else f"{DASH:>{width}}"


def _table(report: dict[str, Any]) -> str:
    loads = ", ".join(report["import_loads"]) or "no third-party module"
    lines = [
        f"import foldline: {report['import_seconds'] * 1e3:.0f} ms, loads {loads}",
        "",
        "CPU milliseconds of one turn (append a call and its result, prepare a request)",
        f"{'policy':<12}{_heading(report):<16}{'messages':>9}{'median':>9}{'p95':>9}{'folding':>9}{'median':>8}{'p95':>8}",
    ]
    for one in report["turns"]:
        for size in one["sizes"]:
            plain = size["turns"] - size["folding_turns"]
            lines.append(
                f"{one['policy']:<12}{_place(one, size):<16}{size['messages']:>9,}"
                f"{_time(plain, size['p50_seconds'])}{_time(plain, size['p95_seconds'])}"
                f"{size['folding_turns']:>9,}{_time(size['folding_turns'], size['folding_p50_seconds'], 8)}"
                f"{_time(size['folding_turns'], size['folding_p95_seconds'], 8)}"
            )
        lines.append(f"{'':<12}{'growth':<16}{'':>9}{share(one['growth']):>9}{'':>18}{share(one['folding_growth']):>8}")
    note = f"growth: k of time ~ messages^k, over all such turns; {DASH}: there were too few"
    return "\n".join((*lines, "", note, ""))


if __name__ == "__main__":
    main()
