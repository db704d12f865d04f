from __future__ import annotations

import io
import zlib
from base64 import b64encode

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline import count
from foldline.tokens.pdf import MOST_READ_BYTES, MOST_UNPACKED_BYTES, pdf_pages, pdf_pages_of_base64


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
