"""Which systems there are, and how each is made into the sender of a replay.

Ours are known by name: `none`, a policy (`balanced`), a policy that is told other prices (`economical@openai`), a
policy with a model that writes summaries (`quality+summary`). Those of other people are what their module offers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, Final

from foldline.bench.jobs import Job
from foldline.bench.summariser import Summariser
from foldline.bench.systems import Hosted
from foldline.bench.values import FRONT_RULE
from foldline.catalog.models import CACHE_RULES, CacheRule
from foldline.errors import InvalidInput
from foldline.policy import POLICIES
from foldline.replay import NONE, Managed, Recording, Sender, Unmanaged, context_for, policy_named
from foldline.tokens import ESTIMATE, Counter

__all__ = ["OURS", "Made", "Offer", "Ours", "offer_of", "our_system", "peer_module", "sender_maker"]

OURS: Final = (NONE, *POLICIES)
"""Our systems where none are named."""

_SUMMARY: Final = "+summary"


@dataclass(frozen=True, slots=True)
class Made:
    """A system for one session, and the errors that will have come out of it."""

    sender: Sender
    errors: list[str]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a peer's module has: the names of its systems, and the versions of its packages."""

    systems: tuple[str, ...]
    own_counter: tuple[str, ...]
    packages: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ours:
    """One of our systems as its name says it."""

    policy: str
    rule: CacheRule
    summary: bool


def our_system(name: str, told_rule: str = FRONT_RULE) -> Ours:
    """Read the name of one of ours. Raises InvalidInput for an unknown policy or unknown prices."""
    rest, _, prices = name.partition("@")
    policy = policy_named(rest.removesuffix(_SUMMARY))
    rule = CACHE_RULES.get(prices or told_rule)
    if rule is None:
        raise InvalidInput(f"unknown prices {prices!r}; known are {', '.join(CACHE_RULES)}", place=name)
    return Ours(policy, rule, rest.endswith(_SUMMARY))


def peer_module(job: Job) -> Any:
    """The module of the job's peer. Runs other people's code; whatever that raises comes out."""
    if not job.peer_file:
        return import_module(f"foldline.bench.peers.{job.peer}")
    spec = spec_from_file_location(f"foldline_peer_{job.peer}", job.peer_file)
    if spec is None or spec.loader is None:
        raise InvalidInput("not a Python file", place=job.peer_file)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def offer_of(module: Any) -> Offer:
    """What a peer's module offers; a package that is not installed has the version "?"."""
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


def sender_maker(job: Job, counter: Counter) -> Callable[[Recording], Made]:
    """What makes the job's system for each session. Raises InvalidInput for one that is not there."""
    if not job.peer:
        ours = our_system(job.system, job.told_rule)
        return lambda recording: _made_of(ours, job, recording, counter)
    module = peer_module(job)
    offered: Mapping[str, Any] = {**module.SYSTEMS, **getattr(module, "OWN_COUNTER", {})}
    if job.system not in offered:
        raise InvalidInput(f"no system {job.system!r}; there are {', '.join(offered)}", place=job.peer)
    make = offered[job.system]

    def hosted(recording: Recording) -> Made:
        summariser = Summariser(counter)
        system = make(job.budget_tokens, lambda wire: recording.lens.look(wire).tokens, summariser)
        sender = Hosted(system, summariser)
        return Made(sender, sender.errors)

    return hosted


def _made_of(ours: Ours, job: Job, recording: Recording, counter: Counter) -> Made:
    if ours.policy == NONE:
        return Made(Unmanaged(recording.session), [])
    own = ESTIMATE if job.own_counter else None
    context = context_for(recording, ours.policy, window=job.budget_tokens, rule=ours.rule, counter=own)
    if not ours.summary:
        return Made(Managed(context), [])
    summariser = Summariser(counter)
    return Made(Managed(context, summarize=summariser.summarize, take_asked=summariser.take), [])
