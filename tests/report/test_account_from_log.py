from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.report.stored_sessions import Clock, Reports, example, store_session

from foldline.catalog.models import lookup
from foldline.cli.main import cli
from foldline.engine.context import Context
from foldline.messages import Json
from foldline.replay import NONE, MeasuredSession, replay
from foldline.report.account import AGAIN, BACK, Account, Spend
from foldline.report.account_from_log import account_of_log
from foldline.store.call_log import CallLog
from foldline.store.calls import RecordedCall, read_calls
from foldline.store.folders import FileStore
from foldline.store.recording import Header, decode_log
from foldline.testing import session
from foldline.view.transcript import Event, Fold, Usage

SONNET = "claude-sonnet-4-5"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> FileStore:
    return FileStore(tmp_path / "sessions", clock=clock, fsync=False)


def log_of(store: FileStore, name: str) -> Iterator[tuple[Header, Mapping[str, Json], Event | None]]:
    return decode_log(store.records(name), lambda number: f"record {number}")


def told(store: FileStore, name: str, calls: list[RecordedCall] | None = None, **more: Any) -> Account:
    account = account_of_log(log_of(store, name), calls or [], name=name, **more)
    assert account is not None
    return account


def usages(store: FileStore, name: str) -> list[Usage]:
    return [event for event in store.read(name).events if isinstance(event, Usage)]


def test_sent_sizes_are_the_reported_ones(store: FileStore, clock: Clock) -> None:
    name = store_session(store, example("devai"), clock)
    account, reported = told(store, name), usages(store, name)
    assert account.origin == "reported"
    assert [turn.tokens for turn in account.sent.turns] == [usage.input_tokens for usage in reported]
    model = lookup(SONNET)
    spent = [
        model.usd(usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.written_tokens)
        for usage in reported
    ]
    assert account.managed.usd == pytest.approx(sum(usd or 0 for usd in spent))
    assert not account.managed.estimated


def test_no_management_is_the_replay_of_it_as_the_provider_counts(store: FileStore, clock: Clock) -> None:
    recorded = example("devai")
    name = store_session(store, recorded, clock, reports=Reports(ratio=1.25), system="")
    unmanaged = replay(MeasuredSession(recorded), NONE, window=16_000, rule=lookup(SONNET).cache)
    account = told(store, name)
    sizes = [turn.recorded_tokens for turn in account.sent.turns]
    assert sizes == pytest.approx([turn.tokens * 1.25 for turn in unmanaged.turns], rel=0.01)
    assert account.unmanaged.usd is not None
    assert account.unmanaged.estimated


def test_requests_without_management_include_system_text_and_tools(store: FileStore, clock: Clock) -> None:
    long = "You are terse. " * 400
    names = [
        store_session(store, example("tau"), clock, system=system, reports=Reports(ratio=1)) for system in ("", long)
    ]
    short, with_text = (told(store, name).sent.turns[-1].recorded_tokens for name in names)
    assert with_text - short == pytest.approx(Context(system=long, window=8_000).view.base_tokens, abs=10)


def test_folds_come_before_the_request_that_they_were_made_for(store: FileStore, clock: Clock) -> None:
    name = store_session(store, example("devai"), clock)
    account = told(store, name)
    kept = [event for event in store.read(name).events if isinstance(event, Fold)]
    assert [(made.mark.start, made.mark.reason) for made in account.folds] == [(f.start, f.reason) for f in kept]
    for made in account.folds:
        assert made.request is not None
        assert made.mark in account.sent.turns[made.request - 1].folds


def test_hidden_messages_are_those_that_the_context_explains(store: FileStore, clock: Clock) -> None:
    name = store_session(store, example("devai"), clock, window=8_000)
    account, recording = told(store, name), store.read(name)
    context = recording.replay()
    seqs = range(recording.tally.messages)
    folded = [folds for seq in seqs if (folds := context.explain(seq))]
    assert account.hidden_messages and account.shortened_messages
    assert account.hidden_messages == sum(any(not fold.form for fold in folds) for folds in folded)
    assert account.shortened_messages == sum(all(fold.form for fold in folds) for folds in folded)
    archive = store.archive(name)
    assert all(one.archive in archive for one in account.hidden)


def test_the_named_command_shows_hidden_messages(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "with blank"
    store = FileStore(root, clock=clock, fsync=False)
    name = store_session(store, example("devai"), clock)
    account = told(store, name, options=f" --store {shlex.quote(str(root))}")
    for command in (account.hidden[0].read, account.read_one.replace(" N ", f" {account.hidden[0].mark.start} ")):
        program, *arguments = shlex.split(command)
        result = CliRunner().invoke(cli, arguments)
        assert program == "foldline"
        assert result.exit_code == 0, result.output
        assert f"{account.hidden[0].mark.start}" in result.stdout


def test_the_record_of_calls_is_the_bill_with_summaries_and_without_failures(
    tmp_path: Path, store: FileStore, clock: Clock
) -> None:
    path = tmp_path / "calls.sqlite"
    with CallLog(path, clock=clock) as log:
        name = store_session(store, example("tau"), clock, calls=log)
        body: dict[str, Json] = {"model": SONNET, "messages": []}
        log.record(name, body, Usage(input_tokens=1_000_000), seconds=1, purpose="summary")
        log.record(name, body, Usage(input_tokens=5_000_000, reported=False), seconds=1, error="529: overloaded")
    alone, with_calls = told(store, name), told(store, name, read_calls(path))
    assert alone.managed.usd is not None
    assert with_calls.managed.usd == pytest.approx(alone.managed.usd + 3)
    assert with_calls.managed.calls == alone.managed.calls + 1
    assert "1 call for summaries and the like are in the bill." in with_calls.more
    assert "1 call failed; they are taken as not billed." in with_calls.more


def test_a_record_of_calls_that_was_pruned_makes_no_cheaper_bill(
    tmp_path: Path, store: FileStore, clock: Clock
) -> None:
    path = tmp_path / "calls.sqlite"
    with CallLog(path, clock=clock) as log:
        name = store_session(store, example("tau"), clock, calls=log)
        log.prune(keep_calls=3)
    assert len(read_calls(path)) == 3
    assert told(store, name, read_calls(path)).managed == told(store, name).managed


def test_replies_that_only_the_record_of_calls_has_are_billed(tmp_path: Path, store: FileStore, clock: Clock) -> None:
    path = tmp_path / "calls.sqlite"
    with CallLog(path, clock=clock) as log:
        name = store_session(store, example("tau"), clock, calls=log)
        log.record(name, {"model": SONNET, "messages": []}, Usage(input_tokens=2_000_000), seconds=1)
    alone, with_calls = told(store, name).managed, told(store, name, read_calls(path)).managed
    assert with_calls.calls == alone.calls + 1
    assert with_calls.input_tokens == alone.input_tokens + 2_000_000


def test_counts_of_our_own_say_so(store: FileStore, clock: Clock) -> None:
    account = told(store, store_session(store, example("tau"), clock, reports=Reports(silent=True)))
    assert account.origin == "counted"
    assert account.managed.estimated


def test_where_nothing_was_cached_no_cache_is_assumed(store: FileStore, clock: Clock) -> None:
    account = told(store, store_session(store, example("tau"), clock, reports=Reports(caching=False)))
    assert account.unmanaged.paid_tokens == account.unmanaged.input_tokens
    assert any("none is assumed" in words for words in account.more)


def test_a_request_after_the_cache_has_died_is_read_in_full(store: FileStore, clock: Clock) -> None:
    class Forgetting(Reports):
        def of(self, tokens: int, body: dict[str, object], answer_tokens: int) -> Usage:
            found = super().of(tokens, body, answer_tokens)
            return found if tokens < 3_000 else Usage(input_tokens=found.input_tokens, output_tokens=answer_tokens)

    quick, slow = (
        told(store, store_session(store, example("tau"), clock, seconds=seconds, reports=Forgetting()))
        for seconds in (1, 4_000)
    )
    late = [due.cached_tokens for due in slow.sent.turns if due.cached_tokens == 0]
    assert 1 < len(late) < slow.sent.requests
    assert slow.unmanaged.paid_tokens > 1.5 * quick.unmanaged.paid_tokens


def test_a_cache_of_an_hour_has_that_lifetime_and_price(store: FileStore, clock: Clock) -> None:
    class ForAnHour(Reports):
        def of(self, tokens: int, body: dict[str, object], answer_tokens: int) -> Usage:
            found = super().of(tokens, body, answer_tokens)
            return replace(found, written_long_tokens=found.written_tokens, cached_tokens=0)

    class Plain(Reports):
        def of(self, tokens: int, body: dict[str, object], answer_tokens: int) -> Usage:
            return replace(super().of(tokens, body, answer_tokens), cached_tokens=0)

    def unmanaged(reports: Reports, seconds: float) -> Spend:
        return told(store, store_session(store, example("tau"), clock, seconds=seconds, reports=reports)).unmanaged

    hour, short = unmanaged(ForAnHour(), 1), unmanaged(Plain(), 1)
    assert unmanaged(ForAnHour(), 1_000).cached_tokens == hour.cached_tokens == short.cached_tokens > 0
    assert unmanaged(ForAnHour(), 4_000).cached_tokens == unmanaged(Plain(), 1_000).cached_tokens == 0
    assert hour.paid_tokens > 1.1 * short.paid_tokens, "its writes cost 2, not 1.25"


def test_another_model_prices_all_of_it(store: FileStore, clock: Clock) -> None:
    name = store_session(store, example("tau"), clock, model="my-own-7b")
    assert told(store, name).managed.usd is None
    priced = told(store, name, model=SONNET)
    assert priced.model == SONNET
    assert priced.managed.usd is not None
    assert priced.unmanaged.usd is not None


def test_an_undone_fold_is_marked(store: FileStore, clock: Clock) -> None:
    name = store_session(store, example("devai"), clock)
    before = told(store, name)
    with store.open(name) as stored:
        context = store.read(name).replay(archive=stored.archive)
        written = context.event_count
        taken = context.undo()
        stored.append(context.events_after(written))
    after = told(store, name)
    assert sum(made.since == BACK for made in after.folds) == len(taken)
    assert {made.since for made in before.folds} <= {"", AGAIN}
    assert after.hidden_tokens < before.hidden_tokens


def test_messages_of_a_branch_that_was_left_are_sent_no_longer(store: FileStore, clock: Clock) -> None:
    first = list(session(12, result="words of a result\n" * 200))
    other = [*first[:7], {"role": "user", "content": "Another way, please."}, {"role": "assistant", "content": "Yes."}]
    context, reports = Context(window=8_000), Reports(ratio=1)
    with store.create(dialect="openai-chat", model=SONNET, window=8_000) as stored:
        for wires in (*(first[:stop] for stop in range(1, len(first) + 1, 2)), other[:-1], other):
            context.sync(wires)
            if wires[-1]["role"] != "assistant":
                context.prepare()
                context.observe(reports.of(context.view.estimated_tokens, {"messages": list(wires)}, 5))
        stored.append(context.events)
    account = told(store, stored.id)
    last = account.sent.turns[-1]
    assert last.messages == 8
    assert last.recorded_tokens < max(turn.recorded_tokens for turn in account.sent.turns)
    assert all(one.mark.stop <= 7 for one in account.hidden)


def test_a_conversation_of_the_proxy_has_its_replies_with_the_next_request(store: FileStore, clock: Clock) -> None:
    """There usage precedes the reply, which the client sends back with its next request."""
    recorded = example("tau")
    recording = MeasuredSession(recorded)
    with store.create(dialect=recorded.dialect, model=SONNET, window=16_000) as stored:
        context, done = Context(window=16_000, dialect=recorded.dialect), 0
        for reply in recording.replies:
            context.extend(recorded.messages[done : reply.start])
            done = reply.start
            context.prepare()
            context.observe(Reports(ratio=1).of(context.view.estimated_tokens, {"messages": []}, 9))
        stored.append(context.events)
    unmanaged = replay(recording, NONE, window=16_000, rule=lookup(SONNET).cache)
    sizes = [turn.recorded_tokens for turn in told(store, stored.id).sent.turns]
    assert sizes == pytest.approx([turn.tokens for turn in unmanaged.turns], rel=0.01)


def test_a_session_without_a_report_is_none(store: FileStore, clock: Clock) -> None:
    with store.create(dialect="openai-chat") as stored:
        context = Context(window=8_000)
        context.append({"role": "user", "content": "Hello?"})
        stored.append(context.events)
    assert account_of_log(log_of(store, stored.id), [], name=stored.id) is None
