"""Time of one turn (append + prepare) over a long session, per policy: the price must follow what is new.

    python tools/bench_turns.py [MESSAGES] [WINDOW] [POLICY,POLICY…]

A turn is a call and its result, then a request. Turns that fold are timed apart, for they look at all they fold.
"first" and "last" are the 95th percentiles of the first and the last quarter: equal, when the session's length does not
matter. Not a test: machines differ.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from foldline import Context

POLICIES = "autopilot,sliding,checkpoint,layered,confirm,balanced,cost,quality,economical"
WORDS = "the build failed since module alpha could not find symbol beta in file gamma while delta passed".split()


def turn(number: int) -> list[dict[str, Any]]:
    """A call and its result of about 120 tokens, different in every turn."""
    text = " ".join(WORDS[(number * 7 + k * k) % len(WORDS)] for k in range(100))
    function = {"name": "read_file", "arguments": f'{{"path": "src/module_{number}.py"}}'}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"File src/module_{number}.py\n{text}"},
    ]  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them stay under, in milliseconds; 0 when there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1e3 if values else 0.0


def measure(policy: str, messages: int, window: int) -> tuple[list[float], list[float]]:
    """Seconds of each turn without a fold, and of each turn with one."""
    ctx = Context(dialect="openai-chat", policy=policy, window=window, max_output_tokens=window // 16)
    ctx.extend(
        [{"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": "Mend the build."}]
    )
    plain: list[float] = []
    folding: list[float] = []
    for number in range((messages - 2) // 2):
        call, result = turn(number)
        start = perf_counter()
        ctx.append(call)
        ctx.append(result)
        request = ctx.prepare()
        spent = perf_counter() - start
        (folding if request.folds else plain).append(spent)
    return plain, folding


def main() -> None:
    """Measure each policy and print one line for it."""
    given = sys.argv[1:]
    messages, window = (int(a) if a else b for a, b in zip([*given[:2], "", ""], (8_000, 128_000), strict=False))
    policies = (given[2] if len(given) > 2 else POLICIES).split(",")
    print(f"{messages:,} messages, window {window:,}; milliseconds per turn (append, append, prepare)")
    print(f"{'policy':12}{'median':>9}{'p95':>9}{'first':>9}{'last':>9}{'max':>9}{'folding':>9}{'p95':>9}{'max':>9}")
    for policy in policies:
        plain, folding = measure(policy, messages, window)
        quarter = len(plain) // 4
        figures = [percentile(plain, 0.5), percentile(plain, 0.95), percentile(plain[:quarter], 0.95)]
        figures += [percentile(plain[-quarter:], 0.95), percentile(plain, 1)]
        turns = f"{len(folding):>9,}{percentile(folding, 0.95):>9.2f}{percentile(folding, 1):>9.2f}"
        print(f"{policy:12}" + "".join(f"{figure:>9.3f}" for figure in figures) + turns, flush=True)


if __name__ == "__main__":
    main()
