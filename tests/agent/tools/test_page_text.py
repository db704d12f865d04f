from __future__ import annotations

import pytest

from foldline.agent.tools.page_text import page_text

PAGE = """<!doctype html><html><head><title> A
 page </title><style>p { color: red }</style><script>if (a < b) { alert("<p>no</p>") }</script></head>
<body><h1>Top</h1><p>One   two
three &amp; <b>four</b>.</p><noscript>no</noscript>
<ul><li>first <a href="/a">here</a></li><li>second <a href="#x">there</a></li></ul>
<pre>  kept
    as is</pre>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<img src="x.png" alt="A chart"><br><img src="y.png"><svg><title>no</title><text>no</text></svg>
<p>line<br>break</p></body></html>"""


def test_what_a_reader_sees_stays_and_what_machines_read_goes() -> None:
    assert page_text(PAGE, "https://example.com/b/") == "\n".join(
        [
            "A page",
            "",
            "# Top",
            "",
            "One two three & four.",
            "",
            "- first here (https://example.com/a)",
            "- second there",
            "",
            "  kept",
            "    as is",
            "",
            "| a | b",
            "| 1 | 2",
            "",
            "[image: A chart]",
            "",
            "line",
            "break",
        ]
    )


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("just words", "just words"),
        ("<p>a<p>b", "a\n\nb"),
        ("</div></a></pre>a", "a"),
        ('<a href="javascript:alert(1)">x</a> <a href="data:text/html,y">y</a>', "x y"),
        ('<a href="https://example.com/">https://example.com/</a>', "https://example.com/"),
        ('<a href="http://[broken">x</a>', "x"),
        ('<base href="https://example.org/d/"><a href="e">x</a>', "x (https://example.org/d/e)"),
        ("<script>never closed", ""),
        ("<svg/>after<template><template>in</template>in</template>out", "afterout"),
        ("a<!-- not\nshown -->b &copy; &#x41; &nosuch;", "ab © A &nosuch;"),
    ],
)
def test_odd_pages_give_their_text(html: str, text: str) -> None:
    assert page_text(html, "https://example.com/") == text


@pytest.mark.parametrize(
    "html", ["<![", "a<![if x]>b<![endif]>", "<!x", "<", "<a", "<a b='", "&", "&#", "<!--", "</", "<?x"]
)
def test_broken_markup_raises_nothing(html: str) -> None:
    page_text(f"<p>before</p>{html}").index("before")
    page_text(f"<p>before</p>{html}>after").index("before")


@pytest.mark.parametrize("start", ["", "<title>", "<svg>"])
def test_a_page_made_to_take_for_ever_is_left_off(start: str) -> None:
    text = page_text(f"<p>before</p>{start}" + "<a " * 400_000, max_seconds=0.2)
    assert "before" in text
    assert text.endswith("[the rest of the page cannot be parsed: it took more than 0.2 seconds]")
