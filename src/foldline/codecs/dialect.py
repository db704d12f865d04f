"""What is known of each dialect, as one row: all that the rest of the package branches on stands here.

To add a dialect, write its codec, its checks and its rules, and one row of this table; a door, a provider or the fake
server that speaks it has a module of its own and finds it by the name of the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from foldline.codecs import anthropic, chat_mending, gemini_parts, openai_responses, shapes, stream_words
from foldline.codecs.anthropic import Anthropic
from foldline.codecs.base import Codec
from foldline.codecs.error_bodies import ANTHROPIC_ERRORS, CHAT_ERRORS, GEMINI_ERRORS, RESPONSES_ERRORS, ErrorBodies
from foldline.codecs.gemini import Gemini
from foldline.codecs.limits.by_dialect import Limits
from foldline.codecs.limits.caps import Caps
from foldline.codecs.openai_chat import OpenAIChat
from foldline.codecs.openai_responses import OpenAIResponses
from foldline.codecs.rules.anthropic import check_messages, check_outside
from foldline.codecs.rules.chat import check_chat
from foldline.codecs.rules.gemini import check_gemini
from foldline.codecs.rules.responses import check_responses
from foldline.codecs.rules.rulebook import Findings
from foldline.codecs.stream_words import StreamWords
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire

__all__ = ["DIALECTS", "ROWS", "BodyForm", "Dialect", "Path", "caps_of", "codec", "dialect_named", "form_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyForm:
    """What the fields of a dialect's request are called. Sources: the API references of Chat, Responses, Messages and
    "Generating content" of Gemini.

    `caps` are the names of the output cap, the one that counts first; they stand in the object `caps_in` where that is
    named. `elsewhere` are fields that say that the server holds a part of the conversation: what it was sent cannot be
    known here. `references` says that items may stand for what it holds. `system_in_parts` says that system text is an
    object with parts. `spellings` are other names of fields, by the usual one.
    """

    dialect: str
    messages: str
    system: str | None
    caps: tuple[str, ...]
    caps_in: str = ""
    elsewhere: tuple[str, ...] = ()
    references: bool = False
    system_in_parts: bool = False
    spellings: Mapping[str, str] | None = None

    def spelled(self, fields: Mapping[str, Json]) -> BodyForm:
        """The form with the names that a request uses. O(spellings)."""
        used = {usual: other for usual, other in (self.spellings or {}).items() if other in fields}
        if not used:
            return self
        return replace(
            self,
            system=used.get(self.system or "", self.system),
            caps_in=used.get(self.caps_in, self.caps_in),
        )

    def system_in(self, given: Json) -> Json:
        """System text as a string or a list of blocks, from what a request holds."""
        if not (self.system_in_parts and isinstance(given, Mapping)):
            return given
        parts = given.get("parts")
        return [parts] if isinstance(parts, Mapping) else parts

    def system_json(self, system: Json, before: Json = None) -> Json:
        """System text as a request holds it, with the other fields of what stood there `before`."""
        if not self.system_in_parts or system is None:
            return system
        blocks = [{"text": system}] if isinstance(system, str) else system
        parts = [{name: value for name, value in block.items() if name != "type"} for block in blocks]
        return {**(before if isinstance(before, Mapping) else {}), "parts": parts}


@dataclass(frozen=True, slots=True)
class Path:
    """How a path of a dialect ends: for replies, or for a count of tokens; `streamed` where the path says so.

    At `binary` paths a stream is no stream of events but one of frames, which pass unread.
    """

    ending: re.Pattern[str]
    counting: bool = False
    streamed: bool = False
    binary: bool = False


def _path(ending: str, *, counting: bool = False, streamed: bool = False, binary: bool = False) -> Path:
    return Path(re.compile(f"{ending}$"), counting, streamed, binary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. `codec` reads and writes its messages, `check` and `check_outside` note what breaks its rules.

    `free_text_calls`: a call may have free text for its input. `failed_results`: a result can say that it failed.
    `results_inside`: the results of a turn stand in one message of the user. `parts_only`: text never stands as a bare
    string. `signs_calls`: a call that another model made wants something for its signature. `alternates`: some servers
    want roles in turn (`foldline.codecs.roles`). `cache_markers`: a cache is asked for by markers in the request.
    `cache_rule` prices the cache of a model that the catalogue does not know. `card_window` are the fields of a model's
    card that name its window. `version` stands before
    its paths. `key_header` carries the key, behind a prefix. `tool` writes a schema of a tool. `signed`
    completes signatures (`foldline.codecs.gemini_parts`).
    """

    name: str
    codec: Codec
    check: Callable[[Findings, Sequence[Wire]], None]
    check_outside: Callable[[Findings, Json, Json, Sequence[Json]], None] | None = None
    limits: Limits
    shapes: shapes.Shapes
    body: BodyForm
    paths: tuple[Path, ...]
    stream: StreamWords
    errors: ErrorBodies
    tool: Callable[[str, str, Json], dict[str, Json]]
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    cache_rule: str = "openai"
    version: str = "v1"
    version_in_base: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    card_window: tuple[str, ...] = ()
    maker: Literal["openai", "anthropic", "gemini"] = "openai"
    free_text_calls: bool = True
    failed_results: bool = False
    results_inside: bool = False
    parts_only: bool = False
    signs_calls: bool = False
    alternates: bool = False
    cache_markers: bool = False
    signed: Callable[[Sequence[Wire]], list[Wire]] | None = None


def _chat_tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _responses_tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    # Strict is the default of this dialect, and wants every property required (OpenAI, "Function calling").
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _anthropic_tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    return {"name": name, "description": description, "input_schema": schema}


def _gemini_tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    # `parameters` takes a part of OpenAPI only, `parametersJsonSchema` any JSON Schema (FunctionDeclaration).
    return {
        "functionDeclarations": [{"name": name, "description": description, "parametersJsonSchema": schema}],
    }


_MODELS: Final = r"/models/[^/:]+(?:/[^/:]+)?"

ROWS: Final[Mapping[str, Dialect]] = {
    row.name: row
    for row in (
        Dialect(
            name="openai-chat",
            codec=OpenAIChat(),
            check=check_chat,
            limits=chat_mending.LIMITS,
            shapes=shapes.CHAT,
            body=BodyForm(
                dialect="openai-chat", messages="messages", system=None, caps=("max_completion_tokens", "max_tokens")
            ),
            paths=(_path("/chat/completions"),),
            stream=stream_words.CHAT,
            errors=CHAT_ERRORS,
            tool=_chat_tool,
            alternates=True,
        ),
        Dialect(
            name="openai-responses",
            codec=OpenAIResponses(),
            check=check_responses,
            limits=openai_responses.LIMITS,
            shapes=shapes.RESPONSES,
            body=BodyForm(
                dialect="openai-responses",
                messages="input",
                system="instructions",
                caps=("max_output_tokens",),
                elsewhere=("previous_response_id", "conversation"),
                references=True,
            ),
            paths=(_path("/responses"),),
            stream=stream_words.RESPONSES,
            errors=RESPONSES_ERRORS,
            tool=_responses_tool,
        ),
        Dialect(
            name="anthropic",
            codec=Anthropic(),
            check=check_messages,
            check_outside=check_outside,
            limits=anthropic.LIMITS,
            shapes=shapes.ANTHROPIC,
            body=BodyForm(dialect="anthropic", messages="messages", system="system", caps=("max_tokens",)),
            paths=(
                _path("/messages"),
                _path("/messages/count_tokens", counting=True),
                # Vertex AI, "Claude models": the model stands in the path, the body is that of Messages.
                _path(r"/publishers/anthropic/models/count-tokens:rawPredict", counting=True),
                _path(r"/publishers/anthropic/models/[^/:]+:rawPredict"),
                _path(r"/publishers/anthropic/models/[^/:]+:streamRawPredict", streamed=True),
                # Bedrock, "InvokeModel", "InvokeModelWithResponseStream": the same body, for Claude models.
                _path(r"/model/[^/]*(?:anthropic|claude)[^/]*/invoke"),
                _path(r"/model/[^/]*(?:anthropic|claude)[^/]*/invoke-with-response-stream", streamed=True, binary=True),
            ),
            stream=stream_words.ANTHROPIC,
            errors=ANTHROPIC_ERRORS,
            tool=_anthropic_tool,
            key_header=("x-api-key", ""),
            version_in_base=False,
            headers={"anthropic-version": "2023-06-01"},  # the only one that is current (API reference, "Versions")
            cache_rule="anthropic",
            card_window=("max_input_tokens", "context_window"),
            maker="anthropic",
            free_text_calls=False,
            failed_results=True,
            results_inside=True,
            cache_markers=True,
        ),
        Dialect(
            name="gemini",
            codec=Gemini(),
            check=check_gemini,
            limits=gemini_parts.LIMITS,
            shapes=shapes.GEMINI,
            body=BodyForm(
                dialect="gemini",
                messages="contents",
                system="systemInstruction",
                caps=("maxOutputTokens",),
                caps_in="generationConfig",
                system_in_parts=True,
                spellings={"systemInstruction": "system_instruction", "generationConfig": "generation_config"},
            ),
            # The same behind /v1beta (Gemini API) and /v1/projects/P/locations/L/publishers/google (Vertex AI).
            paths=(
                _path(f"{_MODELS}:generateContent"),
                _path(f"{_MODELS}:streamGenerateContent", streamed=True),
                _path(f"{_MODELS}:countTokens", counting=True),
            ),
            stream=stream_words.GEMINI,
            errors=GEMINI_ERRORS,
            tool=_gemini_tool,
            key_header=("x-goog-api-key", ""),
            cache_rule="gemini",
            card_window=("inputTokenLimit",),
            version="v1beta",
            maker="gemini",
            free_text_calls=False,
            failed_results=True,
            results_inside=True,
            parts_only=True,
            signs_calls=True,
            signed=gemini_parts.signed_steps,
        ),
    )
}
"""The rows by name."""

DIALECTS: Final = tuple(ROWS)


def dialect_named(name: str) -> Dialect:
    """The row of a dialect. Raises InvalidInput, which names the known ones, for any other."""
    found = ROWS.get(name)
    if found is None:
        raise InvalidInput(f"unknown dialect {name!r}; known are {', '.join(DIALECTS)}", place="dialect")
    return found


def form_of(body: Mapping[str, Json]) -> BodyForm | None:
    """The form of a request whose list of messages has a name of its own (Responses, Gemini); None for any other."""
    if "messages" in body:
        return None
    forms = (row.body for row in ROWS.values() if row.body.messages != "messages")
    return next((form.spelled(body) for form in forms if form.messages in body), None)


def codec(dialect: str) -> Codec:
    """The codec of a dialect. Raises InvalidInput, which names the known ones, for any other."""
    return dialect_named(dialect).codec


def caps_of(dialect: str, window_tokens: int | None = None) -> Caps:
    """The limits of a dialect, for a model whose window the catalogue gives; the smaller ones where it is not known."""
    return dialect_named(dialect).limits.caps_for(window_tokens)
