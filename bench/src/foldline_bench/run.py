"""A whole bench: every system at every budget over the same sessions, one process each, and their comparison."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from foldline.errors import InvalidInput
from foldline.replay import DISTANCES, NONE
from foldline.replay.results import ENOUGH
from foldline_bench.measure.comparison import common_sessions, figures_over, mark_front, part_means
from foldline_bench.measure.intervals import RESAMPLES, SEED, SHARE
from foldline_bench.measure.parts import parts_of
from foldline_bench.peers import PLAIN
from foldline_bench.prices import COLD_EVERY, FRONT_RULE, RULES, rule_figures
from foldline_bench.printing import provenance
from foldline_bench.session_inputs import collect_sessions
from foldline_bench.values import (
    LEAST_RATIO,
    SCHEMA,
    BenchResult,
    Bootstrap,
    BudgetParts,
    BudgetResult,
    MissingPeer,
    SessionFigures,
    SessionRow,
    Stress,
    SystemFigures,
    SystemRow,
    SystemRun,
)
from foldline_bench.workers.jobs import BenchJob, SessionFile, neutral_counter
from foldline_bench.workers.offers import OWN_SYSTEMS, own_system
from foldline_bench.workers.processes import DiedError, Peer, WorkerFolder, peers_in, run_job, worker_folder

__all__ = ["BenchPlan", "BenchProgress", "bench"]

# For reading all sessions, or measuring one, on a busy machine; the time of the system itself comes on top.
_OVERHEAD_SECONDS = 600.0

# The budget of the long session, or the smallest one. At others it would say the same and take as long again.
_STRESS_TOKENS = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure. `systems` are names or patterns (`langchain*`) of systems or peers; empty: all.

    With `parts` the figures are also those of five parts of the sessions, by source, and the means over these. With
    `weeks` the sessions of each source are joined into working weeks.
    `found` are those of `paths` that come from a folder. They are skipped if they cannot be read; a file that the user
    named is an error then.
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
    parts: bool = False
    weeks: bool = False


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of the bench: the running system, and how many of its sessions are done.

    `died` is the last line of a worker that ended early.
    """

    system: str
    budget_tokens: int
    done: int
    total: int
    ended: bool = False
    died: str | None = None


def bench(plan: BenchPlan, on_step: Callable[[BenchProgress], None] = lambda _step: None) -> BenchResult:
    """Run a bench, one system after the other. Raises InvalidInput for a plan that cannot be run.

    A worker that dies costs its system the sessions that it had not reported; the bench goes on. After a
    KeyboardInterrupt the result has the systems that were finished, and is `partial`; before the first one is
    finished, the interrupt is raised.
    """
    began, date = monotonic(), datetime.now(UTC)
    collected = collect_sessions(plan.paths, found=plan.found, exact=plan.exact, weeks=plan.weeks)
    _require_sessions(plan, collected.rows)
    with worker_folder() as folder:
        systems, hosts, absent = _systems(plan, folder)
        inputs = _BenchInputs(collected.files, collected.rows, systems, hosts, folder)
        budgets, stopped = _run_budgets(plan, inputs, on_step)
    taking_part = {name for each in budgets for name in each["sessions"]}
    return BenchResult(
        schema=SCHEMA,
        partial=stopped,
        made=provenance(date, monotonic() - began),
        counter=neutral_counter(plan.exact).name,
        own_counter=plan.own_counter,
        told_rule=FRONT_RULE,
        rules={name: rule_figures(name) for name in RULES},
        cold_every=COLD_EVERY,
        distances=list(DISTANCES),
        enough=ENOUGH,
        least_ratio=LEAST_RATIO,
        repeat=plan.repeat,
        time_cap_seconds=plan.cap_seconds,
        intervals=Bootstrap(resamples=RESAMPLES, share=SHARE, seed=SEED),
        sessions=[row for row in collected.rows if row["name"] in taking_part],
        left_out=collected.left_out,
        systems=systems,
        absent=absent,
        budgets=budgets,
    )


def _budgets(plan: BenchPlan) -> list[int]:
    return sorted(dict.fromkeys(plan.budgets_tokens))


def _require_sessions(plan: BenchPlan, rows: Sequence[SessionRow]) -> None:
    """Check before any work that each budget has sessions. Raises InvalidInput."""
    largest, budget_tokens = max(row["tokens"] for row in rows), max(plan.budgets_tokens)
    if largest < LEAST_RATIO * budget_tokens:
        reason = f"no session is {LEAST_RATIO} times {budget_tokens:,} tokens; the largest has {largest:,}"
        raise InvalidInput(reason, place="budget")


# --- systems ----------------------------------------------------------------------------------------------------------


def _systems(plan: BenchPlan, folder: WorkerFolder) -> tuple[list[SystemRow], dict[str, Peer], list[MissingPeer]]:
    """Return the systems to run, no management first; their peers; and the peers that cannot run."""
    # The plain rules need nothing installed, so they run in this Python.
    installed, missing = ([], {}) if _only_own_systems(plan.systems) else peers_in(plan.peers_folder)
    peers = [] if _only_own_systems(plan.systems) else [Peer(PLAIN, sys.executable), *installed]
    for pattern in plan.systems:
        _require_installed(pattern, peers, missing)
    absent = [] if plan.systems else [MissingPeer(peer=name, reason=reason) for name, reason in missing.items()]
    broken: list[str] = []
    offered = [SystemRow(name=name, peer=None, packages={}) for name in OWN_SYSTEMS]
    hosts = {}
    for peer in peers:
        try:
            messages = list(
                run_job(_offer_job(peer, plan.exact), folder, python=peer.python, limit_seconds=_OVERHEAD_SECONDS)
            )
        except DiedError as error:
            if peer.name in plan.systems:
                raise InvalidInput(str(error), place=f"systems, {peer.name}") from None
            absent.append(MissingPeer(peer=peer.name, reason=str(error)))
            broken.append(f"{peer.name} cannot be run: {error}")
            continue
        offer: dict[str, Any] = messages[0]["offer"]
        kinds = ("own_counter", "systems") if plan.own_counter else ("systems", "own_counter")
        # Some peers accept no counter, others have none of their own: each takes part as it can.
        names = offer[kinds[0]] or offer[kinds[1]]
        offered += [SystemRow(name=name, peer=peer.name, packages=offer["packages"]) for name in names]
        hosts[peer.name] = peer
    try:
        return _select(plan.systems, offered), hosts, absent
    except InvalidInput as error:
        # The name may be that of a system whose peer could not be listed: its error is the better hint.
        raise InvalidInput("; ".join((error.reason, *broken)), place=error.place) from None


def _require_installed(pattern: str, peers: Sequence[Peer], missing: Mapping[str, str]) -> None:
    """Raise InvalidInput if a pattern names a peer that has no environment."""
    if any(fnmatchcase(peer.name, pattern) for peer in peers):
        return
    for name, reason in missing.items():
        if fnmatchcase(name, pattern) and pattern.strip("*?"):
            hint = (
                f"install it with `python bench/tools/bench_peers.py {name}` (all: `make bench-peers`), or name --peers"
            )
            raise InvalidInput(f"{name} is {reason}; {hint}", place="systems")


def _only_own_systems(patterns: Sequence[str]) -> bool:
    """Whether all patterns name our own systems: then no peer has to be listed, which takes seconds each."""
    try:
        return bool(patterns) and all(own_system(pattern) for pattern in patterns)
    except InvalidInput:
        # The name of a peer's system, or unknown: that shows once the peers are listed.
        return False


def _select(patterns: Sequence[str], offered: Sequence[SystemRow]) -> list[SystemRow]:
    """Return the systems that the patterns name, in their order; all without patterns. Raises InvalidInput."""
    # No management always runs: costs are relative to it.
    wanted = dict.fromkeys((NONE,))
    for pattern in patterns:
        named = [row["name"] for row in offered if _matches(pattern, row)]
        if not named:
            # Names like economical@openai are endless, so they are parsed and not listed. Raises for unknown ones.
            own_system(pattern)
            named = [pattern]
        wanted.update(dict.fromkeys(named))
    by_name = {row["name"]: row for row in offered}
    return (
        [by_name.get(name, SystemRow(name=name, peer=None, packages={})) for name in wanted] if patterns else [*offered]
    )


def _matches(pattern: str, row: SystemRow) -> bool:
    return pattern in (row["name"], row["peer"]) or fnmatchcase(row["name"], pattern)


def _offer_job(peer: Peer, exact: bool) -> BenchJob:
    return BenchJob(peer=peer.module, peer_file=peer.file, exact=exact)


# --- one budget -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _BenchInputs:
    """What all budgets share: sessions, systems, and the folder of the workers."""

    files: Sequence[SessionFile]
    rows: Sequence[SessionRow]
    systems: Sequence[SystemRow]
    hosts: Mapping[str, Peer]
    folder: WorkerFolder

    def files_of(self, names: Collection[str]) -> tuple[SessionFile, ...]:
        """Return the sessions of these names, small ones first, so that a slow system finishes as many as it can."""
        tokens = {row["name"]: row["tokens"] for row in self.rows}
        return tuple(sorted((file for file in self.files if file.name in names), key=lambda file: tokens[file.name]))


def _run_budgets(
    plan: BenchPlan, inputs: _BenchInputs, on_step: Callable[[BenchProgress], None]
) -> tuple[list[BudgetResult], bool]:
    """Run all budgets; return their results, and whether an interrupt ended them."""
    out: list[BudgetResult] = []
    for budget_tokens in _budgets(plan):
        found, interrupt = _run_budget(plan, budget_tokens, inputs, on_step)
        if found["runs"]:
            out.append(found)
        if interrupt is not None:
            if not out:
                raise interrupt
            return out, True
    return out, False


def _run_budget(
    plan: BenchPlan, budget_tokens: int, inputs: _BenchInputs, on_step: Callable[[BenchProgress], None]
) -> tuple[BudgetResult, KeyboardInterrupt | None]:
    """Run the systems at one budget, up to an interrupt. The system that runs then is left out."""
    groups = {row["name"]: row["group"] for row in inputs.rows if row["tokens"] >= LEAST_RATIO * budget_tokens}
    small = [row["name"] for row in inputs.rows if row["name"] not in groups]
    budgets = _budgets(plan)
    stress_at = _STRESS_TOKENS if _STRESS_TOKENS in budgets else budgets[0]
    runs: list[SystemRun] = []
    interrupt = None
    for system in inputs.systems:
        peer = inputs.hosts.get(system["peer"] or "")
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
            sessions=inputs.files_of(groups),
        )
        try:
            runs.append(_run_system(job, inputs.folder, peer.python if peer else sys.executable, on_step))
        except KeyboardInterrupt as stop:
            # Hours of work may be done by now: the figures of finished systems are compared and returned.
            interrupt = stop
            break
    names = list(groups)
    common = common_sessions(names, runs)
    _compare(runs, common, groups)
    parts = _compare_parts(runs, common, inputs.rows) if plan.parts else None
    result = BudgetResult(
        budget_tokens=budget_tokens, sessions=names, too_small=small, common=common, parts=parts, runs=runs
    )
    return result, interrupt


def _run_system(
    job: BenchJob, folder: WorkerFolder, python: str, on_step: Callable[[BenchProgress], None]
) -> SystemRun:
    """Run one system in a worker. What it reported before it died is kept."""
    done: dict[str, SessionFigures] = {}
    run = SystemRun(
        system=job.system,
        died=None,
        unfinished=[],
        apart=False,
        sessions=done,
        figures=None,
        groups={},
        parts=[],
        part_means={},
        stress=None,
    )
    total = len(job.sessions)
    on_step(BenchProgress(job.system, job.budget_tokens, 0, total))
    # Twice: the long session has the same allowance again.
    limit = _OVERHEAD_SECONDS + 2 * job.cap_seconds
    try:
        for message in run_job(job, folder, python=python, limit_seconds=limit):
            if "figures" in message:
                done[message["session"]] = message["figures"]
                on_step(BenchProgress(job.system, job.budget_tokens, len(done), total))
            elif "cpu_seconds" in message:
                done[message["session"]]["cpu_seconds"] = message["cpu_seconds"]
            elif "stress" in message:
                stress = run["stress"] = run["stress"] or Stress(window_tokens=job.budget_tokens, lengths=[])
                stress["lengths"].append(message["stress"])
    except DiedError as error:
        run["died"] = str(error)
    run["unfinished"] = [file.name for file in job.sessions if file.name not in done]
    # With the few sessions of such a system, the common ones of all would be too few to compare the others.
    run["apart"] = 2 * len(done) < total
    on_step(BenchProgress(job.system, job.budget_tokens, len(done), total, ended=True, died=run["died"]))
    return run


def _compare(runs: Sequence[SystemRun], common: Sequence[str], groups: dict[str, str]) -> None:
    """Fill in the figures of all runs: over the common sessions, or a run's own if it is set apart."""
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


def _compare_parts(runs: Sequence[SystemRun], common: Sequence[str], rows: Sequence[SessionRow]) -> BudgetParts:
    """Fill in the figures of each part of the compared sessions, and the means over the parts."""
    origins = {row["name"]: row["origin"] for row in rows if row["name"] in set(common)}
    made = parts_of(origins)
    base = next((run["sessions"] for run in runs if run["system"] == NONE), {})
    for run in runs:
        if not run["apart"]:
            found = [_figures(run, names, base) for names in made.parts]
            run["parts"] = [figures for figures in found if figures is not None]
            run["part_means"] = part_means(run["parts"])
    return BudgetParts(
        about=made.about(),
        by=made.by,
        sessions=[list(names) for names in made.parts],
        sources=[sorted({origins[name] for name in names}) for names in made.parts],
    )


def _figures(run: SystemRun, names: Sequence[str], base: dict[str, SessionFigures]) -> SystemFigures | None:
    if not names:
        return None
    unmanaged = [base[name] for name in names] if all(name in base for name in names) else None
    return figures_over([run["sessions"][name] for name in names], unmanaged)
