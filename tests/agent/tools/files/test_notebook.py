"""Jupyter notebooks as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.file_calls import text

from foldline.agent.tools.files.notebook import notebook_text
from foldline.agent.tools.files.read_file import ReadFile
from foldline.agent.tools.workspace import Workspace
from foldline.errors import InvalidInput

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
