"""A worker process: `python -m foldline_bench.workers.worker` reads a job from standard input and measures it.

Each line of standard output is a JSON object. It runs in the environment of the system that it measures, and needs only
that system's packages and the standard library.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from threading import Thread
from time import process_time
from typing import Any

from foldline.errors import DoesNotFit, MissingExtra
from foldline.messages import Wire
from foldline.recorded.sessions import Session
from foldline.replay import NONE, MeasuredSession, Sender, replay
from foldline.replay.results import percentile
from foldline_bench.measure.session_figures import (
    Allowance,
    AllowanceSpentError,
    CheckedSender,
    cold_figures,
    figures_of_session,
)
from foldline_bench.measure.speed import SAMPLE, SIZES
from foldline_bench.measure.speed import session as long_session
from foldline_bench.prices import COLD_EVERY, FRONT_RULE, RULES, cache_rule
from foldline_bench.values import AtLength
from foldline_bench.weeks import Week, WeekRecording
from foldline_bench.workers.jobs import COUNTER, BenchJob, CachingCounter, neutral_counter, read_week
from foldline_bench.workers.offers import MakeSender, offer_of, own_system, peer_module, sender_maker

__all__ = ["main"]

# Turns measured before a length that is reached in one jump. The first two are dropped, as the system catches up there.
_JUMPED = 10


def main() -> None:
    """Run the job on standard input."""
    job = BenchJob.from_json(sys.stdin.readline())
    Thread(target=_exit_with_parent, daemon=True).start()
    # Packages print, also from C: descriptor 1 becomes standard error, and messages go through a copy of the old one.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)

        def emit(**message: Any) -> None:
            output.write(f"{json.dumps(message)}\n")
            output.flush()

        _run_job(job, emit)


def _exit_with_parent() -> None:
    """End this process when standard input ends."""
    # That is when the parent is gone, even if it was killed. os._exit, as the main thread may be inside a package.
    sys.stdin.read()
    os._exit(1)


def _run_job(job: BenchJob, emit: Callable[..., None]) -> None:
    counter = _counter(job.exact)
    if not job.system:
        emit(offer=asdict(offer_of(peer_module(job))))
        return
    make = sender_maker(job, counter)
    recordings = [_precounted(read_week(file), counter) for file in job.sessions]
    _warm_up(make, counter)
    gc.collect()
    # The recordings stay to the end. Without this each collection would scan them, at the cost of the system measured.
    gc.freeze()
    emit(ready=True)
    allowance = Allowance(job.cap_seconds)
    times: dict[str, list[list[float]]] = {}
    for recording in recordings:
        name = recording.session.name
        try:
            times[name] = [_measure(job, recording, make, allowance, emit)]
        except AllowanceSpentError:
            emit(unfinished=name)
    # Figures of all sessions come first, so that a slow system loses repetitions and not sessions.
    for recording in recordings:
        runs = times.get(recording.session.name, [])
        while 0 < len(runs) < job.repeat:
            try:
                again = make(recording, pauses=recording.pauses)
                runs.append(_time(recording, again.sender, allowance))
            except AllowanceSpentError:
                break
        if runs:
            # By request over the runs: a disturbance in one run changes none of the medians.
            seconds = [round(median(each), 7) for each in zip(*runs, strict=True)]
            emit(session=recording.session.name, cpu_seconds=seconds)
    if job.stress:
        for found in _stress(make, counter, Allowance(job.cap_seconds)):
            emit(stress=found)
    emit(done=True)


def _counter(exact: bool) -> CachingCounter:
    """Return the neutral counter; without it, end with the command that installs it in this environment."""
    try:
        return neutral_counter(exact)
    except MissingExtra:
        install = shlex.join((sys.executable, "-m", "pip", "install", COUNTER))
        sys.exit(f"its environment has no exact counter; install it with `{install}`, or size all with --estimate")


def _precounted(week: Week, counter: CachingCounter) -> WeekRecording:
    """Return a recording with all sizes and facts computed, so that no system pays for another."""
    recording = WeekRecording(week, counter)
    for seen in recording.history:
        _ = seen.facts, seen.lines
    return recording


def _warm_up(make: MakeSender, counter: CachingCounter) -> None:
    """Run a short conversation: packages import and compile at their first use, which is no cost of a turn."""
    talk: tuple[Wire, ...] = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"})
    recording = MeasuredSession(Session(name="", dialect="openai-chat", messages=(*talk, *talk)), counter)
    _time(recording, make(recording).sender, Allowance(60))


def _measure(
    job: BenchJob, recording: WeekRecording, make: MakeSender, allowance: Allowance, emit: Callable[..., None]
) -> list[float]:
    """Replay a session, emit its figures and return the times of its requests. Raises AllowanceSpentError.

    A policy of ours is replayed again with pauses, which gives its price with cold caches. Peers have no parameter for
    pauses: their first run is priced with cold caches instead. In a week our policies know of its pauses in both runs,
    and no bounds are computed: these know nothing of joints.
    """
    made = make(recording, watched=not recording.week.joints, pauses=recording.pauses)
    # The history belongs to all systems: a peer that edits it would change what the next one sees.
    before = json.dumps(recording.session.messages)
    watched = CheckedSender(made.sender, allowance, made.errors)
    usual = partial(
        replay, recording, job.system, window=job.budget_tokens, rule=cache_rule(FRONT_RULE), pauses=recording.pauses
    )
    done = usual(sender=watched)
    if json.dumps(recording.session.messages) != before:
        made.errors.append("it changed messages of the history")
    rules = {name: cache_rule(name) for name in RULES}
    figures = figures_of_session(done, watched, rules)
    if not job.peer and job.system != NONE:
        lifetime_seconds = own_system(job.system, job.told_rule).rule.lifetime_seconds
        cold = make(recording, pauses=replace(recording.pauses, every=COLD_EVERY, seconds=lifetime_seconds))
        cold_figures(figures, usual(sender=CheckedSender(cold.sender, allowance)), rules)
    if made.best is not None:
        figures["bound"] = made.best(done)
    emit(session=done.session, figures=figures)
    return [turn.cpu_seconds for turn in done.turns]


def _time(recording: MeasuredSession, sender: Sender, allowance: Allowance) -> list[float]:
    """Return the CPU seconds of each request, and measure nothing else. Raises AllowanceSpentError."""
    times = []
    done = 0
    for reply in recording.replies:
        with allowance.spending():
            times.append(_send(sender, recording.session.messages[done : reply.start]))
        done = reply.start
    return times


def _send(sender: Sender, new: Sequence[Wire]) -> float:
    began = process_time()
    try:
        seconds = sender.send(new).cpu_seconds
    except DoesNotFit:
        seconds = None
    return process_time() - began if seconds is None else seconds


def _stress(make: MakeSender, counter: CachingCounter, allowance: Allowance) -> Iterator[AtLength]:
    """Yield the time of a request at certain lengths of a long session, as far as the allowance goes.

    The session grows turn by turn for half of the allowance; each further length is reached in one jump.
    """
    new = list(long_session(max(SIZES)))
    messages = tuple(wire for wires in new for wire in wires)
    sender = make(MeasuredSession(Session(name="", dialect="openai-chat", messages=messages), counter)).sender
    half = allowance.left_seconds / 2
    times: list[float] = []
    at = 0
    for size in SIZES:
        stop = size // 2  # turns: two messages each, the first turn too
        sampled, skipped = SAMPLE, 0
        while at < stop:
            late = allowance.left_seconds < half and stop - at > _JUMPED
            start, at = at, stop - _JUMPED if late else at + 1
            try:
                with allowance.spending():
                    times.append(_send(sender, [wire for wires in new[start:at] for wire in wires]))
            except AllowanceSpentError:
                return
            if late:
                times.clear()
                sampled, skipped = _JUMPED, 2
        sample = times[-sampled:][skipped:]
        yield AtLength(
            messages=size,
            turns=len(sample),
            p50_seconds=percentile(sample, 0.5),
            p95_seconds=percentile(sample, 0.95),
        )


if __name__ == "__main__":
    main()
