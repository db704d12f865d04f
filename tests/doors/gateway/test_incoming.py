"""Updates of Telegram, parsed: author, place, text and files."""

from __future__ import annotations

from typing import Any

import pytest
from telegram import Update

from foldline.doors.gateway.base import Attachment, ChatPlace, Incoming
from foldline.doors.gateway.telegram import parse_update
from foldline.errors import InvalidInput

ADA = {"id": 7, "is_bot": False, "first_name": "Ada"}
GROUP = {"id": -1001, "type": "supergroup", "title": "G"}


def update(kind: str = "message", **fields: Any) -> Update:
    message = {"message_id": 1, "date": 1_700_000_000, "chat": GROUP, "from": ADA, **fields}
    made = Update.de_json({"update_id": 42, kind: message}, None)
    assert isinstance(made, Update)
    return made


def test_a_text_has_its_person_place_and_number() -> None:
    assert parse_update(update(text="Hi")) == Incoming(key="42", user="7", where=ChatPlace("-1001"), text="Hi")


def test_a_thread_is_one_only_in_a_chat_with_topics() -> None:
    """Elsewhere the number is that of a message that is answered, and nothing can be sent to it."""
    topic = parse_update(update(text="Hi", message_thread_id=5, is_topic_message=True))
    reply = parse_update(update(text="Hi", message_thread_id=5))
    assert topic is not None
    assert reply is not None
    assert (topic.where, reply.where) == (ChatPlace("-1001", "5"), ChatPlace("-1001"))


def test_an_edit_is_known_as_one() -> None:
    edit = parse_update(update("edited_message", text="Hi"))
    assert edit is not None
    assert edit.edited
    place = {"longitude": 1.0, "latitude": 1.0, "live_period": 60}
    assert parse_update(update("edited_message", location=place)) is None  # it moves, nobody has written


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "Hi", "from": {**ADA, "is_bot": True}},
        {"text": "Hi", "sender_chat": GROUP},
        {"text": "/new@other_bot"},
        {"new_chat_members": [ADA]},
        {"text": "Hi", "from": None},
    ],
    ids=["a bot", "a channel or anonymous", "for another bot", "news", "nobody"],
)
def test_what_nobody_wrote_to_this_bot_is_left_out(fields: dict[str, Any]) -> None:
    assert parse_update(update(**fields), "this_bot") is None


def test_only_what_a_person_typed_is_their_own() -> None:
    origin = {"type": "user", "date": 1_700_000_000, "sender_user": {**ADA, "id": 666}}
    file = {"file_id": "f", "file_unique_id": "u", "file_name": "a.txt", "file_size": 3}
    typed, forwarded = parse_update(update(text="/new")), parse_update(update(text="/new", forward_origin=origin))
    captioned = parse_update(update(document=file, caption="/new"))
    inline = parse_update(update(text="/new", via_bot={"id": 9, "is_bot": True, "first_name": "B"}))
    assert typed is not None
    assert forwarded is not None
    assert captioned is not None
    assert inline is not None
    assert (typed.own, forwarded.own, captioned.own, inline.own) == (True, False, False, False)
    assert captioned.files == (Attachment(id="f", name="a.txt", size_bytes=3),)


def test_an_animation_is_no_document_though_telegram_says_so() -> None:
    file = {"file_id": "f", "file_unique_id": "u"}
    moving = parse_update(update(document=file, animation={**file, "width": 1, "height": 1, "duration": 1}))
    assert moving is not None
    assert (moving.files, moving.unreadable) == ((), ("animations",))


def test_a_message_comes_back_from_its_json_as_it_was() -> None:
    whole = Incoming(
        key="1",
        user="7",
        where=ChatPlace("1", "2"),
        text="Hi",
        own=False,
        files=(Attachment(id="f", name="n"),),
        unreadable=("pictures",),
        edited=True,
    )
    assert Incoming.of(whole.as_json()) == whole
    for wrong in ({}, {"key": "1"}, {**whole.as_json(), "more": 1}, {**whole.as_json(), "where": 3}):
        with pytest.raises(InvalidInput, match="is no stored message"):
            Incoming.of(wrong)
