"""What a policy is: a row of settings and reducers. One engine runs them all.

A policy acts when its trigger is reached: its reducers run in order until the request has landed. What must fit and
does not is then brought under the limit by `RUNGS`, which need no model and always work. The policies themselves are in
`foldline.engine.presets`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foldline.engine.events import ThresholdReached
from foldline.reducers.base import (
    Compactor,
    HasKeptShare,
    Reducer,
    WithArrivalShares,
    WithExemptions,
    WithFacts,
    WithTail,
    WithWindow,
)
from foldline.reducers.dedupe import Dedupe
from foldline.reducers.digest import Digest
from foldline.reducers.drop import DropGroups, SlidingWindow
from foldline.reducers.images import OldImages
from foldline.reducers.mask import ShortenOld
from foldline.reducers.minimum import Minimum
from foldline.reducers.result_share import ResultShare
from foldline.reducers.summarize import Summarize
from foldline.reducers.truncate import ShortForm
from foldline.view.budget import TokenLimits, Trigger, consent_tokens
from foldline.view.view import View

__all__ = ["FOR_AMOUNTS", "FOR_BYTES", "MILD_RUNGS", "OVERFLOW", "RUNGS", "Policy"]

RUNGS: tuple[Reducer, ...] = (
    # Mild: an old screenshot and a repeated result are seldom needed, and a digest names what it covers.
    OldImages(),
    Dedupe(),
    ShortenOld(),
    Digest(),
    # Harsh: these reach into what the agent works with now, so they stop as soon as the request fits.
    ResultShare(),
    OldImages(keep=0),
    Digest(keep=0.1, share=0.3, least_tokens=96),
    DropGroups(),
    Minimum(),  # shortens everything that may change at all: what it leaves is the floor that DoesNotFit names
)
"""What makes a request fit without a model, mildest first; the last one ends at the floor."""

MILD_RUNGS = 4
"""The first rungs, which aim at the landing; those after them stop as soon as the request fits."""

OVERFLOW: tuple[Reducer, ...] = (
    # The count was wrong, by an unknown amount: each step goes further than the rung of the same name.
    ShortenOld(short=ShortForm(share=0.15)),
    Digest(keep=0.1),
    ResultShare(),
    SlidingWindow(),
    DropGroups(keep_groups=0),
    Minimum(),
)
"""The ladder after a refusal of the provider: digest, cut what is large, window (design section 6)."""

FOR_BYTES: tuple[Reducer, ...] = (
    # Images as base64 are most of the bytes of a session that has any, and few of its tokens.
    OldImages(bytes_only=True),
    OldImages(keep=0, bytes_only=True),
    ShortenOld(),
    Digest(),
    ResultShare(),
    DropGroups(),
    Minimum(),
)
"""What brings a request under its byte budget, images first."""

FOR_AMOUNTS: tuple[Reducer, ...] = (Digest(), DropGroups(), Minimum())
"""What remains to be done when a request holds too many images, pages or messages and old media are gone."""


# Share of the landing that the newest group usually takes: the landing has room for so much of it by itself.
USUAL_NEWEST = 0.2

# A group that counts less than this is not looked at.
LEAST_WEIGHT = 0.05

# Share of the input limit above which no landing rises: the next reply and result must find room, or it folds again.
MOST_LANDING = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a session is kept in its window.

    `guard` runs on what has just come in; `always` before every request; `reducers` when `trigger` is reached, until
    the view is down to `landing` of the input limit (None: all they propose). `after_compact` follows `reducers` that
    folded, and `compactor`, which serves `compact`. `overflow` runs in full after a refusal of the provider, before the
    general ladder. `consent_at` (share of the window) only reports that it is time to compact. `economical` folds when
    keeping has cost as much as folding would. With `auto` off only `guard` and `always` run.

    Settings reach a reducer by the optional methods of `foldline.reducers.base` (`with_facts`, `with_window`, ...), a
    user's own like any other: no reducer is known here by its class or its name.
    """

    name: str
    trigger: Trigger = field(default_factory=lambda: Trigger(fraction=0.85))
    landing: float | None = 0.60
    newest_share: float = 0.0
    """Share of the newest group that is added to the landing where the group is large."""
    newest_decay: float = 0.0
    """What a group counts there of the one after it; at 0 the newest counts alone."""
    guard: tuple[Reducer, ...] = ()
    always: tuple[Reducer, ...] = ()
    reducers: tuple[Reducer, ...] = ()
    compactor: Compactor = field(default_factory=lambda: Summarize(keep=0.0, least_tokens=64))
    after_compact: tuple[Reducer, ...] = ()
    after_fold: tuple[Reducer, ...] = ()
    """Follow whatever folded, a rung or a recovery too: they correct what points to text that has gone."""
    overflow: tuple[Reducer, ...] = ()
    auto: bool = True
    consent_at: float | None = None
    ahead: float = 0.85
    """Share of the trigger at which a summary may be written ahead (`Context.ahead`); 0: never."""
    economical: bool = False
    about: str = ""

    def landing_tokens(self, limit_tokens: int, fixed_tokens: int, *, default: float = 0.0) -> float:
        """Where a request should land whose tools and system text take `fixed_tokens`; `default` is for no landing.

        A landing below what is fixed cannot be reached: then every request would fold a little (opencode#48828). So
        something of what is left between them and the trigger stays: half of what would stay in an empty window.
        """
        landing = default if self.landing is None else self.landing
        # Shares of the limit are shares of what may vary: tools and system text are the same in every request.
        room = max(0.0, self.trigger.mark_tokens(limit_tokens, fixed_tokens) - fixed_tokens)
        share = 0.5 * landing / (self.trigger.fraction or 1.0)
        return max(landing * limit_tokens, fixed_tokens + share * room) if landing else 0.0

    def with_newest(self, landing_tokens: float, view: View, limits: TokenLimits) -> float:
        """The landing with room for what has just come: it is whole for the next reply only, and history stays for it.

        Without it a large result would leave next to nothing of what the session remembers.
        """
        if not self.newest_share or not landing_tokens:
            return landing_tokens
        usual = USUAL_NEWEST * (1 + self.newest_decay) * landing_tokens
        more = self.newest_share * max(0.0, self._newest_tokens(view) - usual)
        return max(landing_tokens, min(MOST_LANDING * limits.input_tokens, landing_tokens + more))

    def _newest_tokens(self, view: View) -> float:
        """Tokens of the newest group, and of those before it since the last fold, ever less of each. O(1)."""
        first = view.last_block
        total, weight = float(view.between(first, len(view.tiles))), 1.0
        while first > 0 and self.newest_decay:
            leading = view.tiles[first].leading
            weight *= 1.0 if leading is None or leading.role != "assistant" else self.newest_decay
            first -= 1
            if weight < LEAST_WEIGHT or view.tiles[first].fold is not None or view.tiles[first].system:
                break
            total += weight * view.tiles[first].tokens
        return total

    def ask_at_tokens(self, limits: TokenLimits) -> int:
        """Size at which the user is to be asked; 0 for a policy that never asks."""
        return 0 if self.consent_at is None else consent_tokens(self.consent_at, limits)

    def threshold(self, used_tokens: int, limits: TokenLimits) -> ThresholdReached | None:
        """The event that says that it is time to ask, with the figures; None if it is not."""
        if not 0 < self.ask_at_tokens(limits) <= used_tokens:
            return None
        return ThresholdReached(used_tokens, limits.window_tokens, used_tokens / limits.window_tokens)

    @property
    def by_share(self) -> bool:
        """Whether it folds by a share of the window alone, which promises no one a size."""
        return self.trigger == Trigger(fraction=self.trigger.fraction)

    @property
    def kept_share(self) -> float:
        """Share of the landing that stays whole at the end when no model writes; 0.3 where no reducer says."""
        return next((reducer.kept_share for reducer in self.reducers if isinstance(reducer, HasKeptShare)), 0.3)

    @property
    def checkpoints(self) -> frozenset[str]:
        """The reducers whose folds are summaries: `Context.figures` start anew at each of them."""
        # A summary is where a session starts over for its user; a digest made without a model is not announced.
        # By its method, as `WithFacts` has it: this is asked at each fold, and `isinstance` takes ten times as long.
        summarising = (r.name for r in (*self.always, *self.reducers) if hasattr(r, "with_facts"))
        return frozenset({self.compactor.name, *summarising})

    # --- settings that reach the reducers ----------------------------------------------------------------------------

    def with_facts(self, facts: tuple[str, ...]) -> Policy:
        """The policy with facts that each of its summaries has to hold."""
        if not facts:
            return self
        always = tuple(r.with_facts(facts) if isinstance(r, WithFacts) else r for r in self.always)
        reducers = tuple(r.with_facts(facts) if isinstance(r, WithFacts) else r for r in self.reducers)
        compactor = self.compactor  # narrowed by itself: what has the method is a Compactor with the facts, too
        if isinstance(compactor, WithFacts):
            compactor = compactor.with_facts(facts)
        return replace(self, always=always, reducers=reducers, compactor=compactor)

    def with_window(self, window_tokens: int) -> Policy:
        """The policy whose summaries read no more at a time than this window of the model that writes them."""
        always = tuple(r.with_window(window_tokens) if isinstance(r, WithWindow) else r for r in self.always)
        reducers = tuple(r.with_window(window_tokens) if isinstance(r, WithWindow) else r for r in self.reducers)
        compactor = self.compactor
        if isinstance(compactor, WithWindow):
            compactor = compactor.with_window(window_tokens)
        return replace(self, always=always, reducers=reducers, compactor=compactor)

    def exempting(self, tools: frozenset[str]) -> Policy:
        """The policy whose guard leaves results of these tools alone."""
        guard = tuple(r.exempting(tools) if isinstance(r, WithExemptions) else r for r in self.guard)
        return replace(self, guard=guard)

    def keeping(self, share: float) -> Policy:
        """The policy that leaves this share of its landing whole at the end."""
        return replace(self, reducers=tuple(r.keeping(share) if isinstance(r, WithTail) else r for r in self.reducers))

    def arriving(self, share: float | None = None, of_result: float | None = None) -> Policy:
        """The policy whose guard leaves these shares of the window, and of a result, on arrival (None: as it is)."""
        guard = tuple(r.arriving(share, of_result) if isinstance(r, WithArrivalShares) else r for r in self.guard)
        return replace(self, guard=guard)

    @property
    def arrival_shares(self) -> tuple[float, float] | None:
        """Shares of the window, and of a result, that the guard leaves on arrival; None where it has none."""
        return next(((r.share, r.of_result) for r in self.guard if isinstance(r, WithArrivalShares)), None)
