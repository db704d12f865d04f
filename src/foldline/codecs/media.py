"""Images and files as providers accept them: types, sizes and places.

A line of text replaces an image that would be refused; a wrong media type is corrected. The line follows from the block
alone, so that it is the same in every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.codecs.blocks import source_of
from foldline.codecs.limits import MANY_SIDE_PX, ONE_MESSAGE, Amounts, Limits
from foldline.messages import Document, Image, Json, Part, ToolResult
from foldline.tokens import image_size_of_base64, pdf_pages_of_base64

__all__ = ["DOCUMENTS", "IMAGES", "MEDIA", "amounts_of", "mend_media", "only_text", "pages_of"]

IMAGES: Final = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
DOCUMENTS: Final = frozenset({"document", "file", "input_file"})
MEDIA: Final = IMAGES | DOCUMENTS | {"input_audio", "video_url", "input_video"}

_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF: Final = "application/pdf"
# How the base64 of a file begins, by the signatures of the formats themselves.
_SIGNS: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "JVBERi": _PDF,
}

# OpenAI, "File inputs", file size limitations: each file under 50 MB, and all files of a request together. It names no
# number of files, and none of pages any more (100 until 2025), so the caps have none. The sum is a limit on bytes, and
# is learned from a refusal.
_MOST_FILE_CHARACTERS: Final = 50 * 1024 * 1024 * 4 // 3


def _format_of(data: str) -> str:
    return next((media_type for sign, media_type in _SIGNS.items() if data.startswith(sign)), "")


def _image_fault(block: Mapping[str, Any], limits: Limits) -> tuple[str, str]:
    """Return why an image would be refused, and its right media type; "" for no fault and no correction."""
    source = source_of(block)
    # Nothing is known here of a picture behind a URL or an id: the provider fetches it.
    if not source.data:
        return ("", "") if source.url or source.file_id else ("it has no data", "")
    found = _format_of(source.data)
    declared = source.media_type.lower()
    if found == _PDF:
        return "it is a PDF file", ""
    if not found and declared not in (*_TYPES, "image/jpg"):
        return f"{declared or 'its type'} is no image that is taken", ""
    if len(source.data) > limits.image_chars:
        return f"it has {len(source.data):,} bytes, {limits.image_chars:,} are taken", ""
    # After the bytes, whose number is known: the size in pixels needs a look into the header of the file.
    side = max(image_size_of_base64(source.data))
    if limits.image_side_px and side > limits.image_side_px:
        return f"its longer side has {side:,} pixels, {limits.image_side_px:,} are taken", ""
    # The data decide: Anthropic refuses a label that does not match ("image/png" on a JPEG), others look themselves.
    right = found or ("image/jpeg" if declared == "image/jpg" else declared)
    wrong = right != source.media_type and (limits.strict_media or declared not in (*_TYPES, "image/jpg"))
    return "", right if wrong else ""


def _relabelled(block: Mapping[str, Any], media_type: str) -> Mapping[str, Any]:
    if block["type"] == "image":
        return {**block, "source": {**block["source"], "media_type": media_type}}
    url = f"data:{media_type};base64,{source_of(block).data}"
    inner = block.get("image_url")
    return {**block, "image_url": {**inner, "url": url} if isinstance(inner, Mapping) else url}


def _document_fault(block: Mapping[str, Any]) -> str:
    """Return why a document would be refused; "" if it would not."""
    # The Messages API accepts base64 of PDF files alone (text documents have a source of their own), OpenAI any size
    # up to its limit.
    source = block.get("source")
    if block["type"] in ("file", "input_file"):
        size = len(source_of(block).data)
        over = size > _MOST_FILE_CHARACTERS
        return f"it has {size:,} bytes, {_MOST_FILE_CHARACTERS:,} are taken" if over else ""
    if block["type"] != "document" or not isinstance(source, Mapping) or source.get("type") != "base64":
        return ""
    if not source.get("data"):
        return "it has no data"
    return "" if source.get("media_type") == _PDF else f"{source.get('media_type')} is no document that is taken"


def mend_media(block: Mapping[str, Any], limits: Limits, text_type: str, faults: list[str]) -> Mapping[str, Any]:
    """Return the block with the right media type, or a line of text if it would be refused; else the same object. O(1).

    `faults` gets a sentence for each change.
    """
    kind = block.get("type")
    # The output of a computer call must be a picture, so no line of text can replace it.
    if not isinstance(kind, str) or kind not in MEDIA or kind == "computer_screenshot":
        return block
    fault, label = _image_fault(block, limits) if kind in IMAGES else (_document_fault(block), "")
    noun = "image" if kind in IMAGES else "document"
    what = f"{'an' if kind in IMAGES else 'a'} {noun}"
    if fault:
        faults.append(f"{what} would be refused, {fault}; a line of text stands for it")
        return _line(f"[{noun} left out: {fault}]", text_type)
    if label:
        faults.append(f"{what} was labelled {source_of(block).media_type!r}; sent as {label!r}")
        return _relabelled(block, label)
    return block


def only_text(blocks: Sequence[Json], text_type: str, where: str, faults: list[str]) -> Sequence[Json]:
    """Replace images and files by lines, since `where` holds only text; the same object if there are none."""
    if not any(isinstance(block, Mapping) and _is_media(block) for block in blocks):
        return blocks
    out = []
    for block in blocks:
        media = isinstance(block, Mapping) and _is_media(block)
        out.append(_line(f"[{_noun(block)}: {where} holds only text]", text_type) if media else block)
    faults.append(f"{where} holds only text; a line stands for each image or file in it")
    return out


def _is_media(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind in MEDIA


def _noun(block: Mapping[str, Any]) -> str:
    return "image" if block["type"] in IMAGES else "file"


def _line(text: str, text_type: str) -> Mapping[str, Any]:
    return {"type": text_type, "text": text}


# --- counting -------------------------------------------------------------------------------------------------------


def pages_of(data: str) -> int:
    """Return the pages of a PDF in base64, by its page tree; 1 if that cannot be read. O(size), bounded."""
    return max(1, pdf_pages_of_base64(data))


def amounts_of(parts: Sequence[Part]) -> Amounts:
    """Return what the parts of one message hold. O(parts)."""
    images = pages = large = 0
    pending = list(parts)
    while pending:
        match pending.pop():
            case Image(width=width, height=height):
                images += 1
                large += max(width, height) > MANY_SIDE_PX
            case ToolResult(parts=inner):
                pending += inner
            case Document(media_type=media_type, pages=counted) if media_type == _PDF:
                # A PDF whose pages cannot be counted has one at least.
                pages += max(1, counted)
    return Amounts(images, pages, 1, large) if images or pages else ONE_MESSAGE
