"""CPU time of one turn in a long session, and of `import foldline`.

The cost of a turn must depend on what is new, not on the length of the session. One session runs to its end, and its
turns are measured at certain lengths. Turns that fold are apart, as their cost depends on what they fold.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from time import process_time
from typing import Any, Final

from foldline.engine.context import Context
from foldline.replay.results import percentile

__all__ = [
    "LOOP_SIZES",
    "SAMPLE",
    "SIZES",
    "CostGrowth",
    "ImportSpeed",
    "TurnSpeed",
    "import_time",
    "loop",
    "run",
    "run_loop",
    "session",
    "speed",
]

SIZES: Final = (250, 1_000, 4_000, 8_000)
"""Lengths at which turns are looked at: those at which other trimmers have been measured (docs/concepts.md)."""

LOOP_SIZES: Final = (2_500, 5_000, 10_000, 20_000)
"""The same for a tool loop that begins with signed thinking: 20,000 messages are 10,000 turns of it."""

SAMPLE: Final = 100
"""Turns looked at before each length."""

# The first turns fill caches, and would make the growth look smaller than it is.
_WARM: Final = 30

# A line through fewer points than this means nothing.
_ENOUGH: Final = 10

_WORDS: Final = (
    "the build failed since module alpha could not find symbol beta in file gamma while delta passed".split()
)


@dataclass(frozen=True, slots=True)
class TurnSpeed:
    """Turns that end at `messages` messages: CPU seconds without a fold, and with one."""

    messages: int
    turns: int
    p50_seconds: float
    p95_seconds: float
    folding_turns: int
    folding_p50_seconds: float
    folding_p95_seconds: float


@dataclass(frozen=True, slots=True)
class CostGrowth:
    """The exponent k of time ~ messages^k over turns without a fold and over those with one; None: too few of them."""

    plain: float | None
    folding: float | None


@dataclass(frozen=True, slots=True)
class ImportSpeed:
    """`import foldline` in a fresh interpreter: the best of some runs, and the third-party modules that it loads."""

    seconds: float
    foreign_modules: tuple[str, ...]


def session(messages: int) -> Iterator[tuple[dict[str, Any], ...]]:
    """A session in the Chat Completions dialect: its head, then one call and one result (about 120 tokens) per turn."""
    yield {"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": "Mend the build."}
    for turn in range((messages - 2) // 2):
        words = _output(turn)
        function = {"name": "read_file", "arguments": f'{{"path": "src/module_{turn}.py"}}'}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        yield (
            {"role": "assistant", "content": f"Step {turn}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"File src/module_{turn}.py\n{words}"},
        )


def _output(turn: int) -> str:
    return " ".join(_WORDS[(turn * 7 + place * place) % len(_WORDS)] for place in range(100))


def loop(messages: int) -> Iterator[tuple[dict[str, Any], ...]]:
    """One tool loop in the Anthropic dialect: one call and one result per turn, signed thinking before the first call.

    No point of such a loop may lose all that is before it (`View.cut`), so a fold always reaches the newest calls.
    """
    yield ({"role": "user", "content": "Mend the build."},)
    for turn in range((messages - 1) // 2):
        thinking = [{"type": "thinking", "thinking": "First the modules.", "signature": "c2lnbmVk"}] if not turn else []
        path = {"path": f"src/module_{turn}.py"}
        call = {"type": "tool_use", "id": f"call_{turn}", "name": "read_file", "input": path}
        output = f"File src/module_{turn}.py\n{_output(turn)}"
        yield (
            {"role": "assistant", "content": [*thinking, {"type": "text", "text": f"Step {turn}."}, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{turn}", "content": output}]},
        )


def run_loop(policy: str, messages: int, window: int) -> tuple[list[tuple[int, float, bool]], list[int]]:
    """Return each turn of such a loop, as `run` does, and how many entries were in memory after each.

    As in the agent, folded entries leave memory after each fold. A policy that needs a model gets one short text.
    """
    context = Context(dialect="anthropic", policy=policy, window=window, max_output_tokens=0)
    turns, held = [], []
    so_far = 0
    for new in loop(messages):
        so_far += len(new)
        start = process_time()
        for message in new:
            context.append(message)
        request = context.prepare(lambda messages, most: "Goal: mend the build. The modules so far were read.")
        if request.folds:
            context.release()
        turns.append((so_far, process_time() - start, bool(request.folds)))
        held.append(len(context.view.entries))
    return turns, held


def run(policy: str, messages: int, window: int) -> list[tuple[int, float, bool]]:
    """Run such a session; return for each turn the messages so far, its CPU seconds, and whether it folded."""
    context = Context(policy=policy, window=window, max_output_tokens=0)
    turns = []
    so_far = 0
    for new in session(messages):
        so_far += len(new)
        start = process_time()
        for message in new:
            context.append(message)
        request = context.prepare()
        turns.append((so_far, process_time() - start, bool(request.folds)))
    return turns


def speed(turns: Sequence[tuple[int, float, bool]], sizes: Sequence[int] = SIZES) -> tuple[list[TurnSpeed], CostGrowth]:
    """Return the turns before each length, and how the time of all turns grows with the messages so far."""
    out = []
    for size in sizes:
        sample = [turn for turn in turns if turn[0] <= size][-SAMPLE:]
        plain = [seconds for _, seconds, folded in sample if not folded]
        folding = [seconds for _, seconds, folded in sample if folded]
        low, high = percentile(plain, 0.5), percentile(plain, 0.95)
        out.append(
            TurnSpeed(size, len(sample), low, high, len(folding), percentile(folding, 0.5), percentile(folding, 0.95))
        )
    kinds = [[(so_far, seconds) for so_far, seconds, fold in turns[_WARM:] if fold == kind] for kind in (False, True)]
    return out, CostGrowth(*map(_exponent, kinds))


def _exponent(points: Sequence[tuple[int, float]]) -> float | None:
    """Return the slope of log time over log messages by least squares; None with too few points."""
    # On logarithmic axes time ~ messages^k is a line with slope k: 0 is constant, 1 linear. The slope needs no length
    # at which to compare, and no machine.
    logs = [(math.log(size), math.log(seconds)) for size, seconds in points if seconds > 0]
    if len({size for size, _ in logs}) < _ENOUGH:
        return None
    middle, height = mean(x for x, _ in logs), mean(y for _, y in logs)
    return sum((x - middle) * (y - height) for x, y in logs) / sum((x - middle) ** 2 for x, _ in logs)


_IMPORT: Final = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import foldline
print(time.perf_counter() - start)
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names - {"foldline"}))
"""


def import_time(runs: int) -> ImportSpeed:
    """Import the package in fresh interpreters. Raises CalledProcessError if that fails."""
    found = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
        seconds, _, modules = done.stdout.partition("\n")
        found.append(ImportSpeed(float(seconds), tuple(modules.split())))
    # The minimum: other work of the machine can only add to it.
    return min(found, key=lambda each: each.seconds)
