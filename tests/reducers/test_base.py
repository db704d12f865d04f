"""How proposals are made."""

from __future__ import annotations

from tests.reducers.views import context_of, gave, picture, text, use, user, view_of

from foldline.messages import Image, Text
from foldline.reducers.base import form_fold, result_entries, result_text, span_fold, with_results, with_texts
from foldline.testing import session


def test_a_span_is_proposed_only_where_it_shrinks() -> None:
    view = view_of([*session(3), user("next")])
    note = view.codec.note("short")
    fold = span_fold(view, 0, 7, (note,), reducer="r", reason="why")
    assert fold is not None
    assert (fold.start, fold.stop, fold.reducer, fold.reason) == (0, 7, "r", "why")
    assert fold.tokens == view.count(note)
    assert span_fold(view, 0, 1, (view.codec.note("long " * 100),), reducer="r", reason="why") is None


def test_a_span_over_the_newest_request_shows_its_words() -> None:
    view = view_of([user("go"), use("a"), gave("a", "words " * 200, text("and hurry"))], "anthropic")
    fold = span_fold(view, 1, 3, (view.codec.note("short"),), reducer="r", reason="why")
    assert fold is not None
    assert [message.text for message in fold.shown] == ["short", "and hurry"]
    view.commit(fold)


def test_a_form_is_proposed_only_where_it_shrinks() -> None:
    view = view_of([*session(1, result="words " * 50), user("next")])
    tile, entry = view.tiles[1], view.entries[2]
    shorter = with_results(entry.message, lambda result: "w")
    longer = with_results(entry.message, lambda result: "words " * 60)
    fold = form_fold(view, tile, entry, shorter, reducer="r", reason="why", kind="tool_result_archived")
    assert fold is not None
    assert fold.shown[0].kind == "tool_result_archived"
    assert fold.shown[0].wire == {**entry.recorded, "content": "w"}
    assert form_fold(view, tile, entry, longer, reducer="r", reason="why") is None


def test_results_are_found_with_their_units_oldest_first() -> None:
    context = context_of(session(4))
    context.pin(4)
    context.append({"role": "user", "content": "next"})
    found = result_entries(context.view)
    assert [entry.seq for _, _, entry in found] == [2, 6, 8]
    assert [index for index, _, _ in found] == [1, 3, 4]
    assert [entry.seq for _, _, entry in result_entries(context.view, 3)] == [6, 8]
    assert [entry.seq for _, _, entry in result_entries(context.view, 0, 3)] == [2]


def test_hidden_results_are_not_found() -> None:
    context = context_of(session(1)[:2])
    context.append(session(1)[2], agent_visible=False)
    assert result_entries(context.view) == []


def test_replacing_a_result_takes_its_images_along() -> None:
    view = view_of([user("go"), use("a"), gave("a", [text("seen"), picture()])], "anthropic")
    (part,) = with_results(view.entries[2].message, lambda result: f"was {result.text}")
    assert part.parts == (Text("was seen"),)  # type: ignore[union-attr]


def test_cutting_a_text_leaves_the_images_of_its_result() -> None:
    view = view_of([user("go"), use("a"), gave("a", [text("one"), picture(), text("two")])], "anthropic")
    (part,) = with_texts(view.entries[2].message, lambda result: "cut")
    kinds = [type(inner) for inner in part.parts]  # type: ignore[union-attr]
    assert kinds == [Text, Image]


def test_what_is_not_changed_is_the_same_object() -> None:
    view = view_of([user("go"), use("a"), gave("a", "one", text("mind this"))], "anthropic")
    message = view.entries[2].message
    for change in (with_results, with_texts):
        assert all(a is b for a, b in zip(change(message, lambda result: None), message.parts, strict=True))
    changed = with_results(message, lambda result: "x")
    assert changed[1] is message.parts[1]


def test_the_text_of_all_results_of_a_message() -> None:
    view = view_of([user("go"), use("a"), gave("a", [text("one"), picture(), text("two")])], "anthropic")
    assert result_text(view.entries[2].message) == "one\ntwo"
