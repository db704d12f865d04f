"""Extracts the text of an HTML page: titles, headings, lists and links stay, scripts and styles go.

Runs as a process of its own (`isolated.py`): reads a page on standard input and writes its text as JSON.
`html.parser` is quadratic on some hostile pages, inside regular expressions that nothing can interrupt. It imports
nothing of this package, so that it starts fast.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from time import thread_time
from typing import Final
from urllib.parse import urljoin

__all__ = ["main", "page_text"]

_SILENT: Final = frozenset({"script", "style", "template", "noscript", "svg", "canvas"})
_BLOCKS: Final = frozenset(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form header hr main "
    "nav ol p pre section summary table tbody thead tfoot tr ul".split()
)
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
# Processor time of a page, if html.parser returns often enough to check. Ordinary pages of 2 MiB take one to three
# seconds.
MAX_SECONDS: Final = 10.0
MAX_CHARS: Final = 4_000_000
# Of a link: a page may give all its links a base of a megabyte.
ADDRESS_CHARS: Final = 2_000
_SPACES: Final = re.compile(r"[ \t\r\n\f\v]+")
_GAPS: Final = re.compile(r"\n(?:[ \t]*\n)+")


def page_text(html: str, url: str = "", *, max_seconds: float = MAX_SECONDS) -> str:
    """Return the visible text of a page, its title first; links as "words (address)", with absolute addresses.

    Any page gives some text within a few seconds; a note replaces the part that cannot be parsed.
    """
    reader = _PageReader(url, max_seconds)
    try:
        reader.feed(html)
        reader.close()
    except (AssertionError, _LateError) as error:  # html.parser asserts that declarations are not broken
        reader.pieces.append(f"\n[the rest of the page cannot be parsed: {error}]")
    body = _GAPS.sub("\n\n", "".join(reader.pieces)).strip()
    title = _SPACES.sub(" ", "".join(reader.title)).strip()
    return f"{title}\n\n{body}".strip() if title else body


def main() -> None:
    """Write {"text": …} of the page on standard input, which is at the address that is the first argument."""
    html = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    answer = {"text": page_text(html, sys.argv[1])}
    sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))


class _LateError(Exception):
    """The page takes too long, or has too much text."""


class _PageReader(HTMLParser):
    def __init__(self, url: str, max_seconds: float) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._url = url
        self._chars = 0
        self._silent = ""
        self._depth = 0
        self._in_title = False
        self._verbatim = 0
        self._link: tuple[str, int] | None = None
        self._most_seconds = max_seconds
        self._stop = thread_time() + max_seconds

    def add(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self._chars += len(text)
        if self._chars > MAX_CHARS:
            raise _LateError(f"it has more than {MAX_CHARS:,} characters of text")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # Only the tag that silenced is counted: pages leave others in scripts and drawings open.
        if self._silent:
            self._depth += tag == self._silent
            return
        attributes = dict(attrs)
        if tag in _SILENT:
            self._silent, self._depth = tag, 1
        elif tag == "title":
            self._in_title = True
        elif tag in _HEADINGS:
            self.add(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "li":
            self.add("\n- ")
        elif tag == "br":
            self.add("\n")
        elif tag in {"td", "th"}:
            self.add("| " if self._at_start() else " | ")
        elif tag == "a":
            self._link = (attributes.get("href") or "", len(self.pieces))
        elif tag == "img" and (words := (attributes.get("alt") or "").strip()):
            self.add(f"[image: {words}]")
        elif tag in _BLOCKS:
            self._verbatim += tag == "pre"
            self.add("\n" if tag == "tr" else "\n\n")
        # A page sets the address that its links start from; later ones than the first count here too.
        if tag == "base" and attributes.get("href"):
            self._url = _whole(self._url, attributes["href"] or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in _SILENT:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            self._depth -= tag == self._silent
            if not self._depth:
                self._silent = ""
        elif tag == "title":
            self._in_title = False
        elif tag == "a" and self._link:
            (href, start), self._link = self._link, None
            address = _whole(self._url, href)
            # Not beside words that are the address itself, nor behind a link without words.
            if address and "".join(self.pieces[start:]).strip() not in {"", address}:
                self.add(f" ({address})")
        elif (tag in _HEADINGS or tag in _BLOCKS) and tag != "tr":
            self._verbatim -= tag == "pre" and self._verbatim > 0
            self.add("\n\n")

    def handle_data(self, data: str) -> None:
        if thread_time() > self._stop:  # unparsable markup arrives here one character at a time
            raise _LateError(f"it took more than {self._most_seconds:g} seconds")
        if self._in_title:
            self.title.append(data)
        elif not self._silent:
            text = data if self._verbatim else _SPACES.sub(" ", data)
            self.add(text.lstrip() if self._at_start() and not self._verbatim else text)

    def _at_start(self) -> bool:
        """Return whether the output is at the start of a line."""
        return not self.pieces or self.pieces[-1].endswith("\n")


def _whole(base: str, href: str) -> str:
    """Return the absolute address of a link; "" for one into the page itself, a script or inline data."""
    if not href or href.startswith("#") or len(href) + len(base) > 2 * ADDRESS_CHARS:
        return ""
    try:
        address = urljoin(base, href.strip())
    except ValueError:
        return ""
    absolute = address.startswith(("http://", "https://", "mailto:"))
    return address if absolute and len(address) <= ADDRESS_CHARS else ""


if __name__ == "__main__":
    main()
