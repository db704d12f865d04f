"""Which settings are tried: a coarse net over the figures that matter, then the neighbours of the best of them."""

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

# So that the autopilot's limit in bytes is reached at about three quarters of a window of any size.
_BYTES_PER_TOKEN: Final = 3

_STEPS: Final = {"trigger": 0.1, "landing": 0.07, "keep": 0.08}
_ARRIVAL_FACTOR: Final = 1.5


def first_settings(window: int) -> tuple[Setting, ...]:
    """The net for a window in tokens: 50 settings, each policy as it stands before those with figures of their own."""
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
    """The settings one step away in each figure, without these; policies of other systems have none."""
    known = tuple(settings)
    found = dict.fromkeys(near for setting in known if setting.policy in OURS for near in _variants(setting))
    return tuple(setting for setting in found if setting not in known)


def _variants(setting: Setting) -> Iterator[Setting]:
    given = dict(setting.settings)
    figures = own_figures(setting.value())
    changes = [{key: figures[key] + sign * step} for key, step in _STEPS.items() for sign in (-1, 1)]
    share, of_result = figures["arrival_share"], figures["arrival_of_result"]
    changes += [
        {"arrival_share": share * factor, "arrival_of_result": of_result * factor}
        for factor in (1 / _ARRIVAL_FACTOR, _ARRIVAL_FACTOR)
    ]
    for change in changes:
        if all(0.02 <= value <= 1 for value in change.values()):
            merged = {**given, **{key: _plain(value) for key, value in change.items()}}
            made = Setting(setting.policy, tuple(merged.items()))
            if _holds(made):
                yield made


def _holds(setting: Setting) -> bool:
    """Whether the figures go together: a landing below its trigger."""
    try:
        return bool(setting.value().name)
    except InvalidInput:
        return False


def own_figures(policy: Policy) -> dict[str, float]:
    """The figures in force of a policy of ours, set or not, by their names in `agents.yaml`."""
    share, of_result = policy.arrival_shares or (0.0, 0.0)
    return {
        "trigger": policy.trigger.fraction or 1.0,
        "landing": policy.landing or 0.0,
        "keep": policy.kept_share,
        "arrival_share": share,
        "arrival_of_result": of_result,
    }
