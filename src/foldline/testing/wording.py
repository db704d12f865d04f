"""The words in which providers refuse a request, with their figures.

Those about size, pairs of calls and results, empty content, item ids and cache breakpoints are the providers' own, as
public reports of the errors have them: clients match on them. The others keep the form of the provider's messages and
say what the rule's finding says.
"""

from __future__ import annotations

import re
from typing import Final

from foldline.codecs.dialect import dialect_named
from foldline.codecs.rulebook import Violation
from foldline.testing.values import FakeReply, Refusal

__all__ = [
    "broken_rule",
    "no_such_model",
    "output_above_cap",
    "output_does_not_fit",
    "prompt_too_long",
    "scripted",
    "too_many_bytes",
    "wrong_key",
]

_ROLES: Final = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"

_PATTERN: Final = (
    "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$', of bounded length."
)

# {at} is the number of the message, {ids} the ids that the finding names, {detail} the finding.
_WORDS: Final[dict[str, dict[str, str]]] = {
    "openai-chat": {
        "empty-request": (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        ),
        "object": "Invalid type for 'messages[{at}]': expected an object with a role.",
        "encoding": "We could not parse the JSON body of your request: messages[{at}] is not valid UTF-8 JSON.",
        "role": f"Invalid value for 'messages[{{at}}].role'. Supported values are: {_ROLES}.",
        "content": (
            "Invalid type for 'messages[{at}].content': expected one of a string or array of objects ({detail})."
        ),
        "result-without-call": (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'. messages[{at}] has tool_call_id {ids}."
        ),
        "call-without-result": (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
        ),
        "result-content": "Invalid value for 'messages[{at}].content': expected a string, got null.",
        "empty-calls": (
            "Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, but got an "
            "empty array instead."
        ),
        "call-ids": "Duplicate value for 'tool_call_id' in messages[{at}].tool_calls.",
        "says-nothing": "Assistant message must have either content or tool_calls, but not none (messages[{at}]).",
        "call-name": f"Invalid 'messages[{{at}}].tool_calls[0].function.name': {_PATTERN}",
        "tool-name": f"Invalid 'tools[0].function.name': {_PATTERN}",
        "call-id-length": (
            "Invalid 'messages[{at}].tool_calls[0].id': string too long. Expected a string with maximum length 64, but "
            "got a longer string instead."
        ),
        "author": (
            "Invalid 'messages[{at}].name': string does not match pattern. Expected a string that matches the pattern "
            "'^[^\\s<|\\\\/>]+$'."
        ),
        "image": (
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', "
            "'jpeg', 'gif', 'webp']. (messages[{at}])"
        ),
        "image-place": (
            "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but this message "
            "contains an image URL."
        ),
        "result-text": (
            "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but this message "
            "with role 'tool' contains an image URL."
        ),
        "amount": "Invalid 'messages': {detail}.",
        "alternation": (
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        ),
    },
    "openai-responses": {
        "empty-request": (
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
        ),
        "object": "Invalid type for 'input[{at}]': expected an object with a type or a role.",
        "encoding": "We could not parse the JSON body of your request: input[{at}] is not valid UTF-8 JSON.",
        "role": (
            "Invalid value for 'input[{at}].role'. Supported values are: 'assistant', 'system', 'developer', and "
            "'user'."
        ),
        "content": "Invalid type for 'input[{at}].content': expected one of a string or array of objects ({detail}).",
        "result-without-call": "No tool call found for function call output with call_id {ids}.",
        "call-without-result": "No tool output found for function call {ids}.",
        "result-content": "Missing required parameter: 'input[{at}].output'.",
        "item-ids": "Duplicate item found with id {ids}. Remove duplicate items from your input and try again.",
        "call-name": f"Invalid 'input[{{at}}].name': {_PATTERN}",
        "tool-name": f"Invalid 'tools[0].name': {_PATTERN}",
        "call-id-length": (
            "Invalid 'input[{at}].call_id': string too long. Expected a string with maximum length 64, but got a "
            "longer string instead."
        ),
        "item-id-form": "Invalid 'input[{at}].id'. Expected an ID that begins with the mark of its type ({detail}).",
        "image": "The image data you provided does not represent a valid image (input[{at}]).",
        "amount": "Invalid 'input': {detail}.",
        "reasoning-alone": "Item 'input[{at}]' of type 'reasoning' was provided without its required following item.",
    },
    "anthropic": {
        "empty-request": "messages: at least one message is required",
        "object": "messages.{at}: Input should be a valid dictionary with a role",
        "encoding": "The request body is not valid JSON: messages.{at} is not UTF-8",
        "role": "messages.{at}.role: Input should be 'user' or 'assistant'",
        "content": "messages.{at}.content: Input should be a valid list ({detail})",
        "user-first": 'messages: first message must use the "user" role',
        "empty-content": (
            "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        ),
        "blank-text": "messages.{at}: text content blocks must be non-empty",
        "result-without-call": (
            "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {ids}. Each `tool_result` block "
            "must have a corresponding `tool_use` block in the previous message."
        ),
        "call-without-result": (
            "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        ),
        "second-result": (
            "messages.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {ids}"
        ),
        "results-first": (
            "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: `tool_result` "
            "blocks must come first in the content array."
        ),
        "empty-error": "messages.{at}.content: tool_result: content cannot be empty if `is_error` is true",
        "call-ids": "messages.{at}.content: `tool_use` ids must be unique",
        "id-pattern": "messages.{at}.content.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "input-object": "messages.{at}.content.tool_use.input: Input should be a valid dictionary",
        "signature": "messages.{at}.content.thinking.signature: Field required",
        "system-text": "system: text content blocks must be non-empty",
        "tool-names": "tools: Tool names must be unique.",
        "call-name": "messages.{at}.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'",
        "tool-name": "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        "failed-media": ("messages.{at}.content.0.tool_result: all content must be type `text` if `is_error` is true"),
        "image": "messages.{at}.content.0.image.source.base64: Could not process image ({detail})",
        "amount": "Too much media: {detail}",
        "cache-thinking": "messages.{at}.content.0.thinking.cache_control: Extra inputs are not permitted",
        "cache-count": "A maximum of 4 blocks with cache_control may be provided. Found {number}.",
        "cache-order": (
            "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
            "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
        ),
    },
}

_CALL_TURN: Final = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_PARTS: Final = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_WORDS["gemini"] = {
    "empty-request": "* GenerateContentRequest.contents: contents is not specified",
    "role": "Please use a valid role: user, model.",
    "user-first": "Please ensure that multiturn requests alternate between user and model.",
    "empty-content": "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.",
    "empty-part": (
        "* GenerateContentRequest.contents[{at}].parts[0].data: required oneof field 'data' must have one initialized "
        "field"
    ),
    "result-without-call": _RESPONSE_PARTS,
    "call-without-result": _RESPONSE_PARTS,
    "call-place": _CALL_TURN,
    "signature": (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. (content block {at})"
    ),
    "call-name": "* GenerateContentRequest.contents[{at}].parts[0].function_call.name: Invalid function name.",
    "tool-name": "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name.",
    "amount": "Please use fewer images or pages: {detail}.",
}

# The second word of a finding about a block in the wrong place: which block it is, and where it belongs.
_PLACES: Final = {
    "result": ("tool_result", "user"),
    "thinking": ("thinking", "assistant"),
    "redacted_thinking": ("redacted_thinking", "assistant"),
}

# By status: Anthropic ("Errors"), OpenAI ("Error codes"); the 429 of each with the figures it carries.
_STATUS_ANTHROPIC: Final = {
    401: "invalid x-api-key",
    402: "Your credit balance is too low to access the API. Please go to Plans & Billing to purchase credits.",
    403: "Your API key does not have permission to use the specified resource.",
    413: "Request exceeds the maximum size",
    429: "This request would exceed the rate limit for your organization of 30,000 input tokens per minute.",
    500: "Internal server error",
    503: "Service unavailable",
    504: "Request timed out",
    529: "Overloaded",
}
_STATUS_OPENAI: Final = {
    401: "Incorrect API key provided.",
    413: "Request body too large.",
    429: (
        "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s."
    ),
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The engine is currently overloaded, please try again later",
    504: "The request timed out.",
}
_STATUS_GEMINI: Final = {
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission",
    429: "You exceeded your current quota, please check your plan and billing details. Please retry in 2s.",
    500: "An internal error has occurred. Please retry or report in the troubleshooting guide.",
    503: "The model is overloaded. Please try again later.",
    504: "Deadline expired before operation could complete.",
}
_STATUSES: Final = {"anthropic": _STATUS_ANTHROPIC, "gemini": _STATUS_GEMINI}
_CODES_OPENAI: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def broken_rule(dialect: str, violation: Violation) -> Refusal:
    """Refuses a request that breaks a rule of its dialect."""
    at = "" if violation.index is None else str(violation.index)
    ids = ", ".join(re.findall(r"'([^']*)'", violation.detail))
    words = _WORDS[dialect].get(violation.rule, "")
    if violation.rule == "block-place":
        kind, role = _PLACES.get(violation.detail.split()[1], ("tool_use", "assistant"))
        words = f"messages.{{at}}: `{kind}` blocks can only be in `{role}` messages"
    if not words or ("{at}" in words and not at) or ("{ids}" in words and not ids):
        name = dialect_named(dialect).body.messages
        place = name if not at else f"{name}.{at}" if dialect == "anthropic" else f"{name}[{at}]"
        words = f"{place}: {{detail}}"
    number = next(iter(re.findall(r"\d+", violation.detail)), "")
    message = words.format(at=at, ids=ids, detail=violation.detail, number=number)
    return Refusal(400, violation.rule, message, None, dialect_named(dialect).body.messages)


def prompt_too_long(dialect: str, tokens: int, window_tokens: int) -> Refusal:
    """Refuses a request that is larger than the window by itself."""
    if dialect == "anthropic":
        return Refusal(400, "overflow", f"prompt is too long: {tokens} tokens > {window_tokens} maximum")
    if dialect == "gemini":
        return Refusal(
            400, "overflow", dialect_named(dialect).errors.overflow(tokens, window_tokens, "")["error"]["message"]
        )
    if dialect == "openai-responses":
        message = (
            f"Input tokens exceed the configured limit of {window_tokens} tokens. Your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return Refusal(400, "overflow", message, "context_length_exceeded", "input")
    message = (
        f"This model's maximum context length is {window_tokens} tokens. However, your messages resulted in {tokens} "
        "tokens. Please reduce the length of the messages."
    )
    return Refusal(400, "overflow", message, "context_length_exceeded", "messages")


def output_does_not_fit(dialect: str, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
    """Refuses a request that fits, but not with the output it asks for; Responses has no such rule: None."""
    if dialect == "anthropic":
        message = (
            f"input length and `max_tokens` exceed context limit: {tokens} + {output_tokens} > {window_tokens}, "
            "decrease input length or `max_tokens` and try again"
        )
        return Refusal(400, "output-overflow", message)
    if dialect in ("openai-responses", "gemini"):  # Gemini bounds input and output apart
        return None
    message = (
        f"This model's maximum context length is {window_tokens} tokens. However, you requested "
        f"{tokens + output_tokens} tokens ({tokens} in the messages, {output_tokens} in the completion). Please reduce "
        "the length of the messages or completion."
    )
    return Refusal(400, "output-overflow", message, "context_length_exceeded", "messages")


def output_above_cap(dialect: str, asked_tokens: int, cap_tokens: int, model: str) -> Refusal:
    """Refuses to write more than the model can."""
    if dialect == "anthropic":
        message = (
            f"max_tokens: {asked_tokens} > {cap_tokens}, which is the maximum allowed number of output tokens for "
            f"{model}"
        )
        return Refusal(400, "output-cap", message)
    if dialect == "gemini":
        message = (
            "Unable to submit request because it has a maxOutputTokens value of "
            f"{asked_tokens} but the supported range is from 1 (inclusive) to {cap_tokens + 1} (exclusive)."
        )
        return Refusal(400, "output-cap", message)
    name = "max_tokens" if dialect == "openai-chat" else "max_output_tokens"
    message = (
        f"{name} is too large: {asked_tokens}. This model supports at most {cap_tokens} completion tokens, whereas you "
        f"provided {asked_tokens}."
    )
    return Refusal(400, "output-cap", message, "invalid_value", name)


def no_such_model(dialect: str, model: str) -> Refusal:
    """Refuses a model that is not served."""
    if dialect == "anthropic":
        return Refusal(404, "model", f"model: {model}")
    if dialect == "gemini":
        return Refusal(404, "model", f"models/{model} is not found for API version v1beta")
    message = f"The model `{model}` does not exist or you do not have access to it."
    return Refusal(404, "model", message, "model_not_found", "model")


def wrong_key(dialect: str, *, given: bool) -> Refusal:
    """Refuses a wrong key, or none."""
    if dialect == "anthropic":
        return Refusal(401, "auth", "invalid x-api-key" if given else "x-api-key header is required")
    if dialect == "gemini":
        return Refusal(400 if given else 403, "auth", "API key not valid. Please pass a valid API key.")
    if not given:
        return Refusal(401, "auth", "Missing bearer authentication in header: you didn't provide an API key.")
    return Refusal(401, "auth", "Incorrect API key provided.", "invalid_api_key")


def too_many_bytes(dialect: str, max_request_bytes: int) -> Refusal:
    """Refuses a body that is too large to be read."""
    if dialect == "anthropic":
        return Refusal(413, "bytes", "Request exceeds the maximum size")
    if dialect == "gemini":
        return Refusal(400, "bytes", "Request payload size exceeds the limit: 20971520 bytes.")
    return Refusal(413, "bytes", f"Request body too large. The maximum request size is {max_request_bytes} bytes.")


def scripted(dialect: str, reply: FakeReply, status: int) -> Refusal:
    """The refusal that a script asks for, in the provider's usual words where it gives none of its own."""
    usual = _STATUSES.get(dialect, _STATUS_OPENAI)
    message = reply.message if reply.message is not None else usual.get(status, f"The request failed ({status}).")
    code = reply.code or (None if dialect in _STATUSES else _CODES_OPENAI.get(status))
    return Refusal(status, f"scripted-{status}", message, code, None, reply.retry_after_seconds)
