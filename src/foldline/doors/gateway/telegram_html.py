"""Markdown as models write it, converted to the HTML of Telegram's Bot API.

Code blocks, code, bold, italic, strikethrough, web links, headings and bullets; everything else stays as written. A
model's text can create no other tag, and no link but to http or https.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from foldline.doors.gateway.markdown import Fence, utf16_units

__all__ = ["as_html", "as_plain", "line_units"]

# A longer line is left as it is: it is data, and parsing marks in it takes time quadratic in its length.
_MOST_LINE_CHARS: Final = 4_096

# A span has 400 characters at most: each mark searches for its end, and many without one must not cost their square.
_INLINE: Final = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<ticks>`+)(?!`)(?P<code>.{1,400}?)(?<!`)(?P=ticks)(?!`)"
    r"|!?\[(?P<label>[^\[\]]+)\]\((?P<url>https?://[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)(?: +\"[^\"]*\")?\)"
    r"|(?P<bare>https?://[^\s<>*`|\])]+)"
    r"|\*\*(?=\S)(?P<bold>.{1,400}?)(?<=[^\s*])\*\*(?!\*)"
    r"|(?<!\w)__(?=\S)(?P<bold_too>.{1,400}?)(?<=[^\s_])__(?!\w)"
    r"|~~(?=\S)(?P<struck>.{1,400}?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<italic>[^*]{1,400}?)(?<=\S)\*(?![\w*])"
    r"|(?<![\w_])_(?=[^\s_])(?P<italic_too>[^_]{1,400}?)(?<=\S)_(?!\w)"
)
_HEADING: Final = re.compile(r" {0,3}#{1,6}[ \t]+(?P<words>\S.*?)(?:[ \t]+#+)?[ \t]*")
_BULLET: Final = re.compile(r"(?P<indent>[ \t]*)[-*+](?P<space>[ \t]+)(?P<words>.*)", re.DOTALL)
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
# Control characters and lone surrogates: Telegram refuses or drops them.
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _StyledText:
    """Words of one style. `tags` are ordered from the outside in; `url` is that of a link."""

    text: str
    tags: tuple[str, ...] = ()
    url: str = ""

    @property
    def html(self) -> str:
        before = "".join(f"<{tag}>" for tag in self.tags)
        after = "".join(f"</{tag}>" for tag in reversed(self.tags))
        words = f"{before}{escape(self.text, quote=False)}{after}"
        return f'<a href="{escape(self.url)}">{words}</a>' if self.url else words


def as_html(text: str) -> str:
    """The text in Telegram's HTML. O(size), and at worst O(square of a line of up to 4,096 characters)."""
    out: list[str] = []
    for is_code, lines, language in _sections(_clean(text)):
        if is_code:
            code = escape("\n".join(lines), quote=False)
            block = f'<code class="language-{language}">{code}</code>' if language else code
            # Telegram refuses a whole message for an entity without text.
            out.append(f"<pre>{block}</pre>" if code.strip() else "")
        else:
            out += ("".join(run.html for run in _line(line)) for line in lines)
    return "\n".join(out)


def as_plain(text: str) -> str:
    """The text as a person reads it: without tags."""
    out: list[str] = []
    for is_code, lines, _ in _sections(_clean(text)):
        if is_code:
            code = "\n".join(lines)
            out.append(code if code.strip() else "")
        else:
            out += ("".join(run.text for run in _line(line)) for line in lines)
    return "\n".join(out)


def line_units(line: str) -> int:
    """The UTF-16 units of a line outside of code, as Telegram counts them: without markup."""
    return sum(utf16_units(run.text) for run in _line(_clean(line)))


def _clean(text: str) -> str:
    # Two halves of one character, as some JSON has them, are that character.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _NOT_TEXT.sub("\ufffd", whole.replace("\r\n", "\n").replace("\r", "\n"))


def _sections(text: str) -> Iterator[tuple[bool, list[str], str]]:
    """Yield (is code, lines, language) for each code block, and for each line outside of them."""
    fence: Fence | None = None
    code: list[str] = []
    for line in text.split("\n"):
        if fence is not None and fence.closed_by(line):
            yield True, code, _language(fence)
            fence, code = None, []
        elif fence is not None:
            code.append(line.removeprefix(fence.indent))
        elif (fence := Fence.opened_by(line)) is None:
            yield False, [line], ""
    if fence is not None:
        yield True, code, _language(fence)


def _language(fence: Fence) -> str:
    # It becomes part of an attribute, so nothing that could end one passes.
    return fence.language if _LANGUAGE.fullmatch(fence.language) else ""


def _line(line: str) -> list[_StyledText]:
    if len(line) > _MOST_LINE_CHARS:
        return [_StyledText(line)]
    if (heading := _HEADING.fullmatch(line)) is not None:
        return list(_inline(heading["words"], ("b",)))
    if (bullet := _BULLET.fullmatch(line)) is not None:
        return [_StyledText(f"{bullet['indent']}•{bullet['space']}"), *_inline(bullet["words"], ())]
    return list(_inline(line, ()))


def _inline(text: str, tags: tuple[str, ...]) -> Iterator[_StyledText]:
    at = 0
    for found in _INLINE.finditer(text):
        if found.start() > at:
            yield _StyledText(text[at : found.start()], tags)
        at = found.end()
        yield from _marked(found, tags)
    if at < len(text):
        yield _StyledText(text[at:], tags)


def _marked(found: re.Match[str], tags: tuple[str, ...]) -> Iterator[_StyledText]:
    if found["escaped"] is not None:
        yield _StyledText(found["escaped"], tags)
    elif found["code"] is not None:
        code = found["code"]
        # One space on each side belongs to the marks (CommonMark 0.31, section 6.1).
        inner = code[1:-1] if code[0] == code[-1] == " " and code.strip() else code
        yield _StyledText(inner, ("code",))  # Telegram allows nothing around it
    elif found["url"] is not None:
        for run in _inline(found["label"], tags):
            yield _StyledText(run.text, run.tags, found["url"])
    elif found["bare"] is not None:
        yield _StyledText(found["bare"], tags)
    else:
        names = {"bold": "b", "bold_too": "b", "struck": "s", "italic": "i", "italic_too": "i"}
        name = next(name for name in names if found[name] is not None)
        tag = names[name]
        # A tag inside itself is no valid entity for Telegram.
        yield from _inline(found[name], tags if tag in tags else (*tags, tag))
