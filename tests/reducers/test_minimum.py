"""What must stay, in its smallest form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import (
    LINE,
    call,
    commit_all,
    context_of,
    gave,
    need_of,
    picture,
    result,
    says,
    text,
    use,
    user,
    view_of,
)

from foldline.errors import Part
from foldline.reducers.minimum import Minimum, floor_of, too_large, too_many_bytes
from foldline.testing import session

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}}


def reached(view: Any) -> int:
    """The size after going to the floor."""
    commit_all(view, Minimum().propose(view, need_of(view)))
    return int(view.estimated_tokens)


SESSIONS: dict[str, list[Any]] = {
    "a loop": session(8, result=LINE * 12),
    "a finished session": [*session(8, result=LINE * 12), says("done"), user("next")],
    "one huge result": session(1, result="huge " * 20_000),
    "one user message": [user("hello there " * 200)],
    "an open call": [user("go"), call("a", arguments=json.dumps({"x": "long " * 300}))],
    "half of the results": [user("go"), call("a", "b"), result("a", LINE * 40)],
    "only results": [result(f"c{n}", LINE) for n in range(4)],
    "only the assistant": [says("words " * 60) for _ in range(4)],
    "system text alone": [{"role": "system", "content": "rules " * 40}],
    "pictures": [{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}, says("ok"), user("next")],
    "large arguments": [user("go"), call("a", arguments=json.dumps({"x": "long " * 900})), result("a", "ok")],
}


@pytest.mark.parametrize("name", SESSIONS)
def test_the_floor_is_true_and_its_folds_lead_there(name: str) -> None:
    view = view_of(SESSIONS[name])
    assert reached(view) == floor_of(view_of(SESSIONS[name])).tokens


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("thought", [None, "a thought"])
def test_the_floor_is_true_in_every_dialect(dialect: str, thought: str | None) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", True)]
    for n in range(6):
        wires += build.turn([f"a{n}", f"b{n}"], [LINE * 12] * 2, "words", thought if n % 2 == 0 else None)
    view = view_of(wires, dialect)
    assert reached(view) == floor_of(view_of(wires, dialect)).tokens


def test_going_to_the_floor_again_changes_nothing() -> None:
    view = view_of(SESSIONS["a finished session"])
    size = reached(view)
    assert reached(view) == size
    assert floor_of(view).tokens == size


def test_parts_are_named_with_their_sizes_and_make_up_the_floor() -> None:
    context = context_of([*session(3, result=LINE * 12), says("done"), user("next")], system="rules " * 50)
    context.pin(4)
    floor = floor_of(context.view)
    assert [part.name for part in floor.parts] == sorted(
        (part.name for part in floor.parts), key=lambda name: -next(p.tokens for p in floor.parts if p.name == name)
    )
    assert {"system and tools", "pinned", "newest user message", "notice of omitted messages"} == {
        part.name for part in floor.parts
    }
    assert sum(part.tokens for part in floor.parts) == floor.tokens


def test_the_first_message_that_a_provider_wants_is_counted() -> None:
    view = view_of([says("hi")], "anthropic")
    assert [part.name for part in floor_of(view).parts] == ["first user message", "message that nothing may cut"]
    assert floor_of(view).tokens == reached(view)


def test_a_result_that_stays_is_cut_to_its_marker() -> None:
    view = view_of([user("go"), use("a"), gave("a", LINE * 40, text("and mind this"))], "anthropic")
    reached(view)
    assert "and mind this" in json.dumps(view.wires()[0])
    assert view.estimated_tokens < 60


def test_the_pictures_of_the_newest_request_stay() -> None:
    view = view_of([{"role": "user", "content": [text("look"), picture()]}], "anthropic")
    reached(view)
    assert '"image"' in json.dumps(view.wires()[0])


def test_an_open_call_keeps_its_arguments() -> None:
    view = view_of(SESSIONS["an open call"])
    reached(view)
    assert "long long" in json.dumps(view.wires()[0])


def test_what_is_pinned_stays_as_it_is() -> None:
    context = context_of(session(3, result=LINE * 12))
    for seq in (0, 1, 3, 5):
        context.pin(seq)
    assert floor_of(context.view).folds == ()
    assert floor_of(context.view).tokens == context.view.estimated_tokens


def test_an_empty_view_has_an_empty_floor() -> None:
    floor = floor_of(view_of([]))
    assert (floor.tokens, floor.parts, floor.folds) == (0, (), ())


def test_errors_name_the_largest_parts() -> None:
    error = too_large(500, 400, [Part("a", 10), Part("b", 490, 3)], "folding is off")
    assert (error.floor_tokens, error.limit, error.unit) == (500, 400, "tokens")
    assert [part.name for part in error.parts] == ["b", "a"]
    assert "b (message 3): 490 tokens" in str(error)
    assert "folding is off" in str(error)


def test_the_floor_in_an_error_is_the_true_one_also_under_the_limit() -> None:
    error = too_large(10, 400, [], "folding is switched off", used_tokens=500)
    assert (error.floor_tokens, error.used_tokens, error.limit) == (10, 500, 400)
    assert "folding is switched off" in str(error)


def test_too_many_bytes_are_said_in_bytes() -> None:
    view = view_of([user("x" * 900), says("ok")], max_request_bytes=100)
    error = too_many_bytes(view, 850, 100)
    assert (error.floor_tokens, error.limit, error.unit) == (950, 100, "bytes")
    assert error.parts[0].tokens > 900
