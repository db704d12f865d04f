"""After a restart a conversation keeps its provider's token counts, and is not folded again without need."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.conversations.clients import Wire, array, body_of, conversations, plan_request

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.service import Conversations
from foldline.store.addresses import open_store
from foldline.view.transcript import Usage

WINDOW = 8_000
SHARE = 0.5
"""Of our count is what this provider counts."""


def _words(turns: int) -> list[Wire]:
    """Turns of random words, about 600 tokens each by the provider's count."""
    drawn = random.Random(7)
    words = ["".join(drawn.choices("bcdfghjklmnpqrstvwxz", k=8)) for _ in range(3_000)]
    said: list[Wire] = []
    for number in range(turns):
        text = " ".join(drawn.choices(words, k=250))
        said += [{"role": "user", "content": f"{number} {text}"}, {"role": "assistant", "content": f"Yes {number}."}]
    return said


def opened(place: Path, **more: Any) -> Conversations:
    return conversations(store=ConversationStore(lambda: open_store(str(place))), notice=print, **more)


async def asked(service: Conversations, wires: list[Wire]) -> PlannedRequest:
    """A request, answered with the provider's own count."""
    hold = await plan_request(service, body_of("openai-chat", wires, max_tokens=500), WINDOW)
    view = hold.cached.conversation.context.view
    hold.observe(Usage(input_tokens=round(SHARE * view.estimated_tokens), output_tokens=5))
    return hold


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_folded_is_not_folded_again_after_a_restart(killed: bool, tmp_path: Path) -> None:
    wires = _words(30)

    async def work() -> None:
        service = opened(tmp_path)
        stop, hold = 3, await asked(service, wires[:1])
        while not hold.plan.folds or hold.plan.tokens < 0.6 * WINDOW:
            assert stop < len(wires)
            hold = await asked(service, wires[:stop])
            stop += 2
        folds = hold.plan.folds
        before = array(hold.plan.data, "openai-chat")
        if not killed:
            await service.aclose()
        again = opened(tmp_path)
        back = await asked(again, wires[:stop])
        assert back.plan.folds == folds and not back.plan.new_folds
        assert array(back.plan.data, "openai-chat").startswith(before.rstrip("]\n "))
        assert back.plan.tokens < 0.8 * WINDOW < back.cached.conversation.context.view.estimated_tokens
        await again.aclose()
        if killed:
            await service.aclose()

    asyncio.run(work())
