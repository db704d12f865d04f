"""How each dialect writes an image and a file that came in another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from foldline.codecs.blocks import Source

__all__ = ["ANTHROPIC", "CHAT", "GEMINI", "RESPONSES", "Shapes"]

_Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shapes:
    """The block of an image (its source and its detail) and of a file; None where the dialect cannot carry it."""

    image: Callable[[Source, str], _Block | None]
    document: Callable[[Source], _Block | None]


def _data_url(source: Source) -> str:
    return f"data:{source.media_type or 'application/octet-stream'};base64,{source.data}" if source.data else source.url


def _chat_image(source: Source, detail: str) -> _Block | None:
    url = _data_url(source)
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}} if url else None


def _responses_image(source: Source, detail: str) -> _Block | None:
    url = _data_url(source)
    return {"type": "input_image", "image_url": url, "detail": detail or "auto"} if url else None


def _anthropic_source(source: Source) -> _Block | None:
    if source.data:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url} if source.url else None


def _anthropic_image(source: Source, _detail: str) -> _Block | None:
    inner = _anthropic_source(source)
    return {"type": "image", "source": inner} if inner else None


def _chat_document(source: Source) -> _Block | None:
    if source.media_type.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": source.data, "format": source.media_type[6:]}}
    if not source.data:
        return None
    return {"type": "file", "file": {"filename": source.name or "file", "file_data": _data_url(source)}}


def _responses_document(source: Source) -> _Block | None:
    if source.data and not source.media_type.startswith("audio/"):
        return {"type": "input_file", "filename": source.name or "file", "file_data": _data_url(source)}
    return {"type": "input_file", "file_url": source.url} if source.url else None


def _anthropic_document(source: Source) -> _Block | None:
    # The Messages API takes base64 of PDF files only; text goes as text.
    inner = _anthropic_source(source) if source.url or source.media_type == "application/pdf" else None
    return {"type": "document", "source": inner, **({"title": source.name} if source.name else {})} if inner else None


_TYPES_BY_ENDING: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".pdf": "application/pdf",
}


def _gemini_part(source: Source) -> _Block | None:
    """A part with the data, or with an address whose media type is known: the API wants it named (FileData)."""
    if source.data:
        return {"inlineData": {"mimeType": source.media_type or "application/octet-stream", "data": source.data}}
    path = source.url.partition("?")[0].lower()
    named = source.media_type or next((kind for end, kind in _TYPES_BY_ENDING.items() if path.endswith(end)), "")
    return {"fileData": {"mimeType": named, "fileUri": source.url}} if source.url and named else None


def _gemini_image(source: Source, _detail: str) -> _Block | None:
    return _gemini_part(source)


CHAT: Final = Shapes(_chat_image, _chat_document)
RESPONSES: Final = Shapes(_responses_image, _responses_document)
ANTHROPIC: Final = Shapes(_anthropic_image, _anthropic_document)
GEMINI: Final = Shapes(_gemini_image, _gemini_part)
