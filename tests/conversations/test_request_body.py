"""The body of a request: unchanged parts keep their bytes, and an invalid body is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foldline.conversations.request_body import FORMS, RequestBody, read_body, to_json
from foldline.errors import InvalidInput

CHAT, RESPONSES, ANTHROPIC = (FORMS[name] for name in ("openai-chat", "openai-responses", "anthropic"))

SPACES = ("", "", " ", "\n", "\t", "\r\n  ", "   ")
NUMBERS = ("0", "-7", "1e5", "-0.0", "12.50", "1E+2", "0.1e-7", "123456789012345678901234567890")
TEXTS = (
    "",
    "role",
    "é",
    "上下文",
    "a b",
    'q"uo\\te',
    "tab\there\n",
    "a/b",
    "👩\u200d👩",
    "\ud83d alone",
    "\x7f{}[]:,",
    "x" * 40,
)

texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=8))


def value(by: Random, depth: int = 0) -> str:
    """Any JSON, in one of the many ways to write it."""
    kind = by.randrange(7 if depth < 4 else 4)
    if kind == 0:
        return by.choice(("null", "true", "false"))
    if kind == 1:
        return by.choice(NUMBERS)
    if kind < 4:
        return string(by, by.choice(TEXTS))
    if kind == 4:
        return listed(by, [value(by, depth + 1) for _ in range(by.randrange(4))])
    return mapped(by, {by.choice(TEXTS): value(by, depth + 1) for _ in range(by.randrange(4))})


def string(by: Random, text: str) -> str:
    """A text in one of the many ways to write it."""
    plain = json.dumps(text, ensure_ascii=by.random() < 0.5 or "\ud83d" in text)
    return plain.replace("/", "\\/") if by.random() < 0.5 else plain


def listed(by: Random, items: list[str]) -> str:
    """An array of JSON."""
    return "[" + (",".join(by.choice(SPACES) + item + by.choice(SPACES) for item in items) or by.choice(SPACES)) + "]"


def mapped(by: Random, fields: Mapping[str, str]) -> str:
    """An object of JSON."""
    pairs = (
        by.choice(SPACES) + string(by, name) + by.choice(SPACES) + ":" + by.choice(SPACES) + inner + by.choice(SPACES)
        for name, inner in fields.items()
    )
    return "{" + (",".join(pairs) or by.choice(SPACES)) + "}"


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str]:
    """(dialect, the text of a request), in any spelling, with any unknown fields in any order."""
    dialect = draw(st.sampled_from(sorted(FORMS)))
    by = Random(draw(st.integers(0, 2**32)))  # drawn as one number: a draw for each brace takes minutes
    names = [by.choice(TEXTS) for _ in range(by.randrange(6))] + ["model", FORMS[dialect].messages]
    by.shuffle(names)
    fields = {name: value(by) for name in names}
    fields[FORMS[dialect].messages] = listed(
        by, [mapped(by, {name: value(by) for name in ("role", "content", "é")}) for _ in range(by.randrange(1, 5))]
    )
    return dialect, by.choice(SPACES) + mapped(by, fields) + by.choice(SPACES)


def read(text: str | bytes, dialect: str = "openai-chat") -> RequestBody:
    return read_body(FORMS[dialect], text.encode() if isinstance(text, str) else text)


def refusal(text: str | bytes, dialect: str = "openai-chat") -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text, dialect)
    return str(caught.value)


@settings(max_examples=100)
@given(requests())
def test_what_is_not_changed_is_the_very_bytes(request_: tuple[str, str]) -> None:
    dialect, text = request_
    body = read(text, dialect)
    assert body.changed({}) == body.raw == text.encode()
    assert body.fields == json.loads(text)


@settings(max_examples=100)
@given(requests())
def test_a_place_holds_the_text_of_what_was_read(request_: tuple[str, str]) -> None:
    dialect, text = request_
    body = read(text, dialect)
    assert len(body.item_spans) == len(body.messages)
    for at, message in enumerate(body.messages):
        assert json.loads(body.item(at)) == message
        assert body.item(at)[0] == "{" and body.item(at)[-1] == "}"
    for name, (start, stop) in body.spans.items():
        assert json.loads(text[start:stop]) == body.fields[name]
    assert text[body.end] == "}" and not text[body.end + 1 :].strip()


@settings(max_examples=100)
@given(requests(), st.data())
def test_a_change_leaves_every_other_byte(request_: tuple[str, str], data: st.DataObject) -> None:
    dialect, text = request_
    body = read(text, dialect)
    name = data.draw(st.sampled_from(sorted(body.fields)))
    start, stop = body.spans[name]
    assert body.changed({name: '"new é"'}).decode() == f'{text[:start]}"new é"{text[stop:]}'
    both = {name: "1", data.draw(st.sampled_from(sorted(body.fields))): "1"}
    found = json.loads(body.changed(both))
    assert found == {**body.fields, **dict.fromkeys(both, 1)}


@settings(max_examples=100)
@given(requests(), texts)
def test_a_new_field_comes_last(request_: tuple[str, str], name: str) -> None:
    dialect, text = request_
    body = read(text, dialect)
    assume(name not in body.fields)
    found = body.changed({name: "[1]"}).decode()
    assert found.startswith(text[: body.end]) and found.endswith(text[body.end :])
    assert json.loads(found) == {**body.fields, name: [1]}


GOOD = '{"model":"m","messages":[{"role":"user","content":"hi"}]}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"messages":[{"role":"user"}],"messages":[{"role":"user"}]}', "stands there twice"),
        ('{"a":1,"\\u0061":2,"messages":[{}]}', "stands there twice"),
        ('{"temperature":NaN,"messages":[{}]}', "no JSON"),
        ('{"messages":[{"x":[-Infinity]}]}', "no JSON"),
        ('{"messages":[{"x":Infinity}]}', "no JSON"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "body"),
        (b'{"messages":[{"content":"\xff\xfe"}]}', "no UTF-8"),
        (GOOD.encode("utf-16"), "body"),
        (b'{"messages":[{"content":"\xed\xa0\xbd"}]}', "no UTF-8"),
        (GOOD + "x", "after its end"),
        (GOOD + GOOD, "after its end"),
        (GOOD + "\x00", "after its end"),
        ("", "no JSON"),
        ("  ", "no JSON"),
        ("[]", "no object"),
        ('"messages"', "no object"),
        ("{}", "no list of messages"),
        ('{"messages":[]}', "no list of messages"),
        ('{"messages":{}}', "no list of messages"),
        ('{"messages":"hi"}', "no list of messages"),
        ('{"messages":null}', "no list of messages"),
        ('{"messages":[{"role":"user"},"hi"]}', "messages[1]"),
        ('{"messages":[null]}', "messages[0]"),
        ('{"messages":[{}],}', "no JSON"),
        ('{"messages":[{},]}', "no JSON"),
        ('{,"messages":[{}]}', "no JSON"),
        ('{"messages":[,{}]}', "no JSON"),
        ('{"messages":[{}] "a":1}', "no JSON"),
        ('{"messages":[{} {}]}', "no JSON"),
        ('{"messages" [{}]}', "no JSON"),
        ('{"messages":[{}', "no JSON"),
        ('{"messages":[{}]', "no JSON"),
        ('{"messages":', "no JSON"),
        ('{"messages"', "no JSON"),
        ('{"mess', "no JSON"),
        ('{"messages":[{"a":"\n"}]}', "no JSON"),
        ("{'messages':[{}]}", "no JSON"),
        ('{1:2,"messages":[{}]}', "no JSON"),
        ('{"a":01,"messages":[{}]}', "no JSON"),
        ('{"n":' + "9" * 5_000 + ',"messages":[{}]}', "body"),
        ('{"messages":[{"n":' + "9" * 5_000 + "}]}", "body"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + ',"messages":[{}]}', "nested too deeply"),
        ('{"messages":[' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "]}", "nested too deeply"),
    ],
    ids=lambda text: str(text[:40]),
)
def test_what_is_no_request_is_refused(text: str | bytes, said: str) -> None:
    assert said in refusal(text)


@given(st.one_of(st.binary(max_size=60), st.text('{}[]":,\\ntrue01.eu', max_size=40).map(str.encode)), st.data())
def test_nothing_but_a_refusal_comes_of_nonsense(raw: bytes, data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(sorted(FORMS)))
    try:
        body = read(raw, dialect)
    except InvalidInput:
        return
    assert json.loads(raw) == body.fields


@settings(max_examples=100)
@given(requests(), st.data())
def test_a_request_that_was_damaged_is_read_as_what_it_is_or_not_at_all(
    request_: tuple[str, str], data: st.DataObject
) -> None:
    dialect, text = request_
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from([b"", b",", b"}", b"]", b'"', b"\xc3"]))
        if not raw:
            break
    try:
        body = read(bytes(raw), dialect)
    except InvalidInput:
        return
    assert json.loads(bytes(raw)) == body.fields and body.changed({}) == bytes(raw)


def test_a_text_for_one_message_is_taken_in_responses_alone() -> None:
    body = read('{"input":"hi"}', "openai-responses")
    assert body.messages == [{"role": "user", "content": "hi"}] and not body.item_spans
    assert "no list of messages" in refusal('{"messages":"hi"}', "anthropic")


def test_the_cap_is_that_which_counts_first() -> None:
    both = read('{"max_tokens":5,"max_completion_tokens":7,"messages":[{}]}')
    assert (both.cap_field, both.cap_tokens) == ("max_completion_tokens", 7)
    null = read('{"max_tokens":5,"max_completion_tokens":null,"messages":[{}]}')
    assert (null.cap_field, null.cap_tokens) == ("max_tokens", 5)
    assert read(GOOD).cap_field == "max_tokens"
    assert read('{"input":[{}]}', "openai-responses").cap_field == "max_output_tokens"


@pytest.mark.parametrize("cap", ["null", '"5"', "true", "0", "-3", "1.5", "[]"])
def test_a_cap_that_is_none_is_not_believed(cap: str) -> None:
    assert read(f'{{"max_tokens":{cap},"messages":[{{}}]}}').cap_tokens is None


def test_what_stands_beside_the_messages_is_read_or_refused() -> None:
    text = '{"system":"S","tools":[{"name":"f"}],"model":7,"stream":1,"messages":[{}]}'
    body = read(text, "anthropic")
    assert body.system == "S" and body.tools == [{"name": "f"}]
    assert body.model == "" and not body.streamed
    assert read('{"system":[{"type":"text"}],"messages":[{}],"stream":true}', "anthropic").streamed
    assert read('{"system":"no field of this dialect","messages":[{}]}').system is None
    for wrong in ("1", "{}", '["a"]'):
        with pytest.raises(InvalidInput, match="system"):
            _ = read(f'{{"system":{wrong},"messages":[{{}}]}}', "anthropic").system
        with pytest.raises(InvalidInput, match="tools"):
            _ = read(f'{{"tools":{wrong},"messages":[{{}}]}}').tools


@given(st.integers(0, 2**32))
def test_what_we_write_reads_as_what_it_was(seed: int) -> None:
    what = json.loads(value(Random(seed)))
    to_json(what).encode()
    assert json.loads(to_json(what)) == what


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    assert to_json({"a": "\ud83d é"}) == '{"a":"\\ud83d \\u00e9"}'
    assert to_json({"a": "é 上"}) == '{"a":"é 上"}'
