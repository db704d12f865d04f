"""Requests that are sent before they are recorded: only those that would pass unchanged anyway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations.clients import (
    EXAMPLES,
    Wire,
    body_of,
    example,
    plan_request,
    run,
    sent_messages,
    steps,
    turns,
    under,
)
from tests.property.depth import dear
from tests.property.sessions import DIALECTS
from tests.store.places import store_at

from foldline.conversations.persistence import ConversationStore
from foldline.conversations.service import Conversations
from foldline.engine.presets import policy
from foldline.errors import DoesNotFit, InvalidInput
from foldline.view.transcript import Usage

WIDE = 200_000
dialects = pytest.mark.parametrize("dialect", DIALECTS)


async def passes(service: Conversations, dialect: str, wires: list[Wire], window: int = WIDE, **fields: Any) -> bool:
    """Whether a request may be sent at once; it is recorded then."""
    asked = service.incoming(body_of(dialect, wires, **fields), window)
    found = service.passes_unchanged(asked)
    hold = await service.plan(asked)
    assert not (found and hold.plan.changed)
    return found


LONG = "Looks into a module and tells what it finds there, line by line. " * 60
TOOLS: dict[str, list[Wire]] = {
    "openai-chat": [{"type": "function", "function": {"name": "look", "description": LONG}}],
    "openai-responses": [{"type": "function", "name": "look", "description": LONG}],
    "anthropic": [{"name": "look", "description": LONG, "input_schema": {"type": "object"}}],
    "gemini": [{"functionDeclarations": [{"name": "look", "description": LONG}]}],
}


@given(
    session=st.sampled_from(EXAMPLES),
    dialect=st.sampled_from(DIALECTS),
    window=st.sampled_from([600, 2_000, 8_000, 16_000, 64_000]),
    cap=st.sampled_from([None, 100, 4_000]),
    ratio=st.floats(0.6, 2.5),
    without=st.sets(st.integers(0, 29), max_size=4),
)
@dear
def test_what_would_be_changed_is_never_sent_ahead(
    session: Path, dialect: str, window: int, cap: int | None, ratio: float, *, without: set[int]
) -> None:
    """Recorded sessions, request by request, at a provider that counts otherwise than we do; some without the tools."""
    system, wires = example(session, dialect)
    fields: dict[str, Any] = {"system": system} if system else {}
    if cap is not None:
        fields["max_output_tokens" if dialect == "openai-responses" else "max_tokens"] = cap

    async def work(service: Conversations) -> None:
        for stop in steps(wires)[:25]:
            asked = service.incoming(body_of(dialect, wires[:stop], **fields), window)
            found = service.passes_unchanged(asked)
            try:
                hold = await service.plan(asked)
            except (DoesNotFit, InvalidInput):
                assert not found
                return
            assert not (found and hold.plan.changed)
            assert not found or hold.plan.tokens <= hold.plan.limits.input_tokens
            ours = hold.cached.conversation.context.view.estimated_tokens
            hold.observe(Usage(input_tokens=round(ratio * ours)))

    run(work)


@dialects
def test_the_turns_of_a_conversation_far_from_its_limit_are_sent_ahead(dialect: str) -> None:
    wires = turns(dialect, 6)

    async def work(service: Conversations) -> None:
        found = [await passes(service, dialect, wires[:stop]) for stop in steps(wires)]
        assert len(found) > 6
        assert all(found)
        assert len(service) == 1

    run(work)


@dialects
def test_what_was_folded_is_not(dialect: str) -> None:
    wires = turns(dialect, 30, words=120)

    async def work(service: Conversations) -> None:
        for stop in steps(wires):
            await passes(service, dialect, wires[:stop], 6_000)
        # A window that is wide of a sudden, as by the header of a beta: the folds stay.
        assert not await passes(service, dialect, [*wires, *turns(dialect, 1, mark="x")[:1]])

    run(work)


PICTURE: dict[str, Wire] = {
    "openai-chat": {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    "openai-responses": {"type": "input_image", "image_url": "https://example.org/a.png"},
    "anthropic": {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    "gemini": {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
}


def user(dialect: str, content: str | Wire) -> list[Wire]:
    """One message of the user with a text or a part."""
    if dialect == "gemini":
        return [{"role": "user", "parts": [{"text": content} if isinstance(content, str) else content]}]
    return [{"role": "user", "content": content if isinstance(content, str) else [content]}]


@dialects
def test_what_may_be_larger_than_its_text_is_not(dialect: str) -> None:
    async def work(service: Conversations) -> None:
        assert not await passes(service, dialect, user(dialect, PICTURE[dialect]))
        cap: dict[str, Any] = {"max_output_tokens" if dialect == "openai-responses" else "max_tokens": WIDE}
        if dialect == "gemini":
            cap = {"generationConfig": {"maxOutputTokens": WIDE}}
        assert not await passes(service, dialect, user(dialect, "Hello"), **cap)
        assert await passes(service, dialect, user(dialect, "Read the \"type\": 'image' of it"))
        assert await passes(service, dialect, user(dialect, "x" * 50_000))
        assert not await passes(service, dialect, user(dialect, "y" * 50_000), 60_000)
        assert not await passes(service, dialect, user(dialect, "字" * 50_000), 120_000)

    run(work)


@pytest.mark.parametrize("name", ["economical", "layered", "checkpoint"])
def test_under_a_policy_that_may_fold_at_any_size_nothing_is(name: str) -> None:
    async def work(service: Conversations) -> None:
        assert not await passes(service, "openai-chat", [{"role": "user", "content": "Hello"}])

    run(work, under_=under(policy=policy(name)))


def test_another_model_tools_or_branch_are_looked_at_first() -> None:
    wires = turns("openai-chat", 3)

    async def work(service: Conversations) -> None:
        for stop in steps(wires):
            assert await passes(service, "openai-chat", wires[:stop])
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
        more = turns("openai-chat", 1, mark="x")[:1]
        assert not service.passes_unchanged(
            service.incoming(body_of("openai-chat", [*wires, *more], tools=tools), WIDE)
        )
        assert not service.passes_unchanged(
            service.incoming(body_of("openai-chat", [*wires, *more], model="another"), WIDE)
        )
        assert not service.passes_unchanged(service.incoming(body_of("openai-chat", [*wires[:-4], *more]), WIDE))
        assert not service.passes_unchanged(
            service.incoming(body_of("openai-chat", [*wires, *more]), WIDE, name="named")
        )
        assert service.passes_unchanged(service.incoming(body_of("openai-chat", [*wires, *more]), WIDE))

    run(work)


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_store_may_know_of_is_looked_up_first(shared: bool, tmp_path: Path) -> None:
    wires = turns("openai-chat", 3)

    async def work(service: Conversations) -> None:
        assert not await passes(service, "openai-chat", wires[: steps(wires)[-1]]), "it was begun elsewhere"
        assert await passes(service, "openai-chat", [{"role": "user", "content": "Something new"}]) is not shared

    run(work, store=ConversationStore(store_at(f"sqlite:///{tmp_path / 'kept.db'}")), shared=shared)


def test_what_has_gone_out_stays_as_it_came_though_another_request_folded_meanwhile() -> None:
    wires = turns("openai-chat", 30, words=120)
    last = steps(wires)[-1]

    async def work(service: Conversations) -> None:
        for stop in steps(wires):
            await passes(service, "openai-chat", wires[:stop], 6_000)
        body = body_of("openai-chat", [*wires[:last], *turns("openai-chat", 1, mark="x")[:1]])
        hold = await service.plan(service.incoming(body, WIDE), sent=True)
        assert hold.cached.conversation.folded
        assert (hold.plan.data, hold.plan.changed) == (body.raw, False)
        again = await plan_request(service, body_of("openai-chat", wires[:last]), 6_000)
        assert again.plan.changed

    run(work)


@dialects
def test_tools_that_are_left_out_once_are_counted_when_they_are_back(dialect: str) -> None:
    """All but the tools is known to be small, and with them it is too large."""
    wires, tools = turns(dialect, 4, words=120), TOOLS[dialect] * 4
    first, second, third, fourth = steps(wires)[1:5]

    async def work(service: Conversations) -> None:
        window = 16_000
        found = [
            await passes(service, dialect, wires[:first], window, tools=tools),
            await passes(service, dialect, wires[:second], window),
            await passes(service, dialect, wires[:third], window),
            await passes(service, dialect, wires[:fourth], window, tools=tools),
        ]
        assert found == [False, False, True, False]

    run(work)


def test_tools_that_were_left_out_of_what_cannot_be_read_are_counted_when_they_are_back() -> None:
    wires, tools = turns("anthropic", 4, words=120), TOOLS["anthropic"] * 4
    first, second = steps(wires)[1:3]

    async def work(service: Conversations) -> None:
        await passes(service, "anthropic", wires[:first], 16_000, tools=tools)
        with pytest.raises(InvalidInput):
            await plan_request(
                service, body_of("anthropic", [*wires[:second], {"content": "nobody said this"}]), 16_000
            )
        assert not await passes(service, "anthropic", wires[:second], 16_000, tools=tools)

    run(work)


def test_what_was_not_prepared_is_no_measure_of_how_the_provider_counts() -> None:
    wires = turns("openai-chat", 30, words=120)

    async def work(service: Conversations) -> None:
        hold = await plan_request(service, body_of("openai-chat", wires[:1]), WIDE)
        context = hold.cached.conversation.context
        hold.observe(Usage(input_tokens=context.view.estimated_tokens))
        longer = await service.plan(service.incoming(body_of("openai-chat", wires), 4_000), sent=True)
        assert not longer.plan.prepared
        longer.observe(Usage(input_tokens=context.view.estimated_tokens))
        assert context.view.meter.ratio == pytest.approx(1, abs=0.05)

    run(work)


def test_a_cap_that_is_learned_meanwhile_changes_nothing_that_has_gone_out() -> None:
    async def work(service: Conversations) -> None:
        body = body_of("openai-chat", [{"role": "user", "content": "Hello"}], max_tokens=4_000)
        asked = service.incoming(body, WIDE)
        assert service.passes_unchanged(asked)
        service._learned.learn_output(b"", body.model, 1_000)
        hold = await service.plan(asked, sent=True)
        assert (hold.plan.data, hold.plan.changed) == (body.raw, False)

    run(work)


def test_a_client_that_leaves_while_much_is_taken_up_finds_its_conversation_again() -> None:
    wires = [{"role": "user", "content": f"[{number}] " + "long " * 20_000} for number in range(3)]

    async def work(service: Conversations) -> None:
        first = await plan_request(service, body_of("openai-chat", wires[:1]), WIDE)
        leaving = asyncio.create_task(plan_request(service, body_of("openai-chat", wires), WIDE))
        while not first.cached.lock.locked():
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        again = await plan_request(service, body_of("openai-chat", wires), WIDE)
        assert (again.session, again.mode, len(service)) == (first.session, "fold", 1)

    run(work)


@pytest.mark.parametrize("kind", ["users", "shell"])
def test_in_a_store_folds_of_any_kind_of_history_are_found_again(kind: str, tmp_path: Path) -> None:
    """Words of a model may be in items that are not known as its own, or left out by a client."""
    dialect = "openai-chat" if kind == "users" else "openai-responses"
    wires: list[Wire] = []
    for number in range(24):
        wires.append({"role": "user", "content": f"[{number}] " + "the build has failed again " * 60})
        if kind == "shell":
            wires += [
                {"type": "shell_call", "call_id": f"c{number}", "action": {"commands": ["ls"]}},
                {"type": "shell_call_output", "call_id": f"c{number}", "output": [{"stdout": "app.py " * 90}]},
            ]
    wires.append({"role": "user", "content": "And now?"})
    place = f"sqlite:///{tmp_path / 'kept.db'}"
    sent: list[bytes] = []

    async def work(service: Conversations) -> None:
        hold = await plan_request(service, body_of(dialect, wires if sent else wires[:-1]), 8_000)
        assert hold.plan.folds
        assert bool(hold.plan.new_folds) is not bool(sent)
        sent.append(hold.plan.data)

    for _ in range(2):
        run(work, store=ConversationStore(store_at(place)))
    before, after = (sent_messages(data, dialect) for data in sent)
    assert after[: len(before)] == before
