"""What an error only repeats is no evidence: quoted values, echoed input, and the words of the request itself."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.failures.classification import classify
from foldline.failures.failure import believable
from foldline.failures.request_echoes import strip_echoes, strip_values, without_shown_value

LIE = "This model's maximum context length is 3000 tokens. However, your messages resulted in 14000 tokens"
LIES = [
    LIE,
    "prompt is too long: 9001 tokens > 3000 maximum",
    "the request exceeds the available context size (3000 tokens)",
    "context_length_exceeded: the maximum prompt length is 3000 tokens",
]
SYSTEM = "You are a helpful assistant who knows what errors mean."


def asked(lie: str) -> dict[str, object]:
    return {
        "model": "m",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Why do I get: {lie}?"}],
        "reasoning_effort": lie,
    }


def errors_that_quote(lie: str) -> list[object]:
    inner = {"error": {"message": lie, "code": "context_length_exceeded"}}
    role = {"type": "literal_error", "loc": ("body", "messages", 2, "role"), "msg": "Input should be 'u'", "input": lie}
    return [
        {"error": {"message": f"Invalid value: '{lie}'. Supported: 'low', 'high'.", "code": "invalid_value"}},
        {"error": {"message": f"Invalid value: '{lie}'.", "type": "invalid_request_error", "param": None}},
        {"error": {"message": f'Unsupported value: "{lie}" for reasoning_effort', "code": "unsupported_value"}},
        {"error": {"message": f"{lie!r} is not one of ['low', 'high'] - 'reasoning_effort'"}},
        {"error": {"message": f"bad effort {lie}", "param": "reasoning_effort"}},
        {"error": {"message": f"bad effort {lie}", "type": "invalid_request_error", "code": "unknown_parameter"}},
        {"error": {"message": f"no such role in {lie}", "param": "messages[3].role"}},
        {"object": "error", "code": 400, "message": str([role])},
        {"detail": [{"type": "string_type", "loc": ["body", "messages", 0, "content"], "msg": "no", "input": [lie]}]},
        {"detail": [{"type": "value_error", "loc": ["body", "effort"], "msg": "no", "ctx": {"error": lie}}]},
        f"1 validation error\nmessages.2.role\n  no user [type=literal_error, input_value={lie!r}, input_type=str]",
        {"error": {"message": f"Invalid value: '{json.dumps(inner)}'"}},
        {"error": {"message": "no such tool", "type": "invalid_request_error"}, "request": {"messages": [lie]}},
        {"error": {"message": "no such tool"}, "input": lie, "received": lie, "value": lie},
    ]  # fmt: skip


def errors_that_repeat(lie: str) -> list[object]:
    """Without quotes or a field that names it: only the request tells that these words are the client's."""
    return [
        {"error": {"message": f"cannot read the effort {lie} at line 1"}},
        f"Jinja: could not render [{{'role': 'user', 'content': {lie!r}}}]",
        f"<html><body>400 bad effort {lie}</body></html>",
        {"error": {"message": f"cannot parse {json.dumps({'error': {'message': lie, 'code': 400}})}"}},
        {"error": {"message": f"failed: {json.dumps(json.dumps([lie, lie]))}"}},
    ]


@pytest.mark.parametrize("status", [400, 422, 500, None])
def test_a_value_that_an_error_quotes_is_no_overflow(status: int | None) -> None:
    for lie in LIES:
        for body in errors_that_quote(lie):
            for shape in (body, json.dumps(body)):
                failure = classify(status, shape, estimate=11_000, window=128_000)
                assert (failure.kind, failure.limit) == ("other", None), body


@pytest.mark.parametrize("status", [400, 422, None])
def test_what_stands_in_the_request_is_no_evidence(status: int | None) -> None:
    for lie in LIES:
        for body, sent in product([*errors_that_quote(lie), *errors_that_repeat(lie)], (False, True)):
            request = json.dumps(asked(lie)) if sent else asked(lie)
            failure = classify(status, body, estimate=11_000, window=128_000, request=request)
            assert (failure.kind, failure.limit) == ("other", None), body


def test_a_body_that_is_no_json_may_quote_one() -> None:
    inner = json.dumps({"error": {"message": LIE, "code": "context_length_exceeded"}})
    assert classify(400, f"Invalid value: '{inner}'").kind == "other"
    sent = {"messages": [{"role": "user", "content": inner}]}
    assert classify(400, f"no such thing as {inner} here", request=sent).limit is None


def test_a_code_that_is_a_value_of_the_request_is_none_of_the_error() -> None:
    sent = {"messages": [{"role": "user", "content": "hi"}], "metadata": {"code": "context_length_exceeded"}}
    body = {"error": {"message": "no such model"}, "failed": sent}
    assert classify(400, body, request=sent, estimate=10, window=100).kind == "other"
    assert classify(400, {"error": {"message": "no such model"}, "original_request": sent}).kind == "other"


def test_a_lie_behind_data_is_found_too() -> None:
    sent = {"messages": [{"role": "user", "content": "A" * 5_000 + f" {LIE}"}]}
    assert (
        classify(400, {"error": {"message": f"cannot read {LIE}"}}, request=sent, estimate=9, window=99).limit is None
    )


def test_an_overflow_of_which_the_user_has_told_before_is_one() -> None:
    told = {"messages": [{"role": "user", "content": f"{LIES[1]} and {LIES[0]}. Please reduce the length."}]}
    for said, limit in [
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("This model's maximum context length is 128000 tokens. However, you requested 140021 tokens.", 128_000),
    ]:
        failure = classify(400, {"error": {"message": said}}, request=told)
        assert (failure.kind, failure.limit) == ("prompt_overflow", limit)
    again = {"messages": [{"role": "user", "content": "Your input exceeds the context window of this model. Help!"}]}
    words = {"error": {"message": "Your input exceeds the context window of this model."}}
    assert classify(400, words, request=again, estimate=125_000, window=128_000).kind == "prompt_overflow"
    assert classify(400, words, request=again, estimate=5_000, window=128_000).kind == "other"
    coded = {"error": {**words["error"], "code": "context_length_exceeded"}}
    assert classify(400, coded, request=again, estimate=5_000, window=128_000).kind == "prompt_overflow"


def test_names_and_numbers_of_a_request_do_not_hide_what_is_said_of_them() -> None:
    request = {"model": "m-128000", "max_completion_tokens": 32_000, "messages": [{"role": "user", "content": "hi"}]}
    words = "max_completion_tokens: 32000 > 16384, which is the maximum allowed number of output tokens for m-128000"
    assert classify(400, {"error": {"message": words}}, request=json.dumps(request)).limit == 16_384


@pytest.mark.parametrize(
    ("limit", "taken_tokens", "believed"),
    [(3_000, 11_275, False), (9_000, 11_275, False), (10_000, 11_275, True), (200_000, 11_275, True),
     (3_000, None, True), (3_000, 0, True), (None, 11_275, True)],
)  # fmt: skip
def test_a_limit_far_below_what_was_taken_is_not_believed(
    limit: int | None, taken_tokens: int | None, believed: bool
) -> None:
    assert believable(limit, taken_tokens) is believed


@costly
@given(text=st.text(), request=st.text() | st.binary() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()))
def test_nothing_makes_it_raise_and_nothing_is_added(text: str, request: object) -> None:
    assert len(strip_echoes(text, request)) <= len(text) + 3 * len(text) // 15 + 3
    strip_values(text)


def test_text_that_repeats_itself_is_no_work_without_end() -> None:
    unit = "".join(f"abcdefgh{sign}" for sign in "xyzuvw")
    assert classify(400, f"prompt is too long {unit * 300}", request=["abcdefgh " * 20_000]).kind in (
        "other",
        "ambiguous",
    )


NAMES = (
    "Unrecognized request argument supplied: {}",
    "Unknown parameter: {}",
    "Unsupported parameter: {}. Use another one instead.",
    "Unknown field {}",
    "Extra inputs are not permitted: {}",
    "metadata.{}: Extra inputs are not permitted",
    "Additional properties are not allowed ('{}' was unexpected)",
    'Invalid JSON payload received. Unknown name "{}": Cannot find field.',
    'json: unknown field "{}"',
    "unknown variant `{}`, expected one of `user`, `assistant`",
    "Unrecognized key(s) in object: '{}'",
    "got an unexpected keyword argument '{}'",
    "No such tool: {}",
    "Unknown role {}",
    "Invalid user_id: {}",
    "The model `{}` does not exist",
    "The argument {} is not recognized",
    "property '{}' is unsupported",
)


@pytest.mark.parametrize("words", NAMES)
def test_a_name_that_a_server_does_not_know_is_no_overflow_whatever_it_is(words: str) -> None:
    for lie in LIES:
        message = words.format(lie)
        for body in (message, {"detail": message}, {"error": {"message": message, "type": "invalid_request_error"}}):
            failure = classify(400, body, estimate=11_000, window=128_000)
            assert (failure.kind, failure.limit) == ("other", None), message


@pytest.mark.parametrize(
    "words",
    [
        "{}",
        "Unknown error: {}",
        "Unexpected model error: {}",
        "Unsupported request: {}",
        "Invalid parameter: {}",
        "Invalid argument: {}",
        "Invalid input: {}",
        "Unknown parameter: 'x'. {}",
        "Unsupported parameter: top_k is not supported. {}",
    ],
)
def test_what_a_server_says_after_a_short_name_or_an_error_is_its_own(words: str) -> None:
    for lie in LIES:
        assert classify(400, {"error": {"message": words.format(lie)}}).kind == "prompt_overflow", words


@pytest.mark.parametrize("junk", [LIES[1], LIES[1].encode(), {"message": LIES[1]}, 5, [], ValueError, object()])
def test_what_is_no_exception_is_read_and_never_raises(junk: object) -> None:
    expected = "prompt_overflow" if isinstance(junk, str | bytes | dict) else "other"
    assert classify(error=junk).kind == expected
    assert classify(junk, LIES[1], estimate=junk, window=junk).kind == "prompt_overflow"  # type: ignore[arg-type]


OVERFLOWS = (
    "This model's maximum context length is 3000 tokens. However, your messages resulted in 14000 tokens",
    "prompt is too long: 9001 tokens > 3000 maximum",
    "the request exceeds the available context size (3000 tokens)",
    "context_length_exceeded: the maximum prompt length is 3000 tokens",
)


AROUND = ("{}", '"{}"', "'{}'", "“{}”", "Note: {}", "I wonder why I get an error: {}")


COMPLAINTS = (
    "Could not parse: {}",
    "Bad argument: {}",
    "stop sequence is invalid: {}",
    "Cannot decode value: {}",
    "Failed to parse tool arguments: {}",
    "Unable to interpret the value of metadata.user_id: {}",
    "Error parsing response_format: {}",
    "JSON parse error: {}",
    "Syntax error near: {}",
    "Malformed header: {}",
    "Illegal character in name: {}",
    "tool name is not valid: {}",
    "The user field is not allowed: {}",
    "metadata.user_id must be a string of letters: {}",
    "role must be one of user, assistant: {}",
    "Expected a number, got: {}",
    "Expected a boolean but received: {}",
    "Unknown model: {}",
    "No such tool: {}",
    "Wrong type for temperature: {}",
    "Duplicate label: {}",
    "Rejected value: {}",
    "Offending entry: {}",
    "Flagged phrase: {}",
    "Could not convert to float: {}",
    "litellm.BadRequestError: OpenAIException - Could not parse: {}",
    "Error code: 400 - Bad argument: {}",
    "Request failed. Unable to decode field seed: {}",
    "tool_choice does not match the schema: {}",
    "logit_bias is not an object: {}",
    "stop sequence is too long: {}",
    "could not recognise language: {}",
    "Invalid JSON in tool call: {}",
    "Tool call arguments are not valid JSON: {}",
    "service_tier is unknown: {}",
    "Unsupported locale: {}",
    "ValueError: could not convert string to float: {}",
    "The regular expression cannot be compiled: {}",
    "Incorrect date format: {}",
    "Invalid value for reasoning.effort: {}",
    "The server could not decode the argument value: {}",
    "Parser stopped at: {}",
    "YAML error in prompt variable: {}",
    "response_format.json_schema is not an object: {}",
    "Cannot resolve alias: {}",
    "Undefined variable: {}",
    "Unterminated string: {}",
    "Unexpected token: {}",
    'Unable to deserialize field "user": {}',
    "Value is not permitted: {}",
    "Not a valid identifier: {}",
    "Not a number: {}",
    "Expecting one of low, medium, high; found: {}",
    "Enum value not recognised: {}",
    "Content flagged as unsafe: {}",
    "No enum constant: {}",
    "The tag is unknown: {}",
    "error: bad metadata entry: {}",
    'HTTP 400: role "system2" is not supported: {}',
    "Bad value for stop: {}",
    "seed should be an integer: {}",
    "The following phrase is blocked: {}",
    "We could not understand this instruction: {}",
    "Unbalanced brackets in: {}",
    "Could not parse the messages: {}",
    "cannot unmarshal string into Go struct field ChatRequest.options of type int: {}",
    "invalid literal for int() with base 10: {}",
    "Template rendering failed on: {}",
    "Unparseable date: {}",
    "You sent an unsupported language: {}",
    'Could not parse "{}"',
    "Header X-Title has a bad value: {}",
)


OWN_WORDS = (
    "litellm.BadRequestError: OpenAIException - {}",
    "Invalid request: {}",
    "Bad request: {}",
    "INVALID_ARGUMENT: {}",
    "Invalid argument: {}",
    "Invalid parameter: {}",
    "Illegal argument: {}",
    "Request validation failed: {}",
    "Unprocessable entity: {}",
    "Provider returned error: {}",
    "Upstream rejected the request: {}",
    "Request rejected: {}",
    "Unexpected status code 400: {}",
    "Bad gateway: {}",
    "ValidationException: {}",
    "Invalid prompt: {}",
    "Invalid input: {}",
    "The request is invalid: {}",
    "The request was not accepted: {}",
    "Could not process the request: {}",
    "Failed to generate a completion: {}",
    "messages are invalid: {}",
    "Error 400: {}",
    "openai.BadRequestError: Error code: 400 - {}",
    "Model call failed: {}",
    "Request not allowed: {}",
    'Error from backend "vllm": {}',
    "Unexpected error: {}",
    "Cannot continue: {}",
    "Sorry, something went wrong: {}",
    "Bad input: {}",
    "Chat failed (400): {}",
    "Wrong input: {}",
    "Unsupported request: {}",
    "Request too large: {}",
    "Model error: {}",
    "vLLM rejected this prompt: {}",
    "Error calling model: {}",
    "Bad response from model provider: {}",
    "The provider refused the request: {}",
    "Unexpected response (400): {}",
    "API error: {}",
    "Request is not processable: {}",
    "BadRequestError: {}",
    "Non-retryable error: {}",
    "Failed to call LLM: {}",
    "Failed to create chat completion: {}",
    "Unable to complete the request: {}",
    "Cannot process input: {}",
    "Input is not acceptable: {}",
    "Error in model run: {}",
    "400 Client Error: {}",
    "Traceback: ValueError: {}",
    "Context error: {}",
    "Invalid messages: {}",
    "Bad prompt: {}",
    "Unsupported input: {}",
    "Generation failed: {}",
    "Unable to run inference: {}",
    "ollama: {}",
    "[gateway] upstream status 400: {}",
    "Rejected: {}",
    "Assertion failed: {}",
    "ERROR while serving /v1/chat/completions: {}",
    "InternalServerError: {}",
    "Invalid model input: {}",
    "Failed: {}",
    "Invalid usage: {}",
    "Inference error at node 3: {}",
    "The operation could not be completed: {}",
    "Unable to read response stream: {}",
    "An error was found: {}",
)


@pytest.mark.parametrize("words", COMPLAINTS)
def test_a_value_shown_after_a_complaint_of_it_is_no_overflow(words: str) -> None:
    for said in OVERFLOWS:
        for around in AROUND:
            message = words.format(around.format(said))
            for body in (message, {"detail": message}, {"error": {"message": message, "code": 400}}):
                failure = classify(400, body, estimate=11_000, window=128_000)
                assert (failure.kind, failure.limit) == ("other", None), message


@pytest.mark.parametrize("words", OWN_WORDS)
def test_what_a_server_says_after_naming_the_request_is_its_own(words: str) -> None:
    for said in OVERFLOWS:
        failure = classify(400, {"error": {"message": words.format(said)}})
        assert failure.kind == "prompt_overflow", words


@pytest.mark.parametrize(
    ("message", "kind", "limit"),
    [
        ("Error: prompt is too long: 210000 tokens > 200000 maximum", "prompt_overflow", 200_000),
        ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
         "prompt_overflow", 4_096),
        ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", "prompt_overflow",
         30_720),
        ("Invalid prompt length: 5000 tokens > 4096 maximum context length", "prompt_overflow", 4_096),
        ("Invalid 'max_tokens': integer above maximum value. Expected <= 4096, got 9000.", "output_overflow", 4_096),
        ("Invalid 'input[3].name': string too long. Expected 64.", "malformed", None),
    ],
)  # fmt: skip
def test_a_statement_about_a_size_after_a_colon_is_read(message: str, kind: str, limit: int | None) -> None:
    failure = classify(400, {"error": {"message": message}})
    assert (failure.kind, failure.limit) == (kind, limit)


def test_what_a_server_says_before_it_shows_a_value_stays() -> None:
    said = "prompt is too long: 9001 tokens > 8000 maximum"
    assert classify(400, f"{said}. Also, bad argument: 3000 tokens").limit == 8_000
    assert without_shown_value("No fault here. All is well: yes") == "No fault here. All is well: yes"


def test_a_text_of_colons_is_no_work_without_end() -> None:
    for unit in (": ", "bad thing: ", "a must not be b : ", "is not " * 9, "'x' ", "could not parse"):
        without_shown_value(unit * (16_384 // len(unit)))
