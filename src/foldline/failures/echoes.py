"""What a failure only repeats: text of the request itself, and values that it quotes.

A server that refuses a parameter quotes it, and a validation error shows the whole input. A user's text that says
"maximum context length is 3000 tokens" is then in the body of an error that is about something else. Nothing that the
client wrote says how large the window is, so it is taken out before a wording is searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from foldline.messages import Json

__all__ = ["stands_in", "strip_echoes", "strip_values"]

_BLOCK = 8  # letters and digits compared at once: whatever is repeated in full for twice as many is found
_LEAST = 15  # letters and digits that are a repetition when a number is among them
_LEAST_WORDS = 40  # letters and digits that are one without a number: shorter phrases are everybody's
_MAX_VALUES = 200_000  # strings looked at in one request
_DATA_CHARS = 4_096  # a longer string without a blank is data (an image), which says nothing
_MAX_DEPTH = 64
_MAX_COMPARISONS = 2_000_000

_ESCAPE = r"\\+(?:u[0-9a-fA-F]{4}|[nrtbf\"'/\\])"
_WORD = r"[^\W_]+"

# A quoted value behind a word that says that it is one. What is quoted by ' may hold an apostrophe: the closing mark
# stands before the end, a blank or punctuation.
_LEADS = (
    r"invalid|unsupported|unrecogni[sz]ed|unknown|unexpected|illegal|bad|received|got|given|provided|found|was|value|"
    r"values|input|input_value|content|argument|parameter|enum|literal|one of|are|not"
)
_VALUE = (
    rf"(?i)(?P<lead>\b(?:{_LEADS})\b(?: (?:value|string|input|parameter|type|enum))?\s?[:=]?\s?\[?)"
    r"(?P<mark>\\{0,9}[\"'`])(?P<value>.{12,}?)(?P=mark)(?=\s*(?:$|[.,;:)\]}]|[a-z]{2,9}\b))"
)
_REFUSED = (
    r"(?i)(?P<mark>\\{0,9}[\"'`])(?P<value>.{12,}?)(?P=mark)(?= is not (?:one of|a valid|of type|allowed|supported))"
)
_SHOWN = (
    r"(?i)(?:\binput_value=|['\"](?:input|received|ctx|value)['\"]\s?:\s?).{1,16000}?"
    r"(?=, ?(?:input_type=|['\"](?:url|ctx|type|loc|msg)['\"])|$)"
)
# A name that the server does not know. Where it is no short one, nobody can tell where it ends: the text stops there.
_NAMED = (
    r"arguments?|param(?:eter)?s?|fields?|name|keys?(?:\(s\))?|propert(?:y|ies)|options?|variants?|roles?|tools?|"
    r"functions?|headers?|keywords?|attributes?|members?|inputs|models?|stop sequence|\w{0,20}_?id"
)
_UNKNOWN = (
    r"(?i)\b(?:un(?:known|recogni[sz]ed|supported|expected|defined)|extra|additional|duplicated?|no such|disallowed|"
    r"invalid(?= (?:user|tool|call|stop|model|role|header|metadata|function|property|field)))"
    rf"(?: \w{{1,12}}){{0,2}}? (?:{_NAMED})(?!\w)(?: in [\w ]{{1,20}}| supplied| provided| given| received|"
    r"(?: is| are)? not \w{2,12})?[\s:(\['\"`\\]{1,9}"
)
_SHORT = (
    r"(?i)[\w.\[\]$/-]{1,80}(?:\\{0,9}['\"`]|[.,;)\]]|\s?$)|"
    r"(?:error|exception|failure|input|request|response)\w{0,9}:|(?:[\w.]{1,40} )?(?:is|are|was|does) (?:not|un\w+)\b|"
    r" ?(?:and|for|in|with|when) "
)
_UNKNOWN_BEFORE = (
    r"(?i)(?:(?:^|[.;:] )(?:the )?(?:\w{1,12} )?(?:argument|field|key|property|option|role|tool|model|header|"
    r"attribute)(?: name)?(?: ['\"`]?|: )(?=\S{1,40} ).{12,400}?['\"`]? (?:is|are|was|were|does|do) (?:un\w{3,12}|"
    r"illegal|not (?:\w{2,12} )?(?:known|recogni[sz]ed|supported|permitted|allowed|expected|exist|found|"
    r"match))|(?:^|[.;] )\S{1,60} .{12,400}?(?=: extra inputs? (?:is|are) not ))"
)
_STRICT = r"(?i)\b(?:value|got|received|input|unsupported|invalid)\b"
_SPEAKS = r"(?i)\b(?:token|context|prompt|length|window)"


def strip_values(text: str) -> str:
    """The text without the values that it quotes. O(size)."""
    text = re.sub(_SHOWN, " ", text)

    def without(found: re.Match[str]) -> str:
        # A name or a number in quotes is short; the body of another server stands in braces, and is read elsewhere.
        value, lead = found["value"], found.groupdict().get("lead") or ""
        if " " not in value or (value[0] in "{[" and not re.search(_STRICT, lead)):
            return found[0]
        return f"{lead}{found['mark']}…{found['mark']}"

    if not re.search(_SPEAKS, text):
        return text
    for found in re.finditer(_UNKNOWN, text):
        if not re.match(_SHORT, text[found.end() : found.end() + 120]):
            text = text[: found.end()]
            break
    text = re.sub(_UNKNOWN_BEFORE, " (a name) ", text)
    return re.sub(_REFUSED, without, re.sub(_VALUE, without, text))


def strip_echoes(text: str, request: object) -> str:
    """The text without what stands in the request too: whole numbers among words, or many words in a row.

    `request` is its JSON value, JSON text or bytes. Letters and digits are compared, so that quoting, escaping and
    white space make no difference. O(size of both).
    """
    letters, places = _letters(text)
    blocks: dict[str, list[int]] = {}
    for at in range(len(letters) - _BLOCK + 1):
        blocks.setdefault(letters[at : at + _BLOCK], []).append(at)
    repeated = bytearray(len(letters))
    left = _MAX_COMPARISONS
    for said in _strings(_value(request), 0, [_MAX_VALUES]):
        if len(said) > _DATA_CHARS and re.search(r"\s", said) is None:
            continue
        other, _ = _letters(said, placed=False)
        for at in range(0, len(other) - _BLOCK + 1, _BLOCK):
            for start in blocks.get(other[at : at + _BLOCK], ()):
                left -= 1
                if left < 0:
                    return ""  # made to be slow: nothing of it is believed
                if not repeated[start]:
                    _mark(letters, start, other, at, repeated)
    return _without(text, letters, places, repeated)


def stands_in(request: object, codes: frozenset[str]) -> frozenset[str]:
    """Those codes that are a whole string of the request: a client may call anything so. O(size of the request)."""
    return codes & frozenset(said.strip().lower() for said in _strings(_value(request), 0, [_MAX_VALUES]))


def _value(request: object) -> Json:
    if isinstance(request, str | bytes | bytearray):
        try:
            return json.loads(request)
        except (ValueError, RecursionError):
            return request
    return request


def _strings(value: Json, depth: int, left: list[int]) -> Iterator[str]:
    """Every string of a JSON value; text and bytes count as one."""
    left[0] -= 1
    if left[0] < 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and " " in key:
                yield key
            if key != "model" or not isinstance(inner, str) or " " in inner:  # errors name the model in their own words
                yield from _strings(inner, depth + 1, left)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner, depth + 1, left)


def _letters(text: str, *, placed: bool = True) -> tuple[str, list[int]]:
    """Letters and digits alone, in lower case, and where each stands in the text."""
    if "\\" in text:
        text = re.sub(_ESCAPE, lambda found: " " * len(found[0]), text)
    if not placed:
        return "".join(re.findall(_WORD, text)).lower(), []
    words: list[str] = []
    places: list[int] = []
    for found in re.finditer(_WORD, text):
        lower = found[0].lower()
        words.append(lower if len(lower) == len(found[0]) else found[0])
        places.extend(range(*found.span()))
    return "".join(words), places


def _mark(text: str, at: int, other: str, there: int, repeated: bytearray) -> None:
    """Mark the longest repetition around two places that agree, where it is one."""
    start, begin = at, there
    while start > 0 and begin > 0 and text[start - 1] == other[begin - 1]:
        start, begin = start - 1, begin - 1
    stop, end = at, there
    while stop < len(text) and end < len(other) and text[stop] == other[end]:
        stop, end = stop + 1, end + 1
    # A number that goes on is another number: 3000 is not repeated in 30000.
    while start < stop and text[start].isdecimal() and start > 0 and text[start - 1].isdecimal():
        start += 1
    while stop > start and text[stop - 1].isdecimal() and stop < len(text) and text[stop].isdecimal():
        stop -= 1
    size = stop - start
    if size >= _LEAST_WORDS or (size >= _LEAST and any(sign.isdecimal() for sign in text[start:stop])):
        repeated[start:stop] = b"\1" * size


def _without(text: str, letters: str, places: list[int], repeated: bytearray) -> str:
    kept, last, at = [], 0, 0
    while (start := repeated.find(1, at)) >= 0:
        stop = repeated.find(0, start)
        stop = stop if stop >= 0 else len(letters)
        kept.append(text[last : places[start]])
        last, at = places[stop - 1] + 1, stop
    return " … ".join([*kept, text[last:]]) if kept else text
