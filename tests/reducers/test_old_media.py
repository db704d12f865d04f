"""Old images and documents leave where a request holds more of them than its provider takes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.test_media import image, pdf, png
from tests.property.depth import costly
from tests.property.sessions import POLICIES

from foldline.codecs.dialect import caps_of
from foldline.codecs.limits import Caps
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.view.transcript import Fold

DIALECTS = ("openai-chat", "openai-responses", "anthropic")


def shot(dialect: str, number: int, *blocks: Wire) -> list[Wire]:
    """A call and its result with these blocks."""
    call_id, text = f"c{number}", {"type": "text", "text": f"shot {number}"}
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": call_id, "name": "shot", "input": {}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": [text, *blocks]}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    if dialect == "openai-chat":
        call = {"id": call_id, "type": "function", "function": {"name": "shot", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": [text, *blocks]},
        ]
    return [
        {"type": "function_call", "call_id": call_id, "name": "shot", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": [{**text, "type": "input_text"}, *blocks]},
    ]


def images(messages: Any) -> int:
    text = json.dumps(messages)
    return sum(text.count(f'"type": "{kind}"') for kind in ("image", "image_url", "input_image"))


def context(dialect: str, **settings: Any) -> Context:
    new = Context(dialect=dialect, window=2_000_000, max_output_tokens=1_000, **settings)
    new.append({"role": "user", "content": "watch"})
    return new


@costly
@given(st.sampled_from(DIALECTS), st.sampled_from(POLICIES), st.integers(1, 12), st.integers(1, 3))
def test_no_request_holds_more_images_than_are_taken_and_the_prefix_seldom_moves(
    dialect: str, policy: str, most: int, each: int
) -> None:
    ctx = context(dialect, policy=policy, caps=Caps(max_images=most))
    requests, folds = [], 0
    for number in range(3 * most):
        ctx.extend(shot(dialect, number, *[image(dialect, png(800, 600))] * min(each, most)))
        request = ctx.prepare()
        assert images(request.messages) <= most
        assert check(request.messages, dialect=dialect, caps=Caps(max_images=most)) == []
        assert images(request.messages[-2:]), "the newest stays"
        folds += bool(request.folds)
        requests.append(request)
    for before, after in pairwise(requests):
        if not after.folds:
            assert after.messages[: len(before.messages)] == before.messages
    if policy == "balanced":
        assert folds <= 1 + 3 * most * each / max(1, most - int(0.75 * most))


def test_what_leaves_is_reported_as_a_fold_and_leaves_in_a_batch() -> None:
    ctx = context("anthropic")
    for number in range(103):
        ctx.extend(shot("anthropic", number, image("anthropic", png(800, 600))))
    request = ctx.prepare()
    assert images(request.messages) == 75
    assert {fold.reducer for fold in request.folds if isinstance(fold, Fold)} == {"images"}
    assert "103 images and PDF pages of 100" in next(f.reason for f in request.folds if isinstance(f, Fold))
    for number in range(103, 128):
        ctx.extend(shot("anthropic", number, image("anthropic", png(800, 600))))
        again = ctx.prepare()
        assert not again.folds
    assert images(again.messages) == 100
    ctx.extend(shot("anthropic", 128, image("anthropic", png(800, 600))))
    assert ctx.prepare().folds


def test_a_provider_that_takes_fewer_is_believed() -> None:
    ctx = context("anthropic")
    for number in range(52):
        ctx.extend(shot("anthropic", number, image("anthropic", png(800, 600))))
    assert images(ctx.prepare().messages) == 52
    engine = ctx._engine
    engine.caps = engine.caps.learned(max_images=50)
    assert images(ctx.prepare().messages) == 37


def test_pages_count_as_images_do() -> None:
    ctx = context("anthropic")
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf(60)}}
    for number in range(3):
        ctx.extend(shot("anthropic", number, document))
    request = ctx.prepare()
    assert json.dumps(request.messages).count('"document"') == 1
    assert "[document removed]" in json.dumps(request.messages)
    assert check(request.messages, dialect="anthropic") == []


@pytest.mark.parametrize(("large", "small", "left"), [(25, 0, 15), (1, 40, 40), (10, 15, 15)])
def test_of_many_images_the_large_ones_leave_where_they_are_fewer(large: int, small: int, left: int) -> None:
    ctx = context("anthropic")
    for number in range(large + small):
        side = 2_001 if number < large else 800
        ctx.extend(shot("anthropic", number, image("anthropic", png(side, 600))))
    request = ctx.prepare()
    assert images(request.messages) == left
    assert check(request.messages, dialect="anthropic") == []


def test_the_newest_users_images_stay_and_too_many_of_them_are_said() -> None:
    blocks = [image("anthropic", png(800, 600))] * 101
    old: list[Wire] = [{"role": "user", "content": blocks[:50]}, {"role": "assistant", "content": "seen"}]
    out = fit([*old, {"role": "user", "content": blocks[:90]}], max_tokens=2_000_000, dialect="anthropic")
    assert images(out.messages[-1]) == 90
    assert images(out.messages) <= 100
    with pytest.raises(DoesNotFit) as raised:
        fit([*old, {"role": "user", "content": blocks}], max_tokens=2_000_000, dialect="anthropic")
    assert (raised.value.unit, raised.value.floor_tokens, raised.value.limit) == ("images and PDF pages", 101, 100)
    assert raised.value.parts[0].name == "newest user message"


def test_too_many_messages_leave_in_a_batch() -> None:
    ctx = context("anthropic", caps=Caps(max_messages=40))
    for number in range(30):
        ctx.extend(shot("anthropic", number))
        request = ctx.prepare()
        assert len(request.messages) <= 40
    assert sum(isinstance(event, Fold) for event in ctx.events) <= 6
    assert caps_of("anthropic").max_messages == 100_000
