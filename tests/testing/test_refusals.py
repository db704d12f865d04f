"""What the fake refuses, in the provider's words, and that these words are read as what they mean."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.fake_requests import DIALECTS, HEADERS, PATHS, ask, ask_for, body
from tests.testing.invalid_requests import BROKEN, CASES

from foldline.codecs.dialect import ROWS
from foldline.failures.classification import classify
from foldline.testing import FakeProvider, count_body, session

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

# Broken pairs are what a history is repaired for: they must be told apart from every other fault.
MALFORMED = {"result-without-call", "call-without-result", "reasoning-alone", "user-first", "results-first"}


def error_of(dialect: str, sent: Any) -> dict[str, Any]:
    """The error object in the envelope of the dialect."""
    found = sent.json()
    if dialect == "anthropic":
        assert found["type"] == "error"
        assert found["request_id"] == sent.headers["request-id"]
        assert set(found["error"]) == {"type", "message"}
    elif dialect == "gemini":
        assert set(found["error"]) == {"code", "message", "status"}
    else:
        assert set(found["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = found["error"]
    return error


@pytest.mark.parametrize(("dialect", "rule", "given"), CASES, ids=[f"{d}-{r}" for d, r, _ in CASES])
def test_a_request_that_breaks_a_rule_is_refused(dialect: str, rule: str, given: dict[str, Any]) -> None:
    app = FakeProvider()
    request = body(dialect) | given
    sent = ask(app, PATHS[dialect], request)
    assert sent.status_code == 400
    message = error_of(dialect, sent)["message"]
    assert rule in app.refusals
    assert (app.served, list(app.requests)) == (0, [])
    assert [(r.status, r.kind, r.message) for r in app.refused] == [(400, rule, message)]
    kind = classify(400, sent.json()).kind
    assert kind == "malformed" if rule in MALFORMED and dialect != "gemini" else kind in {"malformed", "other", "image"}
    assert ask(app, PATHS[dialect], request | {"stream": True}).json()["error"]["message"] == message


@every_dialect
def test_every_rule_is_one_that_the_fake_refuses_by(dialect: str) -> None:
    assert set(BROKEN[dialect]) == set(ROWS[dialect].rules) - {"alternation"}, "most servers take roles in any order"


def test_a_server_whose_template_wants_alternation_refuses_two_in_a_row() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "user", "content": "there"}]
    assert ask_for(FakeProvider(), "openai-chat", messages).status_code == 200
    app = FakeProvider(alternates=True)
    sent = ask_for(app, "openai-chat", messages)
    assert (sent.status_code, dict(app.refusals)) == (400, {"alternation": 1})
    assert "roles must alternate" in sent.text


@every_dialect
def test_a_server_that_takes_fewer_images_says_how_many(dialect: str) -> None:
    given = BROKEN[dialect]["amount"]
    name = "input" if dialect == "openai-responses" else "messages"
    content = given[name][-1]["content"][:6]
    app = FakeProvider(max_images=5)
    sent = ask(app, PATHS[dialect], body(dialect) | {name: [{"role": "user", "content": content}]})
    assert dict(app.refusals) == {"amount": 1}
    assert "6 images" in sent.text
    assert "5 are taken" in sent.text


def test_a_refusal_names_the_place_and_the_call() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "c9", "content": "done"}]
    assert "messages[1] has tool_call_id c9" in ask_for(FakeProvider(), "openai-chat", messages).text


@pytest.mark.parametrize(
    ("role", "block", "home"),
    [
        ("user", {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}, "assistant"),
        ("user", {"type": "thinking", "thinking": "", "signature": "s"}, "assistant"),
        ("assistant", {"type": "tool_result", "tool_use_id": "t1"}, "user"),
    ],
)
def test_a_misplaced_block_is_named_with_its_place(role: str, block: dict[str, Any], home: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": role, "content": [block]}]
    app = FakeProvider()
    message = ask_for(app, "anthropic", messages).json()["error"]["message"]
    assert message == f"messages.1: `{block['type']}` blocks can only be in `{home}` messages"


@every_dialect
def test_what_is_larger_than_the_window_is_refused_with_its_figures(dialect: str) -> None:
    app = FakeProvider(window_tokens=1_000)
    request = body(dialect, "x" * 5_000)
    sent = ask(app, PATHS[dialect], request)
    failure = classify(sent.status_code, sent.json())
    assert sent.status_code == 400
    assert (failure.kind, failure.limit, failure.requested) == ("prompt_overflow", 1_000, count_body(request))
    assert app.refusals == {"overflow": 1}


@every_dialect
def test_what_fills_the_window_to_the_last_token_is_taken(dialect: str) -> None:
    size = count_body(body(dialect, "x" * 999))
    more: dict[str, Any] = {"max_tokens": 1} if dialect == "anthropic" else {}
    room = size + (1 if more else 0)
    assert ask_for(FakeProvider(window_tokens=room), dialect, "x" * 999, **more).status_code == 200
    assert ask_for(FakeProvider(window_tokens=room - 1), dialect, "x" * 999, **more).status_code == 400


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_what_fits_without_its_output_only_is_an_overflow_of_the_output(dialect: str) -> None:
    app = FakeProvider(window_tokens=1_000)
    request = body(dialect, "x" * 2_000, max_tokens=900)
    sent = ask(app, PATHS[dialect], request)
    failure = classify(sent.status_code, sent.json())
    assert (failure.kind, failure.limit) == ("output_overflow", 1_000)
    assert (failure.input_tokens, failure.output_tokens) == (count_body(request), 900)
    assert app.refusals == {"output-overflow": 1}


def test_responses_takes_an_output_that_does_not_fit() -> None:
    app = FakeProvider(window_tokens=1_000)
    assert ask_for(app, "openai-responses", "x" * 2_000, max_output_tokens=900).status_code == 200


@every_dialect
def test_more_output_than_the_model_can_write_is_refused(dialect: str) -> None:
    name = "max_output_tokens" if dialect == "openai-responses" else "max_tokens"
    sent = ask_for(FakeProvider(max_output_tokens=100), dialect, **{name: 101})
    failure = classify(sent.status_code, sent.json())
    assert (failure.kind, failure.limit, failure.limit_of) == ("output_overflow", 100, "output")


@every_dialect
def test_a_body_of_too_many_bytes_is_refused_unread(dialect: str) -> None:
    app = FakeProvider(max_request_bytes=1_000)
    sent = ask_for(app, dialect, "x" * 2_000)
    assert sent.status_code == 413
    assert classify(413, sent.json()).kind == "bytes_overflow"
    assert error_of(dialect, sent)["message"] == app.refused[0].message


@every_dialect
def test_an_unknown_model_is_refused(dialect: str) -> None:
    app = FakeProvider(models=["known"])
    sent = ask_for(app, dialect)
    assert sent.status_code == 404
    assert "m" in error_of(dialect, sent)["message"]
    assert classify(404, sent.json()).kind == "other"
    assert ask_for(app, dialect, model="known").status_code == 200


@every_dialect
def test_a_wrong_key_and_none_are_refused(dialect: str) -> None:
    app = FakeProvider(api_key="right")
    for name, prefix in (("x-api-key", ""), ("authorization", "Bearer ")):
        if name == "x-api-key" and dialect != "anthropic":
            continue
        wrong = ask(app, PATHS[dialect], body(dialect), headers={**HEADERS, name: f"{prefix}wrong"})
        right = ask(app, PATHS[dialect], body(dialect), headers={**HEADERS, name: f"{prefix}right"})
        assert (wrong.status_code, classify(401, wrong.json()).kind) == (401, "auth")
        assert right.status_code == 200
        assert "right" not in repr(app.requests[-1])
    none = ask(app, PATHS[dialect], body(dialect))
    assert (none.status_code, classify(401, none.json()).kind) == (401, "auth")


@every_dialect
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"text"', b'{"model": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(dialect: str, data: bytes) -> None:
    app = FakeProvider()
    sent = ask(app, PATHS[dialect], content=data)
    assert (sent.status_code, dict(app.refusals)) == (400, {"json": 1})
    assert error_of(dialect, sent)["message"]


@every_dialect
@pytest.mark.parametrize(
    "fault",
    [{"model": ...}, {"model": 7}, {"messages": ..., "input": ...}, {"max_tokens": 0, "max_output_tokens": 0},
     {"max_tokens": "many", "max_output_tokens": "many"}, {"tools": "ls"}, {"messages": "Hi", "input": 7}],
    ids=str,
)  # fmt: skip
def test_a_field_that_is_missing_or_wrong_is_refused(dialect: str, fault: dict[str, Any]) -> None:
    app = FakeProvider()
    given = body(dialect) | fault
    sent = ask(app, PATHS[dialect], {name: value for name, value in given.items() if value is not ...})
    assert (sent.status_code, dict(app.refusals)) == (400, {"field": 1})
    assert error_of(dialect, sent)["type"] == "invalid_request_error"


def test_anthropic_wants_an_output_cap_and_a_version() -> None:
    app = FakeProvider()
    assert "max_tokens: Field required" in ask_for(app, "anthropic", max_tokens=...).text
    assert "anthropic-version" in ask(app, PATHS["anthropic"], body("anthropic"), headers={}).text


def test_a_fifth_cache_breakpoint_is_refused() -> None:
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    app = FakeProvider()
    assert ask_for(app, "anthropic", [{"role": "user", "content": [block] * 4}]).status_code == 200
    assert "Found 5" in ask_for(app, "anthropic", [{"role": "user", "content": [block] * 5}]).text


def test_responses_finds_no_earlier_response() -> None:
    sent = ask_for(FakeProvider(), "openai-responses", previous_response_id="resp_1")
    assert (sent.status_code, sent.json()["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405), ("POST", "/v1/nothing", 404), ("GET", "/", 404),
        ("POST", "/v1/models", 405), ("GET", "/v1/messages", 405), ("POST", "/v1/messages/nothing", 404),
    ],
)  # fmt: skip
def test_what_is_not_served_is_said(method: str, path: str, status: int) -> None:
    app = FakeProvider()
    sent = ask(app, path, {} if method == "POST" else None, method=method)
    assert sent.status_code == status
    error_of("anthropic" if path.startswith("/v1/messages") else "openai-chat", sent)
    assert sum(app.refusals.values()) == 1


@every_dialect
def test_a_legal_session_is_taken(dialect: str) -> None:
    app = FakeProvider()
    assert ask_for(app, dialect, session(5, dialect=dialect)).status_code == 200
    assert (app.served, list(app.refused)) == (1, [])
