"""Sizes of images and PDFs from their bytes, in bounded time, and the tokens of an image."""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from foldline.messages import Image

__all__ = ["image_size", "image_size_of_base64", "image_tokens", "pdf_pages", "pdf_pages_of_base64"]

# With a known size: Anthropic, "Vision": width * height / 750, after scaling to a longest side of 1,568 pixels and to
# about 1,600 tokens. OpenAI, "Images and vision": scaled to 2,048 pixels, then to a shortest side of 768; 85, and 170
# for each tile of 512; 85 at detail "low". With an unknown size: 1,200, as in the system behind the checkpoint preset.
_UNKNOWN_IMAGE: Final = 1_200
_LOW_DETAIL: Final = 85


def image_tokens(image: Image) -> int:
    """Return the tokens of an image by its provider's formula, or the larger result for an unknown provider. O(1)."""
    if image.detail == "low":
        return _LOW_DETAIL
    if image.width <= 0 or image.height <= 0:
        return _UNKNOWN_IMAGE
    kind = image.raw.get("type") if isinstance(image.raw, Mapping) else None
    area, tiles = _tokens_by_area(image.width, image.height), _tokens_by_tiles(image.width, image.height)
    if kind == "image":  # Anthropic's block; OpenAI's are image_url and input_image
        return area
    return max(area, tiles) if kind is None else tiles


def _tokens_by_area(width: int, height: int) -> int:
    longest = max(width, height, 1_568)
    return max(1, min(1_600, width * height * 1_568 * 1_568 // (longest * longest * 750)))


def _tokens_by_tiles(width: int, height: int) -> int:
    scale = min(1.0, 2_048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    across, down = (max(1, -int(-side * scale // 512)) for side in (width, height))
    return 85 + 170 * across * down


_JPEG_START: Final = b"\xff\xd8"
# Markers of a JPEG frame header: SOF0 to SOF15 without DHT, JPG and DAC (ITU T.81, table B.1).
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE: Final = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length
# Enough of a JPEG to pass its EXIF block, which is 64 kB at most, and a colour profile.
_HEADER_CHARACTERS: Final = 400_000


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height in pixels from the header of a PNG, JPEG, GIF or WebP, else (0, 0). Never raises.

    O(1) for all but JPEG, where the segments before the frame header are skipped.
    """
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data[:6] in {b"GIF87a", b"GIF89a"} and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_size(data)
    return _jpeg_size(data) if data[:2] == _JPEG_START else (0, 0)


def _webp_size(data: bytes) -> tuple[int, int]:
    """Read the three forms of RFC 9649: extended (sizes less one in 24 bits), lossless (14 bits), lossy (14 bits)."""
    form = data[12:16]
    if form == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if form == b"VP8L":
        packed = int.from_bytes(data[21:25], "little")
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    if form == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        if marker == 0xFF:  # fill byte
            at += 1
        else:
            at += 2 if marker in _JPEG_BARE else 2 + int.from_bytes(data[at + 2 : at + 4])
    return 0, 0


def image_size_of_base64(text: str) -> tuple[int, int]:
    """Return width and height of an image in base64 or a data URL, (0, 0) if unknown. Decodes only its beginning.

    O(1): 48 bytes, and of a JPEG up to 300 kB. Never raises.
    """
    start = text.find(",") + 1 if text.startswith("data:") else 0
    head = _header_bytes(text[start : start + 64])
    return image_size(_header_bytes(text[start : start + _HEADER_CHARACTERS]) if head[:2] == _JPEG_START else head)


def _header_bytes(text: str) -> bytes:
    plain = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    whole = plain[: len(plain) // 4 * 4]
    try:
        return binascii.a2b_base64(whole.encode("ascii", "replace"))
    except binascii.Error:
        return b""


MOST_READ_BYTES: Final = 24 * 2**20
"""Bytes read of a file. Of a larger one, half of this is read from each end."""
MOST_UNPACKED_BYTES: Final = 8 * 2**20
"""Bytes to which all compressed streams may unpack: a small file can unpack to any size."""
MOST_STREAM_BYTES: Final = 2**20
MOST_NODES: Final = 4_096
MOST_PAGES: Final = 20_000
"""The largest page count that is believed."""

# ISO 32000-1, 7.7.3: a leaf of the page tree has the type Page, a node the type Pages with the number of its leaves as
# Count. 7.5.7: since PDF 1.5 both may be inside compressed object streams.
_PAGE: Final = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z0-9])")
_NODE: Final = re.compile(rb"/Type\s{0,8}/Pages(?![A-Za-z0-9])")
_COUNT: Final = re.compile(rb"/Count\s{1,8}(\d{1,7})")
_OBJECTS: Final = re.compile(rb"/Type\s{0,8}/ObjStm(?![A-Za-z0-9])")
_STREAM: Final = re.compile(rb"stream\r?\n")
_AROUND_BYTES: Final = 1_024  # between the type of a node and its count, or of a stream and its start


def pdf_pages_of_base64(text: str) -> int:
    """Return the pages of a PDF in base64 or a data URL, 0 if unknown. O(size), bounded; never raises."""
    start = text.find(",") + 1 if text.startswith("data:") else 0
    half = MOST_READ_BYTES // 6 * 4
    if len(text) - start <= 2 * half:
        return pdf_pages(_decoded(text[start:]))
    return pdf_pages(_decoded(text[start : start + half]) + _decoded(text[-half:]))


def _decoded(text: str) -> bytes:
    whole = text[: len(text) // 4 * 4] if "=" not in text[-2:] else text
    try:
        return binascii.a2b_base64(whole.encode("ascii", "replace"))
    except binascii.Error:
        return b""


def pdf_pages(data: bytes) -> int:
    """Return the pages of a PDF, 0 if unknown (no PDF, encrypted, damaged). O(size), bounded; never raises."""
    if b"%PDF-" not in data[:1_024]:
        return 0
    if len(data) > MOST_READ_BYTES:
        data = data[: MOST_READ_BYTES // 2] + data[-MOST_READ_BYTES // 2 :]
    leaves = counted = 0
    for piece in (data, *_unpacked(data)):
        leaves += len(_PAGE.findall(piece))
        counted = max(counted, _largest_count(piece))
    # An edited file has leaves of older versions too, so the count of the page tree is preferred if it is plausible.
    found = counted if 0 < counted <= max(MOST_PAGES, leaves) else leaves
    return min(found, MOST_PAGES)


def _largest_count(data: bytes) -> int:
    """Return the declared number of leaves under the root of the page tree: the largest of any node."""
    most = 0
    for node in islice(_NODE.finditer(data), MOST_NODES):
        start, stop = max(0, node.start() - _AROUND_BYTES), node.end() + _AROUND_BYTES
        begin = max(data.rfind(b"obj", start, node.start()), start)
        end = data.find(b"endobj", node.end(), stop)
        most = max([most, *map(int, _COUNT.findall(data, begin, stop if end < 0 else end))])
    return most


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the compressed object streams, unpacked, until a bound is reached."""
    taken = come_to = 0
    for found in _OBJECTS.finditer(data):
        stream = _STREAM.search(data, found.end(), found.end() + _AROUND_BYTES)
        if stream is None:
            continue
        end = data.find(b"endstream", stream.end(), stream.end() + MOST_STREAM_BYTES)
        packed = data[stream.end() : end if end >= 0 else stream.end() + MOST_STREAM_BYTES]
        taken += len(packed) + _AROUND_BYTES
        if taken > 4 * MOST_UNPACKED_BYTES or come_to >= MOST_UNPACKED_BYTES:
            return
        try:
            piece = zlib.decompressobj().decompress(packed, MOST_UNPACKED_BYTES - come_to)
        except zlib.error:
            continue
        come_to += len(piece)
        yield piece
