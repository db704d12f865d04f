"""The dialect "gemini": Gemini `generateContent`, of the Gemini API and of Vertex AI."""

from __future__ import annotations

from typing import Any, Final

from foldline.codecs.base import BodyForm, Dialect, ErrorBodies, MediaBlocks, Path, StreamWords
from foldline.codecs.blocks import Source
from foldline.codecs.gemini.codec import Gemini, signed_call
from foldline.codecs.gemini.parts import LIMITS, signed_steps
from foldline.codecs.gemini.rules import RULES, check_gemini
from foldline.messages import Json

__all__ = ["ROW"]

# A name may have one slash in it, as tuned and published models do; the method follows a colon.
_MODELS: Final = r"/models/[^/:]+(?:/[^/:]+)?"

# Gemini API docs, "Troubleshooting guide": backend error codes. Any other status from 500 is INTERNAL.
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

# The API requires the media type of a file (FileData), and a URL from another dialect comes without.
_TYPES_BY_ENDING: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".pdf": "application/pdf",
}


def _refused(status: int, message: str, code: str | None) -> dict[str, Any]:
    del code  # `code` is the HTTP status in this API
    kind = _STATUSES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": status, "message": message, "status": kind}}


def _overflow(tokens: int, limit: int, detail: str) -> dict[str, Any]:
    message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).{detail}"
    return _refused(400, message, None)


def _says(data: bytes) -> bool:
    return b'"usageMetadata"' in data or b'"finishReason"' in data or b'"promptFeedback"' in data or b"error" in data


def _document(source: Source) -> dict[str, Any] | None:
    if source.data:
        return {"inlineData": {"mimeType": source.media_type or "application/octet-stream", "data": source.data}}
    path = source.url.partition("?")[0].lower()
    media_type = source.media_type or next((kind for end, kind in _TYPES_BY_ENDING.items() if path.endswith(end)), "")
    return {"fileData": {"mimeType": media_type, "fileUri": source.url}} if source.url and media_type else None


def _image(source: Source, _detail: str) -> dict[str, Any] | None:
    return _document(source)


def _tool(name: str, description: str, schema: Json) -> dict[str, Json]:
    # `parameters` accepts a part of OpenAPI only, `parametersJsonSchema` any JSON Schema (FunctionDeclaration).
    return {
        "functionDeclarations": [{"name": name, "description": description, "parametersJsonSchema": schema}],
    }


ROW: Final = Dialect(
    name="gemini",
    codec=Gemini(),
    rules=RULES,
    check=check_gemini,
    limits=LIMITS,
    media=MediaBlocks(_image, _document),
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
        Path.of(f"{_MODELS}:generateContent"),
        Path.of(f"{_MODELS}:streamGenerateContent", streamed=True),
        Path.of(f"{_MODELS}:countTokens", counting=True),
    ),
    # Gemini API reference, "Generating content": each event is a whole GenerateContentResponse.
    stream=StreamWords(shape="candidates", says=_says, usage="usageMetadata", shown=("candidates", "promptFeedback")),
    errors=ErrorBodies(_refused, _overflow),
    tool=_tool,
    key_header=("x-goog-api-key", ""),
    cache_rule="gemini",
    card_window=("inputTokenLimit",),
    version="v1beta",
    maker="gemini",
    free_text_calls=False,
    failed_results=True,
    results_inside=True,
    parts_only=True,
    sign_call=signed_call,
    signed=signed_steps,
)
"""The row of the dialect."""
