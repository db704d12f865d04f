"""Stored sessions for tests of the report: recorded ones sent through a real `Context`, with reported usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foldline.engine.context import Context
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession
from foldline.store.call_log import CallLog
from foldline.store.folders import FileStore
from foldline.testing.token_counts import PromptCache
from foldline.view.transcript import Usage

__all__ = ["EXAMPLES", "Clock", "Reports", "example", "store_session"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "sessions"


def example(name: str) -> Session:
    (path,) = EXAMPLES.glob(f"{name}*.json.gz")
    return read_session(path)


@dataclass
class Clock:
    """A clock that advances by `after`."""

    now: datetime = datetime(2026, 11, 27, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Reports:
    """A provider's usage reports: it counts `ratio` times our tokens and caches common beginnings."""

    ratio: float = 1.25
    caching: bool = True
    silent: bool = False
    cache: PromptCache = field(default_factory=PromptCache)

    def of(self, tokens: int, body: dict[str, object], answer_tokens: int) -> Usage:
        if self.silent:
            return Usage(input_tokens=tokens, output_tokens=answer_tokens, reported=False)
        read = self.cache.by_prefix(body, round(tokens * self.ratio)).read_tokens if self.caching else 0
        size = round(tokens * self.ratio)
        written = size - read if self.caching else 0
        return Usage(input_tokens=size, output_tokens=answer_tokens, cached_tokens=read, written_tokens=written)


def store_session(
    store: FileStore,
    session: Session,
    clock: Clock,
    *,
    model: str | None = "claude-sonnet-4-5",
    window: int = 16_000,
    policy: str = "balanced",
    reports: Reports | None = None,
    calls: CallLog | None = None,
    seconds: float = 20,
    system: str = "You are terse.",
) -> str:
    """Store a recorded session request by request, as an agent would; returns its id."""
    reports, recording = reports or Reports(), MeasuredSession(session)
    with store.create(dialect=session.dialect, model=model, policy=policy, window=window) as stored:
        context = Context(
            dialect=session.dialect, model=model, policy=policy, window=window, system=system, archive=stored.archive
        )
        done = 0
        for reply in recording.replies:
            for wire in session.messages[done : reply.start]:
                context.append(wire)
            request, before = context.prepare(), context.event_count
            ours = context.view.estimated_tokens
            answer = sum(recording.history[place].tokens for place in reply)
            for wire in session.messages[reply.start : reply.stop]:
                context.append(wire)
            done = reply.stop
            body: dict[str, object] = {"model": model, "messages": request.messages, "system": request.system}
            usage = context.observe(reports.of(ours, body, answer))
            clock.after(seconds)
            stored.append(context.events_after(stored.tally.events))
            if calls is not None:
                calls.record(stored.id, body, usage, seconds=1.5, folds=len(request.folds))
            assert context.event_count > before
        stored.save(context)
        return stored.id
