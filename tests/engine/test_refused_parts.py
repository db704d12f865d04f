"""A refusal of one part: that part leaves, what is around it stays, and no session is stuck on one message."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.errors import DoesNotFit
from foldline.failures.classification import classify
from foldline.messages import Wire
from foldline.testing import session
from foldline.view.transcript import Fold

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
MOST_STEPS = 8
PDF = "JVBERi0xLjQK" + "QUJD" * 60
PNG = b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 80, 60, 8, 2, 0, 0, 0) + b"\0" * 90
).decode()


def document(dialect: str, name: str = "report.pdf") -> Wire:
    if dialect == "anthropic":
        source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
        return {"type": "document", "title": name, "source": source}
    if dialect == "gemini":
        return {"inlineData": {"mimeType": "application/pdf", "data": PDF, "displayName": name}}
    inner = {"filename": name, "file_data": f"data:application/pdf;base64,{PDF}"}
    return {"type": "file", "file": inner} if dialect == "openai-chat" else {"type": "input_file", **inner}


def image(dialect: str) -> Wire:
    url = f"data:image/png;base64,{PNG}"
    if dialect == "anthropic":
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    if dialect == "openai-chat":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "input_image", "image_url": url}


def text(dialect: str, words: str) -> Wire:
    return {"type": "input_text" if dialect == "openai-responses" else "text", "text": words}


def from_user(dialect: str, words: str, *parts: Wire) -> Wire:
    if dialect == "gemini":
        return {"role": "user", "parts": [{"text": words}, *parts]}
    return {"role": "user", "content": [text(dialect, words), *parts]}


def from_tool(dialect: str, call: str, *parts: Wire) -> list[Wire]:
    """A call, and its result with these parts."""
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": call, "name": "read", "input": {"path": "a.pdf"}}
        result = {"type": "tool_result", "tool_use_id": call, "content": [text(dialect, "read"), *parts]}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    if dialect == "openai-chat":
        asked = {"id": call, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": call, "content": [text(dialect, "read"), *parts]},
        ]
    return [
        {"type": "function_call", "call_id": call, "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call, "output": [text(dialect, "read"), *parts]},
    ]


def said(dialect: str, words: str) -> Wire:
    if dialect == "gemini":
        return {"role": "model", "parts": [{"text": words}]}
    return {"role": "assistant", "content": [{"type": "output_text" if "resp" in dialect else "text", "text": words}]}


def taken(context: Context, words: str, refuses: Callable[[str], bool], **settings: Any) -> list[str]:
    """Send until the provider takes it: what was sent each time. Fails when it repeats itself, or does not end."""
    tries: list[str] = []
    for _ in range(MOST_STEPS + 1):
        request = context.prepare()
        assert check(request.messages, dialect=context.dialect, **settings) == []
        tries.append(json.dumps(request.messages))
        assert tries[-1] not in tries[:-1], "the same request again"
        if not refuses(tries[-1]):
            return tries
        failure = classify(400, {"error": {"message": words}}, request=request.messages, estimate=request.tokens)
        assert context.recover(failure).retry, f"{failure.kind} {failure.pattern}"
    pytest.fail("it goes on for ever")


DOCUMENT_WORDS = [
    "The PDF specified was not valid.",
    "messages.0.content.1.pdf.source.base64.data: The PDF specified is password protected.",
    "Could not process PDF",
    "A maximum of 100 PDF pages may be provided.",
    "Invalid file data: the document could not be parsed",
    "Unsupported file type: application/pdf",
    "The document is too large: 40 MB",
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("words", DOCUMENT_WORDS)
@pytest.mark.parametrize("place", ["newest user", "older user", "result", "result beside others"])
def test_a_document_that_is_refused_gives_way_to_a_line(dialect: str, words: str, place: str) -> None:
    # anthropics/claude-code#25202, #20195, #15312
    context = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    begun = [from_user(dialect, "hello"), said(dialect, "hi")]
    if place == "newest user":
        context.extend([*begun, from_user(dialect, "keep these words", document(dialect))])
    elif place == "older user":
        context.extend([from_user(dialect, "keep these words", document(dialect)), said(dialect, "no")])
        context.append(from_user(dialect, "go on"))
    else:
        context.extend([*begun, from_user(dialect, "keep these words"), *from_tool(dialect, "c1", document(dialect))])
        if place == "result beside others":
            context.extend(from_tool(dialect, "c2", image(dialect)))
    tries = taken(context, words, lambda request: PDF in request)
    assert len(tries) == 2
    assert "keep these words" in tries[-1]
    assert "report.pdf" in tries[-1]
    assert "removed: " in tries[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_newest_document_leaves_last_and_a_named_one_alone(dialect: str) -> None:
    context = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    for number in range(3):
        context.append(from_user(dialect, f"file {number}", document(dialect, f"f{number}.pdf")))
        context.append(said(dialect, "read"))
    context.append(from_user(dialect, "so?"))
    context.prepare()
    context.recover(classify(400, {"error": {"message": "Could not process PDF"}}))
    assert json.dumps(context.prepare().messages).count(PDF) == 1
    assert PDF in json.dumps(context.prepare().messages[4])
    other = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    other.extend([json.loads(json.dumps(event.recorded)) for event in context.events if hasattr(event, "recorded")])
    other.prepare()
    name = "input[2].content[1]" if dialect == "openai-responses" else "messages.2.content.1"
    other.recover(classify(400, {"error": {"message": f"{name}.pdf.source: The PDF specified was not valid."}}))
    kept = [PDF in json.dumps(wire) for wire in other.prepare().messages]
    assert kept == [True, False, False, False, True, False, False]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "words",
    [
        "Could not process image",
        "Image URLs are only allowed for messages with role 'user', but this message with role 'tool' contains one.",
        "Only text tool_result blocks are supported when tool_result.content is an array.",
        "messages.2.content.0.tool_result: all content must be type text if is_error is true",
        "This model does not support image input",
        "messages[2]: unknown variant `image_url`, expected `text` at line 1 column 100",
        "Invalid base64 image data.",
    ],
)
@pytest.mark.parametrize("newest", [False, True])
def test_an_image_that_is_refused_gives_way_to_a_line(dialect: str, words: str, newest: bool) -> None:
    # OpenHands/OpenHands#7700; jetbrains-cc-gui#984; caozhiyuan/copilot-api#196
    context = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    context.append(from_user(dialect, "keep these words", *([image(dialect)] if newest else [])))
    if not newest:
        context.extend(from_tool(dialect, "c1", image(dialect)))
    tries = taken(context, words, lambda request: PNG in request)
    assert len(tries) == 2
    assert "keep these words" in tries[-1]
    assert "image" in tries[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "words",
    [
        "request contains 9 images, exceeding the maximum of 5 allowed per request",
        "At most 5 images may be provided in one prompt.",
        "Too much media: 0 document pages + 9 images > 5",
        "You provided 9 images but the maximum is 5",
    ],
)
def test_a_number_of_images_is_learned_and_kept_to(dialect: str, words: str) -> None:
    # anthropics/claude-code#24541, anomalyco/opencode#47487
    context = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    for number in range(9):
        context.extend([from_user(dialect, f"shot {number}", image(dialect)), said(dialect, "seen")])
    context.append(from_user(dialect, "so?"))
    tries = taken(context, words, lambda request: request.count(PNG) > 5)
    assert len(tries) == 2
    for number in range(3):
        context.extend([said(dialect, "and"), from_user(dialect, f"more {number}", image(dialect))])
        request = json.dumps(context.prepare().messages)
        assert request.count(PNG) <= 5
        assert PNG in json.dumps(context.prepare().messages[-1]), "the newest stays"


def thinking(signature: str) -> Wire:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


@pytest.mark.parametrize("newest_loop", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_thinking_whose_signature_does_not_hold_leaves(newest_loop: bool, named: bool) -> None:
    # anthropics/anthropic-sdk-python#1598, openclaw/openclaw#94534
    context = Context(dialect="anthropic", window=200_000, max_output_tokens=1_000)
    for number in range(4):
        context.append(from_user("anthropic", f"question {number}"))
        content = [thinking("BAD" if number == 1 else f"good{number}"), text("anthropic", f"answer {number}")]
        context.append({"role": "assistant", "content": content})
    context.append(from_user("anthropic", "keep these words"))
    if newest_loop:
        use = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
        context.append({"role": "assistant", "content": [thinking("BAD"), use]})
        context.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]})
    words = (
        "messages.3.content.0: Invalid `signature` in `thinking` block" if named else "Thought signature is not valid"
    )
    tries = taken(context, words, lambda request: '"BAD"' in request)
    assert len(tries) <= 3
    assert "answer 1" in tries[-1]
    assert "keep these words" in tries[-1]
    if named and not newest_loop:
        assert "good3" in tries[-1], "only the one that was named"


@pytest.mark.parametrize(
    "words",
    [
        "The encrypted content gAAA...DQ== could not be verified.",
        "The encrypted content for item rs_0a1b2c3d4e could not be verified. Reason: it could not be decrypted.",
        "Item with id 'rs_0a1b2c3d4e' not found. Items are not persisted when `store` is set to false.",
        "Item 'rs_0a1b2c3d4e' of type 'reasoning' was provided without its required following item.",
    ],
)
def test_an_item_that_the_server_does_not_know_leaves(words: str) -> None:
    # openai/codex#8145 and #35334
    context = Context(dialect="openai-responses", window=200_000, max_output_tokens=1_000)
    reasoning = {"type": "reasoning", "id": "rs_0a1b2c3d4e", "summary": [], "encrypted_content": "gAAABBB"}
    context.append(from_user("openai-responses", "first"))
    context.extend([reasoning, *from_tool("openai-responses", "c1")])
    context.append(said("openai-responses", "done"))
    context.append(from_user("openai-responses", "keep these words"))
    tries = taken(context, words, lambda request: "rs_0a1b2c3d4e" in request)
    assert len(tries) <= 3
    assert "keep these words" in tries[-1]


MALFORMED = [
    ("messages.3.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "odd-id"),
    ("Tool call id was odd-id but must be a-z, A-Z, 0-9, with a length of 9.", "odd-id"),
    ("Invalid 'input[3].call_id': string too long. Expected a string with maximum length 5.", "odd-id"),
    ("messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: odd-id", "odd-id"),
    ("No tool output found for function call odd-id.", "odd-id"),
    ("An assistant message with 'tool_calls' must be followed by tool messages responding to each one.", "odd-id"),
    ("Please ensure that function call turn comes immediately after a user turn", "odd-id"),
    ("messages.3: all messages must have non-empty content", "odd-id"),
    ("Not the same number of function calls and responses", "odd-id"),
    ("Duplicate tool_call_id: odd-id", "odd-id"),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("words", "odd"), MALFORMED)
def test_a_history_that_a_server_calls_malformed_is_condensed_and_not_only_named(
    dialect: str, words: str, odd: str
) -> None:
    context = Context(dialect=dialect, window=200_000, max_output_tokens=1_000)
    context.append(from_user(dialect, "first"))
    context.extend(from_tool(dialect, odd, text(dialect, "what it found " * 40)))
    context.append(said(dialect, "done"))
    context.append(from_user(dialect, "keep these words"))
    context.extend(from_tool(dialect, "c9", text(dialect, "more " * 40)))
    tries = taken(context, words, lambda request: odd in request)
    assert "keep these words" in tries[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0.tool_use.name: String should have at most 8 characters",
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern '^[a-z]{1,8}$'.",
        "Invalid function name in the history",
    ],
)
def test_a_name_that_is_refused_is_changed_or_goes_with_its_history(dialect: str, words: str) -> None:
    # anthropics/claude-code#94799, docker/docker-agent#3974
    context = Context(dialect=dialect, window=200_000, max_output_tokens=1_000)
    context.append(from_user(dialect, "keep these words"))
    calls = json.loads(
        json.dumps(from_tool(dialect, "c1", text(dialect, "found"))).replace('"read"', '"runner_long"', 1)
    )
    context.extend(calls)
    tries = taken(context, words, lambda request: '"runner_long"' in request)
    assert "keep these words" in tries[-1]


ASKED = {"role": "user", "content": "keep these words"}
SYSTEM = {"role": "system", "content": "You are terse."}
SAID = {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize(
    "history",
    [
        [SYSTEM, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}, SAID, ASKED],
        [SYSTEM, {"role": "user", "content": "a"}, SAID, {"role": "system", "content": "a rule"}, ASKED],
        [SYSTEM, SAID, ASKED],
        [{"role": "user", "content": "a"}, ASKED],
        [SYSTEM, SYSTEM, ASKED, *from_tool("openai-chat", "c1")],
        [SYSTEM, {"role": "user", "content": "a"}, SAID, SAID, ASKED],
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "System message must be at the beginning",
        "messages with role 'system' must be the first message",
        "the messages do not alternate between user and assistant",
        "Invalid request: consecutive user messages are not allowed",
        "found two messages of the same role",
    ],
)
def test_roles_that_a_template_refuses_are_put_in_turn(history: list[Wire], words: str) -> None:
    # NousResearch/hermes-agent#74086, scottgl9/skelm#188
    context = Context(window=32_000, max_output_tokens=1_000)
    context.extend(history)
    tries = taken(context, words, lambda request: check(json.loads(request), alternating=True) != [])
    assert len(tries) == 2
    for wire in history:
        assert json.dumps(wire["content"]) in tries[-1]
    assert ASKED in json.loads(tries[-1])
    context.extend([SAID, {"role": "user", "content": "and?"}])
    assert check(context.prepare().messages, alternating=True) == []


@pytest.mark.parametrize(
    "words",
    [
        "System role not supported",
        "Jinja Exception: system role is not supported",
        "System messages are not supported by this model",
        "Role 'system' is not allowed here",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_where_a_server_has_no_role_for_system_text_the_user_tells_it(words: str, beside: bool) -> None:
    context = Context(window=32_000, max_output_tokens=1_000, system=SYSTEM["content"] if beside else None)
    context.extend([*[SYSTEM][beside:], {"role": "user", "content": "a"}, SAID, ASKED])
    assert beside == (context.prepare().system is not None)
    assert context.recover(classify(500, {"error": {"message": words}})).retry
    tries = [json.dumps(context.prepare().messages)]
    assert context.prepare().system is None
    sent = json.loads(tries[-1])
    assert sent[0] == {"role": "user", "content": SYSTEM["content"]}
    assert check(sent, alternating=True) == []
    context.extend([SAID, {"role": "user", "content": "and?"}])
    request = context.prepare()
    assert request.messages[: len(sent)] == sent
    assert [repair.rule for repair in request.repairs] == ["alternation"]


def test_what_cannot_be_changed_any_more_ends() -> None:
    context = Context(window=200_000, max_output_tokens=1_000)
    context.append({"role": "user", "content": "keep these words"})
    before = context.prepare().messages
    for words in (
        "Conversation roles must alternate",
        "No tool output found for function call x.",
        "Could not process PDF",
    ):
        assert not context.recover(classify(400, {"error": {"message": words}})).retry
    with pytest.raises(DoesNotFit, match="no image may be removed"):
        context.recover(classify(400, {"error": {"message": "Could not process image"}}))
    assert context.prepare().messages == before


def test_every_step_ends_whatever_is_refused() -> None:
    for dialect in DIALECTS:
        for words in [words for words, _ in MALFORMED] + DOCUMENT_WORDS + ["Could not process image"]:
            context = Context(dialect=dialect, window=200_000, max_output_tokens=1_000)
            context.extend(session(12, dialect=dialect))
            context.append(from_user(dialect, "keep these words", document(dialect), image(dialect)))
            context.extend(from_tool(dialect, "c1", document(dialect)))
            seen = {json.dumps(context.prepare().messages)}
            for _ in range(20):
                try:
                    if not context.recover(classify(400, {"error": {"message": words}})).retry:
                        break
                except DoesNotFit:
                    break
                request = context.prepare()
                assert check(request.messages, dialect=dialect) == []
                assert "keep these words" in json.dumps(request.messages)
                assert json.dumps(request.messages) not in seen
                seen.add(json.dumps(request.messages))
            else:
                pytest.fail(f"it goes on for ever: {words}")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_left_out_stays_out_when_the_log_is_replayed_and_is_undone_as_one(dialect: str) -> None:
    context = Context(dialect=dialect, window=200_000, max_output_tokens=1_000)
    context.append(from_user(dialect, "keep these words", document(dialect), image(dialect)))
    whole = context.prepare().messages
    context.recover(classify(400, {"error": {"message": "Could not process PDF"}}))
    request = context.prepare()
    again = Context.replay(context.events, dialect=dialect, window=200_000, max_output_tokens=1_000)
    assert again.prepare().messages == request.messages
    [fold] = [event for event in context.events if isinstance(event, Fold)]
    assert "document refused" in fold.reason
    context.undo()
    assert context.prepare().messages == whole


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_too_large_because_of_the_newest_file_loses_the_file_and_keeps_the_words(dialect: str) -> None:
    # faults 20 and 48: a 413 removed it, but in the newest user message
    context = Context(dialect=dialect, window=1_000_000, max_output_tokens=1_000)
    large = json.loads(json.dumps(document(dialect)).replace(PDF, PDF[:12] + "QUJD" * 30_000))
    context.append(from_user(dialect, "keep these words", large))
    context.prepare()
    assert context.recover(classify(413, "Request Entity Too Large", estimate=100, window=1_000_000)).retry
    request = json.dumps(context.prepare().messages)
    assert len(request) < 1_000
    assert "keep these words" in request
