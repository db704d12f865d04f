"""An answer is split into blocks while it streams, and no part of it is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.doors.chat.support import console, shown

from foldline.doors.chat.markdown import AnswerBlocks, markdown

TEXT = """First words
go on.

- item

  its paragraph
- item

```python
x = 1

y = "``"
```
Last words"""


def blocks(*pieces: str) -> list[str]:
    answer = AnswerBlocks()
    return [block for piece in pieces for block in answer.feed(piece)] + answer.finish()


def test_blocks_end_where_markdown_says() -> None:
    assert blocks(TEXT) == [
        "First words\ngo on.",
        "- item\n\n  its paragraph\n- item",
        '```python\nx = 1\n\ny = "``"\n```',
        "Last words",
    ]


@given(st.data())
def test_it_does_not_matter_how_the_text_is_cut_into_pieces(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(TEXT)), max_size=8)))
    edges = [0, *cuts, len(TEXT)]
    assert blocks(*(TEXT[a:b] for a, b in pairwise(edges))) == blocks(TEXT)


@given(st.text(alphabet="ab`~# -\n \t", max_size=80))
def test_no_word_is_lost(text: str) -> None:
    assert "".join("\n".join(blocks(text)).split()) == "".join(text.split())


def test_what_is_being_written_can_be_seen() -> None:
    answer = AnswerBlocks()
    assert answer.feed("one\n\ntwo\nthr") == ["one"]
    assert answer.pending == "two\nthr"


def test_html_is_shown_and_links_have_their_address() -> None:
    on = console(80)
    on.print(markdown("a <b>bold</b> claim, see [here](http://elsewhere.example/x)"))
    on.print(markdown("<script>\nalert(1)\n</script>"))
    text = shown(on)
    assert "<b>bold</b>" in text
    assert "alert(1)" in text
    assert "<script>" in text
    assert "http://elsewhere.example/x" in text
