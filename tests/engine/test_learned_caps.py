"""What a refusal taught besides windows is known when a session is opened again, and to the next process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_refused_parts import DIALECTS, PNG, from_user, image, said

from foldline.codecs.limits import Caps
from foldline.engine.context import Context
from foldline.engine.learned_caps import lesson_in, lesson_name
from foldline.engine.one_shot import check
from foldline.failures.classification import classify
from foldline.store.learned_limits import LearnedLimits

AT = "http://there/v1"
ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
NO_SYSTEM = "System role not supported"
TOO_MANY = "You provided 9 images but the maximum is 5"
PAGES = "A maximum of 4 PDF pages may be provided."


def album(context: Context, dialect: str) -> None:
    for number in range(9):
        context.extend([from_user(dialect, f"shot {number}", image(dialect)), said(dialect, "seen")])
    context.append(from_user(dialect, "so?"))


def opened(dialect: str, learned: Any, **given: Any) -> Context:
    return Context(dialect=dialect, window=1_000_000, endpoint=AT, learned=learned, **{"model": "m", **given})


def refused(context: Context, words: str) -> None:
    sent = context.prepare()
    failure = classify(400, {"error": {"message": words}}, request=sent.messages, estimate=sent.tokens)
    assert context.recover(failure).retry


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_number_of_images_is_known_to_the_next_process(dialect: str, tmp_path: Path) -> None:
    first = opened(dialect, LearnedLimits(tmp_path / "l.json"))
    album(first, dialect)
    assert json.dumps(first.prepare().messages).count(PNG) == 9
    refused(first, TOO_MANY)
    learned = LearnedLimits(tmp_path / "l.json")
    second = opened(dialect, learned)
    album(second, dialect)
    assert json.dumps(second.prepare().messages).count(PNG) <= 5
    again = Context.replay(first.events, dialect=dialect, model="m", endpoint=AT, learned=learned, window=1_000_000)
    again.extend([from_user(dialect, "more", *[image(dialect)] * 5)])
    assert json.dumps(again.prepare().messages).count(PNG) <= 5
    for other in (
        opened(dialect, learned, model="n"),
        Context(dialect=dialect, model="m", learned=learned, window=1_000_000),
    ):
        album(other, dialect)
        assert json.dumps(other.prepare().messages).count(PNG) == 9
    own = opened(dialect, learned, caps=Caps(max_images=7))
    album(own, dialect)
    assert json.dumps(own.prepare().messages).count(PNG) >= 5, "what the user sets comes first"


def test_a_number_of_pages_is_kept_too(tmp_path: Path) -> None:
    context = opened("anthropic", LearnedLimits(tmp_path / "l.json"))
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK" + "QUJD" * 60}
    for number in range(6):
        context.extend(
            [from_user("anthropic", f"p {number}", {"type": "document", "source": source}), said("anthropic", "y")]
        )
    context.append(from_user("anthropic", "so?"))
    refused(context, PAGES)
    assert LearnedLimits(tmp_path / "l.json")[AT, lesson_name("m", "max_pages")] == 4


@pytest.mark.parametrize(("words", "system"), [(ALTERNATE, False), (NO_SYSTEM, True)])
def test_the_order_of_roles_that_a_server_wants_is_known_to_the_next_process(
    words: str, system: bool, tmp_path: Path
) -> None:
    wires = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    given = {"system": "Be brief."} if system else {}
    first = opened("openai-chat", LearnedLimits(tmp_path / "l.json"), **given)
    first.extend(wires)
    refused(first, words)
    second = opened("openai-chat", LearnedLimits(tmp_path / "l.json"), **given)
    second.extend(wires)
    request = second.prepare()
    assert request.messages == first.prepare().messages
    assert request.system is None
    assert check(request.messages, alternating=True) == []
    other = opened("openai-chat", LearnedLimits(tmp_path / "l.json"), **given, model="another")
    other.extend(wires)
    assert other.prepare().messages == wires


def test_another_model_of_the_same_session_keeps_to_what_is_known_of_it(tmp_path: Path) -> None:
    learned = LearnedLimits(tmp_path / "l.json")
    learned[AT, lesson_name("n", "max_images")] = 3
    context = opened("openai-chat", learned)
    album(context, "openai-chat")
    assert json.dumps(context.prepare().messages).count(PNG) == 9
    context.switch_model("n", context.limits)
    assert json.dumps(context.prepare().messages).count(PNG) <= 3


def test_a_file_of_windows_alone_is_read_and_a_lesson_is_no_window(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    path.write_text(json.dumps({AT: {"m": 5_000}}))
    learned = LearnedLimits(path)
    context = Context(model="m", endpoint=AT, learned=learned)
    assert context.limits.window_tokens == 5_000
    context.extend([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    refused(context, ALTERNATE)
    assert Context(model="m", endpoint=AT, learned=LearnedLimits(path)).limits.window_tokens == 5_000
    assert json.loads(path.read_text())[AT]["m"] == 5_000


@pytest.mark.parametrize("name", ["m", "a#b", "#", "m#maximages", ""])
def test_a_name_of_a_model_is_none_of_a_lesson(name: str) -> None:
    assert lesson_in(name) == ""
    assert lesson_in(lesson_name(name, "alternates")) == "alternates"
    assert lesson_name(name, "") == name
