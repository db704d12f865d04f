"""Conversations found without ids, folded and sent on: in every dialect, concurrently, after edits and repeats."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.clients import (
    EXAMPLES,
    Client,
    Wire,
    array,
    block_text,
    body_of,
    conversations,
    example,
    goes_on_from,
    judged,
    plan_request,
    run,
    sent_messages,
    steps,
    turns,
    under,
)
from tests.property.sessions import DIALECTS, legal, sessions

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.incoming_request import without_markers
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.request_body import FORMS, read_body
from foldline.conversations.service import Conversations
from foldline.engine.context import Completion
from foldline.engine.one_shot import check, count
from foldline.engine.presets import policy
from foldline.errors import DoesNotFit, InvalidInput
from foldline.failures.failure import Failure
from foldline.store.addresses import open_store
from foldline.view.transcript import Usage

MARK = {"type": "ephemeral"}


# --- one conversation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "path"), list(enumerate(EXAMPLES)), ids=lambda value: getattr(value, "stem", ""))
def test_a_recorded_session_stays_valid_in_its_window_and_its_own_text(number: int, path: Path) -> None:
    dialect = DIALECTS[number % 3]
    system, wires = example(path, dialect)
    wires = wires[:40]
    window = (8_000, 16_000, 4_000)[number // 3]

    async def work(service: Conversations) -> None:
        fields = {"system": system} if system else {}
        client = Client(dialect, service, window, fields, legal=check(wires, dialect=dialect, system=system) == [])
        try:
            await client.grow(wires, steps(wires))
        except DoesNotFit as no:
            assert no.floor_tokens > no.limit
        assert len(service) == 1

    run(work)


@pytest.mark.parametrize(
    ("dialect", "window_tokens"),
    [*((dialect, 2_000) for dialect in DIALECTS), ("openai-chat", 16_000)],
)
def test_the_bytes_before_the_newest_turn_stay_the_same_between_folds(dialect: str, window_tokens: int) -> None:
    wires = turns(dialect, 30 if window_tokens == 2_000 else 24, words=max(60, window_tokens // 35))

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, window_tokens)
        holds = await client.grow(wires, steps(wires))
        folded = [hold for hold in holds if hold.plan.new_folds]
        assert len(holds) == len(wires) // 2 and holds[-1].plan.folds
        assert 1 < len(folded) < len(holds) / 4, "folds are rare"
        assert not holds[0].plan.changed and holds[0].plan.data == holds[0].plan.body.raw
        assert {hold.session for hold in holds} == {holds[0].session}
        assert all(hold.plan.given_tokens >= hold.plan.tokens for hold in holds)

    run(work)


@given(st.sampled_from(DIALECTS).flatmap(lambda d: st.tuples(st.just(d), legal(d, 8))), st.integers(400, 4_000))
@settings(max_examples=25)
def test_random_sessions_keep_the_promises(session: tuple[str, list[Wire]], window_tokens: int) -> None:
    dialect, wires = session

    async def work(service: Conversations) -> None:
        client, before = Client(dialect, service, window_tokens), None
        for stop in steps(wires):
            try:
                hold = await client.send(wires[:stop])
            except DoesNotFit as no:
                assert no.floor_tokens > no.limit and no.parts
                before = None
            else:
                goes_on_from(before, hold)
                before = hold
        assert len(service) == 1

    run(work)


@given(sessions(), st.integers(300, 4_000))
@settings(max_examples=25)
def test_broken_sessions_are_passed_on_or_sent_valid(session: tuple[str, list[Wire], bool], window: int) -> None:
    dialect, wires, _ = session

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, window, legal=False)
        for stop in range(1, len(wires) + 1):
            try:
                await client.send(wires[:stop])
            except DoesNotFit as no:
                assert no.floor_tokens > no.limit and no.parts
            except InvalidInput:
                assert not service or len(service) == 1

    run(work)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_system_text_and_tools_may_change_with_every_request(dialect: str) -> None:
    wires = turns(dialect, 16)
    name = {"anthropic": "system", "openai-responses": "instructions"}[dialect]

    async def work(service: Conversations) -> None:
        client, before = Client(dialect, service, 3_000), None
        for number, stop in enumerate(steps(wires)):
            schema = {"type": "object", "properties": {f"p{number % 5}": {"type": "string"}}}
            kind = {"input_schema": schema} if dialect == "anthropic" else {"type": "function", "parameters": schema}
            tools = [{"name": f"look_{at}", **kind} for at in range(1 + number % 3)]
            text = f"It is {number} o'clock."
            beside: Any = [{"type": "text", "text": text}] if dialect == "anthropic" and number % 2 else text
            hold = await client.send(wires[:stop], **{name: beside, "tools": tools})
            goes_on_from(before, hold)
            sent = json.loads(hold.plan.data)
            assert sent[name] == beside and sent["tools"] == tools
            before = hold
        assert before is not None and before.plan.folds
        assert len({hold.session for hold in client.holds[1:]}) == 1

    run(work)


def test_larger_tools_make_it_fold_more() -> None:
    wires = turns("openai-chat", 5)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 4_000)
        small = await client.send(wires[: steps(wires)[-1]])
        function = {"name": "look", "description": "Looks. " * 900, "parameters": {"type": "object"}}
        large = await client.send(wires[: steps(wires)[-1]], tools=[{"type": "function", "function": function}])
        assert not small.plan.new_folds and large.plan.new_folds

    run(work)


def marked(wires: Sequence[Wire], places: Sequence[int]) -> list[Wire]:
    """The same messages with cache markers on the last blocks of some, as clients set them anew for each request."""
    out = []
    for at, wire in enumerate(wires):
        content = wire["content"]
        if at in places:
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            content = [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]
        out.append({**wire, "content": content})
    return out


def markers(data: bytes) -> int:
    return len(re.findall(r'"cache_control": ?\{', data.decode()))


@pytest.mark.parametrize("where", ["newest", "last two", "old ones"])
def test_markers_that_move_change_no_conversation_and_are_never_more_than_four(where: str) -> None:
    wires = turns("anthropic", 26 if where == "newest" else 18)

    async def work(service: Conversations) -> None:
        client = Client("anthropic", service, 3_000)
        system = [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
        tools = [{"name": "look", "input_schema": {"type": "object"}, "cache_control": MARK}]
        before: list[Wire] = []
        for number, stop in enumerate(steps(wires)):
            newest = stop - 1
            places = {"newest": [newest], "last two": [newest, newest - 2], "old ones": [0, 1]}[where]
            hold = await client.send(marked(wires[:stop], places), system=system, tools=tools)
            shown: Any = without_markers(sent_messages(hold.plan.data, "anthropic"))
            assert markers(hold.plan.data) <= 4
            assert markers(array(hold.plan.data, "anthropic").encode()) >= 1, "nothing would be cached any more"
            if number and not hold.plan.new_folds:
                assert block_text(shown[: len(before)]) == block_text(before)
            before = shown
        assert len(service) == 1 and client.holds[-1].plan.folds
        assert len({hold.session for hold in client.holds}) == 1

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_white_space_of_old_messages_may_change(dialect: str) -> None:
    wires = turns(dialect, 16)

    def respelled(value: Any, number: int) -> Any:
        if isinstance(value, dict):
            made = {name: respelled(inner, number) for name, inner in value.items()}
            return dict(reversed(made.items())) if number % 3 == 0 else made
        if isinstance(value, list):
            return [respelled(inner, number) for inner in value]
        return value.replace("the build", "the" + " " * (1 + number % 2) + "build") if isinstance(value, str) else value

    async def work(service: Conversations) -> None:
        client, before = Client(dialect, service, 3_000), "[]"
        for number, stop in enumerate(steps(wires)):
            spelled = [respelled(wire, number) for wire in wires[:stop]]
            hold = await client.send(spelled)
            folded = json.dumps([wire for wire in sent_messages(hold.plan.data, dialect) if wire not in spelled])
            if not hold.plan.new_folds:
                assert folded == before, "what was folded is said in other words"
            before = folded
        assert len({hold.session for hold in client.holds}) == 1 and client.holds[-1].plan.folds

    run(work)


@pytest.mark.parametrize("indent", [None, 1])
def test_any_way_to_write_json_is_kept(indent: int | None) -> None:
    wires = turns("openai-chat", 16)

    def write(value: Any) -> str:
        return json.dumps(value, indent=indent, separators=(" ,", " : "))

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 3_000, write=write)
        await client.grow(wires, steps(wires))
        assert client.holds[-1].plan.folds

    run(work)


def test_a_text_for_one_message_is_gone_on_with() -> None:
    async def work(service: Conversations) -> None:
        client = Client("openai-responses", service, 4_000)
        first = await plan_request(
            service, read_body(FORMS["openai-responses"], b'{"model": "some-model", "input": "Mend it."}'), 4_000
        )
        wires = [{"role": "user", "content": "Mend it."}, *turns("openai-responses", 1)[1:]]
        second = await client.send(wires)
        assert first.plan.data == first.plan.body.raw
        assert second.session == first.session

    run(work)


# --- several conversations --------------------------------------------------------------------------------------------


def with_first(dialect: str, count: int, mark: str, shared: int) -> list[Wire]:
    """A conversation that has its first messages in common with others."""
    return [*turns(dialect, 3)[:shared], *turns(dialect, count, mark=mark)[shared:]]


def names_in(data: bytes) -> set[str]:
    return set(re.findall(r"\[([a-z])\d+\]", data.decode()))


@pytest.mark.parametrize(
    ("dialect", "shared"),
    [("openai-chat", 1), ("openai-responses", 4), ("anthropic", 5), ("openai-chat", 8), ("anthropic", 1)],
)
def test_conversations_with_one_beginning_never_mix(dialect: str, shared: int) -> None:
    by_name = {mark: with_first(dialect, 9, mark, shared) for mark in "abc"}

    async def work(service: Conversations) -> None:
        clients = {mark: Client(dialect, service, 2_000) for mark in by_name}
        before: dict[str, PlannedRequest] = {}
        order = Random(shared)
        left = {mark: steps(wires) for mark, wires in by_name.items()}
        while any(left.values()):
            mark = order.choice([mark for mark in left if left[mark]])
            hold = await clients[mark].send(by_name[mark][: left[mark].pop(0)])
            assert names_in(hold.plan.data) <= {mark}, "another's words"
            if mark in before and before[mark].session == hold.session:
                goes_on_from(before[mark], hold)
            before[mark] = hold
        assert len({hold.session for hold in before.values()}) == 3
        assert all(hold.plan.folds for hold in before.values())

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_conversations_side_by_side_never_mix(dialect: str) -> None:
    marks = "abcd"

    async def work(service: Conversations) -> None:
        async def talk(mark: str) -> None:
            wires = with_first(dialect, 10, mark, (1, 4, 5, 8)[marks.index(mark)])
            client = Client(dialect, service, 2_500)
            for stop in steps(wires):
                hold = await client.send(wires[:stop])
                assert names_in(hold.plan.data) <= {mark}
                await asyncio.sleep(0)

        await asyncio.gather(*map(talk, marks))

    run(work)


def test_two_that_say_and_hear_the_same_are_one_until_they_part() -> None:
    common, one, other = turns("openai-chat", 12), turns("openai-chat", 3, mark="a"), turns("openai-chat", 3, mark="b")

    async def work(service: Conversations) -> None:
        first, second = (Client("openai-chat", service, 2_500) for _ in range(2))
        for stop in steps(common):
            a, b = await first.send(common[:stop]), await second.send(common[:stop])
            assert a.plan.data == b.plan.data and a.session == b.session
            assert not b.plan.new_folds
        for at in steps(one):
            a, b = await first.send([*common, *one[:at]]), await second.send([*common, *other[:at]])
            assert a.session != b.session
            assert names_in(a.plan.data) == {"a"} and names_in(b.plan.data) == {"b"}
        assert len(service) == 2

    run(work)


def test_requests_that_are_the_same_and_come_together_get_the_same() -> None:
    wires = turns("anthropic", 14)

    async def work(service: Conversations) -> None:
        for stop in steps(wires):
            body = body_of("anthropic", wires[:stop], max_tokens=200)
            holds = await asyncio.gather(*(plan_request(service, body, 2_500) for _ in range(4)))
            assert len({hold.plan.data for hold in holds}) == 1
            assert sum(bool(hold.plan.new_folds) for hold in holds) <= 1
        assert len(service) == 1 and holds[0].plan.folds

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_edit_forks_and_both_ways_go_on(dialect: str) -> None:
    wires, edited = turns(dialect, 16, mark="a"), turns(dialect, 16, mark="b")

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, 2_500)
        first = (await client.grow(wires, steps(wires)))[-1]
        for keep in (4, 41, 60):
            # the edit is a new user message or a new answer, after `keep` messages
            way = [*wires[:keep], *edited[keep:]]
            holds = await client.grow(way, [stop for stop in steps(way) if stop > keep])
            assert holds[0].session != first.session
            assert not names_in(json.dumps(way[keep:]).encode()) - names_in(holds[-1].plan.data)
        again = await client.send([*wires, turns(dialect, 1, mark="z")[0]])
        assert again.session == first.session
        assert "b" not in names_in(again.plan.data)

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rollback_shows_what_a_fresh_conversation_must_show(dialect: str) -> None:
    """The newest words of the user are shown, and only existing messages are folded."""
    wires = turns(dialect, 13)

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, 2_500)
        await client.grow(wires, steps(wires))
        for stop in reversed(steps(wires)):
            hold = await client.send(wires[:stop])
            newest = next(w for w in reversed(wires[:stop]) if "Turn " in json.dumps(w))
            words = re.findall(r"Turn \[\d+\]", json.dumps(newest))[0]
            assert words in hold.plan.data.decode(), f"{words} is hidden after a rollback to {stop} messages"

    run(work)


def test_the_name_that_a_client_gives_wins() -> None:
    wires = turns("openai-chat", 3)

    async def work(service: Conversations) -> None:
        ann, bob, none = (Client("openai-chat", service, 8_000, name=name) for name in ("ann", "bob", ""))
        found: dict[str, set[str]] = {"ann": set(), "bob": set(), "": set()}
        for stop in steps(wires):
            for client in (ann, bob, none):
                found[client.name].add((await client.send(wires[:stop])).session)
        assert len(found["ann"]) == len(found["bob"]) == 1
        assert not found["ann"] & found["bob"] | found[""] & (found["ann"] | found["bob"])

    run(work)


def test_a_named_conversation_may_begin_anew() -> None:
    async def work(service: Conversations) -> None:
        ann = Client("openai-chat", service, 8_000, name="ann")
        first = await ann.send(turns("openai-chat", 2, mark="a")[:5])
        second = await ann.send(turns("openai-chat", 2, mark="b")[:5])
        third = await ann.send(turns("openai-chat", 2, mark="b")[:7])
        assert first.session != second.session == third.session

    run(work)


def test_one_beginning_with_other_tools_is_another_client() -> None:
    wires = turns("anthropic", 2)

    async def work(service: Conversations) -> None:
        one = Client("anthropic", service, 8_000, {"system": "You are a cook."})
        other = Client("anthropic", service, 8_000, {"system": "You are a smith."})
        first, second = await one.send(wires[:1]), await other.send(wires[:1])
        assert first.session != second.session
        assert (await one.send(wires[:3])).session == first.session

    run(work)


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    async def work(service: Conversations) -> None:
        for number in range(60):
            client = Client("openai-chat", service, 8_000)
            await client.send(turns("openai-chat", 2, mark=f"{number}x")[:5])
            assert service.weight_bytes <= 500_000
        assert 5 < len(service) < 25

    run(work, max_bytes=500_000)


def test_a_conversation_that_had_to_go_comes_back_as_a_new_one() -> None:
    wires = turns("openai-chat", 12)

    async def work(service: Conversations) -> None:
        one, other = (Client("openai-chat", service, 2_500) for _ in range(2))
        for stop in steps(wires):
            await one.send(wires[:stop])
            await other.send(turns("openai-chat", 2, mark="o")[:5])
        assert len(service) == 1

    run(work, max_bytes=1)


# --- side by side -----------------------------------------------------------------------------------------------------


def test_requests_of_one_conversation_are_worked_on_one_at_a_time() -> None:
    """Also when the first one's client goes away while a summary is being written."""
    wires = turns("openai-chat", 24)
    asked, let_go = threading.Event(), threading.Event()
    at_once: list[int] = []
    busy = 0

    def summarize(messages: Any, max_output_tokens: int) -> Completion:
        nonlocal busy
        busy += 1
        at_once.append(busy)
        asked.set()
        let_go.wait(120)
        busy -= 1
        return Completion("Goal: go on. All was looked at.")

    async def work(service: Conversations) -> None:
        stop = steps(wires)[-1]
        body = body_of("openai-chat", wires[:stop])
        first = asyncio.create_task(plan_request(service, body, 2_500, summarize=summarize))
        await asyncio.to_thread(asked.wait, 10)
        for _ in range(3):
            first.cancel()
            await asyncio.sleep(0.001)
        second = asyncio.create_task(plan_request(service, body, 2_500, summarize=summarize))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not second.done()
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        hold = await second
        judged(hold)
        assert max(at_once) == 1, "two threads worked on one conversation"

    run(work)


def test_others_go_on_while_one_waits_for_a_summary() -> None:
    asked, let_go = threading.Event(), threading.Event()

    def summarize(messages: Any, max_output_tokens: int) -> Completion:
        asked.set()
        let_go.wait(120)
        return Completion("Goal: go on. All was looked at.")

    async def work(service: Conversations) -> None:
        long = body_of("openai-chat", turns("openai-chat", 24, mark="a"))
        slow = asyncio.create_task(plan_request(service, long, 2_500, summarize=summarize))
        await asyncio.to_thread(asked.wait, 10)
        try:
            quick = await plan_request(service, body_of("openai-chat", turns("openai-chat", 24, mark="b")), 2_500)
        finally:
            let_go.set()
        judged(quick)
        hold = await slow
        judged(hold)
        assert "All was looked at" in hold.plan.data.decode()

    run(work)


# --- what the upstream says -------------------------------------------------------------------------------------------


async def until_it_raises(work: Callable[[], Awaitable[None]]) -> None:
    for _ in range(60):
        await work()


def overflow(limit: int | None = None, requested: int | None = None) -> Failure:
    return Failure("prompt_overflow", limit=limit, limit_of="window", requested=requested)


@pytest.mark.parametrize("kind", ["prompt_overflow", "output_overflow", "bytes_overflow", "request_too_large_for_rate"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_recovery_sends_less_and_valid_until_nothing_is_left(dialect: str, kind: Any) -> None:
    wires = turns(dialect, 16)
    cap = {"openai-responses": "max_output_tokens"}.get(dialect, "max_tokens")

    async def work(service: Conversations) -> None:
        within = dialect == "gemini"
        given: dict[str, Any] = {"generationConfig": {"maxOutputTokens": 3_000}} if within else {cap: 3_000}
        client = Client(dialect, service, 16_000, given)
        hold = await client.send(wires[: steps(wires)[-1]])
        assert not hold.plan.changed
        sizes = [(hold.plan.tokens, 3_000)]

        async def again() -> None:
            assert await service.recover(hold, Failure(kind))
            judged(hold)
            sent = json.loads(hold.plan.data)
            sizes.append((hold.plan.tokens, sent["generationConfig"]["maxOutputTokens"] if within else sent[cap]))
            (old_tokens, old_cap), (tokens, new_cap) = sizes[-2:]
            assert tokens <= old_tokens and new_cap <= old_cap and (tokens, new_cap) != (old_tokens, old_cap)

        with pytest.raises(DoesNotFit):
            await until_it_raises(again)
        assert len(sizes) > 2

    run(work)


def test_a_window_that_a_refusal_named_holds_for_all_that_come() -> None:
    async def work(service: Conversations) -> None:
        wires = turns("openai-chat", 20)
        client = Client("openai-chat", service, 100_000)
        hold = await client.send(wires[: steps(wires)[-1]])
        assert await service.recover(hold, overflow(limit=2_000, requested=4_000))
        judged(hold)
        assert hold.plan.tokens < 2_000 and hold.plan.limits.window_tokens == 2_000
        other = await Client("openai-chat", service, 100_000).send(turns("openai-chat", 20, mark="o"))
        assert other.plan.tokens < 2_000
        third = await Client("openai-chat", service, 100_000).send(turns("openai-chat", 20, mark="p"), model="another")
        assert not third.plan.changed

    run(work)


def test_a_window_that_a_refusal_named_holds_for_what_it_was_learned_as() -> None:
    learned: dict[tuple[str, str, bytes], int] = {}

    async def work() -> None:
        service = conversations(under_=under(learned=learned, endpoint="http://there"))
        bodies = [body_of("openai-chat", turns("openai-chat", 20, mark=mark)[:-1]) for mark in "abc"]
        hold = await plan_request(service, bodies[0], 100_000, learned_as="some-model (told 100000)")
        assert await service.recover(hold, overflow(limit=2_000, requested=4_000))
        same = await plan_request(service, bodies[1], 100_000, learned_as="some-model (told 100000)")
        other = await plan_request(service, bodies[2], 90_000, learned_as="some-model (told 90000)")
        assert (same.plan.limits.window_tokens, other.plan.limits.window_tokens) == (2_000, 90_000)
        assert not other.plan.changed
        await service.aclose()

    asyncio.run(work())
    assert learned == {("http://there", "some-model (told 100000)", b""): 2_000}


def test_an_output_cap_that_a_refusal_named_holds_for_all_that_come() -> None:
    async def work(service: Conversations) -> None:
        client = Client("anthropic", service, 100_000, {"max_tokens": 8_000})
        hold = await client.send(turns("anthropic", 2)[:5])
        assert await service.recover(hold, Failure("output_overflow", limit=4_096, limit_of="output"))
        judged(hold)
        assert json.loads(hold.plan.data)["max_tokens"] == 4_096
        other = await client.send(turns("anthropic", 2, mark="o")[:5])
        assert json.loads(other.plan.data)["max_tokens"] == 4_096

    run(work)


def test_what_no_smaller_request_cures_changes_nothing() -> None:
    async def work(service: Conversations) -> None:
        hold = await Client("openai-chat", service, 8_000).send(turns("openai-chat", 2)[:5])
        before = hold.plan
        assert not await service.recover(hold, Failure("rate"))
        assert hold.plan is before

    run(work)


def test_a_refused_request_that_is_no_more_the_newest_is_a_branch() -> None:
    wires = turns("openai-chat", 20)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 16_000)
        at = steps(wires)
        old = await client.send(wires[: at[-3]])
        new = await client.send(wires[: at[-1]])
        assert await service.recover(old, overflow())
        judged(old)
        assert old.plan.tokens < new.plan.tokens
        newest = await client.send(wires)
        assert newest.session == new.session and not newest.plan.folds, "the other one was not refused"

    run(work)


def test_a_late_report_for_an_older_request_is_not_believed() -> None:
    wires = turns("openai-chat", 6)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 16_000)
        old = await client.send(wires[:5])
        new = await client.send(wires[:9])
        old.observe(Usage(input_tokens=100_000, output_tokens=5))
        same = await client.send(wires[:9])
        assert same.plan.tokens == new.plan.tokens
        same.observe(Usage(input_tokens=3 * same.plan.tokens, output_tokens=5))
        assert (await client.send(wires[:13])).plan.tokens > 2 * new.plan.tokens

    run(work)


def test_a_report_is_not_taken_while_the_next_request_is_worked_on() -> None:
    wires = turns("openai-chat", 6)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 16_000)
        hold = await client.send(wires[:9])
        count = hold.cached.conversation.context.event_count
        async with hold.cached.lock:
            hold.observe(Usage(input_tokens=3 * hold.plan.tokens, output_tokens=5))
        assert hold.cached.conversation.context.event_count == count

    run(work)


def test_a_prompt_that_the_upstream_cut_is_told_once_for_the_newest() -> None:
    wires = turns("openai-chat", 20)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 16_000)
        hold = await client.send(wires)
        assert hold.plan.tokens > 3_000
        assert hold.observe(Usage(input_tokens=1_000, output_tokens=5))
        again = await client.send(wires)
        assert again.observe(Usage(input_tokens=again.plan.tokens, output_tokens=5)) == ""
        full = Usage(input_tokens=again.plan.tokens, output_tokens=5)
        assert "window is full" in again.observe(full, "model_context_window_exceeded")

    run(work)


# --- how --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_count_shows_what_stands_and_folds_nothing(dialect: str) -> None:
    wires = turns(dialect, 24)
    body, more = body_of(dialect, wires), body_of(dialect, [*wires, {"role": "user", "content": "And?"}])

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, 2_500)
        assert await service.current_body(body) == body.raw
        folded = await client.send(wires)
        assert array(await service.current_body(body), dialect) == array(folded.plan.data, dialect)
        shown = sent_messages(await service.current_body(more), dialect)
        assert shown == [*sent_messages(folded.plan.data, dialect), {"role": "user", "content": "And?"}]
        assert len(service) == 1

    run(work)


def test_a_count_while_a_request_is_under_way_keeps_its_recovery() -> None:
    wires = turns("openai-chat", 40)
    at, then = steps(wires)[30:32]
    refused = Failure("prompt_overflow", limit=2_500, limit_of="window", requested=4_000)

    async def work(service: Conversations) -> None:
        hold = await plan_request(service, body_of("openai-chat", wires[:at]), 60_000)
        await service.current_body(body_of("openai-chat", [*wires[:at], {"role": "user", "content": "And?"}]))
        assert await service.recover(hold, refused)
        first = sent_messages(hold.plan.data, "openai-chat")
        after = await plan_request(service, body_of("openai-chat", wires[:then]), 60_000)
        assert sent_messages(after.plan.data, "openai-chat")[: len(first)] == first
        assert after.session == hold.session

    run(work)


@pytest.mark.parametrize(("dialect", "role"), [("openai-chat", "system"), ("openai-responses", "developer")])
def test_system_text_that_changes_with_each_request_is_no_other_conversation(dialect: str, role: str) -> None:
    wires = turns(dialect, 30)

    async def work(service: Conversations) -> None:
        held: set[str] = set()
        before: list[Wire] = []
        moved = 0
        for number, at in enumerate(steps(wires)[1:]):
            now = {"role": role, "content": f"You help. It is {number} o'clock."}
            hold = await plan_request(service, body_of(dialect, [now, *wires[:at]]), 4_000)
            sent = sent_messages(hold.plan.data, dialect)
            assert sent[0] == now
            moved += sent[1 : len(before)] != before[1:]
            held.add(hold.session)
            before = sent
        assert len(held) == 1
        assert moved < 12

    run(work)


@pytest.mark.parametrize(("dialect", "role"), [("openai-chat", "system"), ("openai-responses", "developer")])
@pytest.mark.parametrize("reports", [True, False], ids=["reported", "not reported"])
def test_system_text_counts_as_it_is_sent_when_it_grows_and_shrinks(dialect: str, role: str, reports: bool) -> None:
    wires = turns(dialect, 24)
    skills = "Skill text about the repository layout and rules. " * 600

    async def work(service: Conversations) -> None:
        held, folds = set(), []
        for number, at in enumerate(steps(wires)):
            text = f"You are terse.{skills if 20 <= number < 30 else ''}"
            hold = await plan_request(service, body_of(dialect, [{"role": role, "content": text}, *wires[:at]]), 10_000)
            sent = count(sent_messages(hold.plan.data, dialect), dialect=dialect)
            assert hold.plan.tokens == pytest.approx(sent, rel=0.02)
            assert sent <= hold.plan.limits.input_tokens
            if reports:
                hold.observe(Usage(input_tokens=sent, output_tokens=20))
            held.add(hold.session)
            folds.append(hold.plan.folds)
        assert len(held) == 1
        assert not folds[19] and folds[20], "folded for the text that came"
        assert sent > 500, "and for nothing once it had gone"

    run(work)


def test_system_text_that_has_grown_is_refused_when_nothing_may_be_folded() -> None:
    wires = turns("openai-chat", 3)

    async def work(service: Conversations) -> None:
        first = [{"role": "system", "content": "You are terse."}, *wires[:1]]
        await plan_request(service, body_of("openai-chat", first), 4_000, mode="refuse")
        grown = [{"role": "system", "content": "You are terse. " * 2_000}, *wires[:5]]
        with pytest.raises(DoesNotFit) as caught:
            await plan_request(service, body_of("openai-chat", grown), 4_000, mode="refuse")
        assert caught.value.used_tokens >= count(grown, dialect="openai-chat")
        assert caught.value.parts[1].name == "system and tools" and caught.value.parts[1].tokens > 6_000

    run(work)


def test_system_text_that_does_not_fit_by_itself_is_named_and_passes_when_it_shrinks() -> None:
    wires = turns("openai-chat", 3)

    async def work(service: Conversations) -> None:
        for repeated in (2_000, 1, 2_000):
            body = body_of("openai-chat", [{"role": "system", "content": "You are terse. " * repeated}, *wires[:5]])
            if repeated == 1:
                assert (await plan_request(service, body, 4_000)).plan.data == body.raw
                continue
            with pytest.raises(DoesNotFit) as caught:
                await plan_request(service, body, 4_000)
            assert all(part.tokens > 0 for part in caught.value.parts)
            assert caught.value.floor_tokens > caught.value.limit

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reminder_at_the_end_of_each_request_makes_no_other_conversation(dialect: str) -> None:
    wires = turns(dialect, 20)
    words = "<reminder>Keep to the rules.</reminder>"
    reminder = {"role": "user", **({"parts": [{"text": words}]} if dialect == "gemini" else {"content": words})}

    async def work(service: Conversations) -> None:
        names, before, moved = set(), list[Wire](), 0
        for at in steps(wires):
            hold = await plan_request(service, body_of(dialect, [*wires[:at], reminder]), 4_000)
            sent = sent_messages(hold.plan.data, dialect)
            assert sent[-1] == reminder
            moved += sent[: len(before)] != before
            names.add(hold.session)
            before = sent[:-1]
        assert len(names) == len(service) == 1
        assert moved < 8

    run(work)


def test_who_says_the_same_but_for_the_last_words_is_somebody_else() -> None:
    wires = turns("openai-chat", 2)

    async def work(service: Conversations) -> None:
        one = await plan_request(
            service, body_of("openai-chat", [*wires, {"role": "user", "content": "This?"}]), 20_000
        )
        other = await plan_request(
            service, body_of("openai-chat", [*wires, {"role": "user", "content": "That?"}]), 20_000
        )
        assert one.session != other.session
        assert len(service) == 2

    run(work)


def test_a_side_question_to_a_model_of_a_smaller_window_folds_its_own_branch_alone() -> None:
    wires = turns("openai-chat", 30)
    at = steps(wires)[-1]
    said_since = {"role": "assistant", "content": "ok"}

    async def work(service: Conversations) -> None:
        await plan_request(service, body_of("openai-chat", wires[:at], model="large"), 200_000)
        side = body_of("openai-chat", [*wires[:at], said_since, {"role": "user", "content": "A title?"}], model="small")
        assert (await plan_request(service, side, 4_000)).plan.folds > 0
        main = body_of("openai-chat", [*wires[:at], said_since, {"role": "user", "content": "Go on."}], model="large")
        after = await plan_request(service, main, 200_000)
        assert after.plan.data == main.raw

    run(work)


def test_two_proxies_that_fold_at_once_agree_from_then_on(tmp_path: Path) -> None:
    wires = turns("openai-chat", 46)
    places = steps(wires)
    start = next(number for number, at in enumerate(places) if at > 100)
    both = threading.Barrier(2)

    def summary(name: str) -> Callable[[Any, int], str]:
        def summarise(messages: Any, most: int) -> str:
            both.wait(120)
            return f"## Summary of {name}\nGoal: to mend the build.\nNext: to go on with it."

        return summarise

    async def main() -> None:
        url = f"sqlite:///{tmp_path / 's.db'}"
        pair = [conversations(store=ConversationStore(open_store(url)), shared=True) for _ in range(2)]
        body = body_of("openai-chat", wires[: places[start]])
        await asyncio.gather(
            *(
                plan_request(service, body, 6_000, summarize=summary(name))
                for service, name in zip(pair, "AB", strict=True)
            )
        )
        before: list[Wire] = []
        for number in range(start + 1, start + 6):
            hold = await plan_request(pair[number % 2], body_of("openai-chat", wires[: places[number]]), 6_000)
            sent = sent_messages(hold.plan.data, "openai-chat")
            assert hold.plan.folds and not hold.plan.new_folds
            assert sent[: len(before)] == before
            before = sent
        for service in pair:
            await service.aclose()

    asyncio.run(main())


def test_strict_refuses_what_does_not_fit_with_figures() -> None:
    wires = turns("openai-chat", 24)

    async def work(service: Conversations) -> None:
        small = await plan_request(service, body_of("openai-chat", wires[:5]), 2_500, mode="refuse")
        assert small.plan.data == small.plan.body.raw
        with pytest.raises(DoesNotFit) as caught:
            await plan_request(service, body_of("openai-chat", wires), 2_500, mode="refuse")
        assert caught.value.used_tokens > caught.value.limit and caught.value.parts

    run(work)


def test_a_message_that_cannot_be_read_leaves_the_conversation_as_it_was() -> None:
    wires = turns("anthropic", 3)

    async def work(service: Conversations) -> None:
        client = Client("anthropic", service, 8_000)
        first = await client.send(wires[:5])
        with pytest.raises(InvalidInput):
            await plan_request(service, body_of("anthropic", [*wires[:6], {"content": "nobody said this"}]), 8_000)
        assert (await client.send(wires[:9])).session == first.session
        assert len(service) == 1

    run(work)


@pytest.mark.parametrize("levels", [200, 400, 900])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_deep_nesting_is_passed_or_refused_by_name(dialect: str, levels: int) -> None:
    deep: Any = "x"
    for _ in range(levels):
        deep = [deep]

    async def work(service: Conversations) -> None:
        try:
            body = body_of(dialect, [*turns(dialect, 1)[:1], {"role": "user", "content": "hi", "unknown": deep}])
            hold = await plan_request(service, body, 8_000)
            await plan_request(service, body, 8_000, name="ann")
        except InvalidInput:
            return
        assert hold.plan.data == body.raw

    run(work)


@pytest.mark.parametrize("name", ["cost", "economical", "sliding", "checkpoint", "layered", "autopilot"])
def test_every_policy_sends_what_is_valid_and_the_clients_own(name: str) -> None:
    dialect = DIALECTS[len(name) % 3]
    wires = turns(dialect, 16)

    async def work(service: Conversations) -> None:
        client = Client(dialect, service, 3_000)
        await client.grow(wires, steps(wires))

    run(work, under_=under(policy=policy(name)))


def test_a_report_that_cannot_be_true_of_a_request_is_told_once_and_changes_nothing() -> None:
    wires = turns("openai-chat", 8)

    async def work(service: Conversations) -> None:
        client = Client("openai-chat", service, 16_000)
        sizes, doubts = [], []
        for stop in (5, 9, 13):
            hold = await client.send(wires[:stop])
            sizes.append((hold.plan.tokens, hold.cached.conversation.context.view.estimated_tokens))
            assert hold.observe(Usage(input_tokens=5 * hold.plan.tokens + 2_000)) == ""
            doubts.append(hold.doubt)
        assert "about something else" in doubts[0] and doubts[1:] == ["", ""]
        assert all(told == counted for told, counted in sizes)

    run(work)
