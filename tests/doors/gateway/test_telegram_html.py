"""Markdown of a model as Telegram's HTML: its formatting, and no other tag."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.depth import costly
from tests.real.telegram_methods import plain_text

from foldline.doors.gateway.markdown import split_text, utf16_units
from foldline.doors.gateway.telegram_html import as_html, as_plain, line_units

MARKDOWN = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.text(alphabet="a b*_`~[]()<>&\"'\\#-!https://x.y\t", max_size=80),
        st.sampled_from(["```python", "```", "**b *i* b**", "[a](https://x.y/z?a=1&b=2)", "- `x` & y", "# <T>"]),
    ),
    max_size=12,
).map("\n".join)


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("plain & <simple>", "plain &amp; &lt;simple&gt;"),
        ("a **bold** word", "a <b>bold</b> word"),
        (
            "__bold__ and *italic* and _italic_ and ~~no~~",
            "<b>bold</b> and <i>italic</i> and <i>italic</i> and <s>no</s>",
        ),
        ("**bold with *italic* in it**", "<b>bold with </b><b><i>italic</i></b><b> in it</b>"),
        ("**bold with `code` in it**", "<b>bold with </b><code>code</code><b> in it</b>"),
        ("`a < b` and ``a ` b``", "<code>a &lt; b</code> and <code>a ` b</code>"),
        ("## A *title* ##", "<b>A </b><b><i>title</i></b>"),
        ("* one\n  - two", "• one\n  • two"),
        ("[here](https://a.example/x_y_(z)?a=1&b=2)", '<a href="https://a.example/x_y_(z)?a=1&amp;b=2">here</a>'),
        ("snake_case_name and 2*3*4 stay", "snake_case_name and 2*3*4 stay"),
        ("https://a.example/_x_/__y__", "https://a.example/_x_/__y__"),
        (r"\*not italic\*", "*not italic*"),
        (
            "```python\nif a < b:\n    pass\n```",
            '<pre><code class="language-python">if a &lt; b:\n    pass</code></pre>',
        ),
        ("```\nx\n```", "<pre>x</pre>"),
        ('```py" onclick="x\nx\n```', "<pre>x</pre>"),
        ("- step:\n  ```sh\n  ls\n  ```", '• step:\n<pre><code class="language-sh">ls</code></pre>'),
    ],
)
def test_the_marks_of_a_model_become_those_of_telegram(markdown: str, html: str) -> None:
    assert as_html(markdown) == html


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "tg://resolve?domain=x", "file:///etc/passwd", "data:text/html,x"]
)
def test_a_link_goes_to_the_web_or_is_none(url: str) -> None:
    assert "<a" not in as_html(f"[click]({url})")
    assert url.split("(", maxsplit=1)[0] in as_html(f"[click]({url})")


def test_a_link_cannot_break_out_of_its_tag() -> None:
    assert as_html('[x](https://a.example/"onclick=")') == '<a href="https://a.example/&quot;onclick=&quot;">x</a>'


@costly
@given(MARKDOWN)
@example("a\n```\n \n\n```\nb")  # code of nothing but space, which Telegram would refuse: it is left out of both
def test_telegram_can_read_it_and_shows_no_more_than_was_counted(markdown: str) -> None:
    """Read by the emulation, which refuses unknown, open and crossed tags."""
    read = plain_text(as_html(markdown), "HTML")
    assert read.strip() == as_plain(markdown).strip()
    for line in markdown.split("\n"):
        assert line_units(line) <= utf16_units(line)
    for piece in split_text(markdown * 40, 500, line_units):
        assert utf16_units(plain_text(as_html(piece.text), "HTML")) <= 500


@given(MARKDOWN)
def test_no_word_is_lost(markdown: str) -> None:
    letters = [char for char in markdown if char.isalnum()]
    outside = [line for line in markdown.split("\n") if not line.lstrip().startswith(("```", "~~~"))]
    if "](" not in markdown and len(outside) == markdown.count("\n") + 1:
        assert [char for char in as_plain(markdown) if char.isalnum()] == letters


@pytest.mark.parametrize("sign", ["*", "**", "_", "`", "[", "~~", "[x](", "**a", "`a``", "\\"])
def test_marks_without_end_take_no_time(sign: str) -> None:
    """A line of 4,096 characters, the longest that is looked into; each mark looks for its end once."""
    assert as_plain(sign * (4_096 // len(sign)))


@pytest.mark.parametrize("mark", ["**", "__", "~~", "`", "*", "_"])
def test_a_mark_whose_end_is_far_away_is_a_sign_like_others(mark: str) -> None:
    near, far = f"{mark}{'a' * 400}{mark}", f"{mark}{'a' * 401}{mark}"
    assert as_plain(near) == "a" * 400
    assert as_plain(far) == far
