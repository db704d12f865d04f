"""Whether a choice carries over: each part of the sessions is measured with the setting that was chosen without it.

A choice is always better on the sessions that it was made on, as it follows their chances too. What it is worth for
others shows only on sessions that had no say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.text.formatting import share
from foldline_bench.measure.intervals import FEWEST, enough
from foldline_bench.measure.parts import SessionParts, parts_of
from foldline_bench.tuning.front import ResampledFigure, SettingFigures, figures_of
from foldline_bench.tuning.values import SessionSummary, TrialOutcome

__all__ = ["CarryOver", "HeldOutPart", "SettledChoice", "carry_over", "warnings"]

# A smaller difference is none: figures have two decimals.
_VISIBLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class SettledChoice:
    """The result of a search over some sessions: the front, cheapest first, the choice, and why."""

    front: tuple[SettingFigures, ...]
    chosen: SettingFigures
    why: str


@dataclass(frozen=True, slots=True)
class HeldOutPart:
    """One part of the sessions and the choice of the others.

    `tuned` are the figures of that choice on the others, `left_out` those on this part. `beaten_by` are candidates of
    the same search that are better here in one figure and worse in none.
    """

    sessions: tuple[str, ...]
    sources: tuple[str, ...]
    tuned: SettingFigures
    left_out: SettingFigures
    beaten_by: tuple[str, ...]

    @property
    def outside(self) -> tuple[str, ...]:
        """The figures that are worse here than the interval of the others allows."""
        return _worse(self.tuned, self.left_out)


@dataclass(frozen=True, slots=True)
class CarryOver:
    """All parts in turn. `left_out` are the figures over all sessions, each under the choice that was made without it.

    Its `setting` is the choice over all sessions, for comparison; `tuned` are that choice's own figures.
    """

    parts: SessionParts
    held_out: tuple[HeldOutPart, ...]
    tuned: SettingFigures
    left_out: SettingFigures

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "about": self.parts.about(),
            "by": self.parts.by,
            "parts": [
                {
                    "names": list(one.sessions),
                    "sources": list(one.sources),
                    "chosen": one.tuned.setting.as_json(),
                    "tuned": one.tuned.figures_as_json(),
                    "left_out": one.left_out.figures_as_json(),
                    "outside": list(one.outside),
                    "beaten_by": list(one.beaten_by),
                }
                for one in self.held_out
            ],
            "left_out": self.left_out.figures_as_json(),
            "warnings": warnings(self),
        }


def carry_over(
    looks: Sequence[SessionSummary],
    tuned: SettingFigures,
    *,
    settle: Callable[[Sequence[SessionSummary], str], SettledChoice | None],
    measure: Callable[[Sequence[SessionSummary], SettledChoice, str], Mapping[str, Sequence[TrialOutcome]]],
    none: Mapping[str, TrialOutcome],
) -> CarryOver | None:
    """Choose on all parts but one and measure on that one, all in turn; None with a single session.

    `settle` searches some sessions, and returns None where no setting keeps to the window. `measure` replays the
    candidates of a search on other sessions: outcomes by the name of a setting. Both get words for the progress.
    `tuned` is the choice over all sessions, `none` the outcomes without management.
    """
    if len(looks) < 2:
        return None
    known = {look.sha256: look for look in looks}
    parts = parts_of({look.sha256: look.origin for look in looks})
    held_out: list[HeldOutPart] = []
    crossed: list[TrialOutcome] = []
    for number, hashes in enumerate(parts.parts, 1):
        doing = f"without part {number} of {len(parts.parts)}"
        inside = set(hashes)
        part = [known[sha256] for sha256 in hashes]
        settled = settle([look for look in looks if look.sha256 not in inside], doing)
        outcomes = {} if settled is None else measure(part, settled, f"part {number} of {len(parts.parts)}")
        if settled is None or not all(outcomes.values()):
            continue
        setting = settled.chosen.setting
        there = {name: figures_of(setting, found, none) for name, found in outcomes.items()}
        own = there[setting.name]
        held_out.append(
            HeldOutPart(
                sessions=tuple(look.name for look in part),
                sources=tuple(sorted({look.origin for look in part})),
                tuned=settled.chosen,
                left_out=own,
                beaten_by=tuple(name for name, other in there.items() if _beats(other, own)),
            )
        )
        crossed += outcomes[setting.name]
    if not crossed:
        return None
    return CarryOver(parts, tuple(held_out), tuned, figures_of(tuned.setting, crossed, none))


def _beats(one: SettingFigures, other: SettingFigures) -> bool:
    """Whether one is visibly better in one figure and in the other not worse."""
    if not one.fits:
        return False
    cheaper = other.with_rereads.value - one.with_rereads.value
    more = one.far.value - other.far.value if one.far is not None and other.far is not None else 0.0
    return min(cheaper, more) >= 0 and max(cheaper, more) >= _VISIBLE


def _worse(tuned: SettingFigures, left_out: SettingFigures) -> tuple[str, ...]:
    found = []
    if tuned.with_rereads.is_conclusive and left_out.with_rereads.value > tuned.with_rereads.high:
        found.append("with_rereads")
    far, there = tuned.far, left_out.far
    if far is not None and there is not None and far.is_conclusive and there.value < far.low:
        found.append("far")
    if not left_out.fits:
        found.append("fits")
    return tuple(found)


def warnings(found: CarryOver) -> list[str]:
    """Say in plain words why the choice may not carry over; nothing where it does."""
    out = []
    for figure in _worse(found.tuned, found.left_out):
        if figure == "with_rereads":
            out.append(
                "the choice does not carry over: on sessions that had no say the bill with re-reads is "
                f"{_told(found.left_out.with_rereads)} of no management, and on those it was chosen on "
                f"{_told(found.tuned.with_rereads)}"
            )
        elif figure == "far":
            out.append(
                "the choice does not carry over: on sessions that had no say the far recall is "
                f"{_told(found.left_out.far)}, and on those it was chosen on {_told(found.tuned.far)}"
            )
    if not enough(found.left_out.sessions):
        out.append(f"fewer than {FEWEST} sessions: what is chance cannot be told, nor whether the choice carries over")
    count = f"of {len(found.held_out)} parts"
    broken = sum("fits" in one.outside for one in found.held_out)
    if broken:
        out.append(f"in {broken} {count} the setting that was chosen without it broke the window")
    worse = sum(bool(set(one.outside) - {"fits"}) for one in found.held_out)
    if worse:
        out.append(
            f"in {worse} {count} the choice of the others is worse than their interval allows: "
            "these sessions are of other kinds, and one setting for all may suit some of them badly"
        )
    beaten = sum(bool(one.beaten_by) for one in found.held_out)
    if beaten:
        out.append(
            f"in {beaten} {count} another candidate is better in one figure and worse in none: "
            "more sessions would tell them apart"
        )
    return out


def _told(span: ResampledFigure | None) -> str:
    if span is None:
        return "not measurable"
    return f"{share(span.value)} ({span.low:.2f}-{span.high:.2f})" if span.is_conclusive else share(span.value)
