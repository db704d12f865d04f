"""The systems of a bench, and the sender that replays each.

Ours have names: `none`, a policy (`balanced`), a policy with other prices (`economical@openai`), a policy with a model
that writes summaries (`quality+summary`), or one whose summaries always have prompts of their own and never continue
the session (`quality+summary-apart`). Those of a peer are what its module offers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_file_location
from time import process_time
from typing import Any, Final, Protocol

from foldline.catalog.models import CacheRule
from foldline.engine.context import Context
from foldline.engine.presets import POLICIES
from foldline.errors import InvalidInput
from foldline.messages import Wire
from foldline.replay import (
    NONE,
    Managed,
    MeasuredSession,
    Pauses,
    Replay,
    Sender,
    Sent,
    Unmanaged,
    context_for,
    policy_named,
)
from foldline.tokens import ESTIMATE, Counter
from foldline_bench.bounds.clairvoyant import clairvoyant_of
from foldline_bench.bounds.figures import BoundFigures
from foldline_bench.bounds.hindsight import WatchedSender, bound_of, course_of
from foldline_bench.bounds.stages import stages_bound_of
from foldline_bench.measure.session_figures import bound_figures
from foldline_bench.prices import FRONT_RULE, cache_rule
from foldline_bench.summariser import MODEL, ContinuedSummariser, FixedSummariser
from foldline_bench.systems import HostedSystem
from foldline_bench.workers.jobs import BenchJob

__all__ = [
    "OWN_SYSTEMS",
    "BuiltSender",
    "MakeSender",
    "Offer",
    "OwnSystem",
    "offer_of",
    "own_system",
    "peer_module",
    "sender_maker",
]

OWN_SYSTEMS: Final = (NONE, *POLICIES, "balanced+summary")
"""Our systems that run if none is named."""

_SUMMARIES: Final = ("", "summary", "summary-apart")


@dataclass(frozen=True, slots=True)
class BuiltSender:
    """A system for one session, and the list that collects its errors.

    `best` computes the bounds in hindsight of its replay, if they were requested and exist.
    """

    sender: Sender
    errors: list[str]
    best: Callable[[Replay], BoundFigures] | None = None


class MakeSender(Protocol):
    """Makes the system of a job for one session."""

    def __call__(
        self, recording: MeasuredSession, *, watched: bool = False, pauses: Pauses | None = None
    ) -> BuiltSender:
        """Make a new system. With `watched`, a policy of ours is recorded for the bounds; `pauses` tells it of pauses.

        It is not watched if it has a counter of its own: the bounds need all sizes by one counter.
        """


@dataclass(frozen=True, slots=True)
class Offer:
    """What a peer offers: the names of its systems, and the versions of its packages."""

    systems: tuple[str, ...]
    own_counter: tuple[str, ...]
    packages: dict[str, str]


@dataclass(frozen=True, slots=True)
class OwnSystem:
    """One of our systems, parsed from its name; `summary` is "" without a model."""

    policy: str
    rule: CacheRule
    summary: str


def own_system(name: str, told_rule: str = FRONT_RULE) -> OwnSystem:
    """Parse the name of one of our systems. Raises InvalidInput for an unknown policy or unknown prices."""
    rest, _, prices = name.partition("@")
    policy, _, summary = rest.partition("+")
    policy_named(policy)
    if summary not in _SUMMARIES or (summary and policy == NONE):
        raise InvalidInput(f"unknown addition {summary!r}; known are summary, summary-apart", place=name)
    try:
        return OwnSystem(policy, cache_rule(prices or told_rule), summary)
    except InvalidInput as error:
        raise InvalidInput(error.reason, place=name) from None


def peer_module(job: BenchJob) -> Any:
    """Load the module of the job's peer. Runs a peer's code; its errors are raised."""
    if not job.peer_file:
        return import_module(f"foldline_bench.peers.{job.peer}")
    spec = spec_from_file_location(f"foldline_peer_{job.peer}", job.peer_file)
    if spec is None or spec.loader is None:
        raise InvalidInput("not a Python file", place=job.peer_file)
    module = module_from_spec(spec)
    # Before it runs: dataclasses and pickle look a module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def offer_of(module: Any) -> Offer:
    """Return the offer of a peer's module. A package that is not installed has the version "?"."""
    return Offer(
        systems=tuple(module.SYSTEMS),
        own_counter=tuple(getattr(module, "OWN_COUNTER", ())),
        packages={name: _version(name) for name in module.PACKAGES},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def sender_maker(job: BenchJob, counter: Counter) -> MakeSender:
    """Return a factory of the job's system. Raises InvalidInput for an unknown system."""
    if not job.peer:
        ours = own_system(job.system, job.told_rule)

        def made(recording: MeasuredSession, *, watched: bool = False, pauses: Pauses | None = None) -> BuiltSender:
            return _build_sender(ours, job, recording, counter, watched=watched, pauses=pauses)

        return made
    module = peer_module(job)
    offered: Mapping[str, Any] = {**module.SYSTEMS, **getattr(module, "OWN_COUNTER", {})}
    if job.system not in offered:
        raise InvalidInput(f"no system {job.system!r}; there are {', '.join(offered)}", place=job.peer)
    make = offered[job.system]

    def hosted(recording: MeasuredSession, *, watched: bool = False, pauses: Pauses | None = None) -> BuiltSender:
        # Only a context of ours can be watched, and no peer has a parameter for pauses.
        del watched, pauses
        summariser = FixedSummariser(counter)
        system = make(job.budget_tokens, lambda wire: recording.reader.read(wire).tokens, summariser)
        sender = HostedSystem(system, summariser)
        return BuiltSender(sender, sender.errors)

    return hosted


def _build_sender(
    ours: OwnSystem,
    job: BenchJob,
    recording: MeasuredSession,
    counter: Counter,
    *,
    watched: bool,
    pauses: Pauses | None,
) -> BuiltSender:
    if ours.policy == NONE:
        return BuiltSender(Unmanaged(recording.session), [])
    own = ESTIMATE if job.own_counter else None
    model = MODEL if ours.summary else None
    context = context_for(recording, ours.policy, window=job.budget_tokens, rule=ours.rule, counter=own, model=model)
    if watched and not ours.summary and own is None:
        watching = WatchedSender(context, pauses=pauses)
        return BuiltSender(watching, [], lambda done: _best(done, watching, recording, ours.rule))
    if not ours.summary:
        return BuiltSender(Managed(context, pauses=pauses), [])
    return BuiltSender(
        _Summarising(context, FixedSummariser(counter), apart=ours.summary.endswith("apart"), pauses=pauses), []
    )


def _best(done: Replay, watching: WatchedSender, recording: MeasuredSession, rule: CacheRule) -> BoundFigures:
    """Return the bounds in hindsight. O(requests · messages)."""
    knowing = clairvoyant_of(watching, recording, course_of(done, watching, rule))
    return bound_figures(bound_of(done, watching, rule), knowing, stages_bound_of(done, watching, recording, rule))


class _Summarising:
    """A context with the summariser. The summariser's time is not the context's: a real model computes elsewhere."""

    def __init__(self, context: Context, summariser: FixedSummariser, *, apart: bool, pauses: Pauses | None) -> None:
        self._summariser = summariser
        summarize = summariser.summarize if apart else ContinuedSummariser(summariser)
        self._managed = Managed(context, summarize=summarize, pop_summary_calls=summariser.pop_calls, pauses=pauses)

    def send(self, new: Sequence[Wire]) -> Sent:
        """Send by the context. Raises DoesNotFit."""
        began = process_time()
        sent = self._managed.send(new)
        seconds = process_time() - began - self._summariser.pop_seconds()
        # The two clocks are read one after the other, so that a short request can come out below zero.
        return replace(sent, cpu_seconds=max(0.0, seconds))
