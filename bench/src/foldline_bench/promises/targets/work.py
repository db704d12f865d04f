"""Work by count: the steps of the interpreter, which are the same on every machine and under every load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["counted"]


def counted(call: Callable[[], object]) -> int:
    """Run a call, and return how many bytecode instructions it took in this thread. About 20 times slower than alone.

    What runs in C is one step, whatever its size.
    """
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        del argument
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps
