"""What a probe would cost, by its questions and views: nothing is sent for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from foldline.catalog.models import lookup
from foldline_bench.probe.asking import question_request
from foldline_bench.probe.run import PreparedProbe
from foldline_bench.probe.values import run_label
from foldline_bench.probe.views import NOTHING

__all__ = ["ProbeBill", "bill_of"]

_REPLY_TOKENS: Final = 10
"""Of a reply that is a letter, as it is asked for."""


@dataclass(frozen=True, slots=True)
class ProbeBill:
    """The tokens of a probe, and its price where the model's is known.

    `repeated_tokens` are those of views that the question before had too: a cache may have them. `output_tokens` is the
    least, with a letter for each question, and `most_output_tokens` with every reply at its limit. The two prices go
    with these: the lower one with all repeated views from the cache, the higher one with none.
    """

    requests: int
    input_tokens: int
    repeated_tokens: int
    output_tokens: int
    most_output_tokens: int
    low_usd: float | None
    high_usd: float | None
    by_system: dict[str, int]


def bill_of(probe: PreparedProbe) -> ProbeBill:
    """Return the bill of all questions. Sizes are by our counter: the provider's may differ by a tenth. O(views)."""
    model, most = lookup(probe.judge.model), probe.judge.max_output_tokens
    by_system: Counter[str] = Counter()
    repeated = 0
    low: list[float | None] = []
    high: list[float | None] = []
    before = None
    sent = [asking for asking in probe.askings if asking.view is not None]
    for asking in sent:
        view = asking.view or NOTHING
        request = question_request(
            probe.judge.dialect, asking.question, view, max_output_tokens=most, counter=probe.counter
        )
        kept = view.tokens if view.tokens >= model.cache.minimum_tokens else 0
        again = kept if view is before else 0
        before = view
        repeated += again
        by_system[run_label(asking.run)] += request.tokens
        low.append(model.usd(request.tokens, again, _REPLY_TOKENS, kept - again))
        # Without a hit each view is written to the cache once more, which some providers charge for.
        high.append(model.usd(request.tokens, 0, most, kept))
    return ProbeBill(
        requests=len(sent),
        input_tokens=sum(by_system.values()),
        repeated_tokens=repeated,
        output_tokens=len(sent) * _REPLY_TOKENS,
        most_output_tokens=len(sent) * most,
        low_usd=_sum(low),
        high_usd=_sum(high),
        by_system=dict(by_system),
    )


def _sum(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
