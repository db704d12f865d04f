from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import CACHE_RULES
from foldline.codecs import DIALECTS, codec
from foldline.engine.presets import POLICIES
from foldline.errors import InvalidInput
from foldline.messages import Message, Role, Text, Wire
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.replay import (
    NONE,
    HitCount,
    Managed,
    MeasuredSession,
    Pauses,
    Replay,
    Rereads,
    Sent,
    SummaryCall,
    Turn,
    bill_tokens,
    context_for,
    policy_named,
    replay,
)
from foldline.replay.recall import MeasuredMessage, MessageReader
from foldline.replay.run import common_prefix, common_prefix_tokens
from foldline.tokens import ESTIMATE

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "sessions").glob("*.json.gz"))
ANTHROPIC = CACHE_RULES["anthropic"]
FILLER = "The build went on without a word about it. " * 40


def chat(rounds: int, *, size: int = 1) -> Session:
    """A tool loop: system text, a task, then calls with one result each of about 400 tokens by size."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Mend src/app.py."},
    ]
    for turn in range(rounds):
        function = {"name": "read_file", "arguments": f'{{"path": "src/module_{turn}.py"}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": f"Step {turn}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"src/module_{turn}.py\n{FILLER * size}"},
        ]
    return Session(name="loop", dialect="openai-chat", messages=tuple(messages))


def run(session: Session | MeasuredSession, policy: str, window: int = 8_000, **options: Any) -> Replay:
    return replay(session, policy, window=window, rule=ANTHROPIC, **options)


def test_there_is_one_request_for_every_recorded_reply() -> None:
    done = run(chat(5), NONE)
    assert [turn.messages for turn in done.turns] == [2, 4, 6, 8, 10]
    assert [turn.index for turn in done.turns] == [0, 1, 2, 3, 4]


def test_messages_at_the_beginning_of_a_session_are_no_reply() -> None:
    greeting: tuple[dict[str, Any], ...] = (
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "What can I do?"},
    )
    done = run(Session(name="s", dialect="openai-chat", messages=greeting), NONE)
    assert [turn.messages for turn in done.turns] == [2]


def test_a_run_of_items_is_one_reply() -> None:
    items: tuple[dict[str, Any], ...] = (
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "R" * 40},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        {"type": "function_call_output", "call_id": "b", "output": "y"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    )
    done = run(Session(name="s", dialect="openai-responses", messages=items), NONE)
    assert [turn.messages for turn in done.turns] == [1, 6]


def test_no_management_sends_all_and_keeps_all() -> None:
    session = chat(30)
    done = run(session, NONE)
    assert done.tokens == sum(turn.recorded_tokens for turn in done.turns)
    assert done.prefix_breaks == done.folds == done.invalid == done.refused == 0
    assert done.over_budget == sum(turn.tokens > 8_000 for turn in done.turns) > 0
    assert (done.limit_tokens, done.kept_tokens) == (8_000, None)
    assert done.recall.all.kept == done.recall.all.total > 0
    last = done.turns[-1]
    assert last.cached_tokens == done.turns[-2].tokens
    cost = last.cached_tokens * ANTHROPIC.read_ratio + (last.tokens - last.cached_tokens) * ANTHROPIC.write_ratio
    assert last.cost_tokens == pytest.approx(cost)


@cache
def unmanaged_tokens(rounds: int) -> int:
    return run(chat(rounds), NONE).tokens


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_a_loop_valid_and_inside_its_budget(policy: str) -> None:
    done = run(chat(60), policy, max_output_tokens=500)
    assert done.requests == 60
    assert (done.limit_tokens, done.kept_tokens) == (7_500, 6_750)
    assert done.invalid == done.over_budget == done.refused == 0
    assert done.peak_tokens <= 7_500
    assert done.tokens < unmanaged_tokens(60)


def test_the_prefix_breaks_only_where_folds_are() -> None:
    done = run(chat(60), "balanced")
    assert 0 < done.prefix_breaks <= sum(bool(turn.folds) for turn in done.turns)
    assert all(turn.folds for turn in done.turns if turn.prefix_broken)


def test_marks_of_folds_hold_savings_and_reason() -> None:
    done = run(chat(60), "balanced")
    marks = [mark for turn in done.turns for mark in turn.folds]
    assert marks
    for mark in marks:
        assert 0 <= mark.tokens < mark.before_tokens
        assert mark.reducer
        assert mark.reason
        assert mark.start < mark.stop


def test_a_refused_request_is_counted_and_the_session_continues() -> None:
    session = chat(3)
    huge = {"role": "system", "content": "You must know all of this. " * 2_000}
    session = changed(session, messages=(huge, *session.messages[1:]))
    done = run(session, "balanced", window=2_000)
    assert done.refused == done.requests == 3
    assert done.tokens == 0
    assert done.cost_tokens == 0
    assert any(part.name.startswith("system") for part in done.turns[0].refused)
    assert done.recall.all.kept == 0 < done.recall.all.total


def test_an_invalid_request_says_which_rule_it_breaks() -> None:
    orphan = {"role": "tool", "tool_call_id": "gone", "content": "42"}
    messages = ({"role": "user", "content": "hi"}, orphan, {"role": "assistant", "content": "ok"})
    session = Session(name="s", dialect="openai-chat", messages=messages)
    assert run(session, NONE).invalid == 1
    managed = run(session, "balanced")
    assert managed.invalid == 0
    assert managed.turns[0].repairs > 0
    assert "gone" in " ".join(run(session, NONE).turns[0].violations)


def test_system_text_and_tools_count_and_are_part_of_the_prefix() -> None:
    plain = chat(4)
    tool = {"type": "function", "function": {"name": "read_file", "description": "Reads. " * 50, "parameters": {}}}
    dressed = changed(plain, system="Be brief. " * 50, tools=(tool,))
    bare, full = run(plain, NONE), run(dressed, NONE)
    head = full.turns[0].tokens - bare.turns[0].tokens
    assert head > 100
    assert full.recorded_tokens == bare.recorded_tokens + head
    assert [turn.tokens - head for turn in full.turns] == [turn.tokens for turn in bare.turns]
    assert full.turns[1].cached_tokens == bare.turns[1].cached_tokens + head


@pytest.mark.parametrize("dialect", DIALECTS)
def test_plain_talk_replays_in_every_dialect(dialect: str) -> None:
    roles: tuple[Role, ...] = ("user", "assistant")
    said = [Message(role, (Text(f"{role} {n}"),)) for n in range(4) for role in roles]
    talk = tuple(map(codec(dialect).write, said))
    for policy in (NONE, "balanced"):
        done = run(Session(name="s", dialect=dialect, messages=talk), policy)
        assert (done.requests, done.invalid, done.dialect) == (4, 0, dialect)


class Words:
    """A counter of words."""

    name = "words"

    def text(self, text: str, /) -> int:
        return len(text.split())


def test_a_counter_of_ones_own_sizes_everything() -> None:
    done = run(chat(3), NONE, counter=Words())
    assert done.counter == "words"
    assert done.recorded_tokens < run(chat(3), NONE).recorded_tokens


def test_a_recording_serves_several_policies() -> None:
    recording = MeasuredSession(chat(40))
    for policy in (NONE, "balanced", "sliding"):
        shared, alone = run(recording, policy), run(recording.session, policy)
        assert [(t.tokens, t.cached_tokens, t.recall, t.folds) for t in shared.turns] == [
            (t.tokens, t.cached_tokens, t.recall, t.folds) for t in alone.turns
        ]


def test_each_turn_is_reported_as_it_is_done() -> None:
    heard: list[Turn] = []
    done = run(chat(4), "balanced", on_turn=heard.append)
    assert tuple(heard) == done.turns


@pytest.mark.parametrize(("window", "output"), [(0, 0), (-5, 0), (100, 100), (100, -1)])
def test_a_window_without_room_is_refused(window: int, output: int) -> None:
    with pytest.raises(InvalidInput, match="leave no room"):
        run(chat(1), "balanced", window=window, max_output_tokens=output)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"unknown policy 'best'; known are none, .*balanced"):
        policy_named("best")
    with pytest.raises(InvalidInput, match="unknown policy 'best'"):
        run(chat(1), "best")


def test_a_policy_object_goes_by_its_own_name() -> None:
    own = changed(POLICIES["balanced"], name="mine")
    assert replay(chat(2), own, window=8_000, rule=ANTHROPIC).policy == "mine"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_replay_without_a_fault(path: Path) -> None:
    recording = MeasuredSession(read_session(path))
    for policy, window in (("balanced", 2_000), ("economical", 16_000)):
        done = run(recording, policy, window=window)
        assert done.invalid == done.over_budget == 0
        assert all(turn.refused for turn in done.turns if not turn.tokens)
    assert run(recording, NONE).invalid == 0


class Newest:
    """Another system: it sends the task and the last two messages, and calls a model before every second request."""

    def __init__(self) -> None:
        self.messages: list[Wire] = []
        self.given: list[int] = []

    def send(self, new: Sequence[Wire]) -> Sent:
        self.messages += new
        self.given.append(len(new))
        asked = (SummaryCall(1_000, 0, 10),) if len(self.given) % 2 == 0 else ()
        return Sent((*self.messages[:2], *self.messages[2:][-2:]), None, summary_calls=asked, cpu_seconds=0.5)


def test_a_sender_of_ones_own_is_measured_like_a_policy() -> None:
    sender = Newest()
    done = run(chat(6), "newest two", sender=sender)
    assert (done.policy, done.kept_tokens, done.invalid) == ("newest two", None, 0)
    assert sender.given == [2, 2, 2, 2, 2, 2]
    assert [turn.cpu_seconds for turn in done.turns] == [0.5] * 6
    assert [len(turn.summary_calls) for turn in done.turns] == [0, 1, 0, 1, 0, 1]
    plain = replace_all(done, summary_calls=())
    assert done.cost_tokens == pytest.approx(bill_tokens(plain, ANTHROPIC) + 3 * (1_000 + 5 * 10))


def test_a_policy_that_knows_of_pauses_folds_in_them_and_pays_less() -> None:
    [path] = [path for path in EXAMPLES if path.name.startswith("openhands")]
    recording = MeasuredSession(read_session(path))
    told = run(recording, "economical", window=16_000, cold_every=20)
    untold = run(recording, "economical", window=16_000)
    bills = [bill_tokens(done.turns, ANTHROPIC, cold_every=20) for done in (told, untold)]
    assert bills[0] < 0.95 * bills[1]
    assert [bool(turn.folds) for turn in told.turns if turn.index % 20 == 19].count(True) >= 1
    assert [turn.tokens for turn in told.turns[:19]] == [turn.tokens for turn in untold.turns[:19]]


def test_the_pauses_of_a_recording_are_told_and_on_the_bill() -> None:
    [path] = [path for path in EXAMPLES if path.name.startswith("openhands")]
    recording = MeasuredSession(read_session(path))
    regular, listed = Pauses(every=20, seconds=300.0), Pauses(at={20: 300.0, 40: 300.0, 60: 10.0})
    told = run(recording, "economical", window=16_000, cold_every=20)
    paused = run(recording, "economical", window=16_000, pauses=listed)
    assert [listed.before(request) for request in (19, 20, 40, 60)] == [0.0, 300.0, 300.0, 10.0]
    assert [turn.idle_seconds for turn in paused.turns] == [listed.before(turn.index + 1) for turn in paused.turns]
    assert [turn.tokens for turn in paused.turns] == [turn.tokens for turn in told.turns]
    assert bill_tokens(paused.turns, ANTHROPIC) == pytest.approx(bill_tokens(told.turns, ANTHROPIC, cold_every=20))
    both = run(recording, "economical", window=16_000, pauses=Pauses(at={10: 300.0}), cold_every=15)
    assert [turn.index for turn in both.turns if turn.idle_seconds] == [9]
    assert any(turn.folds for turn in both.turns[:10])
    assert [regular.before(request) for request in (19, 20, 40)] == [0.0, 300.0, 300.0]


def replace_all(done: Replay, **changes: Any) -> list[Turn]:
    return [changed(turn, **changes) for turn in done.turns]


class Silent:
    """A sender whose second request is empty."""

    def __init__(self) -> None:
        self.messages: list[Wire] = []
        self.requests = 0

    def send(self, new: Sequence[Wire]) -> Sent:
        self.messages += new
        self.requests += 1
        return Sent((), None) if self.requests == 2 else Sent(tuple(self.messages), None)


def test_a_request_without_messages_is_invalid_and_leaves_the_cache_as_it_was() -> None:
    done = run(chat(4), "silent", sender=Silent())
    assert [bool(turn.violations) for turn in done.turns] == [False, True, False, False]
    assert (done.turns[1].tokens, done.turns[1].cost_tokens) == (0, 0)
    assert done.turns[2].cached_tokens == done.turns[0].tokens


def test_references_are_counted_by_distance() -> None:
    session = chat(40, size=3)
    last = {"role": "assistant", "content": "src/module_1.py, src/module_30.py, src/module_36.py"}
    session = changed(session, messages=(*session.messages, last))
    recall = run(session, NONE).turns[-1].recall
    assert [tally.total for tally in recall.beyond] == [3, 2, 1]
    assert recall.beyond[1] == recall.far
    newest = run(session, "newest two", sender=Newest()).turns[-1].recall
    assert newest.beyond == (HitCount(0, 3), HitCount(0, 2), HitCount(0, 1))


READER = MessageReader(codec("openai-chat"), ESTIMATE)


MESSAGES: list[dict[str, str]] = []  # a reader tells messages apart by identity, so they must live


def said(*texts: str) -> list[MeasuredMessage]:
    wires = [{"role": "user", "content": text} for text in texts]
    MESSAGES.extend(wires)
    return [READER.read(wire) for wire in wires]


@given(st.text(), st.text(), st.text())
def test_the_common_prefix_is_the_longest(shared: str, one: str, other: str) -> None:
    found = common_prefix(shared + one, shared + other)
    assert (shared + one).startswith(found)
    assert (shared + other).startswith(found)
    assert len(found) >= len(shared)
    longer = len(found) + 1
    assert (shared + one)[:longer] != (shared + other)[:longer] or longer > min(len(one), len(other)) + len(shared)


def test_appending_keeps_the_whole_prefix() -> None:
    before = said("a", "b")
    now = [*before, *said("c")]
    assert common_prefix_tokens(before, now, ESTIMATE) == (sum(s.tokens for s in before), True)


def test_equal_messages_need_not_be_the_same_object() -> None:
    before, now = said("a", "b"), said("a", "b")
    assert common_prefix_tokens(before, now, ESTIMATE) == (sum(s.tokens for s in before), True)


def test_the_prefix_ends_inside_the_first_message_that_differs() -> None:
    start = "the same beginning of some length, " * 4
    before, now = said("a", start + "one", "z"), said("a", start + "other", "z")
    tokens, whole = common_prefix_tokens(before, now, ESTIMATE)
    assert tokens == now[0].tokens + ESTIMATE.text(start + "o")
    assert not whole


def test_a_short_common_beginning_of_a_message_counts_for_nothing() -> None:
    before, now = said("a", "short x"), said("a", "short y")
    assert common_prefix_tokens(before, now, ESTIMATE) == (now[0].tokens, False)


def test_a_request_that_lost_its_end_breaks_the_prefix() -> None:
    before, now = said("a", "b"), said("a")
    assert common_prefix_tokens(before, now, ESTIMATE) == (now[0].tokens, False)


# --- near lines and re-reads ------------------------------------------------------------------------------------------


def shown_lines(wires: Sequence[Wire]) -> set[str]:
    """The lines of some requests' messages, worked out without the measures."""
    texts = [str(wire.get("content") or "") for wire in wires]
    calls = [call["function"] for wire in wires for call in wire.get("tool_calls") or ()]
    texts += [f"{call['name']} {call['arguments']}" for call in calls]
    return {line.strip() for text in texts for line in text.splitlines()}


@pytest.mark.parametrize("policy", ["balanced", "sliding"])
def test_near_lines_and_re_reads_are_those_of_a_plain_search(policy: str) -> None:
    [path] = [path for path in EXAMPLES if path.name.startswith("tau-airline-46")]
    recording = MeasuredSession(read_session(path))
    sent: list[Sequence[Wire]] = []
    window = 6_000

    class Watched:
        """Notes what a policy sends."""

        def __init__(self) -> None:
            self.inner = Managed(context_for(recording, policy, window=window, rule=ANTHROPIC))

        def send(self, new: Sequence[Wire]) -> Sent:
            made = self.inner.send(new)
            sent.append(made.messages)
            return made

    done = replay(recording, policy, window=window, rule=ANTHROPIC, sender=Watched())
    assert done.refused == 0
    near = kept = low = high = 0
    for references, wires in zip(recording.references, sent, strict=True):
        lines = shown_lines(wires)
        words = set().union(*(recording.reader.copy().read(wire).facts for wire in wires))
        near += sum(not ref.far for ref in references)
        kept += sum(not ref.far and ref.line in lines for ref in references)
        low += len({ref.source for ref in references if ref.fact not in words})
        high += len({ref.source for ref in references if ref.line not in lines})
    assert done.recall.near_line == HitCount(kept, near)
    assert done.rereads == (low, high)
    assert 0 < low <= high
    assert done.cost_tokens < done.with_rereads_tokens[0] <= done.with_rereads_tokens[1]


def test_no_management_has_nothing_to_read_again() -> None:
    done = run(chat(20), NONE)
    assert done.rereads == (0, 0)
    assert done.with_rereads_tokens == (done.cost_tokens, done.cost_tokens)
    assert done.recall.near_line.kept == done.recall.near_line.total > 0


def asked_about(text: str) -> Session:
    """A question with a long text, and its reply."""
    messages = ({"role": "user", "content": f"{text}\nsrc/app.py"}, {"role": "assistant", "content": "src/app.py"})
    return Session(name="question", dialect="openai-chat", messages=messages)


def test_what_is_read_again_has_at_most_half_of_the_limit() -> None:
    class Empty:
        """Sends one word for whatever there was."""

        def send(self, new: Sequence[Wire]) -> Sent:
            return Sent(({"role": "user", "content": "go on"},), None)

    done = run(asked_about(FILLER * 40), "nothing", sender=Empty())
    assert [turn.rereads for turn in done.turns] == [Rereads((4_000,), (4_000,))]


def test_a_refused_request_lacks_everything() -> None:
    [turn] = run(asked_about("never cut_me_short " * 600), "balanced", window=600).turns
    assert turn.refused
    assert turn.recall.near_line == HitCount(0, 1)
    assert turn.rereads == Rereads((300,), (300,))
