"""What a proxy has done for one run of a client, as figures and in lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from foldline.catalog.models import lookup
from foldline.doors.proxy.served_request import ServedRequest, is_answered, saved_usd, spent_usd
from foldline.text.formatting import money, plural

__all__ = ["RunFigures"]

_MODEL_CHARS = 300


@dataclass(slots=True)
class RunFigures:
    """A listener that adds up the requests of a run.

    `given_tokens` are the tokens that the client sent and `sent_tokens` those that were sent on, by the proxy's count.
    `paid_usd` is the list price of what the provider reported (of the count where it reported nothing) and of
    summaries; `saved_usd` is what folding saved of it. `too_large` counts answered requests that were larger than their
    window, `refused` those that the client saw refused for their size, `unpriced` those of a model without a price.
    """

    requests: int = 0
    folds: int = 0
    given_tokens: int = 0
    sent_tokens: int = 0
    summary_tokens: int = 0
    too_large: int = 0
    refused: int = 0
    failed: int = 0
    paid_usd: float = 0.0
    saved_usd: float = 0.0
    unpriced: int = 0
    _caching: set[str] = field(default_factory=set)

    def __call__(self, served: ServedRequest) -> None:
        """Add a request that has ended."""
        self.folds += len(served.new_folds)
        self.summary_tokens += served.summary_tokens
        if not is_answered(served):
            self.refused += served.outcome == "refused" or served.failure == "prompt_overflow"
            self.failed += served.dialect != "" and served.status >= 400
            self.paid_usd += spent_usd(served) or 0.0
            return
        self.requests += 1
        self.given_tokens += served.given_tokens
        self.sent_tokens += served.sent_tokens
        self.too_large += 0 < served.window_tokens < served.given_tokens
        if served.cached_tokens:
            self._caching.add(served.session)
        saved = saved_usd(served, cached=served.session in self._caching)
        reported = served.sent_tokens if served.input_tokens is None else served.input_tokens
        tokens = reported, served.cached_tokens or 0, served.output_tokens or 0
        paid = lookup(served.model[:_MODEL_CHARS]).usd(*tokens)
        if saved is None or paid is None:
            self.unpriced += 1
            return
        self.paid_usd += paid + (spent_usd(served) or 0.0)
        self.saved_usd += saved

    def lines(self) -> Iterator[str]:
        """What to tell a person, in one to three lines."""
        if not self.requests:
            if self.failed:
                yield f"{plural(self.failed, 'request')} failed, none was answered"
            else:
                yield "no request for an answer came through the proxy"
            return
        asked = f"{plural(self.requests, 'request')}, {plural(self.folds, 'fold')}"
        if self.sent_tokens >= self.given_tokens:
            yield f"{asked}: {self.sent_tokens:,} tokens{self._price()}, nothing had to be left out"
        else:
            less = f"{1 - self.sent_tokens / self.given_tokens:.0%} less"
            yield f"{asked}: {self.sent_tokens:,} tokens in place of {self.given_tokens:,} ({less}){self._price()}"
        if self.too_large or self.refused:
            verb = "was" if self.too_large == 1 else "were"
            refused = f"{self.refused or 'none'} refused"
            yield f"{plural(self.too_large, 'request')} {verb} larger than the window; {refused}"

    def _price(self) -> str:
        if self.unpriced == self.requests:
            return ""
        part = f" ({plural(self.unpriced, 'request')} without a known price)" if self.unpriced else ""
        if self.saved_usd:  # below 0 where summaries cost more than folding saved
            return f", {money(self.paid_usd)} in place of {money(self.paid_usd + self.saved_usd)}{part}"
        return f", {money(self.paid_usd)}{part}"
