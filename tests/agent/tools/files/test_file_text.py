"""Jupyter notebooks as text."""

from __future__ import annotations

import io
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject
from tests.agent.tools.support import text

from foldline.agent.tools.files.file_text import notebook_text, pdf_text
from foldline.agent.tools.files.read_file import ReadFile
from foldline.agent.tools.workspace import Workspace
from foldline.agent.workers import StopSignal, WorkCancelled
from foldline.errors import InvalidInput, MissingExtra

BOOK: dict[str, Any] = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"language_info": {"name": "julia"}},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "execution_count": 7,
            "metadata": {},
            "source": "plot(x)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"image/png": "A" * 4_096, "text/plain": ["<Figure>"]},
                },
                {"output_type": "execute_result", "execution_count": 7, "data": {"text/html": "<b>3</b>"}},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mE\x1b[0m: v"]},
                {"output_type": "display_data", "data": {"application/x-widget": {}}},
            ],
        },
        {"cell_type": "code", "execution_count": None, "metadata": {}, "source": [], "outputs": []},
    ],
}

SHOWN = """[a notebook with 3 cells, shown as text]
--- Cell 1 (markdown) ---
# Title
words
--- Cell 2 (code, julia) [7] ---
plot(x)
--- Output of cell 2 ---
one
two
[image/png, 3.0 KB]
<Figure>
<b>3</b>
E: v
[application/x-widget]
--- Cell 3 (code, julia) ---

"""


def test_cells_and_outputs_are_shown_pictures_by_their_size() -> None:
    assert notebook_text(json.dumps(BOOK)) == SHOWN


def test_notebooks_of_the_older_format_are_read() -> None:
    cell = {
        "cell_type": "code",
        "prompt_number": 1,
        "input": "1 + 1",
        "outputs": [
            {"output_type": "pyout", "text": ["2"]},
            {"output_type": "display_data", "png": "AAAA"},
            {"output_type": "pyerr", "ename": "E", "evalue": "v"},
        ],
    }
    book = {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": [cell]}]}
    assert notebook_text(json.dumps(book)) == (
        "[a notebook with 1 cell, shown as text]\n--- Cell 1 (code, python) [1] ---\n1 + 1\n"
        "--- Output of cell 1 ---\n2\n[image/png, 3 bytes]\nE: v\n"
    )


@pytest.mark.parametrize("source", ["", "{", "[]", "null", '{"cells": 3}', "[" * 100_000, '{"metadata": {}}'])
def test_what_is_no_notebook_is_an_error(source: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not JSON|has no list of cells"):
        notebook_text(source)


@pytest.mark.parametrize("odd", [None, 3, [], {}, ["x"], {"output_type": 5}, {"data": None}, {"text": {"a": 1}}])
def test_odd_parts_are_shown_as_far_as_they_can_be(odd: object) -> None:
    book = {"metadata": odd, "cells": [odd, {"cell_type": odd, "source": odd, "outputs": [odd]}, {"outputs": odd}]}
    assert notebook_text(json.dumps(book)).startswith("[a notebook with ")


def test_read_file_shows_a_notebook_as_text_and_a_damaged_one_as_it_is(tmp_path: Path) -> None:
    tool = ReadFile(Workspace(tmp_path))
    (tmp_path / "a.ipynb").write_text(json.dumps(BOOK))
    (tmp_path / "b.ipynb").write_text('{"cells": [')
    assert text(tool, path="a.ipynb") == SHOWN
    assert text(tool, path="a.ipynb", start_line=5, end_line=6) == "--- Cell 2 (code, julia) [7] ---\nplot(x)"
    note, rest = text(tool, path="b.ipynb").split("\n")
    assert note.startswith("[not a notebook that can be read (it is not JSON: ")
    assert rest == '{"cells": ['
    (tmp_path / "c.ipynb").write_text(json.dumps(BOOK | {"cells": BOOK["cells"] * 300}))
    assert text(tool, 4_000, path="c.ipynb").startswith("⚠ FILE TOO LARGE FOR FULL READ\n\nFile: c.ipynb\n")


def pdf(*pages: str, password: str | None = None) -> bytes:
    """A PDF with a page of each text; "" is a page without any."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for page_text in pages:
        page = writer.add_blank_page(width=300, height=300)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in page_text.split("\n") if line)
        stream.set_data(f"BT /F1 12 Tf 20 250 Td {lines}ET".encode())
        page[NameObject("/Contents")] = stream
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.fixture
def tool(tmp_path: Path) -> ReadFile:
    return ReadFile(Workspace(tmp_path))


def test_pages_are_shown_as_text_with_their_numbers(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(pdf("Sales rose by 12 percent.\nCosts fell.", "", "The end."))
    assert text(tool, path="report.pdf") == (
        "[the text of a PDF with 3 pages]\n"
        "--- Page 1 of 3 ---\nSales rose by 12 percent.\nCosts fell.\n"
        "--- Page 2 of 3 ---\n[no text: a picture, most likely]\n"
        "--- Page 3 of 3 ---\nThe end.\n"
    )
    assert text(tool, path="report.pdf", start_line=3, end_line=4) == "Sales rose by 12 percent.\nCosts fell."


def test_a_pdf_is_known_by_its_bytes_not_its_name(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(pdf("Hello."))
    (tmp_path / "no.pdf").write_text("only called so")
    assert "Hello." in text(tool, path="report")
    assert text(tool, path="no.pdf") == "only called so"


def test_a_large_pdf_is_under_the_same_budget(tool: ReadFile, tmp_path: Path) -> None:
    pages = ["\n".join(f"Page {page} line {n} of many words" for n in range(15)) for page in range(12)]
    (tmp_path / "long.pdf").write_bytes(pdf(*pages))
    shown = text(tool, 4_000, path="long.pdf")
    assert shown.startswith("⚠ FILE TOO LARGE FOR FULL READ\n\nFile: long.pdf\n")
    assert "Total lines: 193\n" in shown


def test_scanned_pages_say_so(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf("", ""))
    assert text(tool, path="scan.pdf") == "[a PDF with 2 pages and no text: scanned pictures, most likely]\n"


def test_an_encrypted_pdf_needs_its_password(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "locked.pdf").write_bytes(pdf("secret", password="open"))
    (tmp_path / "owner.pdf").write_bytes(pdf("readable by all", password=""))
    with pytest.raises(InvalidInput, match=r"locked\.pdf: is a PDF that cannot be read: it is encrypted, and needs"):
        text(tool, path="locked.pdf")
    assert "readable by all" in text(tool, path="owner.pdf")


@pytest.mark.parametrize(
    "data", [b"%PDF-1.7\n", b"%PDF-1.4\ntrailer <</Root 1 0 R>>\nstartxref\n9\n%%EOF", pdf("x")[:200]]
)
def test_a_damaged_pdf_is_a_clear_error(tool: ReadFile, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.pdf").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"bad\.pdf: is a PDF that cannot be read: "):
        text(tool, path="bad.pdf")


def test_a_pdf_is_taken_apart_once_until_it_changes_and_few_are_kept(
    tool: ReadFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.read_file.MAX_RECENT", 2)
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("first"))
    first = [text(tool, path="a.pdf") for _ in range(2)]
    assert "first" in first[0]
    assert first[0] is first[1]
    path.write_bytes(pdf("second, and longer"))
    assert "second" in text(tool, path="a.pdf")
    (tmp_path / "b.pdf").write_bytes(pdf("third"))
    assert "third" in text(tool, path="b.pdf")
    assert len(tool._recent) == 2


def children() -> set[str]:
    """The processes that this one started and that are there, others of this test run among them."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are counted in /proc")
def test_a_reader_that_takes_too_long_or_is_not_waited_for_is_ended(tmp_path: Path) -> None:
    before = children()
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf(*["words " * 100] * 40))
    stop = StopSignal()
    stop.set()
    with path.open("rb") as file:
        with pytest.raises(InvalidInput, match="it took more than 0 seconds"):
            pdf_text(file, "a.pdf", StopSignal(), max_seconds=0)
        with pytest.raises(WorkCancelled):
            pdf_text(file, "a.pdf", stop)
    assert children() <= before


def test_without_the_package_the_install_line_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("x"))
    monkeypatch.setitem(sys.modules, "pypdf", None)  # as if it were not installed
    with path.open("rb") as file, pytest.raises(MissingExtra, match=r"pip install 'foldline\[chat\]'"):
        pdf_text(file, "a.pdf", StopSignal())


def test_the_reader_sees_no_keys_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is what a Python needs to start: a name that breaks Python if it is passed on does no harm."""
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("still read"))
    monkeypatch.setenv("PYTHONIOENCODING", "no such encoding")
    with path.open("rb") as file:
        assert "still read" in pdf_text(file, "a.pdf", StopSignal())


def objects(*bodies: bytes, trailer: bytes = b"<</Root 1 0 R/Size 9>>") -> bytes:
    """A PDF with these objects, numbered from 1."""
    out, places = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n%strailer\n%s\n" % (len(bodies) + 1, table, trailer)
    return bytes(out + b"startxref\n%d\n%%%%EOF" % start)


def bomb() -> bytes:
    """A page whose content is 3 GiB of blanks, in 3 MB."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * 1024 * 1024) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = head + block * 3_072
    stream = b"<</Filter/FlateDecode/Length %d>>\nstream\n%s\nendstream" % (len(packed), packed)
    page = b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/MediaBox[0 0 9 9]>>"
    return objects(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 1/Kids[3 0 R]>>", page, stream)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a bomb": bomb,
    "pages inside of themselves": lambda: objects(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 9999999/Kids[2 0 R 2 0 R]>>"
    ),
    "tables that lead to themselves": lambda: objects(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[]>>",
        trailer=b"<</Root 1 0 R/Size 3/Prev 9>>",
    ).replace(b"/Prev 9", b"/Prev 0"),
    "lists in lists": lambda: objects(b"<</Type/Catalog/Pages " + b"[" * 200_000 + b">>"),
    "an object that is itself": lambda: objects(b"1 0 R"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pdf_ends_with_words_and_harms_nobody(tool: ReadFile, tmp_path: Path, kind: str) -> None:
    (tmp_path / "bad.pdf").write_bytes(HOSTILE[kind]())
    try:
        shown = text(tool, path="bad.pdf")
    except InvalidInput as fault:
        shown = str(fault)
    assert len(shown) < 1_000
    assert "damaged" in shown or "cannot be read" in shown or "no text" in shown
