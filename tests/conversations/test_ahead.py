"""What may be sent before it is taken up: only what would go out as it came anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations.clients import EXAMPLES, Wire, body_of, conversations, example, steps, turns, under
from tests.property.depth import dear
from tests.property.sessions import DIALECTS
from tests.store.places import store_at

from foldline.conversations.keeping import Keeping
from foldline.conversations.planning import Conversations
from foldline.errors import DoesNotFit, InvalidInput
from foldline.policy import policy
from foldline.transcript import Usage

WIDE = 200_000
dialects = pytest.mark.parametrize("dialect", DIALECTS)


def run(work: Callable[[Conversations], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        known = conversations(**options)
        try:
            await work(known)
        finally:
            await known.aclose()

    asyncio.run(main())


async def passes(known: Conversations, dialect: str, wires: list[Wire], window: int = WIDE, **fields: Any) -> bool:
    """Whether a request may be sent at once; it is taken up then."""
    asked = known.asked(body_of(dialect, wires, **fields), window)
    found = known.passes(asked)
    hold = await known.take_up(asked)
    assert not (found and hold.plan.changed)
    return found


@given(
    session=st.sampled_from(EXAMPLES),
    dialect=st.sampled_from(DIALECTS),
    window=st.sampled_from([600, 2_000, 8_000, 16_000, 64_000]),
    cap=st.sampled_from([None, 100, 4_000]),
    ratio=st.floats(0.6, 2.5),
)
@dear
def test_what_would_be_changed_is_never_sent_ahead(
    session: Path, dialect: str, window: int, cap: int | None, ratio: float
) -> None:
    """Recorded sessions, request by request, at a provider that counts otherwise than we do."""
    system, wires = example(session, dialect)
    fields: dict[str, Any] = {"system": system} if system else {}
    if cap is not None:
        fields["max_output_tokens" if dialect == "openai-responses" else "max_tokens"] = cap

    async def work(known: Conversations) -> None:
        for stop in steps(wires)[:25]:
            asked = known.asked(body_of(dialect, wires[:stop], **fields), window)
            found = known.passes(asked)
            try:
                hold = await known.take_up(asked)
            except (DoesNotFit, InvalidInput):
                assert not found
                return
            assert not (found and hold.plan.changed)
            assert not found or hold.plan.tokens <= hold.plan.limits.input_tokens
            ours = hold.held.conversation.context.view.estimated_tokens
            hold.observe(Usage(input_tokens=round(ratio * ours)))

    run(work)


@dialects
def test_the_turns_of_a_conversation_far_from_its_limit_are_sent_ahead(dialect: str) -> None:
    wires = turns(dialect, 6)

    async def work(known: Conversations) -> None:
        found = [await passes(known, dialect, wires[:stop]) for stop in steps(wires)]
        assert len(found) > 6
        assert all(found)
        assert len(known) == 1

    run(work)


@dialects
def test_what_was_folded_is_not(dialect: str) -> None:
    wires = turns(dialect, 30, words=120)

    async def work(known: Conversations) -> None:
        for stop in steps(wires):
            await passes(known, dialect, wires[:stop], 6_000)
        # A window that is wide of a sudden, as by the header of a beta: the folds stay.
        assert not await passes(known, dialect, [*wires, *turns(dialect, 1, mark="x")[:1]])

    run(work)


PICTURE = {
    "openai-chat": {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    "openai-responses": {"type": "input_image", "image_url": "https://example.org/a.png"},
    "anthropic": {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
}


@dialects
def test_what_may_be_larger_than_its_text_is_not(dialect: str) -> None:
    async def work(known: Conversations) -> None:
        assert not await passes(known, dialect, [{"role": "user", "content": [PICTURE[dialect]]}])
        cap = {"max_output_tokens" if dialect == "openai-responses" else "max_tokens": WIDE}
        assert not await passes(known, dialect, [{"role": "user", "content": "Hello"}], **cap)
        assert await passes(known, dialect, [{"role": "user", "content": "Read the \"type\": 'image' of it"}])
        assert await passes(known, dialect, [{"role": "user", "content": "x" * 50_000}])
        assert not await passes(known, dialect, [{"role": "user", "content": "y" * 50_000}], 60_000)
        assert not await passes(known, dialect, [{"role": "user", "content": "字" * 50_000}], 120_000)

    run(work)


@pytest.mark.parametrize("name", ["economical", "layered", "checkpoint"])
def test_under_a_policy_that_may_fold_at_any_size_nothing_is(name: str) -> None:
    async def work(known: Conversations) -> None:
        assert not await passes(known, "openai-chat", [{"role": "user", "content": "Hello"}])

    run(work, under_=under(policy=policy(name)))


def test_another_model_tools_or_branch_are_looked_at_first() -> None:
    wires = turns("openai-chat", 3)

    async def work(known: Conversations) -> None:
        for stop in steps(wires):
            assert await passes(known, "openai-chat", wires[:stop])
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
        more = turns("openai-chat", 1, mark="x")[:1]
        assert not known.passes(known.asked(body_of("openai-chat", [*wires, *more], tools=tools), WIDE))
        assert not known.passes(known.asked(body_of("openai-chat", [*wires, *more], model="another"), WIDE))
        assert not known.passes(known.asked(body_of("openai-chat", [*wires[:-4], *more]), WIDE))
        assert not known.passes(known.asked(body_of("openai-chat", [*wires, *more]), WIDE, name="named"))
        assert known.passes(known.asked(body_of("openai-chat", [*wires, *more]), WIDE))

    run(work)


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_store_may_know_of_is_looked_up_first(shared: bool, tmp_path: Path) -> None:
    wires = turns("openai-chat", 3)

    async def work(known: Conversations) -> None:
        assert not await passes(known, "openai-chat", wires[: steps(wires)[-1]]), "it was begun elsewhere"
        assert await passes(known, "openai-chat", [{"role": "user", "content": "Something new"}]) is not shared

    run(work, keeping=Keeping(store_at(f"sqlite:///{tmp_path / 'kept.db'}")), shared=shared)


def test_what_has_gone_out_stays_as_it_came_though_another_request_folded_meanwhile() -> None:
    wires = turns("openai-chat", 30, words=120)
    last = steps(wires)[-1]

    async def work(known: Conversations) -> None:
        for stop in steps(wires):
            await passes(known, "openai-chat", wires[:stop], 6_000)
        body = body_of("openai-chat", [*wires[:last], *turns("openai-chat", 1, mark="x")[:1]])
        hold = await known.take_up(known.asked(body, WIDE), sent=True)
        assert hold.held.conversation.folded
        assert (hold.plan.data, hold.plan.changed) == (body.raw, False)
        again = await known.take(body_of("openai-chat", wires[:last]), 6_000)
        assert again.plan.changed

    run(work)
