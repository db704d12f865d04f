"""How fast a local server reads and writes, from its own answers: there, seconds are the price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from foldline.catalog.prices import CacheRule
from foldline.messages import Json
from foldline.view.transcript import Usage

__all__ = ["ASSUMED", "ServerSpeed"]

# Until it is measured: a slot that holds the prompt reads next to nothing of it again, one that has lost it takes
# minutes (open-webui/computer#277: 215 s). Nothing expires: the slot is lost to another prompt alone.
ASSUMED: Final = CacheRule(read_ratio=0.01, write_ratio=1.0, minimum_tokens=0, block_tokens=1, lifetime_seconds=0)

# Fewer tokens than these say nothing of a speed: the clock of the edge is mostly latency then.
LEAST_TOKENS: Final = 200

# Weight of the newest measurement.
NEWEST: Final = 0.3

# The price of what the slot holds stays within these shares: no clock measures it better.
BOUNDS: Final = (0.002, 0.5)


@dataclass(slots=True)
class ServerSpeed:
    """Running averages, in seconds per token; 0.0 until measured.

    `read_seconds` is for a token that the server has to read, `held_seconds` for one that its slot holds already,
    `write_seconds` for one that it writes.
    """

    read_seconds: float = 0.0
    held_seconds: float = 0.0
    write_seconds: float = 0.0

    def observe(self, usage: Usage, *, first_seconds: float, seconds: float, timings: Mapping[str, Json]) -> None:
        """Learn from one reply: by llama.cpp's `timings` where there are any, else by the clock at the edge. O(1)."""
        read, read_ms = timings.get("prompt_n"), timings.get("prompt_ms")
        written, written_ms = timings.get("predicted_n"), timings.get("predicted_ms")
        if isinstance(read, int) and isinstance(read_ms, int | float):
            held, first_seconds = max(0, usage.input_tokens - read), read_ms / 1_000
        else:
            read, held = usage.input_tokens - usage.cached_tokens, usage.cached_tokens
        if isinstance(written, int) and isinstance(written_ms, int | float):
            output, writing = written, written_ms / 1_000
        else:
            output, writing = usage.output_tokens, seconds - first_seconds
        if read >= LEAST_TOKENS and first_seconds > 0:
            self.read_seconds = _blend(self.read_seconds, first_seconds / read)
        elif held >= 10 * LEAST_TOKENS and first_seconds > 0:
            rest = max(0.0, first_seconds - read * self.read_seconds)
            self.held_seconds = _blend(self.held_seconds, rest / held)
        if output > 1 and writing > 0:
            self.write_seconds = _blend(self.write_seconds, writing / output)

    @property
    def rule(self) -> CacheRule:
        """Prices in seconds, as shares of the time that a token takes to be read."""
        if not (self.read_seconds and self.held_seconds):
            return ASSUMED
        ratio = min(max(self.held_seconds / self.read_seconds, BOUNDS[0]), BOUNDS[1])
        # Rounded: the rent of a session is recorded in whole tokens, and must not move with the noise of a clock.
        return CacheRule(round(ratio, 3), 1.0, 0, 1, 0)


def _blend(before: float, now: float) -> float:
    return now if not before else (1 - NEWEST) * before + NEWEST * now
