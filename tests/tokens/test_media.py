"""None"""

from __future__ import annotations

import base64
import io
import struct
import zlib
from base64 import b64encode

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline import count
from foldline.messages import Image
from foldline.tokens import image_size, image_size_of_base64
from foldline.tokens.media import MOST_READ_BYTES, MOST_UNPACKED_BYTES, image_tokens, pdf_pages, pdf_pages_of_base64

SIZES = st.integers(1, 16_383)
ANTHROPIC = {"type": "image"}
OPENAI = {"type": "image_url"}


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\0\0"


def jpeg(width: int, height: int, profile: int = 0) -> bytes:
    before = b"\xff\xe1" + struct.pack(">H", profile + 2) + b"x" * profile
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return b"\xff\xd8\xff\xe0\0\x10JFIF" + b"\0" * 10 + before + frame


def webp(form: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + form + b"\0\0\0\0" + body + b"\0" * 10


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


@given(SIZES, SIZES, st.sampled_from([png, gif, jpeg, lossy, lossless, extended]))
def test_a_header_says_the_size(width: int, height: int, form: object) -> None:
    assert callable(form)
    data = form(width, height)
    text = base64.b64encode(data).decode()
    assert image_size(data) == (width, height)
    assert image_size_of_base64(text) == (width, height)
    assert image_size_of_base64(f"data:image/any;base64,{text}") == (width, height)


@pytest.mark.parametrize("profile", [100, 65_000])
def test_a_jpeg_is_read_past_its_exif_block(profile: int) -> None:
    data = jpeg(640, 480, profile)
    assert image_size(data) == (640, 480)
    assert image_size_of_base64(base64.b64encode(data).decode()) == (640, 480)


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff", png(3, 4)[:18], b"RIFF    WEBPVP8L"])
)
def test_broken_headers_have_no_size_or_one(data: bytes, start: bytes) -> None:
    width, height = image_size(start + data)
    assert width >= 0
    assert height >= 0


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=300))
def test_text_that_is_no_base64_has_no_size(text: str) -> None:
    assert image_size_of_base64(f"!{text}") == (0, 0)


@pytest.mark.parametrize("text", ["", "A", "====", "data:", "data:image/png;base64,", "AAAA" * 1_000, "/9j/"])
def test_a_payload_without_header_has_no_size(text: str) -> None:
    assert image_size_of_base64(text) == (0, 0)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    # Anthropic, "Vision": 200 x 200 takes about 54, 1,000 x 1,000 about 1,334, 1,092 x 1,092 about 1,590 tokens.
    [(200, 200, 53), (1_000, 1_000, 1_333), (1_092, 1_092, 1_589), (4_000, 3_000, 1_600), (3_136, 314, 328)],
)
def test_anthropic_counts_by_area(width: int, height: int, tokens: int) -> None:
    assert image_tokens(Image(width, height, raw=ANTHROPIC)) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    # OpenAI, "Images and vision": 1,024 x 1,024 takes 765, 2,048 x 4,096 takes 1,105 tokens.
    [(1_024, 1_024, 765), (2_048, 4_096, 1_105), (1, 1, 255), (512, 512, 255)],
)
def test_openai_counts_by_tiles(width: int, height: int, tokens: int) -> None:
    assert image_tokens(Image(width, height, raw=OPENAI)) == tokens


def test_low_detail_takes_85() -> None:
    assert image_tokens(Image(4_096, 4_096, detail="low", raw=OPENAI)) == 85


def test_s2_09_an_image_of_unknown_size_takes_1200() -> None:
    assert image_tokens(Image(raw=OPENAI)) == 1_200
    assert image_tokens(Image(size_bytes=2_000_000)) == 1_200


@given(SIZES, SIZES)
def test_an_image_of_an_unknown_provider_takes_the_larger_figure(width: int, height: int) -> None:
    both = [image_tokens(Image(width, height, raw=raw)) for raw in (ANTHROPIC, OPENAI)]
    assert image_tokens(Image(width, height)) == max(both)


def blank(pages: int) -> bytes:
    writer, made = pypdf.PdfWriter(), io.BytesIO()
    for _ in range(pages):
        writer.add_blank_page(612, 792)
    writer.write(made)
    return made.getvalue()


def packed(inside: bytes) -> bytes:
    stream = zlib.compress(inside)
    return b"9 0 obj\n<< /Type /ObjStm /N 3 /First 10 /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (
        len(stream),
        stream,
    )


def block(data: bytes, **more: object) -> dict[str, object]:
    source = {"type": "base64", "media_type": "application/pdf", "data": b64encode(data).decode()}
    return {"type": "document", "source": source, **more}


@pytest.mark.parametrize("pages", [1, 3, 60])
def test_the_pages_of_a_plain_file_are_counted(pages: int) -> None:
    assert pdf_pages(blank(pages)) == pages
    assert pdf_pages_of_base64("data:application/pdf;base64," + b64encode(blank(pages)).decode()) == pages


def test_the_pages_inside_compressed_objects_are_counted() -> None:
    root = b"<< /Type /Pages /Kids [1 0 R] /Count 41 >>"
    leaves = b"<< /Type /Page /Parent 2 0 R >> " * 7
    assert pdf_pages(b"%PDF-1.5\n" + packed(leaves)) == 7
    assert pdf_pages(b"%PDF-1.5\n" + packed(leaves + root)) == 41
    assert pdf_pages(b"%PDF-1.5\n" + packed(root + leaves)[:-40] + packed(leaves)) >= 7


def test_pages_of_older_versions_are_not_counted_again() -> None:
    leaves = b"1 0 obj\n<</Type/Page>>\nendobj\n" * 9
    assert pdf_pages(b"%PDF-1.4\n" + leaves + b"2 0 obj\n<</Type/Pages/Count 3>>\nendobj\n") == 3


def test_counts_of_other_things_are_no_pages() -> None:
    outline = b"5 0 obj\n<</Type/Outlines/Count 900>>\nendobj\n"
    tree = b"2 0 obj\n<</Count 2/Kids[]/Type/Pages>>\nendobj\n"
    assert pdf_pages(b"%PDF-1.4\n" + outline + tree) == 2
    assert pdf_pages(b"%PDF-1.4\n" + tree + outline) == 2


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"%PDF-1.7 nothing here", b"%PDF-1.4 /Count 5"])
def test_what_has_no_readable_pages_has_none(data: bytes) -> None:
    assert pdf_pages(data) == 0


@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    assert pdf_pages(b"%PDF-" + data) >= 0
    assert pdf_pages_of_base64("JVBERi" + data.decode("latin-1")) >= 0


def test_a_file_that_unpacks_to_any_size_is_unpacked_only_so_far() -> None:
    leaf = b"<</Type/Page>>"
    bomb = packed(leaf + b" " * (4 * MOST_UNPACKED_BYTES) + leaf)
    assert len(bomb) < 100_000
    assert pdf_pages(b"%PDF-1.5\n" + bomb * 50) == 1, "what comes behind the bound is not seen"


def test_of_a_huge_file_the_ends_are_read() -> None:
    tree = b"2 0 obj\n<</Type/Pages/Count 12>>\nendobj\n"
    hidden = b"1 0 obj\n<</Type/Page>>\nendobj\n" * 1_000
    filling = b"x" * MOST_READ_BYTES
    data = b"%PDF-1.4\n" + filling + hidden + filling + tree
    assert pdf_pages(data) == 12
    assert pdf_pages_of_base64(b64encode(data).decode()) == 12


@pytest.mark.parametrize("pages", [1, 20, 60, 100])
def test_a_pdf_takes_what_its_pages_take(pages: int) -> None:
    data = blank(pages)
    taken = count([{"role": "user", "content": [block(data)]}], dialect="anthropic")
    assert 1_500 * pages <= taken <= 3_000 * pages + 50
    full = block(data + b"%" * (60_000 * pages))
    assert count([{"role": "user", "content": [full]}], dialect="anthropic") >= 2_900 * pages


def test_a_pdf_counts_alike_in_each_dialect_and_inside_results() -> None:
    url = "data:application/pdf;base64," + b64encode(blank(30)).decode()
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}
    bare = {"type": "input_file", "filename": "a.pdf", "file_data": url.partition(",")[2]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block(blank(30))]}
    for dialect, part in (("openai-chat", file), ("openai-responses", bare), ("anthropic", result)):
        assert 45_000 <= count([{"role": "user", "content": [part]}], dialect=dialect) <= 46_000


def test_a_pdf_that_cannot_be_read_counts_by_its_bytes() -> None:
    sealed = block(b"%PDF-1.7\n" + b"\x9f\x01" * 500_000)
    assert 40_000 <= count([{"role": "user", "content": [sealed]}], dialect="anthropic") <= 60_000


@pytest.mark.parametrize(
    "part",
    [{"type": "url", "url": "https://a.example/x.pdf"}, {"type": "file", "file_id": "file_1"}],
    ids=["url", "id"],
)
def test_a_document_that_the_provider_fetches_counts_as_a_usual_one(part: dict[str, str]) -> None:
    message = {"role": "user", "content": [{"type": "document", "source": part}]}
    assert 1_500 <= count([message], dialect="anthropic") <= 3_000
