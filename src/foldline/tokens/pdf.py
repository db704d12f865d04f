"""The number of pages of a PDF, read from its bytes in a bounded time."""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Final

__all__ = ["pdf_pages", "pdf_pages_of_base64"]

MOST_READ_BYTES: Final = 24 * 2**20
"""Of a larger file the head and the tail are read, half of this each."""
MOST_UNPACKED_BYTES: Final = 8 * 2**20
"""What all compressed streams may come to, and what they may take: a small file can unpack to any size."""
MOST_STREAM_BYTES: Final = 2**20
MOST_NODES: Final = 4_096
MOST_PAGES: Final = 20_000
"""More than that is no count that a file can be believed."""

# ISO 32000-1, 7.7.3: a leaf of the page tree has the type Page, a node the type Pages with the number of its leaves as
# Count. 7.5.7: since PDF 1.5 both may stand inside compressed object streams.
_PAGE: Final = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z0-9])")
_NODE: Final = re.compile(rb"/Type\s{0,8}/Pages(?![A-Za-z0-9])")
_COUNT: Final = re.compile(rb"/Count\s{1,8}(\d{1,7})")
_OBJECTS: Final = re.compile(rb"/Type\s{0,8}/ObjStm(?![A-Za-z0-9])")
_STREAM: Final = re.compile(rb"stream\r?\n")
_AROUND_BYTES: Final = 1_024  # between the type of a node and its count, or of a stream and its beginning


def pdf_pages_of_base64(text: str) -> int:
    """Pages of a PDF in base64 (a data URL too); 0 where none can be told. O(size), bounded; never raises."""
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
    """Pages of a PDF; 0 where none can be told (no PDF, encrypted, damaged). O(size), bounded; never raises."""
    if b"%PDF-" not in data[:1_024]:
        return 0
    if len(data) > MOST_READ_BYTES:
        data = data[: MOST_READ_BYTES // 2] + data[-MOST_READ_BYTES // 2 :]
    leaves = counted = 0
    for piece in (data, *_unpacked(data)):
        leaves += len(_PAGE.findall(piece))
        counted = max(counted, _largest_count(piece))
    # A file that was changed holds leaves of older versions as well: the tree counts, where it can be believed.
    found = counted if 0 < counted <= max(MOST_PAGES, leaves) else leaves
    return min(found, MOST_PAGES)


def _largest_count(data: bytes) -> int:
    """The number of leaves under the root of the page tree, as it says itself: the largest of any node."""
    most = 0
    for node in islice(_NODE.finditer(data), MOST_NODES):
        start, stop = max(0, node.start() - _AROUND_BYTES), node.end() + _AROUND_BYTES
        begin = max(data.rfind(b"obj", start, node.start()), start)
        end = data.find(b"endobj", node.end(), stop)
        most = max([most, *map(int, _COUNT.findall(data, begin, stop if end < 0 else end))])
    return most


def _unpacked(data: bytes) -> Iterator[bytes]:
    """The compressed object streams, until they take or come to too much."""
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
