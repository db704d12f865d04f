"""The two kinds of work in worker processes, here or on other machines: describe a session, and replay it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from foldline.catalog.models import CacheRule, Model
from foldline.errors import InvalidInput
from foldline.providers.exact import exact_counter
from foldline.replay import NONE, MeasuredSession, Replay, replay
from foldline.report.account import ExpectedRequest, Spend, expected
from foldline.tokens import ESTIMATE
from foldline_bench.measure.parts import source_of
from foldline_bench.tuning.sources import read_source
from foldline_bench.tuning.values import (
    UNMANAGED,
    Conditions,
    SessionSource,
    SessionSummary,
    Setting,
    TrialJob,
    TrialOutcome,
    content_sha256,
)

__all__ = ["look_at", "run"]


def look_at(source: SessionSource) -> SessionSummary:
    """Read and describe a session. Its faults are part of the result. Raises OSError for the network."""
    try:
        session = read_source(source)
    except InvalidInput as error:
        return SessionSummary(source=source, fault=_reason(error, source))
    return SessionSummary(
        source=source,
        sha256=content_sha256(session),
        name=session.name,
        model=session.model,
        dialect=session.dialect,
        origin=source_of(session.source, "/".join(filter(None, (source.place, source.label or source.part)))),
    )


def _reason(error: InvalidInput, source: SessionSource) -> str:
    """The fault and its place in the session, without the session's own place, which the caller shows redacted."""
    text = str(error).removeprefix(f"{source.shown}: ").removeprefix(f"{source.place}: ")
    return text.replace(source.place, source.shown) if "://" in source.place else text


@lru_cache(maxsize=2)
def _recording(source: SessionSource, sha256: str, exact: bool) -> MeasuredSession:
    """Read and measure a session. Cached, as a worker gets the jobs of one session in a row."""
    session = read_source(source)
    # The agent may have written on since: a result must be that of the content it is stored under.
    if content_sha256(session) != sha256:
        raise InvalidInput("has changed since it was first looked at", place=source.shown)
    return MeasuredSession(session, exact_counter() if exact else ESTIMATE)


def run(job: TrialJob) -> tuple[tuple[Setting, TrialOutcome | str], ...]:
    """Replay a session under each setting of a job; a text is the reason of a failure. O(requests · messages) each."""
    return tuple((setting, _run_one(job, setting)) for setting in job.settings)


def _run_one(job: TrialJob, setting: Setting) -> TrialOutcome | str:
    look, conditions = job.look, job.conditions
    try:
        recording = _recording(look.source, look.sha256, conditions.exact)
        done = replay(
            recording,
            NONE if setting == UNMANAGED else setting.value(),
            window=conditions.window,
            max_output_tokens=conditions.output_tokens_of(look),
            rule=conditions.rule_of(look),
        )
    except InvalidInput as error:
        return _reason(error, look.source)
    return _outcome(recording, done, look, conditions)


def _outcome(recording: MeasuredSession, done: Replay, look: SessionSummary, conditions: Conditions) -> TrialOutcome:
    replies = [sum(recording.history[place].tokens for place in reply) for reply in recording.replies]
    spend = _spend(done, replies, conditions.model or look.model, conditions.rule_of(look))
    input_usd = _input_usd(spend, conditions.model_of(look))
    recall = done.recall
    floors = [sum(part.tokens for part in turn.refused) for turn in done.turns if turn.refused]
    return TrialOutcome(
        session=look.sha256,
        requests=done.requests,
        recorded_tokens=done.recorded_tokens,
        invalid=done.invalid,
        over_budget=done.over_budget,
        refused=done.refused,
        floor_tokens=max(floors, default=0),
        limit_tokens=(done.kept_tokens or done.limit_tokens) if floors else 0,
        tokens=done.tokens,
        paid_tokens=spend.paid_tokens,
        input_usd=input_usd,
        reply_usd=None if spend.usd is None or input_usd is None else spend.usd - input_usd,
        folds=done.folds,
        far=(recall.far.kept, recall.far.total),
        line=(recall.line.kept, recall.line.total),
        far_tool=(recall.far_tool.kept, recall.far_tool.total),
        near_line=(recall.near_feasible.kept, recall.near_feasible.total),
        rereads=done.rereads,
        reread_tokens=(done.with_rereads_tokens[0] - done.cost_tokens, done.with_rereads_tokens[1] - done.cost_tokens),
    )


def _spend(done: Replay, replies: Sequence[int], model: str | None, rule: CacheRule) -> Spend:
    def due() -> Iterator[ExpectedRequest]:
        for turn, reply in zip(done.turns, replies, strict=True):
            if not turn.refused:
                yield ExpectedRequest(turn.tokens, turn.cached_tokens, reply)

    return expected(due(), model=model, rule=rule)


def _input_usd(spend: Spend, model: Model) -> float | None:
    price = model.input_usd_per_million
    return None if spend.usd is None or price is None else spend.paid_tokens * price / 1e6
