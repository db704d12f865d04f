"""Old images give way to a line of text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.property.sessions import BUILDERS
from tests.reducers.views import applied, context_of, folds_of, gave, picture, says, text, use, user, view_of

from foldline.reducers.images import OldImages


def looks(count: int) -> list[dict[str, Any]]:
    wires: list[dict[str, Any]] = []
    for n in range(count):
        wires += [{"role": "user", "content": [text(f"picture {n}"), picture()]}, says("nice")]
    return wires


def kinds(messages: list[Any]) -> list[list[str]]:
    return [[block["type"] for block in m["content"]] for m in messages if isinstance(m["content"], list)]


def test_all_but_the_newest_images_give_way_and_the_text_stays() -> None:
    shown = applied(OldImages(), view_of([*looks(4), user("so?")], "anthropic"))
    assert kinds(shown) == [["text", "text"]] * 3 + [["text", "image"]]
    assert [f"picture {n}" in json.dumps(shown) for n in range(4)] == [True] * 4
    assert "[image removed]" in json.dumps(shown)


@pytest.mark.parametrize(("keep", "gone"), [(0, 4), (1, 3), (2, 2), (9, 0)])
def test_as_many_stay_as_asked_for(keep: int, gone: int) -> None:
    view = view_of([*looks(4), user("so?")], "anthropic")
    assert len(folds_of(OldImages(keep=keep), view)) == gone


def test_the_images_of_the_newest_request_always_stay() -> None:
    # justrach/codegraff#260: the image of a new chat was removed.
    view = view_of(looks(2)[:3], "anthropic")
    assert [fold.start for fold in folds_of(OldImages(keep=0), view)] == [0]


def test_images_in_results_give_way_too() -> None:
    wires: list[dict[str, Any]] = [user("watch")]
    for n in range(3):
        wires += [use(f"c{n}", n=n), gave(f"c{n}", [text(f"shot {n}"), picture()])]
    shown = applied(OldImages(), view_of(wires, "anthropic"))
    inner = [[block["type"] for block in m["content"][0]["content"]] for m in shown[2::2]]
    assert inner == [["text", "text"], ["text", "text"], ["text", "image"]]


def test_a_url_is_no_payload() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    wires = [{"role": "user", "content": [text("look"), image]}, says("nice"), *looks(1), user("so?")]
    view = view_of(wires, "anthropic")
    assert len(folds_of(OldImages(keep=0, bytes_only=True), view)) == 1
    assert len(folds_of(OldImages(keep=0), view)) == 2


def test_the_size_is_said_where_it_is_known() -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMACAYAAAAfFcSJ"  # the header of 1024x768
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}
    wires = [{"role": "user", "content": [text("look"), block]}, says("nice"), user("so?")]
    assert "[image of 1024x768 removed]" in json.dumps(applied(OldImages(keep=0), view_of(wires, "anthropic")))


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_it_works_in_the_other_dialects(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("look", True), *build.says("nice", None), *build.user("so?", False)]
    shown = applied(OldImages(keep=0), view_of(wires, dialect))
    assert "iVBOR" not in json.dumps(shown)
    assert "look" in json.dumps(shown)


def test_pinned_images_stay() -> None:
    context = context_of([*looks(2), user("so?")], "anthropic")
    context.pin(0)
    assert [fold.start for fold in folds_of(OldImages(keep=0), context.view)] == [2]


def test_without_images_there_is_nothing_to_do() -> None:
    assert folds_of(OldImages(keep=0), view_of([user("hi"), says("ho")])) == []
    assert folds_of(OldImages(keep=0), view_of([])) == []


def test_an_image_that_is_gone_is_not_removed_again() -> None:
    view = view_of([*looks(3), user("so?")], "anthropic")
    applied(OldImages(keep=0), view)
    assert folds_of(OldImages(keep=0), view) == []
