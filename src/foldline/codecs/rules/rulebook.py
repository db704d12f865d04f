"""The validity rules of each dialect as a table: what must hold, and which document says so.

`check` is the strictest widely used server of a dialect: where OpenAI takes what vLLM, Mistral or Moonshot refuse,
their rule stands here. Only what providers document or answer with an error is a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from foldline.codecs.base import Violation
from foldline.codecs.limits.by_dialect import Limits

__all__ = ["RULES", "Findings", "Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its id, the sentence that must hold, the document it comes from.

    `alone` is true for a rule that one message keeps or breaks by itself, whatever stands around it.
    """

    id: str
    sentence: str
    source: str
    alone: bool = False


_JSON = "RFC 8259, section 8.1: JSON between systems is UTF-8"
_CHAT = "OpenAI API reference, Chat Completions"
_CHAT_CALLS = "OpenAI docs, Function calling: every call is answered by a tool message with its tool_call_id"
_RESPONSES = "OpenAI API reference, Responses: input"
_RESPONSES_CALLS = "OpenAI docs, Function calling: every call is answered by an output with its call_id"
_REASONING = "OpenAI docs, Reasoning models: keep reasoning items with the items they led to"
_MESSAGES = "Anthropic API reference, Messages"
_TOOL_USE = "Anthropic docs, Implement tool use"
_THINKING = "Anthropic docs, Extended thinking"
_STOPS = "Anthropic docs, Handling stop reasons"
_NON_EMPTY = 'Anthropic API, error "text content blocks must be non-empty"'
_ID_PATTERN = 'Anthropic API, error "String should match pattern" for tool_use.id'
_EMPTY_ERROR = 'Anthropic API, error "content cannot be empty if `is_error` is true"'
_ONLY_IN = 'Anthropic API, errors "blocks can only be in `assistant` messages" and "... in `user` messages"'


_NAME_PATTERN = 'OpenAI API, error "string does not match pattern" for function.name, '
_VISION = 'Anthropic docs, "Vision"'
_CACHING = 'Anthropic docs, "Prompt caching"'
_MANY_IMAGES = "OpenAI docs, Images and vision: 500 images in a request"
_IMAGES = "OpenAI docs, Images and vision: PNG, JPEG, WEBP and GIF, 20 MB each"
_CALL_ID = 'OpenAI API, error "string too long. Expected a string with maximum length 64" for '


def _shared(source: str) -> tuple[Rule, ...]:
    return (
        Rule("empty-request", "A request has at least one message.", source),
        Rule("object", "A message is a JSON object with a role or a type.", source, alone=True),
        Rule("encoding", "A request travels as UTF-8 JSON: no lone surrogates, no NaN.", _JSON, alone=True),
        Rule("role", "A role is one of those that the API names.", source, alone=True),
        Rule("content", "Content is text or a list of blocks, each an object with a type.", source, alone=True),
        Rule("call-shape", "A call has an id and names a tool; a result names its call.", source, alone=True),
    )


_CHAT_RULES = (
    *_shared(_CHAT),
    Rule("result-without-call", "A tool message answers a call of the assistant message before it.", _CHAT_CALLS),
    Rule("call-without-result", "A call is answered before any other message.", _CHAT_CALLS),
    Rule("result-content", "A tool message has content; an empty text will do.", f"{_CHAT}: tool message", alone=True),
    Rule(
        "empty-calls", "tool_calls, where it stands, is a list with a call in it.", f"{_CHAT}: tool_calls", alone=True
    ),
    Rule("call-ids", "The calls of a message have different ids.", _CHAT_CALLS),
    Rule(
        "arguments",
        "Call arguments are JSON text.",
        "vLLM documentation, Tool calling: chat templates parse the arguments of earlier calls",
        alone=True,
    ),
    Rule(
        "says-nothing",
        "An assistant message has text or calls.",
        "Mistral AI API, chat completions: an assistant message has either content or tool_calls",
        alone=True,
    ),
    Rule(
        "call-name",
        "The name of a tool has 1 to 64 letters, digits, _ and -.",
        f"{_NAME_PATTERN}at most 64 characters",
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 64 letters, digits, _ and -.", f"{_CHAT}: tools, function.name"),
    Rule("call-id-length", "The id of a call has at most 64 characters.", f"{_CALL_ID}tool_calls.id", alone=True),
    Rule(
        "author",
        "The name of who speaks has at most 64 characters, no blanks, no <, |, \\, / and >.",
        'OpenAI API, error "string does not match pattern" for messages.name',
        alone=True,
    ),
    Rule("image", "An image is one that can be read.", _IMAGES, alone=True),
    Rule(
        "image-place",
        "Images and files stand in messages of the user.",
        "OpenAI API, error \"Image URLs are only allowed for messages with role 'user'\"",
        alone=True,
    ),
    Rule("result-text", "A tool message holds only text.", f"{_CHAT}: tool message, content"),
    Rule("amount", "A request holds no more images than are taken.", _MANY_IMAGES),
    Rule(
        "alternation",
        "One system message first, then the user and the assistant in turn.",
        'chat templates of Mistral, Gemma and Qwen, error "conversation roles must alternate"',
    ),
)

_RESPONSES_RULES = (
    *_shared(_RESPONSES),
    Rule("result-without-call", "An output stands after its call.", _RESPONSES_CALLS),
    Rule("second-result", "A call has one output, an approval one answer.", _RESPONSES_CALLS),
    Rule(
        "approval-without-request",
        "An approval stands after the request that it answers.",
        "OpenAI docs, MCP and connectors: Approvals",
    ),
    Rule(
        "caller",
        "A call out of a program, and its output, stand after the program.",
        "OpenAI docs, Programmatic tool calling: keep the program with its calls",
    ),
    Rule("call-without-result", "A call that the client answers has an output.", _RESPONSES_CALLS),
    Rule("result-content", "An output item has an output; an empty text will do.", _RESPONSES, alone=True),
    Rule("call-ids", "A call id stands for one call.", f"{_RESPONSES}: call_id, the unique id of the call"),
    Rule("item-ids", "An item id stands once.", 'OpenAI API, error "Duplicate item found with id"'),
    Rule("arguments", "Call arguments are JSON text.", f"{_RESPONSES}: function_call, arguments", alone=True),
    Rule("reasoning-alone", "Reasoning is followed by what it led to.", _REASONING),
    Rule(
        "call-name",
        "The name of a tool has 1 to 128 letters, digits, _ and -.",
        f"{_NAME_PATTERN}at most 128 characters",
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 128 letters, digits, _ and -.", f"{_RESPONSES}: tools, name"),
    Rule("call-id-length", "The id of a call has at most 64 characters.", f"{_CALL_ID}input.call_id", alone=True),
    Rule(
        "item-id-form",
        "The id of an item begins with the mark of its type: msg, fc, ct, rs; at most 64 letters, digits, _ and -.",
        'OpenAI API, errors "Expected an ID that begins with" and "Expected an ID that contains letters, numbers ..."',
        alone=True,
    ),
    Rule("image", "An image is one that can be read.", _IMAGES, alone=True),
    Rule("amount", "A request holds no more images than are taken.", _MANY_IMAGES),
)

_ANTHROPIC_RULES = (
    *_shared(_MESSAGES),
    Rule("user-first", "The first message is from the user.", _MESSAGES),
    Rule("empty-content", "Only a last assistant message may be empty.", f"{_MESSAGES}: non-empty content"),
    Rule("blank-text", "A text block has visible text.", _NON_EMPTY, alone=True),
    Rule("result-without-call", "A result answers a call of the message before.", _TOOL_USE),
    Rule("call-without-result", "All calls are answered in the next user message.", _TOOL_USE),
    Rule("second-result", "A call has one result.", _TOOL_USE),
    Rule(
        "server-use-without-result",
        "A tool that the provider runs has its result before the turn ends.",
        f"{_STOPS}: a result that is missing when the user's words follow",
    ),
    Rule(
        "server-result-without-use",
        "The result of a tool that the provider runs stands after its use.",
        "Anthropic docs, Server tools: the result follows the server_tool_use block",
    ),
    Rule(
        "caller",
        "A call out of code that the provider runs stands after that code.",
        "Anthropic docs, Programmatic tool calling: caller",
    ),
    Rule("results-first", "Results stand before the other blocks.", _TOOL_USE, alone=True),
    Rule("empty-error", "A failed result says something.", _EMPTY_ERROR, alone=True),
    Rule("block-place", "Calls and thinking are the assistant's, results are the user's.", _ONLY_IN, alone=True),
    Rule("call-ids", "A call id stands once in a request.", 'Anthropic API, error "`tool_use` ids must be unique"'),
    Rule("id-pattern", "A call id holds only letters, digits, _ and -.", _ID_PATTERN, alone=True),
    Rule("input-object", "The input of a call is an object.", f"{_MESSAGES}: tool_use, input", alone=True),
    Rule("signature", "A thinking block has its signature.", _THINKING, alone=True),
    Rule(
        "call-name",
        "The name of a tool in a call has 1 to 200 letters, digits, _ and -.",
        'Anthropic API, error "String should have at most 200 characters" for tool_use.name',
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 128 letters, digits, _ and -.", _TOOL_USE),
    Rule(
        "failed-media",
        "A failed result holds only text.",
        'Anthropic API, error "all content must be type `text` if `is_error` is true"',
        alone=True,
    ),
    Rule(
        "image",
        "An image is a PNG, JPEG, GIF or WebP file, labelled so, of at most 5 MB and 8,000 pixels; a file is a PDF.",
        f'{_VISION}; "PDF support"',
        alone=True,
    ),
    Rule(
        "amount",
        "A request holds at most 100 images and PDF pages (600 for models with a larger window) and 100,000 messages.",
        f'{_VISION}; "PDF support"; {_MESSAGES}: messages',
    ),
    Rule("cache-thinking", "Thinking has no cache marker.", _CACHING, alone=True),
    Rule("cache-count", "A request has at most 4 cache markers.", _CACHING),
    Rule("cache-order", "Markers for an hour stand before those for five minutes: tools, system, messages.", _CACHING),
    Rule("system-text", "A system text block has visible text.", _NON_EMPTY),
    Rule("tool-names", "Tools have different names.", 'Anthropic API, error "Tool names must be unique"'),
)

_GEMINI = "Gemini API reference, Generating content"
_GEMINI_CALLS = "Gemini API docs, Function calling"
_RESPONSE_PARTS = (
    'Gemini API, error "Please ensure that the number of function response parts is equal to the number of function '
    'call parts of the function call turn"'
)

_GEMINI_RULES = (
    *_shared(_GEMINI),
    Rule(
        "user-first",
        "The first content is from the user.",
        "Google Generative AI SDK, error \"First content should be with role 'user'\"",
    ),
    Rule("empty-content", "A content has a part.", f"{_GEMINI}: Content, parts", alone=True),
    Rule(
        "empty-part",
        "A part holds data; a text without words stands only beside a signature.",
        'Gemini API, errors "required oneof field \'data\' must have one initialized field" and "Unable to submit '
        'request because it must have a text parameter"',
        alone=True,
    ),
    Rule("result-without-call", "A function response answers a call of the turn before.", _RESPONSE_PARTS),
    Rule("call-without-result", "All calls of a turn are answered in the next content of the user.", _RESPONSE_PARTS),
    Rule(
        "call-place",
        "A turn with calls follows the user, or function responses.",
        'Gemini API, error "Please ensure that function call turn comes immediately after a user turn or after a '
        'function response turn"',
    ),
    Rule(
        "part-place",
        "Calls and thoughts are the model's, function responses are the user's.",
        f"{_GEMINI_CALLS}: the model calls, the user answers",
        alone=True,
    ),
    Rule("call-ids", "The calls of a turn have different ids.", f"{_GEMINI}: FunctionCall, id"),
    Rule("args-object", "The arguments of a call are an object.", f"{_GEMINI}: FunctionCall, args", alone=True),
    Rule(
        "response-object",
        "The response of a function is an object.",
        f"{_GEMINI}: FunctionResponse, response",
        alone=True,
    ),
    Rule(
        "signature",
        "Where calls of the current turn are signed, the first call of each of its steps is.",
        'Gemini API docs, Thought signatures; error "Function call is missing a thought_signature"',
    ),
    Rule(
        "call-name",
        "The name of a function has 1 to 128 letters, digits, _, :, . and -, and begins with a letter or _.",
        f"{_GEMINI}: FunctionDeclaration, name",
        alone=True,
    ),
    Rule(
        "tool-name",
        "The name of a function has 1 to 128 letters, digits, _, :, . and -, and begins with a letter or _.",
        f"{_GEMINI}: FunctionDeclaration, name",
    ),
    Rule(
        "amount",
        "A request holds at most 3,600 images and 1,000 PDF pages.",
        "Gemini API docs, Image understanding; Document understanding",
    ),
)

RULES: Final[dict[str, dict[str, Rule]]] = {
    dialect: {rule.id: rule for rule in rules}
    for dialect, rules in (
        ("openai-chat", _CHAT_RULES),
        ("openai-responses", _RESPONSES_RULES),
        ("anthropic", _ANTHROPIC_RULES),
        ("gemini", _GEMINI_RULES),
    )
}
"""The rules by dialect and id."""


@dataclass(slots=True)
class Findings:
    """Collects the violations of one request."""

    dialect: str
    limits: Limits
    found: list[Violation] = field(default_factory=list)

    def add(self, index: int | None, rule: str, detail: str = "") -> None:
        """Note that message `index` breaks `rule`; without a detail the sentence of the rule is given."""
        broken = RULES[self.dialect][rule]
        self.found.append(Violation(index, rule, detail or broken.sentence, broken.source))
