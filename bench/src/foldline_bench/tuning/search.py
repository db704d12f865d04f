"""The search: many settings on few sessions, then fewer settings on more sessions, then the neighbours of the best.

This is successive halving (Jamieson & Talwalkar, "Non-stochastic best arm identification", 2016) with two objectives:
after each round the better half stays, counted in layers of the Pareto front, and always the whole first layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from math import ceil
from typing import Final

from foldline.errors import InvalidInput
from foldline.text.formatting import plural
from foldline_bench.tuning.backends import Backend
from foldline_bench.tuning.candidates import first_settings, neighbours
from foldline_bench.tuning.carry_over import CarryOver, SettledChoice, carry_over
from foldline_bench.tuning.front import (
    SettingFigures,
    chosen,
    figures_of,
    front,
    is_conclusive,
    layers,
    point_of,
    worth_a_row,
)
from foldline_bench.tuning.trial_store import TrialStore, code_sha256
from foldline_bench.tuning.trials import look_at, run
from foldline_bench.tuning.values import (
    UNMANAGED,
    Conditions,
    SessionSource,
    SessionSummary,
    Setting,
    TrialJob,
    TrialOutcome,
)

__all__ = ["ExcludedSession", "NothingToTune", "TuneProgress", "TuneResult", "Tuning", "round_sizes"]

_FIRST_SESSIONS: Final = 4
# Sessions of the first round, or an eighth of all if that is more.
_FIRST_SHARE: Final = 8

# The setting that shows whether a session fits at all: what must stay is the same under every policy.
_PROBE: Final = Setting("economical")

# An error names so many of the excluded sessions, and carries all of them.
_NAMED: Final = 3

# So many neighbours of the front are tried, those of cheaper points first.
_MOST_NEIGHBOURS: Final = 24


@dataclass(frozen=True, slots=True)
class ExcludedSession:
    """A session that was not replayed, or not compared, and why."""

    place: str
    reason: str


class NothingToTune(InvalidInput):
    """No session is left, or no setting. `left_out` are all sessions that were left out."""

    def __init__(self, reason: str, left_out: Sequence[ExcludedSession] = ()) -> None:
        named = "; ".join(f"{one.place}: {one.reason}" for one in left_out[:_NAMED])
        more = f"; and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        super().__init__(f"{reason}; {named}{more}" if left_out else reason)
        self.left_out = tuple(left_out)


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """Progress: the current part of the work, and how many of its sessions or replays are done."""

    doing: str
    unit: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The result. `front` is cheapest first; `none` is no management, over the same sessions.

    `requests` are counts by the hash of a session. Of the replays of the sessions in `looks`, `replayed` were run and
    `known` there from before; all settings, and none, on all of them would be `whole`. `aside` are those of sessions
    that were left out. `carry_over` is None without the check, or with one session.
    """

    looks: tuple[SessionSummary, ...]
    requests: Mapping[str, int]
    left_out: tuple[ExcludedSession, ...]
    front: tuple[SettingFigures, ...]
    chosen: SettingFigures
    why: str
    none: SettingFigures
    settings: int
    unfit: int
    telling: int
    replayed: int
    known: int
    whole: int
    aside: int
    carry_over: CarryOver | None = None


def round_sizes(sessions: int) -> list[int]:
    """Return how many sessions each round has: 4 or an eighth of all, then twice as many each time."""
    size = min(sessions, max(_FIRST_SESSIONS, ceil(sessions / _FIRST_SHARE)))
    sizes = [size]
    while size < sessions:
        size = min(sessions, 2 * size)
        sizes.append(size)
    return sizes


@dataclass(slots=True)
class Tuning:
    """One search. `kept` has the results of earlier ones, and stores those of this one at once."""

    engine: Backend
    conditions: Conditions
    kept: TrialStore
    on_step: Callable[[TuneProgress], None] = lambda _step: None
    _outcomes: dict[tuple[str, Setting], TrialOutcome] = field(default_factory=dict)
    _left_out: list[ExcludedSession] = field(default_factory=list)
    _faulty: set[str] = field(default_factory=set)
    _known: set[tuple[str, Setting]] = field(default_factory=set)
    _unfit: set[Setting] = field(default_factory=set)
    _code: str = field(default_factory=lambda: f"{version('foldline')} {code_sha256()}")

    def search(
        self,
        sources: Sequence[SessionSource],
        *,
        settings: Sequence[Setting] = (),
        min_far: float | None = None,
        check: bool = True,
    ) -> TuneResult:
        """Try settings on the sessions: these and their neighbours, without any those of `first_settings`.

        With `check` the search is repeated without each part of the sessions, to see whether its choice carries over.
        Takes as long as the replays, which `TuneResult` counts. Raises InvalidInput when no session needs a window or
        no setting keeps to it, and whatever the backend raises.
        """
        # Each filter costs one replay a session, and saves some fifty of a session that says nothing.
        looks = self._order(self._fittable(self._large(self._looks(sources))))
        first = tuple(settings) or first_settings(self.conditions.window)
        settled, tried = self._settle(looks, first, min_far)
        looks = tuple(look for look in looks if look.sha256 not in self._faulty)
        if not looks:
            raise NothingToTune("none of them can be replayed", self._left_out)
        if settled is None:
            raise NothingToTune(self._no_setting(looks))
        needed = {key for key in self._outcomes if key[0] in {look.sha256 for look in looks}}
        result = TuneResult(
            looks=looks,
            requests={look.sha256: self._outcomes[look.sha256, UNMANAGED].requests for look in looks},
            left_out=tuple(self._left_out),
            front=settled.front,
            chosen=settled.chosen,
            why=settled.why,
            none=self._figures(looks, UNMANAGED),
            settings=len(tried),
            unfit=len(self._unfit),
            telling=sum(is_conclusive(self._outcomes[look.sha256, UNMANAGED]) for look in looks),
            replayed=len(needed - self._known),
            known=len(needed & self._known),
            whole=len(tried | {UNMANAGED, _PROBE}) * len(looks),
            aside=len(self._outcomes) - len(needed),
        )
        return replace(result, carry_over=self._carry_over(looks, first, min_far, settled)) if check else result

    def _settle(
        self, looks: Sequence[SessionSummary], first: Sequence[Setting], min_far: float | None, doing: str = ""
    ) -> tuple[SettledChoice | None, set[Setting]]:
        """Search over some sessions; None where no setting keeps to the window. Also the settings that were tried."""
        alive = self._halve(looks, first, (), doing)
        near = neighbours(alive[place] for place in self._front(looks, alive))[:_MOST_NEIGHBOURS]
        alive += [setting for setting in self._halve(looks, near, alive, doing) if setting not in alive]
        tried = {*first, *near}
        if not alive or all(look.sha256 in self._faulty for look in looks):
            return None, tried
        # With same=0.0, as --min-far takes the cheapest that reaches it, by however little.
        found = [self._figures(looks, alive[place]) for place in self._front(looks, alive, same=0.0)]
        best, why = chosen(found, min_far)
        rows = worth_a_row(found)
        shown = tuple(figures for figures in found if figures in rows or figures is best)
        return SettledChoice(shown, best, why), tried

    def _carry_over(
        self, looks: Sequence[SessionSummary], first: Sequence[Setting], min_far: float | None, settled: SettledChoice
    ) -> CarryOver | None:
        """Repeat the search without each part of the sessions, and measure its choice there."""

        def measure(
            part: Sequence[SessionSummary], found: SettledChoice, doing: str
        ) -> Mapping[str, Sequence[TrialOutcome]]:
            settings = [figures.setting for figures in found.front]
            self._run(f"{doing}, {plural(len(settings), 'setting')} on {plural(len(part), 'session')}", part, settings)
            return {setting.name: self._of(part, setting) for setting in settings}

        return carry_over(
            looks,
            settled.chosen,
            settle=lambda others, doing: self._settle(others, first, min_far, f"{doing}, ")[0],
            measure=measure,
            none=self._none(looks),
        )

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _looks(self, sources: Sequence[SessionSource]) -> list[SessionSummary]:
        """Return every session that can be read, each content once, in the order of their names on the command line."""
        place = {source: number for number, source in enumerate(sources)}
        found = []
        self.on_step(TuneProgress("reading", "session", 0, len(sources)))
        for done, look in enumerate(self.engine.each(look_at, sources)):
            found.append(look)
            self.on_step(TuneProgress("reading", "session", done + 1, len(sources)))
        out: dict[str, SessionSummary] = {}
        # Workers end in any order; the report must not depend on it.
        for look in sorted(found, key=lambda look: place[look.source]):
            if look.fault:
                self._leave(look, look.fault)
            elif look.sha256 in out:
                self._leave(look, f"is the same session as {out[look.sha256].source.shown}")
            else:
                out[look.sha256] = look
        return list(out.values())

    def _large(self, looks: Sequence[SessionSummary]) -> list[SessionSummary]:
        """Return the sessions that are larger than the window: any setting sends the others as they are."""
        self._run("without management", looks, (UNMANAGED,))
        window, out = self.conditions.window, []
        largest = 0
        for look in looks:
            outcome = self._outcomes.get((look.sha256, UNMANAGED))
            if outcome is None:
                continue
            largest = max(largest, outcome.recorded_tokens)
            if outcome.recorded_tokens <= window - self.conditions.output_tokens_of(look):
                size = f"{outcome.recorded_tokens:,} tokens"
                self._leave(look, f"fits into the window of {window:,} as it is ({size})")
            elif outcome.requests:
                out.append(look)
            else:
                self._leave(look, "no reply is recorded in it, and so no request")
        if not out and largest:
            raise InvalidInput(
                f"all sessions fit into the window of {window:,} tokens as they are (the largest has {largest:,}): "
                "there is nothing to tune; a smaller --window would show what managing it costs"
            )
        if not out:
            raise NothingToTune("none of them can be replayed", self._left_out)
        return out

    def _fittable(self, looks: Sequence[SessionSummary]) -> list[SessionSummary]:
        """Return the sessions whose requests can be made at all; with others, no setting would fit."""
        self._run("what can be fitted", looks, (_PROBE,))
        out = []
        for look in looks:
            outcome = self._outcomes.get((look.sha256, _PROBE))
            if outcome is None:
                continue
            if not outcome.refused:
                out.append(look)
                continue
            self._leave(
                look,
                f"cannot fit into the window of {self.conditions.window:,}, whatever the setting: what must stay needs "
                f"{outcome.floor_tokens:,} tokens, and there is room for {outcome.limit_tokens:,} "
                f"({outcome.refused:,} of {plural(outcome.requests, 'request')} refused)",
            )
        if not out:
            raise NothingToTune("none of them can be tuned", self._left_out)
        return out

    def _order(self, looks: Sequence[SessionSummary]) -> tuple[SessionSummary, ...]:
        """Order sessions: first those with far references, as each round needs some; then by their hash."""
        # A hash is as good as random, and the same in each run: names would put sessions of one kind into one round.
        none = self._outcomes
        return tuple(sorted(looks, key=lambda look: (not is_conclusive(none[look.sha256, UNMANAGED]), look.sha256)))

    def _leave(self, look: SessionSummary, reason: str) -> None:
        self._left_out.append(ExcludedSession(look.source.shown, reason))

    def _no_setting(self, looks: Sequence[SessionSummary]) -> str:
        """Say that no setting fits, and name the session on which most settings failed."""
        tried = [(sha256, each.fits) for (sha256, setting), each in self._outcomes.items() if setting != UNMANAGED]
        fit = {look: [fits for sha256, fits in tried if sha256 == look.sha256] for look in looks}
        worst = max(looks, key=lambda look: fit[look].count(False))
        return (
            "no setting kept every request valid and inside the window; "
            f"{fit[worst].count(False)} of {len(fit[worst])} did not for {worst.source.shown}"
        )

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _halve(
        self, looks: Sequence[SessionSummary], settings: Sequence[Setting], rivals: Sequence[Setting], doing: str
    ) -> list[Setting]:
        """Return the settings that remain after all sessions are replayed; `rivals` are replayed already."""
        alive = list(settings)
        done = 0
        for number, size in enumerate(round_sizes(len(looks)), 1):
            part = looks[done:size]
            what = f"{plural(len(alive), 'setting')} on {plural(size, 'session')}"
            self._run(f"{doing}round {number} of {what}", part, alive)
            done = size
            # One broken window is enough: a user wants none, and more sessions cannot mend it.
            alive = [setting for setting in alive if self._fits(looks[:size], setting)]
            if size < len(looks):
                alive = self._better_half(looks[:size], alive, rivals)
        return alive

    def _better_half(
        self, looks: Sequence[SessionSummary], alive: list[Setting], rivals: Sequence[Setting]
    ) -> list[Setting]:
        """Return the first layer, and as many further layers as half of the settings need."""
        both = [*rivals, *alive]
        stay: set[Setting] = set()
        for layer in layers([self._point(looks, setting) for setting in both]):
            stay |= {both[place] for place in layer} & set(alive)
            if len(stay) >= len(alive) / 2:
                break
        return [setting for setting in alive if setting in stay]

    def _front(self, looks: Sequence[SessionSummary], settings: Sequence[Setting], **same: float) -> list[int]:
        return front([self._point(looks, setting) for setting in settings], **same)

    def _fits(self, looks: Sequence[SessionSummary], setting: Setting) -> bool:
        outcomes = self._of(looks, setting)
        fits = bool(outcomes) and all(outcome.fits for outcome in outcomes)
        if outcomes and not fits:
            self._unfit.add(setting)
        return fits

    def _point(self, looks: Sequence[SessionSummary], setting: Setting) -> tuple[float, float]:
        return point_of(self._of(looks, setting), self._none(looks))

    def _figures(self, looks: Sequence[SessionSummary], setting: Setting) -> SettingFigures:
        return figures_of(setting, self._of(looks, setting), self._none(looks))

    def _none(self, looks: Sequence[SessionSummary]) -> dict[str, TrialOutcome]:
        return {outcome.session: outcome for outcome in self._of(looks, UNMANAGED)}

    def _of(self, looks: Iterable[SessionSummary], setting: Setting) -> list[TrialOutcome]:
        return [self._outcomes[look.sha256, setting] for look in looks if look.sha256 not in self._faulty]

    # --- replays -----------------------------------------------------------------------------------------------------

    def _run(self, doing: str, looks: Iterable[SessionSummary], settings: Sequence[Setting]) -> None:
        """Make these outcomes available: recall the stored ones, replay the others, session by session."""
        # By session and not by setting: a worker reads and measures a session once for all its jobs in a row.
        jobs, total = [], 0
        for look in looks:
            missing = [setting for setting in settings if not self._recall(look, setting)]
            total += len(missing)
            jobs += [
                TrialJob(look, tuple(missing[start : start + self.engine.batch]), self.conditions)
                for start in range(0, len(missing), self.engine.batch)
            ]
        done = 0
        self.on_step(TuneProgress(doing, "replay", done, total))
        for look, results in self.engine.each(run_job, jobs):
            for setting, outcome in results:
                self._take(look, setting, outcome)
            done += len(results)
            self.on_step(TuneProgress(doing, "replay", done, total))

    def _recall(self, look: SessionSummary, setting: Setting) -> bool:
        """Whether an outcome is available already, or never will be."""
        if look.sha256 in self._faulty or (look.sha256, setting) in self._outcomes:
            return True
        found = self.kept.get(self.conditions.key(look, setting, self._code))
        if found is not None:
            self._outcomes[look.sha256, setting] = found
            self._known.add((look.sha256, setting))
        return found is not None

    def _take(self, look: SessionSummary, setting: Setting, outcome: TrialOutcome | str) -> None:
        if isinstance(outcome, str):
            if look.sha256 not in self._faulty:
                self._faulty.add(look.sha256)
                self._leave(look, outcome)
            return
        self._outcomes[look.sha256, setting] = outcome
        self.kept.add(self.conditions.key(look, setting, self._code), setting, outcome)


def run_job(job: TrialJob) -> tuple[SessionSummary, tuple[tuple[Setting, TrialOutcome | str], ...]]:
    """A job's results with the session that they are of."""
    return job.look, run(job)
