"""A whole bench: every system at every budget over the same sessions, each in a process of its own, then compared."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from typing import Any

from foldline.catalog.models import CACHE_RULES
from foldline.errors import InvalidInput
from foldline.replay import DISTANCES, NONE
from foldline.replay.rows import ENOUGH
from foldline_bench.measure.comparison import common_sessions, figures_over, mark_front
from foldline_bench.measure.intervals import RESAMPLES, SEED, SHARE
from foldline_bench.session_inputs import gather
from foldline_bench.values import (
    COLD_EVERY,
    FRONT_RULE,
    LEAST_RATIO,
    RULES,
    SCHEMA,
    BenchResult,
    Bootstrap,
    BudgetResult,
    MissingPeer,
    Provenance,
    SessionFigures,
    SessionRow,
    Stress,
    SystemFigures,
    SystemRow,
    SystemRun,
)
from foldline_bench.workers.jobs import BenchJob, SessionFile, neutral_counter
from foldline_bench.workers.offers import OURS, our_system
from foldline_bench.workers.processes import DiedError, Peer, WorkerFolder, peers_in, said, workplace

__all__ = ["BenchPlan", "BenchProgress", "bench"]

# What a worker may take, beside the time of its system, to read all sessions or to measure one, on a busy machine.
_PATIENCE_SECONDS = 600.0

# The budget at which the long session is run, or else the smallest: elsewhere it would say the same again.
_STRESS_TOKENS = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What is to be measured. `systems` are names or patterns (`langchain*`), of a system or of a peer; empty: all.

    `found` are those of `paths` that nobody named, since they were in a folder: what cannot be read there is left out.
    """

    paths: tuple[str, ...]
    found: frozenset[str] = frozenset()
    budgets_tokens: tuple[int, ...]
    systems: tuple[str, ...] = ()
    peers_folder: str = ".bench"
    exact: bool = False
    own_counter: bool = False
    repeat: int = 3
    cap_seconds: float = 240.0
    stress: bool = True


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """How far the bench is: the system at work, the sessions it has done of so many, and how it ended, once it has.

    `died` is what it said when it ended early.
    """

    system: str
    budget_tokens: int
    done: int
    total: int
    ended: bool = False
    died: str | None = None


def bench(plan: BenchPlan, on_step: Callable[[BenchProgress], None] = lambda _step: None) -> BenchResult:
    """Measure. Takes as long as all systems take, one after the other. Raises InvalidInput for what cannot be run.

    A worker that dies costs its system what it had not told yet; the rest goes on. Stopped by KeyboardInterrupt, it
    gives what the systems say that were finished, as `partial`; before the first one is, the interrupt comes out.
    """
    began, date = monotonic(), datetime.now(UTC)
    gathered = gather(plan.paths, found=plan.found, exact=plan.exact)
    _with_sessions(plan, gathered.rows)
    with workplace() as place:
        systems, hosts, absent = _systems(plan, place)
        cast = _Cast(gathered.files, gathered.rows, systems, hosts, place)
        budgets, stopped = _measured(plan, cast, on_step)
    taking_part = {name for each in budgets for name in each["sessions"]}
    return BenchResult(
        schema=SCHEMA,
        partial=stopped,
        made=_made(date, monotonic() - began),
        counter=neutral_counter(plan.exact).name,
        own_counter=plan.own_counter,
        told_rule=FRONT_RULE,
        rules={name: _rule(name) for name in RULES},
        cold_every=COLD_EVERY,
        distances=list(DISTANCES),
        enough=ENOUGH,
        least_ratio=LEAST_RATIO,
        repeat=plan.repeat,
        time_cap_seconds=plan.cap_seconds,
        intervals=Bootstrap(resamples=RESAMPLES, share=SHARE, seed=SEED),
        sessions=[row for row in gathered.rows if row["name"] in taking_part],
        left_out=gathered.left_out,
        systems=systems,
        absent=absent,
        budgets=budgets,
    )


def _budgets(plan: BenchPlan) -> list[int]:
    return sorted(dict.fromkeys(plan.budgets_tokens))


def _with_sessions(plan: BenchPlan, rows: Sequence[SessionRow]) -> None:
    """Make sure before any work that there are sessions for each budget. Raises InvalidInput."""
    largest, budget_tokens = max(row["tokens"] for row in rows), max(plan.budgets_tokens)
    if largest < LEAST_RATIO * budget_tokens:
        reason = f"no session is {LEAST_RATIO} times {budget_tokens:,} tokens; the largest has {largest:,}"
        raise InvalidInput(reason, place="budget")


def _rule(name: str) -> dict[str, float]:
    wanted = ("read_ratio", "write_ratio", "minimum_tokens", "block_tokens")
    return {key: value for key, value in asdict(CACHE_RULES[name]).items() if key in wanted}


def _made(date: datetime, seconds: float) -> Provenance:
    try:
        own = version("foldline")
    except PackageNotFoundError:
        own = "?"
    return Provenance(
        date=date.isoformat(timespec="seconds"),
        foldline=own,
        python=platform.python_version(),
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        seconds=round(seconds, 1),
    )


# --- systems ----------------------------------------------------------------------------------------------------------


def _systems(plan: BenchPlan, place: WorkerFolder) -> tuple[list[SystemRow], dict[str, Peer], list[MissingPeer]]:
    """The systems to run, no management first; the peers that they run in; and the peers that cannot run."""
    peers, missing = ([], {}) if _ours_alone(plan.systems) else peers_in(plan.peers_folder)
    for pattern in plan.systems:
        _installed(pattern, peers, missing)
    absent = [] if plan.systems else [MissingPeer(peer=name, reason=reason) for name, reason in missing.items()]
    broken: list[str] = []
    offered = [SystemRow(name=name, peer=None, packages={}) for name in OURS]
    hosts = {}
    for peer in peers:
        try:
            told = list(said(_job(peer, plan.exact), place, python=peer.python, limit_seconds=_PATIENCE_SECONDS))
        except DiedError as error:
            if peer.name in plan.systems:
                raise InvalidInput(str(error), place=f"systems, {peer.name}") from None
            absent.append(MissingPeer(peer=peer.name, reason=str(error)))
            broken.append(f"{peer.name} cannot be run: {error}")
            continue
        offer: dict[str, Any] = told[0]["offer"]
        kinds = ("own_counter", "systems") if plan.own_counter else ("systems", "own_counter")
        names = offer[kinds[0]] or offer[kinds[1]]  # some can be handed no counter, some have none of their own
        offered += [SystemRow(name=name, peer=peer.name, packages=offer["packages"]) for name in names]
        hosts[peer.name] = peer
    try:
        return _chosen(plan.systems, offered), hosts, absent
    except InvalidInput as error:  # perhaps a name of theirs, which they could not say
        raise InvalidInput("; ".join((error.reason, *broken)), place=error.place) from None


def _installed(pattern: str, peers: Sequence[Peer], missing: Mapping[str, str]) -> None:
    """Raise InvalidInput for a peer that is asked for by name, or by a pattern of names, and has no environment."""
    if any(fnmatchcase(peer.name, pattern) for peer in peers):
        return
    for name, reason in missing.items():
        if fnmatchcase(name, pattern) and pattern.strip("*?"):
            hint = (
                f"install it with `python bench/tools/bench_peers.py {name}` (all: `make bench-peers`), or name --peers"
            )
            raise InvalidInput(f"{name} is {reason}; {hint}", place="systems")


def _ours_alone(patterns: Sequence[str]) -> bool:
    """Whether all that is asked for is ours: then no peer has to say what it has, which takes seconds for each."""
    try:
        return bool(patterns) and all(our_system(pattern) for pattern in patterns)
    except InvalidInput:
        return False  # a name of a peer's, or of nobody's, which is told when theirs are known


def _chosen(patterns: Sequence[str], offered: Sequence[SystemRow]) -> list[SystemRow]:
    """Those that a pattern names, in their order; without patterns all. Raises InvalidInput for one unknown."""
    wanted = dict.fromkeys((NONE,))
    for pattern in patterns:
        named = [row["name"] for row in offered if _matches(pattern, row)]
        if not named:
            our_system(pattern)  # a policy with other prices or with a summariser
            named = [pattern]
        wanted.update(dict.fromkeys(named))
    known = {row["name"]: row for row in offered}
    return (
        [known.get(name, SystemRow(name=name, peer=None, packages={})) for name in wanted] if patterns else [*offered]
    )


def _matches(pattern: str, row: SystemRow) -> bool:
    return pattern in (row["name"], row["peer"]) or fnmatchcase(row["name"], pattern)


def _job(peer: Peer, exact: bool) -> BenchJob:
    return BenchJob(peer=peer.module, peer_file=peer.file, exact=exact)


# --- one budget -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cast:
    """Who is measured on what, and where."""

    files: Sequence[SessionFile]
    rows: Sequence[SessionRow]
    systems: Sequence[SystemRow]
    hosts: Mapping[str, Peer]
    place: WorkerFolder

    def files_of(self, names: Collection[str]) -> tuple[SessionFile, ...]:
        """The sessions of these names, small ones first: a slow system then finishes as many as it can."""
        tokens = {row["name"]: row["tokens"] for row in self.rows}
        return tuple(sorted((file for file in self.files if file.name in names), key=lambda file: tokens[file.name]))


def _measured(
    plan: BenchPlan, cast: _Cast, on_step: Callable[[BenchProgress], None]
) -> tuple[list[BudgetResult], bool]:
    """All budgets, or those that were begun before an interrupt, and whether there was one."""
    out: list[BudgetResult] = []
    for budget_tokens in _budgets(plan):
        found, interrupt = _at_budget(plan, budget_tokens, cast, on_step)
        if found["runs"]:
            out.append(found)
        if interrupt is not None:
            if not out:
                raise interrupt
            return out, True
    return out, False


def _at_budget(
    plan: BenchPlan, budget_tokens: int, cast: _Cast, on_step: Callable[[BenchProgress], None]
) -> tuple[BudgetResult, KeyboardInterrupt | None]:
    """The systems at one budget, one after the other, up to an interrupt; the one at work then is left out."""
    groups = {row["name"]: row["group"] for row in cast.rows if row["tokens"] >= LEAST_RATIO * budget_tokens}
    small = [row["name"] for row in cast.rows if row["name"] not in groups]
    budgets = _budgets(plan)
    stress_at = _STRESS_TOKENS if _STRESS_TOKENS in budgets else budgets[0]
    runs: list[SystemRun] = []
    interrupt = None
    for system in cast.systems:
        peer = cast.hosts.get(system["peer"] or "")
        job = BenchJob(
            system=system["name"],
            peer=peer.module if peer else "",
            peer_file=peer.file if peer else "",
            budget_tokens=budget_tokens,
            exact=plan.exact,
            own_counter=plan.own_counter,
            told_rule=FRONT_RULE,
            repeat=plan.repeat,
            cap_seconds=plan.cap_seconds,
            stress=plan.stress and budget_tokens == stress_at,
            sessions=cast.files_of(groups),
        )
        try:
            runs.append(_one(job, cast.place, peer.python if peer else sys.executable, on_step))
        except KeyboardInterrupt as stop:
            interrupt = stop
            break
    names = list(groups)
    common = common_sessions(names, runs)
    _compare(runs, common, groups)
    result = BudgetResult(budget_tokens=budget_tokens, sessions=names, too_small=small, common=common, runs=runs)
    return result, interrupt


def _one(job: BenchJob, place: WorkerFolder, python: str, on_step: Callable[[BenchProgress], None]) -> SystemRun:
    """One worker's whole work. What it told before it died is kept."""
    done: dict[str, SessionFigures] = {}
    run = SystemRun(
        system=job.system, died=None, unfinished=[], apart=False, sessions=done, figures=None, groups={}, stress=None
    )
    total = len(job.sessions)
    on_step(BenchProgress(job.system, job.budget_tokens, 0, total))
    limit = _PATIENCE_SECONDS + 2 * job.cap_seconds
    try:
        for told in said(job, place, python=python, limit_seconds=limit):
            if "figures" in told:
                done[told["session"]] = told["figures"]
                on_step(BenchProgress(job.system, job.budget_tokens, len(done), total))
            elif "cpu_seconds" in told:
                done[told["session"]]["cpu_seconds"] = told["cpu_seconds"]
            elif "stress" in told:
                stress = run["stress"] = run["stress"] or Stress(window_tokens=job.budget_tokens, lengths=[])
                stress["lengths"].append(told["stress"])
    except DiedError as error:
        run["died"] = str(error)
    run["unfinished"] = [file.name for file in job.sessions if file.name not in done]
    run["apart"] = 2 * len(done) < total
    on_step(BenchProgress(job.system, job.budget_tokens, len(done), total, ended=True, died=run["died"]))
    return run


def _compare(runs: Sequence[SystemRun], common: Sequence[str], groups: dict[str, str]) -> None:
    """Fill in the figures of all runs: over the common sessions, or over its own for one that is set apart."""
    base = next((run["sessions"] for run in runs if run["system"] == NONE), {})
    for run in runs:
        names = [name for name in groups if name in run["sessions"]] if run["apart"] else common
        run["figures"] = _figures(run, names, base)
        for group in dict.fromkeys(groups[name] for name in names):
            found = _figures(run, [name for name in names if groups[name] == group], base)
            if found is not None:
                run["groups"][group] = found
    compared = [run for run in runs if not run["apart"]]
    mark_front([run["figures"] for run in compared if run["figures"] is not None])
    for group in dict.fromkeys(groups.values()):
        mark_front([run["groups"][group] for run in compared if group in run["groups"]])


def _figures(run: SystemRun, names: Sequence[str], base: dict[str, SessionFigures]) -> SystemFigures | None:
    if not names:
        return None
    unmanaged = [base[name] for name in names] if all(name in base for name in names) else None
    return figures_over([run["sessions"][name] for name in names], unmanaged)
