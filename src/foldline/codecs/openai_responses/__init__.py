"""The dialect "openai-responses": OpenAI Responses, whose turns are lists of items."""

from __future__ import annotations

import re
from typing import Any, Final

from foldline.codecs.base import ApiCompaction, BodyForm, Dialect, ErrorBodies, MediaBlocks, Path, StreamWords
from foldline.codecs.blocks import Source, data_url
from foldline.codecs.openai_chat import overflow, refused
from foldline.codecs.openai_responses.codec import LIMITS, OpenAIResponses
from foldline.codecs.openai_responses.rules import RULES, check_responses
from foldline.messages import Json

__all__ = ["ROW"]


# Events with a whole response hold usage and status, those that end in "done" repeat a whole item.
def _says(data: bytes) -> bool:
    return b"error" in data or b'"response"' in data or b".completed" in data or b".done" in data


def _image(source: Source, detail: str) -> dict[str, Any] | None:
    url = data_url(source)
    return {"type": "input_image", "image_url": url, "detail": detail or "auto"} if url else None


def _document(source: Source) -> dict[str, Any] | None:
    # Chat Completions has a block for audio (`input_audio`), this API none.
    if source.data and not source.media_type.startswith("audio/"):
        return {"type": "input_file", "filename": source.name or "file", "file_data": data_url(source)}
    return {"type": "input_file", "file_url": source.url} if source.url else None


def _overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    return overflow(tokens, limit, detail, "Your input exceeds the context window of this model. ", "input")


def _tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    # Strict is the default of this dialect, and requires every property (OpenAI, "Function calling").
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


ROW: Final = Dialect(
    name="openai-responses",
    codec=OpenAIResponses(),
    rules=RULES,
    check=check_responses,
    limits=LIMITS,
    media=MediaBlocks(_image, _document),
    body=BodyForm(
        dialect="openai-responses",
        messages="input",
        system="instructions",
        caps=("max_output_tokens",),
        elsewhere=("previous_response_id", "conversation"),
        references=True,
    ),
    paths=(Path.of("/responses"),),
    # OpenAI API reference, "Streaming events"; gateways send `response.error` and `response.done`.
    stream=StreamWords(
        shape="response",
        says=_says,
        openings=frozenset({"response.created", "response.queued", "response.in_progress"}),
        ends=frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"}),
    ),
    errors=ErrorBodies(refused, _overflow),
    tool=_tool,
    compaction=ApiCompaction(
        frozenset({"openai", "xai"}),
        re.compile(r"(?:^|[/.])(?:gpt-(?!oss)|o\d|codex|chatgpt|grok)", re.IGNORECASE),
    ),
)
"""The row of the dialect."""
