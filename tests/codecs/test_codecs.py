"""The laws that hold in every dialect, on random messages as clients send them and on damaged ones."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.strategies import WIRES, Wire, in_dialect
from tests.property.depth import costly
from tests.property.sessions import BUILDERS

from foldline.codecs import DIALECTS, codec
from foldline.codecs.dialect import ROWS, violations
from foldline.errors import InvalidInput
from foldline.messages import Image, Message, Part, Text, ToolCall, ToolResult

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def alone(dialect: str, wire: Wire) -> set[str]:
    """The rules that the message breaks by itself."""
    # Followed by another message: only as the last one an assistant message may be empty (Anthropic).
    found = {violation.rule for violation in violations([wire, BUILDERS[dialect].user("?", False)[0]], dialect)}
    return {rule for rule in found if ROWS[dialect].rules[rule].alone or rule == "empty-content"}


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"openai-chat, openai-responses, anthropic, gemini"):
        codec("klingon")


@every_dialect
def test_every_dialect_has_a_codec_that_says_its_name(dialect: str) -> None:
    assert codec(dialect).dialect == dialect


@costly
@given(in_dialect())
def test_what_was_read_is_written_as_the_same_object(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    before = json.dumps(wire)
    message = codec(dialect).read(wire)
    assert message.wire is wire
    assert codec(dialect).write(message) is wire
    assert json.dumps(wire) == before


@costly
@given(in_dialect())
def test_a_message_that_is_legal_alone_is_left_alone(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    message = codec(dialect).read(wire)
    assert alone(dialect, wire) == set()
    sanitized = codec(dialect).sanitize(message)
    assert sanitized.message is message
    assert sanitized.faults == ()


@costly
@given(in_dialect(broken=True))
def test_a_damaged_message_is_repaired_once_and_for_all(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    before = copy.deepcopy(wire)
    broken = alone(dialect, wire)
    if "object" in broken:
        with pytest.raises(InvalidInput):
            codec(dialect).read(wire)
        return
    message = replace(codec(dialect).read(wire), kind="summary", pinned=True)
    sanitized = codec(dialect).sanitize(message)
    assert repr(wire) == repr(before)
    assert bool(sanitized.faults) == bool(broken), (sanitized, broken)
    if sanitized.message is None:
        return
    assert (sanitized.message is message) == (not broken)
    assert (sanitized.message.kind, sanitized.message.pinned) == ("summary", True)
    assert alone(dialect, dict(codec(dialect).write(sanitized.message))) == set()
    assert codec(dialect).sanitize(sanitized.message).message is sanitized.message


@costly
@given(in_dialect(broken=True))
def test_reading_damage_names_the_field_or_gives_a_message(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    if "object" in alone(dialect, wire):
        with pytest.raises(InvalidInput) as refused:
            codec(dialect).read(wire)
        assert refused.value.place in {"role", "type", "parts"}
    else:
        assert codec(dialect).read(wire).wire is wire


@costly
@given(in_dialect(), st.data())
def test_revising_keeps_the_json_of_what_stays(case: tuple[str, Wire], data: st.DataObject) -> None:
    dialect, wire = case
    before = json.dumps(wire)
    message = replace(codec(dialect).read(wire), kind="digest")
    assert codec(dialect).revise(message, message.parts) is message
    keep = data.draw(st.lists(st.booleans(), min_size=len(message.parts), max_size=len(message.parts)))
    parts = [part for part, kept in zip(message.parts, keep, strict=True) if kept]
    revised = codec(dialect).revise(message, parts)
    assert json.dumps(wire) == before
    assert revised.kind == "digest"
    unknown = {key for key in wire if key in {"x-mine", "cache_control", "metadata", "name"}}
    if revised.wire is not None and revised.wire.get("type") == wire.get("type"):
        assert all(revised.wire[key] is wire[key] for key in unknown)
    for part in parts:
        if not isinstance(part, ToolResult):
            assert any(part is other or part.raw is None for other in revised.parts)


def shortened(part: Part) -> Part:
    if isinstance(part, Text):
        return replace(part, text="SHORT")
    if isinstance(part, ToolResult):
        return replace(part, parts=(Text("SHORT"),))
    if isinstance(part, ToolCall):
        return replace(part, arguments=json.dumps({"short": True}))
    return part


@costly
@given(in_dialect())
def test_what_was_changed_is_read_back_as_it_was_meant(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    message = codec(dialect).read(wire)
    parts = [shortened(part) for part in message.parts]
    revised = codec(dialect).revise(message, parts)
    again = codec(dialect).read(dict(codec(dialect).write(revised)))
    if wire.get("type") != "computer_call_output":
        assert again.text == message_text(parts)
        assert [result.text for result in again.results] == ["SHORT"] * len(message.results)
    assert [(call.id, call.name, json.loads(call.arguments)) for call in again.calls] == [
        (call.id, call.name, {"short": True}) for call in message.calls
    ]
    assert alone(dialect, dict(codec(dialect).write(revised))) == set()
    assert codec(dialect).revise(revised, list(revised.parts)) is revised


def message_text(parts: list[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


@costly
@given(in_dialect())
def test_an_unchanged_part_next_to_a_changed_one_keeps_its_object(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    message = codec(dialect).read(wire)
    for index, part in enumerate(message.parts):
        if not isinstance(part, Text) or part.raw is None:
            continue
        parts = [*message.parts[:index], replace(part, text="SHORT"), *message.parts[index + 1 :]]
        revised = codec(dialect).revise(message, parts)
        others = zip(message.parts, revised.parts, strict=True)
        assert all(one is other for at, (one, other) in enumerate(others) if at != index)
        field = "refusal" if "refusal" in part.raw else "text"
        assert revised.parts[index].raw == {**part.raw, field: "SHORT"}


@costly
@given(in_dialect())
def test_no_parts_at_all_give_a_message_that_is_legal_alone(case: tuple[str, Wire]) -> None:
    dialect, wire = case
    message = codec(dialect).read(wire)
    assert alone(dialect, dict(codec(dialect).write(codec(dialect).revise(message, ())))) == set()


@costly
@given(in_dialect(), st.integers(0, 9))
def test_images_give_way_to_text(case: tuple[str, Wire], seed: int) -> None:
    dialect, wire = case
    message = codec(dialect).read(wire)
    placeholder = Text(f"[image {seed}]")

    def plain(part: Part) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(map(plain, part.parts)))
        return placeholder if isinstance(part, Image) else part

    revised = codec(dialect).revise(message, [plain(part) for part in message.parts])
    assert alone(dialect, dict(codec(dialect).write(revised))) == set()
    if wire.get("type") != "computer_call_output":
        again = codec(dialect).read(dict(codec(dialect).write(revised)))
        inner = [part for result in again.results for part in result.parts]
        assert not any(isinstance(part, Image) for part in [*again.parts, *inner])


@every_dialect
@pytest.mark.parametrize("text", ["hello", "", " ", "half \ud83d"])
def test_a_note_and_an_answer_of_ours_are_legal(dialect: str, text: str) -> None:
    for role in ("user", "assistant", "system"):
        note = codec(dialect).note(text, role=role, kind="digest")
        assert note.kind == "digest"
        assert alone(dialect, dict(codec(dialect).write(note))) == set()
    answer = codec(dialect).answer(ToolCall("call_1", "f", "{}"), text)
    assert [result.call_id for result in answer.results] == ["call_1"]
    assert alone(dialect, dict(codec(dialect).write(answer))) == set()


@every_dialect
def test_a_message_without_wire_is_made_from_its_parts(dialect: str) -> None:
    message = Message("user", (Text("What is in it?"),))
    content = {"parts": [{"text": "What is in it?"}]} if dialect == "gemini" else {"content": "What is in it?"}
    assert codec(dialect).write(message) == {"role": "user", **content}
    result = Message("tool", (ToolResult("call_1", (Text("ok"),)),))
    assert codec(dialect).read(codec(dialect).write(result)).results[0].text == "ok"
    call = Message("assistant", (ToolCall("call_1", "f", '{"a": 1}'),))
    assert codec(dialect).read(codec(dialect).write(call)).calls[0].name == "f"


@every_dialect
@pytest.mark.parametrize("wire", [None, [], "text", 5, {}, {"content": "x"}, {"role": None, "type": 3}])
def test_what_is_no_message_is_refused(dialect: str, wire: Wire) -> None:
    with pytest.raises(InvalidInput):
        codec(dialect).read(wire)


@every_dialect
def test_an_unknown_role_is_read_as_the_users_and_reported(dialect: str) -> None:
    content = {"parts": [{"text": "No."}]} if dialect == "gemini" else {"content": "No."}
    message = codec(dialect).read({"role": "critic", **content})
    sanitized = codec(dialect).sanitize(message)
    assert message.role == "user"
    assert sanitized.message is not None
    assert sanitized.message.wire == {"role": "user", **content}
    assert "critic" in sanitized.faults[0]


@costly
@given(st.data())
def test_lone_surrogates_become_sendable_wherever_they_are(data: st.DataObject) -> None:
    dialect, wire = data.draw(in_dialect())
    key = data.draw(st.sampled_from(["x-mine", "half \ud83d key"]))
    message = codec(dialect).read({**wire, key: ["cut \udc00", {"\ud83d": 1}]})
    sanitized = codec(dialect).sanitize(message)
    assert sanitized.message is not None
    json.dumps(codec(dialect).write(sanitized.message), ensure_ascii=False).encode("utf-8")
    assert len(sanitized.faults) == 1


def test_the_strategies_cover_all_dialects() -> None:
    assert sorted(WIRES) == sorted(DIALECTS)
