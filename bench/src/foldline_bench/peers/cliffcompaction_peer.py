"""CliffCompaction, a proxy: the engine in it, without the server around it.

The proxy reads a request, calls `Engine.prepare` with its body and the dialect, and sends what comes out. The same is
done here with a body that holds the messages alone, the threshold being the budget and all else the defaults (the last
3 turns kept, results over 500 characters dropped from the summary, which no model writes). When the provider answers
that the context is too long, the proxy calls `Engine.reactive` and sends again, until it is taken or the engine is at
the end of its ladder; here the provider refuses what the neutral counter finds over the budget. What is over the budget
after that is sent all the same, as the provider's refusal would be passed on. "strict": with `strict=True`, its mode
for measurements, the ladder is climbed before the first try and a request that is still too large is an error.

The engine counts by characters over four of the whole body and takes no other counter. It hashes each message of the
session at each request. It holds no event loop and no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from cliffcompaction.config import Config
from cliffcompaction.dialects import openai_chat
from cliffcompaction.engine import Engine

from foldline.messages import Wire
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("cliffcompaction",)


class OverBudgetError(Exception):
    """The request that the proxy would have refused in its strict mode."""


class _Cliff:
    """One engine, whose store knows its earlier compactions of this session."""

    def __init__(self, budget_tokens: int, count: Count, summariser: FixedSummariser, *, strict: bool = False) -> None:
        self._budget_tokens = budget_tokens
        self._count = count
        self._engine = Engine(Config(threshold_tokens=budget_tokens, strict=strict))

    def prepare(self, history: Sequence[Wire]) -> None:
        """Nothing: the engine works on the messages as they are, and leaves them alone."""

    def view(self, history: Sequence[Wire]) -> Any:
        asked = self._engine.prepare({"messages": list(history)}, openai_chat.DIALECT)
        if asked.over_budget and self._engine.cfg.strict:
            raise OverBudgetError(f"{asked.est_tokens_out} tokens by its own count")
        while self._tokens(asked.substituted) > self._budget_tokens and self._engine.reactive(asked):
            pass
        return asked.substituted

    def _tokens(self, messages: Sequence[Wire]) -> int:
        return sum(map(self._count, messages))

    def finish(self, out: Any) -> list[Wire]:
        return list(out)


SYSTEMS: Final[Mapping[str, MakeSystem]] = {}
"""None: a counter cannot be handed in."""

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "cliffcompaction (own counter)": _Cliff,
    "cliffcompaction (strict, own counter)": partial(_Cliff, strict=True),
}
