"""The settings that are tried: a coarse grid over the figures that matter, then the neighbours of the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from foldline.engine.policy import Policy
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline_bench.tuning.values import Setting

__all__ = ["OURS", "first_settings", "neighbours", "own_figures"]

OURS: Final = ("economical", "balanced", "cost", "quality")

_LANDINGS: Final = (0.45, 0.6, 0.75)
_KEEPS: Final = (0.15, 0.3, 0.5)
# Shares of a result on arrival, of the room that is left and of its own size: low, default, high.
_ARRIVALS: Final = ((0.03, 0.05), (0.06, 0.10), (0.15, 0.20))

# Its limit is in bytes. With about four bytes a token, it is reached at three quarters of a window of any size.
_BYTES_PER_TOKEN: Final = 3

# Half the distance of the grid and less: neighbours lie between its points and beyond its edge.
_STEPS: Final = {"trigger": 0.1, "landing": 0.07, "keep": 0.08}
_ARRIVAL_FACTOR: Final = 1.5


def first_settings(window: int) -> tuple[Setting, ...]:
    """Return the grid for a window in tokens: 50 settings, each policy with its defaults first."""
    found = [Setting(name) for name in (*OURS, "autopilot", "sliding", "checkpoint", "layered", "confirm")]
    found += [
        _ours("economical", landing=landing, keep=keep, arrival_share=share, arrival_of_result=of_result)
        for landing in _LANDINGS
        for keep in _KEEPS
        for share, of_result in _ARRIVALS
    ]
    found += [_ours("balanced", landing=landing, keep=keep) for landing in _LANDINGS for keep in _KEEPS]
    found += [_ours("balanced", trigger=0.8, landing=landing) for landing in _LANDINGS[:2]]
    found += [
        Setting("autopilot", (("keep_recent", 10), ("max_context_bytes", window * _BYTES_PER_TOKEN))),
        Setting("layered", context=(("max_history_tokens", 0), ("tool_result_keep_last", 20))),
    ]
    return tuple(dict.fromkeys(found))


def _ours(name: str, **figures: float) -> Setting:
    return Setting(name, tuple((key, _plain(value)) for key, value in figures.items()))


def _plain(value: float) -> Json:
    return round(value, 3)


def neighbours(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the settings one step away in each figure, without these; policies of other systems have none."""
    # Those follow a document: with other figures they would no longer be that system.
    centres = tuple(settings)
    found = dict.fromkeys(near for setting in centres if setting.policy in OURS for near in _variants(setting))
    return tuple(setting for setting in found if setting not in centres)


def _variants(setting: Setting) -> Iterator[Setting]:
    own = dict(setting.settings)
    figures = own_figures(setting.value())
    changes = [{key: figures[key] + sign * step} for key, step in _STEPS.items() for sign in (-1, 1)]
    share, of_result = figures["arrival_share"], figures["arrival_of_result"]
    changes += [
        {"arrival_share": share * factor, "arrival_of_result": of_result * factor}
        for factor in (1 / _ARRIVAL_FACTOR, _ARRIVAL_FACTOR)
    ]
    for change in changes:
        if all(0.02 <= value <= 1 for value in change.values()):
            merged = {**own, **{key: _plain(value) for key, value in change.items()}}
            made = Setting(setting.policy, tuple(merged.items()))
            if _holds(made):
                yield made


def _holds(setting: Setting) -> bool:
    """Whether the figures are consistent, such as a landing below its trigger."""
    try:
        return bool(setting.value().name)
    except InvalidInput:
        return False


def own_figures(policy: Policy) -> dict[str, float]:
    """Return the effective figures of a policy of ours, by their names in `agents.yaml`."""
    share, of_result = policy.arrival_shares or (0.0, 0.0)
    return {
        "trigger": policy.trigger.fraction or 1.0,
        "landing": policy.landing or 0.0,
        "keep": policy.kept_share,
        "arrival_share": share,
        "arrival_of_result": of_result,
    }
