"""Reports of usage: to which request one belongs, how it is to be read, and whether it can be true of that request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from foldline.failures import silent_truncation
from foldline.view.calibration import Meter
from foldline.view.transcript import Usage

__all__ = ["Judged", "Reports"]

REMEMBERED = 16
"""Requests whose size is remembered for a report that names its number: more are never under way at once."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A report as it is taken: `usage` says in `doubt` why it is not believed.

    `cut` says why the provider is thought to have cut the request, "" if nothing points to it; `estimated_tokens` is
    our count of that request.
    """

    usage: Usage
    estimated_tokens: int = 0
    cut: str = ""


@dataclass(slots=True)
class Reports:
    """The requests that were sent last, by their running numbers, with our count of each."""

    number: int = 0
    """The running number of the last request."""
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)

    def sends(self, estimated_tokens: int, changes: int) -> None:
        """A request goes out that we count at so much, after so many changes of the prefix. O(1)."""
        self.number += 1
        self._sent[self.number] = estimated_tokens, changes
        self._sent.pop(self.number - REMEMBERED, None)

    def judged(self, usage: Usage, meter: Meter, window_tokens: int) -> Judged:
        """What to make of a report. Nothing is measured by it yet. O(1)."""
        if usage.request not in self._sent:
            return Judged(usage)
        estimated, changes = self._sent[usage.request]
        found = _likely(usage, estimated, meter)
        cut = silent_truncation(
            estimate_tokens=meter.used(estimated),
            reported_tokens=found.input_tokens,
            window=window_tokens,
            stop_reason=None,
            output_tokens=found.output_tokens,
        )
        if cut is not None:
            return Judged(replace(found, doubt=cut), estimated, cut)
        return Judged(replace(found, estimated_tokens=estimated, current=changes == meter.changes), estimated)


def _likely(usage: Usage, estimated_tokens: int, meter: Meter) -> Usage:
    """The report in the reading that can be true of the request; as it stands where none can, or it can itself.

    Cached tokens stand inside the input count or beside it, as the API's document has it; some gateways have it the
    other way (infinity#52). A report is read the other way where it cannot be true as it stands and that reading is
    what we expect of the request; one that is merely low or high is what the provider counted. Of two such readings the
    larger is taken. Where a ratio repeats itself, it is another tokenizer and no other reading.
    """
    if not meter.doubt(estimated_tokens, usage.input_tokens) or meter.repeats(estimated_tokens, usage.input_tokens):
        return usage
    likely = [tokens for tokens in _readings(usage) if meter.expects(estimated_tokens, tokens)]
    if not likely:
        return usage
    return replace(usage, input_tokens=max(likely), cached_tokens=min(usage.cached_tokens, max(likely)))


def _readings(usage: Usage) -> Iterator[int]:
    beside = usage.cached_tokens + usage.written_tokens
    if beside:
        yield usage.input_tokens + beside
        if usage.input_tokens > beside:
            yield usage.input_tokens - beside
