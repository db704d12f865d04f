"""After a complaint of one value stands that value; after one of the request the server's own words."""

from __future__ import annotations

import pytest

from foldline.failures import classify
from foldline.failures.echoes import without_shown_value

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
