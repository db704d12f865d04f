"""Corrects our estimate of a request by what its provider reported, and rejects reports that cannot be true."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

__all__ = ["Meter"]

# The ratio of a tokenizer to our estimate changes by less than this factor from request to request: consecutive
# requests share most of their text.
STEADY = 1.15

# Reports in a row that must agree before a ratio outside the usual bounds is believed to be a tokenizer's.
REPEATS = 4

# How much larger the largest of their requests must be than the smallest: a constant would agree with itself too.
SPREAD = 1.5

# The share by which the growth of the reports may deviate from the growth of our count at that ratio.
GROWTH = 0.25


# The last reports that are compared in both readings: a tokenizer's ratio stays, that of a wrong reading moves with the
# share of cached tokens.
READINGS = 8

# The growth of a report that no tokenizer explains, as shares of the growth of our count. Text of digits or of blanks
# counts half of its neighbours, hardly a third.
GROWS_LEAST, GROWS_MOST = 0.35, 1.5


@dataclass(slots=True)
class _Run:
    """Reports outside the usual bounds that agree with each other."""

    estimated: list[int] = field(default_factory=list)
    """Our count of the smallest and of the largest request, and below it the reported ones."""
    reported: list[int] = field(default_factory=list)
    low: float = 0.0
    high: float = 0.0
    count: int = 0
    sure: bool = False
    """Whether one of them has no cached tokens: with some it could be read in two ways."""

    def add(self, estimated_tokens: int, reported_tokens: int, sure: bool) -> None:
        """Add a report, or start a new run with it where it does not agree. O(1)."""
        ratio = reported_tokens / estimated_tokens
        if not self.agrees(ratio):
            self.estimated, self.reported, self.count = [estimated_tokens] * 2, [reported_tokens] * 2, 0
            self.low = self.high = ratio
            self.sure = False
        self.sure = self.sure or sure
        self.low, self.high, self.count = min(self.low, ratio), max(self.high, ratio), self.count + 1
        for end, beyond in enumerate((estimated_tokens < self.estimated[0], estimated_tokens > self.estimated[1])):
            if beyond:
                self.estimated[end], self.reported[end] = estimated_tokens, reported_tokens

    def agrees(self, ratio: float) -> bool:
        """Whether a ratio agrees with the others."""
        return self.count > 0 and max(self.high, ratio) <= STEADY * min(self.low, ratio)

    @property
    def shows_a_tokenizer(self) -> bool:
        """Whether another tokenizer explains them: enough reports, of different sizes, that grew as our count did.

        A constant, a sum over calls, a stale figure or one of the newest part alone would not grow at one ratio.
        """
        if self.count < REPEATS or self.estimated[1] < SPREAD * self.estimated[0]:
            return False
        growth = (self.reported[1] - self.reported[0]) / (self.estimated[1] - self.estimated[0])
        return abs(growth - self.high) <= GROWTH * self.high


@dataclass(slots=True)
class Meter:
    """The size of a request as the provider counts it: our estimate, corrected by what was reported.

    `ratio` (provider's count per estimated token) lives on across folds, within bounds; `offset` belongs to the exact
    prefix that was reported and ends with the next fold (pi#1860: usage from before a compaction started the next one).
    When not `scaled`, the estimate of what follows a report is added to it unchanged, and the reply counts as reported
    (the checkpoint system's way, S2.09).

    A report outside the bounds is of something else (opencode#50474: sums over inner calls; openclaude#2136: zeros) and
    changes nothing, unless a run of reports looks like another tokenizer.
    """

    ratio: float = 1.0
    offset: float = 0.0
    scaled: bool = True
    changes: int = 0
    """How often the prefix has changed: a report for a request before a change gives no offset."""

    _counted: int | None = None
    # The reply to the last request, by our count and as reported; None until known. They arrive in either order.
    _reported: int | None = None
    _run: _Run = field(default_factory=_Run)
    # The bounds of a tokenizer that has shown itself; None while the usual ones hold.
    _bounds: tuple[float, float] | None = None
    # Our count and the reported one of the last request without cached tokens: it could be read in one way only.
    _known: tuple[int, int] | None = None
    # The ratios of the documented reading and of the other one, of reports where the other one is near our count.
    _readings: list[tuple[float, float]] = field(default_factory=list)

    LOW: ClassVar[float] = 0.8
    HIGH: ClassVar[float] = 1.4
    """Usual bounds of the ratio: every estimate measured was within a quarter."""
    LOWEST: ClassVar[float] = 0.5
    HIGHEST: ClassVar[float] = 2.0
    """Bounds beyond which no tokenizer is believed. Below, a prompt was cut (`failures.classification`)."""
    UNSCALED: ClassVar[tuple[float, float]] = (0.5, 4.0)
    """Bounds for a count of four characters to a token: blanks of code make half as many, Chinese has one to each."""
    OVERHEAD_TOKENS: ClassVar[int] = 1_000
    """What a provider may add to any request that we do not see: up to 804 tokens were listed (Anthropic, "Tool use
    with Claude", pricing), and the template of a chat."""
    ENOUGH_TOKENS: ClassVar[int] = 500
    """Requests below this are mostly fixed overhead and say nothing about the ratio."""

    def used(self, tokens: int) -> int:
        """The corrected size of `tokens` by our count."""
        return max(0, round(tokens * self.ratio + self.offset))

    def doubt(self, estimated_tokens: int, reported_tokens: int) -> str:
        """Why a report cannot be true of a request estimated at `estimated_tokens`; "" if it can. O(1)."""
        if reported_tokens <= 0:
            return "the provider counted no input at all: it does not say how much it was"
        low, high = (self.LOW, self.HIGH) if self.scaled else self.UNSCALED
        if self._bounds is not None:
            low, high = min(low, self._bounds[0]), max(high, self._bounds[1])
        if estimated_tokens < self.ENOUGH_TOKENS:
            low = min(low, self.LOWEST)
        if low * estimated_tokens <= reported_tokens <= high * estimated_tokens + self.OVERHEAD_TOKENS:
            return ""
        return (
            f"the provider counted {reported_tokens:,} input tokens where about {estimated_tokens:,} were sent: "
            "that is about something else, and changes nothing"
        )

    def expects(self, estimated_tokens: int, reported_tokens: int) -> bool:
        """Whether a count is near our estimate, corrected or not. O(1)."""
        ratio = reported_tokens / max(1, estimated_tokens)
        return any(near / STEADY <= ratio <= near * STEADY for near in (1.0, self.ratio))

    def reads_otherwise(self, estimated_tokens: int, documented_tokens: int, other_tokens: int) -> bool:
        """Whether several reports show that cached tokens stand where the API's documents do not say. O(1).

        One report does not: a count that is half too high looks like cached tokens that were left out.
        """
        if not estimated_tokens or not self.expects(estimated_tokens, other_tokens):
            return False
        ratios = documented_tokens / estimated_tokens, other_tokens / estimated_tokens
        self._readings = [*self._readings[1 - READINGS :], ratios]
        if self._known is not None:
            # Since a report without cached tokens the request grew by what we counted; what was reported grew as that.
            counted, reported = self._known
            grown, slack = (estimated_tokens - counted) * reported / counted, (STEADY - 1) * reported
            low, high = sorted((GROWS_LEAST * grown, GROWS_MOST * grown))
            if not low - slack <= documented_tokens - reported <= high + slack:
                return True
        documented, other = zip(*self._readings, strict=True)
        steady = max(other) <= STEADY * min(other) and max(documented) > STEADY * min(documented)
        return len(self._readings) >= REPEATS and steady

    def repeats(self, estimated_tokens: int, reported_tokens: int) -> bool:
        """Whether a report agrees with a run of reports outside the bounds that leaves no other reading. O(1)."""
        return self._run.sure and estimated_tokens > 0 and self._run.agrees(reported_tokens / estimated_tokens)

    def observe(
        self, estimated_tokens: int, reported_tokens: int, reply_tokens: int | None = None, *, sure: bool = True
    ) -> str:
        """Correct by a report for a request estimated at `estimated_tokens`; returns why it is rejected, or "". O(1).

        It is `sure` when it has no cached tokens, so that it can be read in one way only.
        """
        # In this order: a report outside the bounds may be one of a run (another tokenizer), and only if it is not does
        # `doubt` judge it. One that is believed sets the ratio at once: an average would lag behind a change of model.
        enough = self.scaled and estimated_tokens >= self.ENOUGH_TOKENS
        ratio = reported_tokens / max(1, estimated_tokens)
        if sure and self.LOWEST <= ratio <= self.HIGHEST:
            self._known = estimated_tokens, reported_tokens
        outside = enough and not self.LOW <= ratio <= self.HIGH
        if outside and self._shown(estimated_tokens, reported_tokens, sure):
            self.ratio = max(self.LOW, self._run.high)
        elif why := self.doubt(estimated_tokens, reported_tokens):
            return why
        elif enough:
            self.ratio = min(self.HIGH, max(self.LOW, ratio))
            if not outside and not self._run.agrees(ratio):
                self._run, self._bounds = _Run(), None
        self.offset = reported_tokens - estimated_tokens * self.ratio
        if enough:
            self.offset = max(0.0, self.offset)  # a correction below the floor of the ratio could overflow the window
        self._reported = reply_tokens
        self._settle()
        return ""

    def _shown(self, estimated_tokens: int, reported_tokens: int, sure: bool) -> bool:
        """Whether a report outside the bounds completes or continues a run that another tokenizer explains."""
        if not reported_tokens:
            return False  # a zero says nothing, and does not end the run
        if not self.LOWEST * estimated_tokens <= reported_tokens <= self.HIGHEST * estimated_tokens:
            self._run, self._bounds = _Run(), None
            return False
        self._run.add(estimated_tokens, reported_tokens, sure)
        self._bounds = None
        if self._run.sure and self._run.shows_a_tokenizer:
            self._bounds = max(self.LOWEST, self._run.low / STEADY), min(self.HIGHEST, self._run.high * STEADY)
        return self._bounds is not None

    def sent(self) -> None:
        """Note that a request is sent: the next assistant message is its reply."""
        self._counted = self._reported = None

    def reply(self, tokens: int, *, item: bool = False) -> None:
        """Note an assistant message of `tokens` by our count; only the first one after a request is its reply.

        Where a reply is several items, those before its report belong to it.
        """
        if item:
            self._counted = (self._counted or 0) + tokens
        elif self._counted is None:
            self._counted = tokens
            self._settle()

    def _settle(self) -> None:
        if not self.scaled and self._counted is not None and self._reported is not None:
            self.offset += self._reported - self._counted
            self._counted = self._reported = None  # a replay calls no `sent`: the next reply starts from here

    def drop_offset(self) -> None:
        """Drop the offset, since the prefix that it belongs to has changed."""
        self.offset = 0.0
        self.changes += 1

    def restart(self) -> None:
        """Start again for another model; the ratio of the one before is the best guess for it."""
        self.drop_offset()
        self.ratio = min(self.HIGH, max(self.LOW, self.ratio))
        self._run, self._bounds = _Run(), None
        self._known, self._readings = None, []

    def target(self, used_tokens: int, target_tokens: float) -> int:
        """`target_tokens` in the estimated tokens of the view that is now `used_tokens` large (before correction)."""
        # By the excess, not by dividing the target: the offset belongs to the part that stays, and does not shrink.
        excess = self.used(used_tokens) - target_tokens
        return max(0, int(used_tokens - excess / self.ratio))
